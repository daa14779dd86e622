"""Lock and reveal on a tiny model that really trained: bal_test is read once, for the chosen checkpoint, and told."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from auditcore import cli, decisions, jobs, records, store
from auditcore.errors import ModelError, RunError
from auditcore.jobs import lock, sealed
from auditcore.spec import KINDS, dump_spec, parse_spec
from tests.job_specs import run_spec
from tests.jobs.test_surfacelora_jobs import surface_spec

TEST_IDS = {f"bal_test-{i}" for i in range(24)}


@pytest.fixture
def run(home, tiny_llama) -> store.Run:
    # Many rows are too long for prompt and target: what is exported is cut later, as in an audit of vectors alone.
    spec = surface_spec(home, tiny_llama, audit=["lasttok", "meanpool"], budget=0.9, permutations=0, max_length=40)
    return run_spec({**spec, "name": "mitigated"})


def test_bal_test_is_read_once_for_the_locked_checkpoint_and_never_before(run, home, capsys, monkeypatch) -> None:
    import auditcore.lm.generate as generation
    import auditcore.lm.vectors as vectors

    met: list[int] = []
    extract, generate = vectors.extract_vectors, generation.generate
    monkeypatch.setattr(
        vectors, "extract_vectors", lambda lm, e, *a, **k: met.append(len(e.ids)) or extract(lm, e, *a, **k)
    )
    monkeypatch.setattr(generation, "generate", lambda lm, e, **k: met.append(len(e.ids)) or generate(lm, e, **k))
    ledger = store.home() / "ledger.jsonl"
    assert not ledger.exists()
    assert not TEST_IDS & set(run.read("predictions")["example_id"])
    assert not TEST_IDS & set(run.read("generations")["example_id"])

    assert cli.main(["reveal", run.id, "--by", "Ada", "--require-within-budget"]) in (0, 4)
    out = capsys.readouterr().out
    assert "On the sealed test rows, step " in out
    assert "locked by Ada" in out
    assert "The test rows were read once for Ada" in out
    assert met == [40 + 24 + 24, 6]  # bal_train, bal_val and bal_test; six summaries
    assert [r["kind"] for r in records.read(run)] == ["declaration", "lock", "reveal"]
    chosen = records.read(run, "lock")[0]["content"]["chosen"]
    table = run.read("checkpoints")
    tested = table[table["split"] == "bal_test"]
    assert set(tested["step"]) == {chosen["step"]}
    assert set(tested["artifact"]) == {"lasttok", "meanpool"}
    assert set(table.loc[table["selected"].astype(bool), "step"]) == {chosen["step"]}
    assert tested["rougeL"].notna().all()
    verdicts = run.read("verdicts")
    assert set(verdicts["artifact"]) == {"lasttok"}  # what was declared; meanpool is told without a verdict
    assert set(verdicts["attacker"]) == {"linear", "all"}
    predictions = run.read("predictions")
    assert set(predictions.loc[predictions["split"] == "bal_test", "example_id"]) == TEST_IDS
    assert "chosen on bal_val and locked by Ada" in run.manifest["claim"]["audited"]
    assert run.manifest["locked"]["chosen"]["step"] == chosen["step"]
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [e["run"] for e in entries] == [run.id]

    assert cli.main(["reveal", run.id, "--by", "Bo"]) == 0  # asked again: told again, read no more
    assert len(met) == 2
    assert cli.main(["reveal", run.id, "--by", "Bo", "--budget", "0.01"]) == 2
    assert "changes nothing" in capsys.readouterr().err
    assert len(met) == 2
    assert [r["kind"] for r in records.read(run)] == ["declaration", "lock", "reveal", "declaration"]


def test_the_reveal_agrees_with_a_vectors_audit_of_the_same_checkpoint(run, home, monkeypatch) -> None:
    import auditcore.leakage.gap as gap

    tested_against, evaluate = [], gap.evaluate
    declared = replace(decisions.declared(run), budget=0.6)  # not the run's: p-values are of the one that was declared
    chosen = lock.lock(run, declared, "Ada").selection.chosen
    with monkeypatch.context() as patch:
        patch.setattr(gap, "evaluate", lambda *a, **k: tested_against.append(k["budget"]) or evaluate(*a, **k))
        jobs.execute(run)
    assert set(tested_against) == {0.6}
    spec, folder = run.manifest["spec"], run.path / "checkpoints" / f"step-{chosen['step']:06d}"
    audit = run_spec(
        {
            "kind": "vectors",
            "model": {"source": str(folder), "base": spec["model"]["source"]},
            "data": spec["data"], "template": spec["template"], "max_length": spec["max_length"],
            "artifacts": ["lasttok", "meanpool"], "probes": ["linear"], "seeds": [0], "permutations": 19, "n_boot": 100,
            "budget": 0.6, "threads": 1,
        }
    )  # fmt: skip
    assert audit.manifest["test_split"]["earlier_looks"] == 1
    assert any("have a prompt that is cut to leave room" in note for note in run.manifest["data"]["notes"])
    mine, other = (
        r.read("probe_metrics").query("split == 'bal_test' and seed.isna()").set_index("artifact") for r in (run, audit)
    )
    for artifact in ("lasttok", "meanpool"):
        for column in ("accuracy", "signed_gap", "signed_low90", "signed_high90", "n_subjects", "p_over"):
            assert mine.loc[artifact, column] == pytest.approx(other.loc[artifact, column])


def test_a_reveal_that_was_killed_is_read_to_the_end_by_resume(run, home, monkeypatch) -> None:
    import auditcore.leakage.gap as gap

    lock.lock(run, decisions.declared(run), "Ada")

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gap, "evaluate", die)
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    assert run.status == "cancelled"
    assert lock.pending(run)
    assert decisions.revealed(run) is None
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert run.status == "done"
    assert decisions.revealed(run) is not None
    entries = (store.home() / "ledger.jsonl").read_text().splitlines()
    assert len(entries) == 1


@pytest.mark.parametrize("door", ["vectors", "page", "generate", "given vectors", "frontier"])
def test_no_other_run_reads_the_rows_before_the_lock(run, home, tiny_llama, door) -> None:
    spec = run.manifest["spec"]
    data = {"path": spec["data"]["path"], "roles": spec["data"]["roles"]}
    base = {"kind": "vectors", "data": data, "template": "{prompt}", "probes": ["linear"], "seeds": [0], "n_boot": 100,
            "permutations": 19, "max_length": 48}  # fmt: skip
    raw = {**base, "model": {"source": str(tiny_llama)}, "artifacts": ["lasttok"]}
    if door == "generate":
        raw |= {"generate": {"rows": 20}}
    if door == "given vectors":
        np.save(home / "v.npy", np.zeros((len(pd.read_csv(data["path"])), 3)))
        raw = {**base, "vectors": {"path": str(home / "v.npy")}}
    if door == "frontier":
        if "frontier" not in KINDS:
            pytest.skip("no such kind yet")
        raw = {"kind": "frontier", "data": data, "template": "{prompt}",
               "checkpoints": {"folder": str(run.path / "checkpoints"), "base": str(tiny_llama)}}  # fmt: skip
        raw["data"] = {**data, "split_map": {"bal_test": "bal_train", "bal_train": "bal_test"}}
    parsed = parse_spec(raw)
    if door == "page":  # what the form does: plan, then submit
        with pytest.raises(Exception, match="keeps sealed"):
            jobs.plan(parsed)
        return
    with pytest.raises(RunError, match="keeps sealed"):
        jobs.execute(store.create_run(dump_spec(parsed)))
    assert not (store.home() / "ledger.jsonl").exists()
    assert sealed.sealed_rows(run)["example_id"].isin(TEST_IDS).all()


def test_data_that_changed_since_is_not_what_was_sealed(run, home) -> None:
    lock.lock(run, decisions.declared(run), "Ada")
    path = run.manifest["spec"]["data"]["path"]
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.loc[table["split"] == "bal_test", "note"] += " more"
    table.to_csv(path, index=False)
    with pytest.raises(Exception, match="has changed since this run began"):
        jobs.execute(run)
    assert decisions.revealed(run) is None


def test_an_adapter_from_elsewhere_is_revealed_by_its_name_unless_it_changed(home, tiny_llama, tiny_adapter) -> None:
    from tests.jobs.test_adapter_jobs import copies, frontier_spec

    folder = home / "adapters"
    copies(folder, tiny_adapter, ["one", "two"])
    changes = {"rouge_rows": 6, "max_new_tokens": 4, "budget": 0.9, "audit": ["lasttok"], "max_length": 128}
    run = run_spec(frontier_spec(home, tiny_llama, folder, **changes))
    chosen = lock.lock(run, decisions.declared(run), "Ada").selection.chosen
    weights = folder / chosen["checkpoint"] / "adapter_model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes((folder / ("two" if chosen["checkpoint"] == "one" else "one") / weights.name).read_bytes())
    with pytest.raises(ModelError, match="is not the one that was measured"):
        jobs.execute(run)
    weights.write_bytes(before)
    jobs.prepare_resume(run)
    jobs.execute(run)
    outcome = decisions.revealed(run)
    assert outcome["content"]["chosen"]["checkpoint"] == chosen["checkpoint"]
    assert outcome["content"]["rouge"]["rows"] == 6
    assert f"of {chosen['checkpoint']} on" in run.manifest["claim"]["audited"]
