"""The command line: words, exit codes, and never a traceback."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from auditcore import cli, store
from auditcore.errors import ModelError, SpecError
from auditcore.lm.sources import resolve
from auditcore.spec import parse_spec

WORDS = ["fever", "cough", "admitted", "patient", "stocks", "fell", "record", "discharged", "home", "follow"]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    monkeypatch.setattr(store, "studies", lambda: tmp_path / "studies")
    return tmp_path


@pytest.fixture
def spec(home, tiny_llama) -> Path:
    from tests.tiny_models import build_folder

    target = build_folder(home / "target", "llama", seed=5)
    n = 60
    text = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 9)) + f" {i}" for i in range(n)]
    member = [str(i % 2) for i in range(n)]
    pd.DataFrame({"text": text, "member": member}).to_csv(home / "rows.csv", index=False)
    content = {
        "kind": "membership",
        "model": {"source": str(target), "reference": str(tiny_llama)},
        "data": {"path": str(home / "rows.csv"), "roles": {"text": "text", "member": "member"}},
        "target_fprs": [0.01, 0.4],
        "n_boot": 100,
        "threads": 1,
    }
    path = home / "audit.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_run_show_list_classify_export(spec, home, capsys) -> None:
    assert cli.main(["run", str(spec), "--out", str(home / "one")]) == 0
    assert "not resolved" in capsys.readouterr().out
    assert cli.main(["run", str(spec), "--out", str(home / "one"), "--resume", "--require-within-budget"]) == 4
    assert cli.main(["run", str(spec), "--out", str(home / "one"), "--resume", "--fail-over-budget"]) == 0
    assert cli.main(["run", str(spec), "--out", str(home / "one")]) == 2
    assert "already holds a run" in capsys.readouterr().err

    assert cli.main(["show", str(home / "one")]) == 0
    shown = capsys.readouterr().out
    assert "Not audited" in shown
    assert "718 are needed" in shown
    assert cli.main(["list"]) == 0

    assert cli.main(["classify", str(home / "one"), "fever and cough", "--fpr", "0.01"]) == 2
    assert "needed" in capsys.readouterr().err
    assert cli.main(["classify", str(home / "one"), "fever and cough at home", "--fpr", "0.4"]) == 0
    assert "member" in capsys.readouterr().out
    long = "fever and cough at home " * 20  # too long for a file's name, short enough to be a path
    assert cli.main(["classify", str(home / "one"), long, "--fpr", "0.4"]) == 0
    assert "member" in capsys.readouterr().out
    assert cli.main(["classify", str(home / "one"), str(home / "gone.txt"), "--fpr", "0.4"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert cli.main(["classify", str(home / "one"), "a", "--fpr", "0.4"]) == 0
    assert "no evidence" in capsys.readouterr().out
    assert cli.main(["classify", str(home / "one"), str(home / "rows.csv"), "--fpr", "0.4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 61

    for form in cli.FORMATS:
        assert cli.main(["export", str(home / "one"), "--format", form, "--out", str(home / f"x-{form}")]) == 0
        written = Path(capsys.readouterr().out.strip().removeprefix("Wrote "))
        assert written.parent == home
        assert written.stat().st_size > 100
    assert cli.main(["export", str(home / "one"), "--format", "csv", "--out", str(home / "x.csv")]) == 2
    assert "csv is written as one zip with a file for each table; call it x.zip" in capsys.readouterr().err
    assert not (home / "x.csv").exists()


@pytest.mark.parametrize("what", ["data", "model"])
def test_a_gate_asked_again_does_not_answer_for_another_checkpoint_or_file(what, spec, home, capsys) -> None:
    from tests.tiny_models import build_folder

    again = ["run", str(spec), "--out", str(home / "one"), "--resume"]
    assert cli.main(again) == cli.main(again) == 0
    if what == "model":
        build_folder(home / "target", "llama", seed=6)
    else:
        (home / "rows.csv").write_text((home / "rows.csv").read_text().replace("fever", "cough"))
    capsys.readouterr()
    assert cli.main(again) == 2
    assert f"{what} changed since it was finished" in capsys.readouterr().err
    classify = ["classify", str(home / "one"), "fever and cough at home", "--fpr", "0.4"]
    assert cli.main(classify) == (2 if what == "model" else 0)  # a threshold belongs to its model


def test_a_shipped_study_says_that_its_model_is_not_there(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["classify", "notes-membership", "a new text", "--fpr", "0.1"]) == 2
    said = capsys.readouterr().err
    assert "shipped without its fine-tuned model (runs/notes-finetune/checkpoints/last)" in said
    assert "python -m auditcore run studies/notes-finetune.yaml --out runs/notes-finetune; " in said
    assert "python -m auditcore run studies/notes-membership.yaml --out runs/notes-membership." in said


def test_a_checkpoint_that_is_not_trained_yet_says_which_command_makes_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as error:
        resolve("runs/notes-finetune/checkpoints/last")
    command = "python -m auditcore run studies/notes-finetune.yaml --out runs/notes-finetune"
    assert str(error.value).endswith(f"no such file or folder. It is made by a fine-tuning run: {command}")
    with pytest.raises(ModelError, match="a fine-tuning run writes: run that first, with --out runs/mine"):
        resolve("runs/mine/checkpoints/best")


def test_a_new_text_is_judged_by_the_strongest_attack_that_can() -> None:
    from auditcore.jobs.classify import strongest

    run = store.open_run(Path(__file__).resolve().parents[1] / "data" / "studies" / "notes-membership")
    spec, metrics = parse_spec(run.manifest["spec"]), run.read("attack_metrics")
    assert strongest(spec, metrics, 0.01) == "min_k_pp"  # recall found more, but a new text has no prefix
    assert strongest(spec, metrics, 0.001) == "ez"  # no attack has a rate there: the first, and the error says why
    with pytest.raises(SpecError, match="none of this run's attacks"):
        strongest(parse_spec({**run.manifest["spec"], "attacks": ["recall"]}), metrics, 0.01)


def test_a_file_without_a_text_lists_its_columns(home, capsys) -> None:
    (home / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    assert cli.main(["check", str(home / "numbers.csv")]) == 2
    said = capsys.readouterr().err
    assert "Its columns: a, b." in said
    assert "--role text=b" in said  # a was guessed to be the id
    assert cli.main(["check", str(home / "numbers.csv"), "--role", "text=b"]) == 0


def test_import_makes_rows_that_a_check_and_a_run_can_read(home, tiny_llama, capsys) -> None:
    lines = [" ".join([WORDS[k % 10], WORDS[k // 10 % 10], WORDS[k // 100 % 10]]) for k in range(120)]
    (home / "news.txt").write_text("\n".join(lines))
    ask = ["import", "ag_news", str(home / "news.txt"), "--length", "6", "--seed", "2"]
    assert cli.main([*ask, "--out", str(home / "rows.parquet"), "--members", "20", "--nonmembers", "20"]) == 0
    said = capsys.readouterr().out
    assert "40 sequences of 6 words (joined): 20 members, 20 non-members" in said
    assert "roles: {text: text, member: member, group: group, id: id}" in said
    roles = ["text=text", "member=member", "group=group", "id=id"]
    assert cli.main(["check", str(home / "rows.parquet"), *(x for r in roles for x in ("--role", r))]) == 0
    assert "no document stands on two sides" in capsys.readouterr().out
    assert cli.main([*ask, "--out", str(home / "rows.csv")]) == 2
    assert "call the file" in capsys.readouterr().err
    assert cli.main([*ask, "--unit", "tokens", "--out", str(home / "t.parquet")]) == 2
    assert "needs a model" in capsys.readouterr().err
    assert cli.main([*ask, "--unit", "tokens", "--model", str(tiny_llama), "--out", str(home / "t.parquet")]) == 0
    assert (pd.read_parquet(home / "t.parquet")["tokens"] == 6).all()


def test_dry_run_runs_nothing(spec, home, capsys) -> None:
    assert cli.main(["run", str(spec), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "60 rows" in out
    assert "718 are needed" in out
    assert not store.home().exists() or store.list_runs().empty


def test_dry_run_counts_nonmembers_without_the_prefix_and_writes_small_rates(spec, capsys) -> None:
    content = yaml.safe_load(spec.read_text())
    spec.write_text(yaml.safe_dump({**content, "attacks": ["recall"], "target_fprs": [0.0005, 0.01]}))
    assert cli.main(["run", str(spec), "--dry-run"]) == 0
    assert "TPR at 0.05 % FPR with 25 non-members" in capsys.readouterr().out  # 30, five of them in the prefix


@pytest.mark.parametrize(
    ("verdict", "option", "code"),
    [
        ("over budget", "--fail-over-budget", 3),
        ("within budget", "--fail-over-budget", 0),
        ("not resolved", "--fail-over-budget", 0),
        ("over budget", "--require-within-budget", 4),
        ("not resolved", "--require-within-budget", 4),
        ("below chance", "--require-within-budget", 4),
        ("within budget", "--require-within-budget", 0),
    ],
)
def test_gates(verdict, option, code, spec, home) -> None:
    content = yaml.safe_load(spec.read_text())
    from auditcore.spec import dump_spec

    run = store.create_run(dump_spec(parse_spec(content)), home / "done")
    line = dict.fromkeys(["attribute", "artifact", "layer", "defence", "attacker", "split"])
    numbers = {"budget": 0.025, "value": 0.0, "low": -0.01, "high": 0.01, "n_subjects": 10}
    run.write("verdicts", pd.DataFrame([{"kind": "membership", **line, **numbers, "verdict": verdict}]))
    run.update(status="done")
    assert cli.main(["run", str(spec), "--out", str(home / "done"), "--resume", option]) == code


@pytest.mark.parametrize(("together", "code"), [("not resolved", 0), ("over budget", 3)])
def test_the_gate_says_what_is_left_after_the_correction(together, code, spec, home) -> None:
    from auditcore.spec import dump_spec

    run = store.create_run(dump_spec(parse_spec(yaml.safe_load(spec.read_text()))), home / "done")
    line = dict.fromkeys(["attribute", "artifact", "layer", "defence", "split"])
    line |= {"kind": "membership", "budget": 0.025, "value": 0.04, "low": 0.026, "high": 0.06, "n_subjects": 10}
    each = [("ez", "over budget"), ("loss", "not resolved"), ("all", together)]
    run.write("verdicts", pd.DataFrame([{**line, "attacker": name, "verdict": word} for name, word in each]))
    run.update(status="done")
    arguments = ["run", str(spec), "--out", str(home / "done"), "--resume"]
    assert cli.main([*arguments, "--fail-over-budget"]) == code
    assert cli.main([*arguments, "--require-within-budget"]) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "nothing"], "no run 'nothing'"),
        (["run", "nothing.yaml"], "no such file"),
        (["check", "nothing.csv"], "no such file"),
        (["check", "x.csv", "--role", "txt=a"], "Did you mean 'text'"),
        (["check", "x.csv", "--role", "text"], "write it as name=column"),
        (["cancel", "nothing"], "no run"),
    ],
)
def test_mistakes_are_one_message_and_exit_2(arguments, words, home, capsys) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_message(spec, home, capsys) -> None:
    (home / "file").touch()
    assert cli.main(["run", str(spec), "--out", str(home / "file" / "run")]) == 2
    said = capsys.readouterr().err
    assert str(home / "file") in said
    assert "Traceback" not in said


def test_an_unusable_model_fails_with_one_message_and_a_failed_run(spec, home, capsys) -> None:
    content = yaml.safe_load(spec.read_text())
    (home / "pickled").mkdir()
    (home / "pickled" / "pytorch_model.bin").write_bytes(b"x")
    content["model"]["source"] = str(home / "pickled")
    spec.write_text(json.dumps(content))
    assert cli.main(["run", str(spec), "--out", str(home / "bad")]) == 2
    assert "never loaded" in capsys.readouterr().err
    assert store.open_run(str(home / "bad")).status == "failed"


def test_check_guesses_roles_and_reports(home, spec, capsys) -> None:
    assert cli.main(["check", str(home / "rows.csv")]) == 0
    out = capsys.readouterr().out
    assert "60 rows" in out
    assert "text = text" in out


def test_check_ends_with_a_code_where_the_file_stops_an_audit(home, capsys) -> None:
    rows = "\n".join(f"p{i % 7},a longer text about visit number {i}" for i in range(40))
    (home / "rows.csv").write_text(f"name,text\n{rows}\n")
    assert cli.main(["check", str(home / "rows.csv"), "--role", "id=name", "--role", "text=text"]) == 2
    assert "error:" in capsys.readouterr().out


def test_of_many_verdicts_a_terminal_shows_the_strongest_of_each_place(home, capsys) -> None:
    from tests.fake_runs import vectors_run

    run = vectors_run(home / "many", rows=120, layers=tuple(range(12)), attributes=("race", "sex"), seeds=(0,))
    assert cli.main(["show", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "Of 97 lines the strongest of each label, artifact and defence" in said
    assert len([line for line in said.splitlines() if "bal_test" in line]) == 5  # labels x artifacts, and all together
    assert "96 tests (2 labels × 2 vectors × 12 layers × 2 attackers)" in said


def test_check_guesses_the_roles_that_nobody_named_and_names_the_value_that_spoils_one(home, capsys) -> None:
    lines = [f"a longer text about visit number {i} of somebody,{['yes', 'no'][i % 2]},p{i}" for i in range(40)]
    (home / "rows.csv").write_text("text,member,who\n" + "\n".join(lines) + "\n")
    assert cli.main(["check", str(home / "rows.csv"), "--role", "group=who"]) == 0
    out = capsys.readouterr().out
    assert "Other roles were guessed" in out
    assert "text = text" in out
    assert "member = member" in out
    assert "id = who" not in out
    lines[6] = lines[6].replace(",yes,", ",maybe,")
    (home / "rows.csv").write_text("text,member,who\n" + "\n".join(lines) + "\n")
    assert cli.main(["check", str(home / "rows.csv")]) == 0
    out = capsys.readouterr().out
    assert "column 'member' has the name of the role member, but is not read as one: 1 of 40 rows" in out
    assert "first row 7: 'maybe'" in out
    assert "so that each row counts as a subject" in out


def vector_file(folder: Path) -> Path:
    """150 vectors of two sexes with a missing number, a label that is a NaN, and no text."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(150, 5)) + 3 * np.eye(5)[np.arange(150) % 2]).astype(np.float32)
    vectors[6, 1] = np.nan
    frame = pd.DataFrame({"sex": ["F", "M"] * 75, "patient_id": [f"p{i // 2}" for i in range(150)], "v": list(vectors)})
    frame.loc[3, "sex"] = "nan"
    frame.to_parquet(folder / "v.parquet")
    np.save(folder / "v.npy", vectors)
    return folder / "v.parquet"


