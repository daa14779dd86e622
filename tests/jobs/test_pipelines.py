"""Whole audits on tiny models: the right tables, resumable after kill -9 at every stage, nothing computed twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import Cancelled, DatasetError, ModelError, RunError
from auditcore.jobs.context import CANCEL
from auditcore.spec import ATTACKS, dump_spec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "<script>alert(1)</script>",
    "=cmd()",
    "$x$ *b* :red[y]",
    "🙂 emoji",
    "שלום עולם",
    "zero\u200bwidth",
    "",
    "a",
]
WORDS = [
    "fever",
    "cough",
    "admitted",
    "patient",
    "stocks",
    "fell",
    "record",
    "discharged",
    "home",
    "follow",
    "oil",
    "rose",
]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    return tmp_path


def _rows(path: Path, n: int = 40) -> Path:
    rng = np.random.default_rng(0)
    text = [" ".join(rng.choice(WORDS, 12)) for _ in range(n)]
    text[: len(HOSTILE)] = HOSTILE
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(n)], "text": text, "member": [str(i % 2) for i in range(n)]})
    frame.loc[frame["text"].isin(HOSTILE), "member"] = ""
    frame.to_csv(path, index=False)
    return path


def _membership(folder: Path, target: Path, **changes) -> dict:
    return {
        "kind": "membership",
        "model": {"source": str(target[0]), "reference": str(target[1])},
        "data": {"path": str(_rows(folder / "rows.csv")), "roles": {"text": "text", "member": "member", "id": "id"}},
        "max_length": 32,
        "n_boot": 100,
        "threads": 1,
        **changes,
    }


def _vectors(folder: Path, model: Path, **changes) -> dict:
    rng = np.random.default_rng(1)
    sex = np.array(["female", "male"])[rng.integers(0, 2, 160)]
    hint = np.where(sex == "female", "fever", "stocks")
    text = [" ".join([*rng.choice(WORDS, 8), h]) for h in hint]
    pd.DataFrame({"prompt": text, "sex": sex}).to_csv(folder / "labels.csv", index=False)
    return {
        "kind": "vectors",
        "model": {"source": str(model)},
        "data": {"path": str(folder / "labels.csv"), "roles": {"prompt": "prompt", "label": "sex"}},
        "template": "{prompt}\nSummary:",
        "max_length": 32,
        "probes": ["linear"],
        "layers": [-1, 1],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
        "threads": 1,
        **changes,
    }


def _run(spec: dict, out: Path | None = None) -> store.Run:
    run = store.create_run(dump_spec(parse_spec(spec)), out)
    jobs.execute(run)
    return run


def _tables(run: store.Run) -> dict[str, pd.DataFrame]:
    return {name: run.read(name) for name in run.tables()}


@pytest.fixture
def pair(tiny_folders, tmp_path) -> tuple[Path, Path]:
    from tests.tiny_models import build_folder

    return build_folder(tmp_path / "target", "llama", seed=5), tiny_folders["llama"]


def test_membership_writes_every_table(home, pair) -> None:
    run = _run(_membership(home, pair))
    assert run.status == "done"
    assert run.tables() == [
        "attack_metrics", "blind", "duplicates", "examples", "membership_scores", "roc", "token_stats", "verdicts",
    ]  # fmt: skip
    scores = run.read("membership_scores")
    assert len(scores) == 3 * 40
    ez = scores[scores["attack"] == "ez"].set_index("example_id")
    assert ez.loc["r6", "status"] == "no_evidence"  # the empty text
    assert ez["member"].isna().sum() == len(HOSTILE)
    tokens = run.read("token_stats")
    scored = tokens[tokens["scored"]]
    np.testing.assert_allclose(scored["delta"], scored["logp_target"] - scored["logp_reference"], atol=1e-6)
    # Text comes back exactly: hostile rows are data, nothing else.
    for i in (0, 1, 2):
        assert "".join(tokens.loc[tokens["example_id"] == f"r{i}", "token"]) == HOSTILE[i]
    verdicts = run.read("verdicts").set_index("attacker")
    assert set(verdicts["verdict"]) == {"not resolved"}  # 16 non-members cannot resolve 1 %
    manifest = run.manifest
    assert {"audited", "not_audited"} <= manifest["claim"].keys()
    assert manifest["counts"]["members"] == manifest["counts"]["nonmembers"] == 16
    assert manifest["dtype"] == "float32"
    assert manifest["device"]


def test_every_attack_in_one_run_equals_its_own_run(home, pair) -> None:
    shadows = {"count": 2, "max_steps": 2}
    together = _run(_membership(home, pair, attacks=list(ATTACKS), recall_shots=3, shadows=shadows))
    together = together.read("membership_scores")
    assert list(together["attack"].unique()) == list(ATTACKS)
    for attack in ("min_k_pp_ref", "lowercase", "zlib", "wbc"):
        alone = _run(_membership(home, pair, attacks=[attack])).read("membership_scores")
        both = together[together["attack"] == attack].reset_index(drop=True)
        np.testing.assert_allclose(both["score"], alone["score"], rtol=1e-5, atol=1e-6)
        assert (alone["status"] == "ok").sum() >= 32
    # The rows of ReCaLL's prefix are left out of every metric, and counted.
    assert together.loc[together["attack"] == "ez", "member"].isna().sum() == len(HOSTILE) + 3


def test_recall_scores_the_same_tokens_behind_a_prefix(home, pair) -> None:
    from auditcore.jobs import evidence
    from auditcore.lm.encode import Encoded
    from auditcore.lm.load import load_model
    from auditcore.lm.tokens import token_statistics
    from auditcore.spec import ModelSpec

    model = load_model(ModelSpec(source=str(pair[0])))
    ids = [np.array(row, dtype=np.int64) for row in ([5, 6, 7], [8, 9, 10, 11], [12], [], [13, 14])]
    no = np.zeros(5, dtype=bool)
    encoded = Encoded(ids, np.array([len(r) for r in ids]), no, no)
    spec = parse_spec(_membership(home, pair))
    (one,) = [p for p in evidence.plan(spec, None, encoded, None, frozenset({"prefixed"}), [4]) if p.name == "prefixed"]
    found = one.run(spec, model, None)
    scored = np.split(found["scored"], found["offsets"][1:-1])
    assert [int(row.sum()) for row in scored] == [2, 3, 0, 0, 1]
    by_hand = token_statistics(
        model, None, Encoded([np.array([13, 14, 5, 6, 7])], np.array([5]), no[:1], no[:1])
    ).logp_target[3:]
    np.testing.assert_allclose(found["logp_target"][: found["offsets"][1]][found["scored"][:5]], by_hand, atol=1e-5)


def test_lira_with_too_few_rows_is_refused_before_any_model_runs(home, pair) -> None:
    spec = _membership(home, pair, attacks=["lira"])
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows.assign(member="").to_csv(spec["data"]["path"], index=False)
    run = store.create_run(dump_spec(parse_spec(spec)))
    with pytest.raises(DatasetError, match="0 rows are too few"):
        jobs.execute(run)
    assert not run.has("token_stats")


def test_recall_says_that_its_prefix_is_too_long(home, pair) -> None:
    spec = _membership(home, pair, attacks=["recall"], recall_shots=8)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["text"] = rows["text"].where(rows.index < len(HOSTILE), rows["text"] + " " + " ".join(WORDS * 3))
    rows.to_csv(spec["data"]["path"], index=False)
    with pytest.raises(ModelError, match="lower recall_shots"):
        _run({**spec, "max_length": 64})


def test_recall_needs_enough_nonmembers(home, pair) -> None:
    with pytest.raises(DatasetError, match="as many again"):
        _run(_membership(home, pair, attacks=["recall"], recall_shots=9))


@pytest.mark.parametrize("method", ["lora", "full"])
def test_shadows_are_trained_on_their_halves(method, home, pair) -> None:
    shadows = {"count": 4, "epochs": 8, "learning_rate": 5e-3, "batch_size": 4, "method": method}
    run = _run(_membership(home, pair, attacks=["lira", "loss"], shadows=shadows))
    tables = [run.read(f"shadow_{k:02d}") for k in (1, 2, 3, 4)]
    known = tables[0]["trained"] | tables[1]["trained"]
    assert known.sum() == 32  # every row of known membership is in one of a pair, the unknown ones in none
    assert not (tables[0]["trained"] & tables[1]["trained"]).any()
    # What a shadow was trained on, it finds more likely than its twin does.
    gain = (tables[0]["mean_logp"] - tables[1]["mean_logp"])[known]
    seen = tables[0]["trained"][known]
    assert gain[seen].mean() > gain[~seen].mean()
    scores = run.read("membership_scores")
    lira = scores[scores["attack"] == "lira"]
    assert (lira["status"] == "ok").sum() == 32
    assert (run.path / "shadows").exists() == (method == "lora") or not list((run.path / "shadows").iterdir())


@pytest.mark.parametrize("policy", ["warn", "exclude"])
def test_texts_on_both_sides_are_counted_and_can_be_left_out(policy, home, pair) -> None:
    spec = _membership(home, pair, on_duplicates=policy)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows.loc[[20, 21], "text"] = "fever and cough at home"  # a non-member and a member
    rows.to_csv(spec["data"]["path"], index=False)
    run = _run(spec)
    assert run.read("duplicates")["example_id"].tolist() == ["r20", "r21"]
    assert any("1 members and 1 non-members have the same text" in w for w in run.manifest["warnings"])
    metrics = run.read("attack_metrics")
    assert set(metrics["n_nonmember"]) == {16 if policy == "warn" else 15}


def test_words_that_give_membership_away_are_a_warning(home, pair) -> None:
    spec = _membership(home, pair)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["text"] = np.where(rows["member"] == "1", "members say this " + rows["text"].fillna(""), rows["text"])
    rows.to_csv(spec["data"]["path"], index=False)
    run = _run(spec)
    assert any("differ by themselves" in w for w in run.manifest["warnings"])
    assert run.read("blind").set_index("metric").loc["auc", "low"] > 0.5


def test_store_text_none_keeps_text_out_of_every_file(home, pair) -> None:
    run = _run(_membership(home, pair, store_text="none"))
    assert set(run.read("token_stats")["token"]) == {""}
    for path in [*run.path.rglob("*"), *store.cache().rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            assert b"alert(1)" not in content, path
            assert b"stocks" not in content, path


def test_a_second_audit_of_the_same_model_runs_no_model(home, pair, monkeypatch) -> None:
    first = _run(_membership(home, pair))
    import auditcore.lm.tokens as tokens

    def refuse(*_, **__):
        raise AssertionError("the model ran again")

    monkeypatch.setattr(tokens, "token_statistics", refuse)
    second = _run(_membership(home, pair, ez_policy="official", attacks=["ez", "reference"]))
    assert second.read("token_stats").equals(first.read("token_stats"))


def test_equal_models_are_said_to_be_equal(home, pair) -> None:
    run = _run(_membership(home, (pair[1], pair[1])))
    assert any("No difference between target and reference" in w for w in run.manifest["warnings"])


def test_an_adapter_needs_no_reference(home, tiny_adapter) -> None:
    spec = _membership(home, (tiny_adapter, ""))
    spec["model"] = {"source": str(tiny_adapter)}
    assert _run(spec).status == "done"


def test_a_member_column_that_disagrees_with_the_checkpoint_is_refused_or_warned(home, tiny_llama) -> None:
    rows = _rows(home / "rows.csv")
    data = {"path": str(rows), "roles": {"text": "text", "member": "member", "id": "id"}}
    tuned = _run(
        {"kind": "finetune", "model": {"source": str(tiny_llama)}, "data": data, "validation": 0.2, "max_length": 32,
         "epochs": 1, "threads": 1, "autocast": "none"}
    )  # fmt: skip
    source = tuned.path / "checkpoints" / "last"
    good = _run(_membership(home, (source, tiny_llama)))
    assert any("chose the checkpoint" in w for w in good.manifest["warnings"])
    assert good.manifest["counts"]["members"] + good.manifest["counts"]["validation_rows"] == 16

    frame = pd.read_csv(rows, dtype=str, keep_default_na=False)
    frame["member"] = frame["member"].map({"1": "0", "0": "1", "": ""})
    frame.to_csv(home / "wrong.csv", index=False)
    spec = _membership(home, (source, tiny_llama))
    spec["data"] = {**spec["data"], "path": str(home / "wrong.csv")}
    with pytest.raises(DatasetError, match="member column disagrees"):
        _run(spec)
    warned = _run({**spec, "on_mismatch": "warn"})
    assert any("member column disagrees" in w for w in warned.manifest["warnings"])


def test_vectors_writes_every_table(home, tiny_llama) -> None:
    run = _run(_vectors(home, tiny_llama))
    assert run.status == "done"
    assert {"examples", "predictions", "probe_metrics", "projection", "verdicts"} <= set(run.tables())
    metrics = run.read("probe_metrics")
    assert set(metrics["layer"]) == {1, 3}
    averaged = metrics[metrics["seed"].isna()]
    assert len(averaged) == 2 * 2 * 2  # artifacts x layers x splits
    assert (averaged["gap"] == averaged["signed_gap"].abs()).all()
    from safetensors.numpy import load_file

    array = load_file(run.path / "vectors" / "lasttok-layer3.safetensors")["vectors"]
    assert array.dtype == np.float32
    assert array.shape == (len(run.read("examples")), 32)
    assert any("split" in note for note in run.manifest["data"]["notes"])
    assert run.manifest["test_split"]["earlier_looks"] == 0
    again = _run(_vectors(home, tiny_llama))
    assert again.manifest["test_split"]["earlier_looks"] == 1
    for name, table in _tables(run).items():
        pd.testing.assert_frame_equal(table, again.read(name))


def test_vectors_the_user_has_are_audited_without_a_model(home, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 300)]
    vectors = rng.normal(size=(300, 8)) + 2.0 * (sex == "m")[:, None]
    ids = [f"s{i}" for i in range(300)]
    pd.DataFrame({"id": ids[::-1], "embedding": list(vectors[::-1])}).to_parquet(home / "v.parquet")
    pd.DataFrame({"id": ids, "sex": sex}).to_csv(home / "labels.csv", index=False)
    spec = {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.parquet"), "column": "embedding"},
        "data": {"path": str(home / "labels.csv"), "roles": {"label": "sex", "id": "id"}},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
    }
    assert 200 < jobs.plan(parse_spec(spec)).rows <= 300  # balancing leaves some out
    run = _run(spec)
    verdicts = run.read("verdicts")
    assert set(verdicts["verdict"]) == {"over budget"}
    assert set(verdicts["artifact"]) == {"embedding"}


def test_cancel_keeps_what_was_finished_and_resume_goes_on(home, pair) -> None:
    run = store.create_run(dump_spec(parse_spec(_membership(home, pair))))
    (run.path / CANCEL).touch()
    with pytest.raises(Cancelled):
        jobs.execute(run)
    assert run.status == "cancelled"
    with pytest.raises(RunError, match="nothing to cancel"):
        jobs.cancel(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert run.status == "done"
    with pytest.raises(RunError, match="nothing to resume"):
        jobs.prepare_resume(run)


def test_data_that_changed_under_a_run_is_noticed(home, pair) -> None:
    run = store.create_run(dump_spec(parse_spec(_membership(home, pair))))
    jobs.execute(run)
    run.update(status="failed", finished_stages=["rows"])
    frame = pd.read_csv(home / "rows.csv", dtype=str, keep_default_na=False)
    frame.loc[20, "text"] = "changed"
    frame.to_csv(home / "rows.csv", index=False)
    jobs.prepare_resume(run)
    with pytest.raises(DatasetError, match="has changed since this run began"):
        jobs.execute(run)


def test_a_model_that_changed_under_a_run_is_noticed(home, pair) -> None:
    from tests.tiny_models import build_folder

    def finish(spec: dict, stages: list[str]) -> store.Run:
        run = _run(spec)
        run.update(status="failed", finished_stages=stages)
        jobs.prepare_resume(run)
        return run

    remembered = finish(_membership(home, pair), ["rows", "duplicates", "token statistics"])
    exported = finish(_vectors(home, pair[0], artifacts=["lasttok"], layers=[-1]), ["rows", "vectors"])
    unfinished = finish(_membership(home, pair), ["rows"])
    build_folder(pair[0], "llama", seed=6)
    for run in (remembered, exported):
        with pytest.raises(RunError, match="model changed since this run began"):
            jobs.execute(run)
    jobs.execute(unfinished)  # no number of the old model is in it
    assert unfinished.status == "done"


def test_vectors_of_one_number_are_audited(home) -> None:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 200)]
    pd.DataFrame({"sex": sex}).to_csv(home / "labels.csv", index=False)
    np.save(home / "v.npy", rng.normal(size=(200, 1)) + 9 * (sex == "m")[:, None])
    data = {"path": str(home / "labels.csv"), "roles": {"label": "sex"}}
    spec = {"kind": "vectors", "vectors": {"path": str(home / "v.npy")}, "data": data, "probes": ["linear"],
            "seeds": [0], "permutations": 19, "n_boot": 100}  # fmt: skip
    run = _run(spec)
    assert set(run.read("verdicts")["verdict"]) == {"over budget"}
    assert run.read("projection").empty


def test_vectors_that_changed_under_a_run_are_noticed(home) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame({"sex": np.array(["f", "m"])[rng.integers(0, 2, 200)]}).to_csv(home / "labels.csv", index=False)
    np.save(home / "v.npy", rng.normal(size=(200, 4)))
    data = {"path": str(home / "labels.csv"), "roles": {"label": "sex"}}
    spec = {"kind": "vectors", "vectors": {"path": str(home / "v.npy")}, "data": data, "probes": ["linear"],
            "seeds": [0], "permutations": 19, "n_boot": 100}  # fmt: skip
    run = _run(spec)
    run.update(status="failed", finished_stages=["rows", "vectors"])
    np.save(home / "v.npy", rng.normal(size=(200, 4)))
    jobs.prepare_resume(run)
    with pytest.raises(RunError, match="vectors changed since this run began"):
        jobs.execute(run)


def test_a_fully_tuned_shadow_stopped_between_training_and_scoring_keeps_its_training(home, pair, monkeypatch) -> None:
    from auditcore.jobs import evidence

    shadows = {"count": 2, "epochs": 4, "learning_rate": 5e-3, "batch_size": 4, "method": "full"}
    spec = _membership(home, pair, attacks=["lira"], shadows=shadows)
    expected = _tables(_run(spec))
    scored = evidence.Pass.run

    def stopped(self, *arguments):
        if self.name == "shadow 1 of 2":
            raise KeyboardInterrupt
        return scored(self, *arguments)

    run = store.create_run(dump_spec(parse_spec(spec)))
    with monkeypatch.context() as patch:
        patch.setattr(evidence.Pass, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    for name, table in _tables(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
    # Weights that a kill left behind after their stage had ended go too.
    left = run.path / "shadows" / "01" / "checkpoints"
    left.mkdir(parents=True)
    run.update(status="failed", finished_stages=[s for s in run.manifest["finished_stages"] if s != "scores"])
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert not left.exists()


KILLER = """
import os, sys
import auditcore.jobs.context as context
stage, when = sys.argv[2], sys.argv[3]
original = context.Context.stage
from contextlib import contextmanager
@contextmanager
def stage_that_dies(self, name, total=1):
    if name == stage and when == "start":
        os.kill(os.getpid(), 9)
    with original(self, name, total) as on_progress:
        def dies_half_way(done, total):
            on_progress(done, total)
            if name == stage and when == "middle" and done >= total / 2:
                os.kill(os.getpid(), 9)
        yield dies_half_way
        if name == stage and when == "end":  # tables are written, the stage is not marked yet
            os.kill(os.getpid(), 9)
