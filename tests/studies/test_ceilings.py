"""No probe of a shipped run beats the Bayes ceiling of its data, on bal_val or bal_test, for all its rows at once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from auditcore.leakage.intervals import accuracy_interval, resample

STUDIES = Path(__file__).resolve().parents[2] / "data/studies"
RUNS = sorted(path.parent for path in STUDIES.glob("*/ceilings.parquet"))
SPLITS = {"bal_val", "bal_test"}
PLACE = ["attribute", "artifact", "layer", "defence", "probe", "split"]


def judged(run: Path) -> pd.DataFrame:
    """Seeds averaged rows of every probe, with the ceiling of their label and split and how many rows there are."""
    rows = pd.read_parquet(run / "probe_metrics.parquet")
    if (run / "checkpoints.parquet").exists():
        rows = pd.concat([pd.read_parquet(run / "checkpoints.parquet"), rows], ignore_index=True)
    rows = rows[rows["seed"].isna() & rows["split"].isin(SPLITS)]
    tops = pd.read_parquet(run / "ceilings.parquet")[["attribute", "split", "ceiling"]]
    found = rows.merge(tops, on=["attribute", "split"], how="left")
    assert found["ceiling"].notna().all()
    return found.assign(m=len(found))


def test_the_shipped_runs_are_found():
    assert {run.name for run in RUNS} >= {"notes-vectors", "notes-layers", "notes-attributes", "notes-defences"}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_no_probe_beats_the_ceiling_beyond_simultaneous_intervals(run):
    rows = judged(run)
    assert set(rows["split"]) == SPLITS
    # The 95 % interval that ships, widened to all rows at once (Bonferroni) on the normal scale.
    wider = norm.isf(0.025 / rows["m"]) / norm.isf(0.025)
    low = rows["accuracy"] - wider * (rows["accuracy"] - rows["accuracy_low"])
    above = rows[low > rows["ceiling"]]
    assert above.empty, above[[*PLACE, "accuracy", "accuracy_low", "ceiling"]].to_string()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_nor_does_the_strongest_row_by_row(run):
    rows = judged(run)
    nearest = rows.assign(left=rows["ceiling"] - rows["accuracy"]).sort_values("left", kind="stable")
    subjects = pd.read_parquet(run / "examples.parquet", columns=["example_id", "group"]).set_index("example_id")
    checked = 0
    for row in nearest.drop_duplicates(["attribute", "split"]).to_dict("records"):
        step = [] if pd.isna(row.get("step", np.nan)) else [("step", "=", int(row["step"]))]
        mine = pd.read_parquet(
            run / "predictions.parquet", filters=[(name, "=", row[name]) for name in PLACE] + step,
            columns=["example_id", "actual", "predicted"],
        )  # fmt: skip
        if mine.empty:  # a checkpoint whose predictions are not kept
            continue
        each = (
            mine.assign(right=mine["actual"].astype(str) == mine["predicted"].astype(str))
            .groupby("example_id")
            .agg(right=("right", "mean"), actual=("actual", "first"))
        )
        codes = pd.factorize(each["actual"].astype(str), sort=True)[0]
        groups = subjects["group"].reindex(each.index).astype(str).to_numpy()
        drawn = resample(each["right"].to_numpy(dtype=float), codes, groups, 2000, 0)
        assert drawn.accuracy == pytest.approx(row["accuracy"], abs=1e-9)
        assert accuracy_interval(drawn, 1 - 0.05 / row["m"])[0] <= row["ceiling"]
        checked += 1
    assert checked