def test_vectors_from_a_file_take_defences_seeds_permutations_and_a_curve(home, capsys) -> None:
    file = str(vector_file(home))
    chosen = ["--probe", "linear", "--defence", "pca", "--defence", "leace", "--seeds", "0,4", "--permutations", "19"]
    assert cli.main(["vectors", file, "--label", "sex", *chosen, "--curve", "--out", str(home / "one")]) == 0
    run = store.open_run(home / "one")
    spec = run.manifest["spec"]
    assert spec["defences"] == ["none", "pca", "leace"]
    assert (spec["seeds"], spec["permutations"]) == ([0, 4], 19)
    assert spec["curve"] is not None
    assert set(run.read("probe_metrics")["defence"]) == {"none", "pca", "leace"}
    assert set(run.read("predictions")["actual"]) == {"F", "M"}
    assert "1 of 150 rows have no label 'sex' (1 is written 'nan')." in " ".join(run.manifest["data"]["notes"])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["--defence", "lace"], "Did you mean 'leace'"),
        (["--defence", "prompt"], "needs a model"),
        (["--probe", "liner"], "Did you mean 'linear'"),
        (["--seeds", "0,one"], "seeds"),
        (["--permutations", "3"], "permutations"),
    ],
)
def test_what_vectors_are_told_is_checked(chosen, message, home, capsys) -> None:
    assert cli.main(["vectors", str(vector_file(home)), "--label", "sex", *chosen]) == 2
    assert message in capsys.readouterr().err


def test_check_says_what_vectors_are_and_which_command_audits_them(home, capsys) -> None:
    file = vector_file(home)
    assert cli.main(["check", str(file)]) == 0
    said = capsys.readouterr().out
    assert "150 rows" in said
    assert "v: 150 vectors of 5 numbers, float32. 1 of 150 vectors holds NaN or infinity (row 7" in said
    assert f"python -m auditcore vectors {file} --label sex --group patient_id" in said
    assert "'sex' has 2 classes" in said
    assert cli.main(["check", str(home / "v.npy")]) == 0
    said = capsys.readouterr().out
    assert "150 vectors of 5 numbers, float32. 1 of 150 vectors holds NaN" in said
    assert f"vectors {home / 'v.npy'} --rows DATA --label COLUMN" in said
    assert cli.main(["check", str(home / "v.npy"), "--role", "label=sex"]) == 2
    assert "no columns" in capsys.readouterr().err