context.Context.stage = stage_that_dies
sys.argv = ["worker", sys.argv[1]]
from auditcore.jobs.worker import main
main()
"""


def _worker(run: store.Run, *arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", KILLER, str(run.path), *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["membership", "vectors", "finetune"])
def test_killed_at_every_stage_a_resumed_run_has_the_same_tables(kind, home, pair) -> None:
    data = {"path": str(_rows(home / "rows.csv")), "roles": {"text": "text", "member": "member", "id": "id"}}
    spec = {
        "membership": lambda: _membership(home, pair),
        "vectors": lambda: _vectors(home, pair[1], artifacts=["lasttok"], layers=[-1]),
        "finetune": lambda: {"kind": "finetune", "model": {"source": str(pair[1])}, "data": data, "max_length": 32,
                             "epochs": 2, "batch_size": 4, "threads": 1, "validation": 0.2},
    }[kind]()  # fmt: skip
    undisturbed = _run(spec)
    expected = _tables(undisturbed)
    stages = undisturbed.manifest["finished_stages"]
    if store.cache().exists():  # or the second run would find the first one's numbers
        store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    for stage in stages:
        counts_steps = stage in ("token statistics", "vectors", "training") or stage.startswith("sex from")
        for when in ("start", "middle", "end") if counts_steps else ("start", "end"):
            assert _worker(run, stage, when) == -signal.SIGKILL, (stage, when)
            assert run.status == "interrupted"
            jobs.prepare_resume(run)
    assert _worker(run, "none", "never") == 0
    assert run.status == "done"
    assert run.manifest["finished_stages"] == stages
    for name, table in _tables(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
    if kind == "finetune":
        for which in ("last", "best"):
            one, two = (r.path / "checkpoints" / which / "model.safetensors" for r in (run, undisturbed))
            assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_killed_in_the_fifth_shadow_none_is_trained_twice(home, pair) -> None:
    shadows = {"count": 6, "epochs": 3, "batch_size": 4}
    spec = _membership(home, pair, attacks=["lira"], shadows=shadows)
    expected = _tables(_run(spec))
    store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    assert _worker(run, "shadow 5 of 6", "middle") == -signal.SIGKILL
    made = {p: p.stat().st_mtime_ns for p in (run.path / "shadows").rglob("last/*") if "05" not in str(p)}
    assert len({p.parts[-4] for p in made}) == 4
    jobs.prepare_resume(run)
    assert _worker(run, "none", "never") == 0
    assert made == {p: p.stat().st_mtime_ns for p in made}
    for name, table in _tables(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)


@pytest.mark.slow
def test_a_queued_job_waits_for_its_turn_and_a_detached_worker_finishes(home, pair) -> None:
    spec = parse_spec(_membership(home, pair))
    first, second = jobs.submit(spec), jobs.submit(spec)
    assert set(jobs.queue()["run_id"]) <= {first.id, second.id}
    import time

    deadline = time.monotonic() + 240
    both_running = False
    while time.monotonic() < deadline and {first.status, second.status} & {"queued", "running"}:
        both_running |= first.status == second.status == "running"
        time.sleep(0.2)
    assert (first.status, second.status) == ("done", "done"), (first.manifest, second.manifest)
    assert not both_running
    events = [json.loads(line) for line in (first.path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["done"] == events[-1]["total"]
