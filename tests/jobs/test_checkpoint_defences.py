"""A defence on the exported vectors of trained checkpoints: fitted on its own rows, told beside them, never chosen."""

import numpy as np
import pandas as pd
import pytest

from auditcore import decisions, jobs, summary, words
from auditcore.errors import DatasetError
from auditcore.jobs import lock
from tests.job_specs import run_spec
from tests.jobs.test_surfacelora_jobs import surface_spec


def test_leace_on_trained_checkpoints_is_a_line_of_its_own_and_agrees_with_a_vectors_audit(home, tiny_llama) -> None:
    spec = surface_spec(
        home, tiny_llama, steps=2, checkpoint_every=1, audit=["lasttok"], defences=["leace"], rouge_rows=2, budget=0.9
    )
    run = run_spec({**spec, "name": "both"})
    assert set(run.read("checkpoints")["defence"]) == {"none"}
    assert len(run.read("predictions").query("step == 1")) == 24
    table = run.read(decisions.DEFENDED)
    assert table[["step", "defence", "probe", "split"]].values.tolist() == [
        [s, "leace", "linear", "bal_val"] for s in range(3)
    ]
    assert table["rougeL"].tolist() == run.read("checkpoints")["rougeL"].tolist()  # summaries do not read the vectors
    seen = decisions.view([run])
    behind = decisions.defended(seen)
    assert behind["step"].tolist() == [0, 1, 2]
    assert len(seen.candidates) == 2
    assert any("With LEACE on its exported vectors too" in words.plain(s) for s in summary.checkpoint_sentences(run))
    assert any("fitted on 16 rows of defence_fit" in note for note in run.manifest["data"]["notes"])

    chosen = lock.lock(run, decisions.declared(run), "Ada").selection.chosen
    jobs.execute(run)
    assert set(run.read("verdicts")["artifact"]) == {"lasttok"}
    assert set(run.read("checkpoints")["defence"]) == {"none"}
    mine = run.read(decisions.DEFENDED).query("split == 'bal_test'")
    assert mine["step"].tolist() == [chosen["step"]]
    folder = run.path / "checkpoints" / f"step-{chosen['step']:06d}"
    audit = run_spec(
        {
            "kind": "vectors",
            "model": {"source": str(folder), "base": spec["model"]["source"]},
            "data": spec["data"], "template": spec["template"], "max_length": spec["max_length"],
            "artifacts": ["lasttok"], "probes": ["linear"], "defences": ["none", "leace"], "seeds": [0],
            "permutations": 19, "n_boot": 100, "threads": 1,
        }
    )  # fmt: skip
    metrics = audit.read("probe_metrics").query("split == 'bal_test' and seed.isna()").set_index("defence")
    for column in ("accuracy", "signed_gap", "signed_low90", "signed_high90"):
        assert mine[column].iloc[0] == pytest.approx(metrics.loc["leace", column])


def test_rows_to_fit_a_defence_on_are_needed(home, tiny_llama) -> None:
    spec = surface_spec(home, tiny_llama, defences=["leace"], rouge_rows=0)
    table = pd.read_csv(spec["data"]["path"], dtype=str)
    table[table["split"] != "defence_fit"].to_csv(home / "without.csv", index=False)
    spec["data"]["path"] = str(home / "without.csv")
    with pytest.raises(DatasetError, match="no row is in defence_fit"):
        run_spec(spec)


def test_without_a_defence_nothing_is_told_of_one(home, tiny_llama) -> None:
    run = run_spec(surface_spec(home, tiny_llama, steps=1, checkpoint_every=1, audit=["lasttok"], rouge_rows=0))
    assert not run.has(decisions.DEFENDED)
    behind = decisions.defended(decisions.view([run]))
    assert behind.empty
    assert "defence" in behind
    assert not np.isin("defence_fit", run.read("examples")["split"])
