"""Runs of checkpoints on the command line, in claims, reports and exports: the same choice, the same words."""

import json
import zipfile
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from auditcore import cards, cli, decisions, records, store, subject, summary, votes
from auditcore.claims import claim
from auditcore.jobs import lock
from auditcore.report import export
from tests.fake_surface import surfacelora_run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path))
    monkeypatch.setattr(store, "studies", lambda: tmp_path / "studies")
    return tmp_path


def decided(run: store.Run) -> None:
    """Two votes and a decision on record."""
    texts = {(run.id, s): run.read("generations", where="step = ?", params=[s]) for s in (100, 400)}
    for ballot in votes.ballots(texts, "Ada", run.id)[:2]:
        records.append(run, "vote", "Ada", **votes.vote(ballot, 0))
    content = {"choice": "accept", "name": "step 400", "run_id": run.id, "step": 400, "reason": "<b>good</b> enough"}
    records.append(run, "decision", "Ada", **content)


def test_show_tells_the_choice_the_rule_rebounds_and_what_is_on_record(home, capsys) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    decided(run)
    assert cli.main(["show", "one"]) == 0
    out = capsys.readouterr().out
    assert "reaches ROUGE-L" in out
    assert "Rule: of 8 checkpoints, those with gap at most 0.025 for recorded_race from lasttok" in out
    assert "the leak comes back by" in out
    assert "A rebound is measured on the half of the subjects that did not choose its steps" in out
    assert "stay sealed" in out
    assert "Ada decided: accept step 400." in out
    assert "Blind votes of 1 reviewer on 2 rows" in out


def test_reveal_without_recording_and_gates_where_nothing_meets_the_budget(home, capsys) -> None:
    run = surfacelora_run(home / "one", leak=0.1)
    assert cli.main(["reveal", "one", "--dry-run"]) == 0
    assert "None qualifies; step" in capsys.readouterr().out
    assert records.read(run) == []
    assert cli.main(["reveal", "one", "--by", "Ada"]) == 0
    assert cli.main(["reveal", "one", "--fail-over-budget"]) == 3
    assert cli.main(["reveal", "one", "--require-within-budget"]) == 4
    assert "stay sealed" in capsys.readouterr().out
    assert [r["kind"] for r in records.read(run)] == ["declaration"] * 3
    assert records.read(run)[0]["by"] == "Ada"
    assert decisions.locked(run) is None


def test_reveal_over_several_runs_takes_options_into_the_declaration(home, capsys) -> None:
    surfacelora_run(home / "one", leak=0.1)
    surfacelora_run(home / "two", leak=0.005, seed=1)
    options = ["--budget", "0.2", "--attacker", "mlp, linear", "--artifact", "lasttok", "--select-on", "upper"]
    assert cli.main(["reveal", "one", "--also", "two", "--dry-run", *options]) == 0
    out = capsys.readouterr().out
    assert "budget 0.2; recorded_race from lasttok; attackers mlp and linear" in out
    assert "of 16 checkpoints, those with 90 % interval within ±0.2" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reveal", "gone"], "no run 'gone'"),
        (["reveal", "one", "--attacker", "linaer"], "Did you mean 'linear'"),
        (["reveal", "one", "--budget", "-1"], "at least 0"),
        (["reveal", "empty"], "no measured checkpoints"),
        (["reveal", "working"], "when every checkpoint is measured"),
    ],
)
def test_mistakes_are_one_message_and_leave_no_record(home, capsys, arguments, words) -> None:
    for name, stages, status in (("one", 3, "done"), ("empty", 0, "done"), ("working", 3, "queued")):
        surfacelora_run(home / name, stages=stages, status=status, leak=0.005)
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not list(home.glob("*/records.jsonl"))


def test_the_claim_names_the_lock_and_what_is_not_claimed(home) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    nothing = claim(run.manifest, run.read("checkpoints").iloc[:0])
    assert "its test rows were not read" in nothing["audited"]
    chosen = lock.lock(run, decisions.declared(run), "Ada").selection.chosen
    line = {"kind": "vectors", "attribute": "recorded_race", "artifact": "lasttok", "layer": 30, "defence": "none"}
    numbers = {"split": "bal_test", "budget": 0.025, "value": 0.01, "low": -0.01, "high": 0.02, "n_subjects": 3000}
    rows = [{**line, **numbers, "attacker": a, "verdict": "within budget"} for a in ("linear", "mlp", "all")]
    said = claim(run.manifest, pd.DataFrame(rows))
    assert f"lasttok at layer 30 of step {chosen['step']} on smollm2-135m" in said["audited"]
    assert "locked by Ada" in said["audited"]
    assert "3,000 test subjects" in said["audited"]
    assert "meanpool" in said["not_audited"]
    assert "no mitigation is claimed" in said["not_audited"]


@pytest.mark.parametrize(("strength", "words"), [(2.0, "SurfaceLoRA"), (0.0, "plain LoRA")])
def test_a_training_that_pulls_at_no_vector_is_called_plain_lora(home, strength, words) -> None:
    run = surfacelora_run(home / "one", leak=0.005, strength=strength)
    assert subject.of(run).model.startswith(f"smollm2-135m after {words} (")
    lock.lock(run, decisions.merge(decisions.declared(run), budget=1.0), "Ada")
    said = claim(run.manifest, run.read("checkpoints").iloc[:0])
    assert f", trained with {words} (lambda {strength:g}" in said["audited"]


def test_the_report_holds_the_pictures_the_records_and_no_row(home) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    decided(run)
    run.write("skipped", pd.DataFrame({"checkpoint": ["<img src=x>"], "reason": ["corrupt"]}))
    text = export(run, "html", home / "one.html").read_text()
    for part in ("trade-0-0", "trade-0-2", "steps-0", "Every checkpoint", "What was declared and decided"):
        assert part in text
    assert "decided: " in text
    assert "&lt;b&gt;good&lt;/b&gt; enough" in text
    assert "1 checkpoint left out" in text
    assert "<img src=x" not in text
    body = text[text.index("<body>") :]
    assert "oral antibiotics" not in body  # summaries are rows of the data


@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb"])
def test_exports_carry_the_records(home, form) -> None:
    run = surfacelora_run(home / "one")
    decided(run)
    out = export(run, form, home / ("x.duckdb" if form == "duckdb" else f"{form}.zip"))
    if form == "duckdb":
        with duckdb.connect(str(out), read_only=True) as con:
            found = [json.loads(r[0])["kind"] for r in con.execute("select record from records").fetchall()]
    else:
        with zipfile.ZipFile(out) as archive:
            found = [json.loads(line)["kind"] for line in archive.read("records.jsonl").decode().splitlines()]
    assert found == ["vote", "vote", "decision"]


def test_cards_say_which_rows_they_are_judged_on(home) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    drawn = cards.of_run(run)
    assert {c.verdict for c in drawn} == {"judged on bal_val only", "not declared"}
    assert summary.run_verdict(run) == ""
