"""Several labels with different numbers of classes in one run, on notes whose ceiling is known: spec to report."""

import pandas as pd
import pytest
from scipy.stats import norm

from auditcore import cli, summary
from auditcore.datasets.synthetic import DEFAULT_PATH
from auditcore.report import export
from auditcore.words import plain
from tests.job_specs import run_spec

LABELS = ["recorded_race", "recorded_sex", "age_band"]
SPLITS = {"bal_train": 90, "bal_val": 40, "bal_test": 90}


@pytest.fixture
def notes(home) -> str:
    frame = pd.read_parquet(DEFAULT_PATH)
    parts = [frame[frame["split"] == split].head(n) for split, n in SPLITS.items()]
    pd.concat(parts).to_parquet(home / "notes.parquet")
    return str(home / "notes.parquet")


def test_three_labels_from_spec_to_report(home, notes, tiny_llama, capsys) -> None:
    roles = {"prompt": "prompt", "label": LABELS, "group": "subject_id", "split": "split", "id": "example_id"}
    spec = {
        "kind": "vectors", "model": {"source": str(tiny_llama)}, "data": {"path": notes, "roles": roles},
        "template": "{prompt}\nBrief Hospital Course:", "max_length": 40, "artifacts": ["lasttok"],
        "layers": [0, 1, -1], "probes": ["linear"], "seeds": [0], "permutations": 19, "n_boot": 100, "threads": 1,
    }  # fmt: skip
    run = run_spec(spec)
    metrics = run.read("probe_metrics")
    tested = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")]
    classes = dict(zip(LABELS, (5, 2, 3), strict=True))
    assert tested.groupby("attribute")["n_classes"].first().to_dict() == classes
    # Each label is balanced for itself: the same rows serve the three in different numbers.
    assert tested.groupby("attribute")["n_eval"].nunique().eq(1).all()
    assert tested["n_eval"].nunique() > 1
    said = [n for n in run.manifest["data"]["notes"] if "bootstrap replicates" in n]
    assert len(said) == 1
    assert said[0].startswith(
        "9 tests are corrected for together, so that 360 bootstrap replicates instead of 100 and 360 permutations of "
        "the labels instead of 19 are drawn for each: "
    )
    assert set(tested["permutations"]) == {360}  # Holm's smallest p over 9 tests can fall below 5 %
    assert set(tested["null_refits"]) == {19}  # which costs no more refits
    verdicts = run.read("verdicts")
    assert len(verdicts) == 3 * 3 + 1
    predictions = run.read("predictions")
    assert list(predictions["attribute"].drop_duplicates()) == LABELS
    assert not (run.path / "parts").exists()
    ceilings = run.read("ceilings", where="split = 'bal_test'").set_index("attribute")
    assert ceilings["n_classes"].to_dict() == classes
    assert (ceilings["ceiling"] > 1 / ceilings["n_classes"]).all()
    # Nobody beats it on either split: 95 % intervals, widened to all rows at once (Bonferroni) on the normal scale.
    every = metrics[metrics["seed"].isna()].merge(run.read("ceilings"), on=["attribute", "split"])
    assert len(every) == 2 * 3 * 3
    wider = norm.isf(0.025 / len(every)) / norm.isf(0.025)
    assert (every["accuracy"] - wider * (every["accuracy"] - every["accuracy_low"]) <= every["ceiling"]).all()
    said = " ".join(plain(s) for s in summary.vector_sentences(run))
    assert "9 tests (3 labels × 1 vector × 3 layers × 1 attacker)" in said
    assert said.count("Bayes ceiling of this data") == 3
    assert "Sensitive labels recorded_race, recorded_sex and age_band" in run.manifest["claim"]["audited"]
    text = export(run, "html", home / "report.html").read_text(encoding="utf-8")
    for label in LABELS:
        assert f"How deep {label} can be read" in text
        assert f"How well {label} is read from each vector" in text
    assert cli.main(["show", run.id]) == 0
    assert "3 labels × 1 vector" in capsys.readouterr().out


def test_vectors_from_a_file_take_several_labels_on_the_command_line(home, notes, capsys) -> None:
    import numpy as np

    frame = pd.read_parquet(notes)
    vectors = np.random.default_rng(0).normal(size=(len(frame), 6))
    vectors[:, 0] += 3.0 * (frame["recorded_sex"] == "Female").to_numpy()
    np.save(home / "v.npy", vectors)
    arguments = ["vectors", str(home / "v.npy"), "--rows", notes, "--label", ",".join(LABELS[1:]), "--id", "example_id"]
    arguments += ["--group", "subject_id", "--split", "split", "--probe", "linear"]
    assert cli.main([*arguments, "--dry-run"]) == 0
    planned = capsys.readouterr().out
    assert "recorded_sex: " in planned
    assert "in 2 classes" in planned
    assert "age_band: " in planned
    assert "in 3 classes" in planned
    assert "2 tests are declared: 2 labels × 1 vector (artifact and layer) × 1 attacker." in planned
    assert cli.main([*arguments, "--out", str(home / "run")]) == 0
    said = capsys.readouterr().out
    assert "2 tests (2 labels × 1 vector × 1 attacker) were declared" in said
    assert "recorded_sex: Bayes ceiling of this data" in said
