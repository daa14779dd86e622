"""Where linear falls more: found on a leak that only a non-linear attacker can read, not where all fall alike."""

import numpy as np
import pandas as pd

from auditcore.findings import defences as told
from auditcore.leakage.gap import evaluate
from auditcore.store import Run
from pages._defences_linear import compare, falls_more
from tests.fake_runs import vectors_run

ROWS = {"bal_train": np.arange(0, 800), "bal_val": np.arange(800, 1000), "bal_test": np.arange(1000, 1800)}


def _audited(run: Run) -> pd.DataFrame:
    """A label told by one direction and by the sign of a product of two others; a defence weakens the first."""
    rng = np.random.default_rng(0)
    label = np.resize([0, 1], 1800)
    plain = np.stack([label * 2.0 - 1, np.ones(1800), np.ones(1800)], axis=1) + rng.normal(0, 0.8, (1800, 3))
    sign = np.where(rng.random(1800) < 0.5, 1.0, -1.0)
    plain[:, 1], plain[:, 2] = sign + rng.normal(0, 0.3, 1800), sign * (2 * label - 1) + rng.normal(0, 0.3, 1800)
    weaker = plain.copy()
    weaker[:, 0] += rng.normal(0, 1.6, 1800)
    found = []
    ids = [f"r{i}" for i in range(1800)]
    for defence, vectors in (("none", plain), ("noise", weaker)):
        for probe in ("linear", "gbt"):
            names = {"attribute": "sex", "artifact": "v", "layer": 0, "defence": defence, "example_ids": ids}
            found.append(evaluate(vectors, label.astype(str), ids, ROWS, probe, [0], 400, 0, n_jobs=1, **names))
    run.write("predictions", pd.concat([f.predictions for f in found], ignore_index=True))
    run.write("examples", pd.DataFrame({"example_id": ids, "group": ids}))
    return pd.concat([f.metrics for f in found], ignore_index=True)


def test_a_leak_that_only_products_tell_is_marked_where_the_linear_one_falls(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=60)
    metrics = _audited(run)
    rows = told.defended(metrics, "sex")
    table = told.table_of(metrics, None, "sex", "bal_test")
    assert table["linear_only"].map(len).tolist() == [0, 0]  # linear still reads: the old mark passes it over
    marked = table.assign(falls_more=falls_more(run, rows, table))
    assert told.marks(marked) == {"none": "", "noise": "linear falls more"}
    found = marked["falls_more"].iloc[1]
    gap = rows.set_index(["defence", "probe"])["accuracy"]
    lost = {p: gap["none", p] - gap["noise", p] for p in ("linear", "gbt")}
    np.testing.assert_allclose(found["change"], lost["linear"] - lost["gbt"])
    assert found["probe"] == "gbt"
    assert 0 < found["low"] < found["change"] < found["high"]
    assert found["n_subjects"] == 800


def test_nothing_is_marked_where_all_fall_alike_or_linear_did_not_fall() -> None:
    rng = np.random.default_rng(1)
    judged = pd.DataFrame({"actual": np.resize(["a", "b"], 600), "subject": [f"s{i}" for i in range(600)]})
    reads = {"linear_before": 0.8, "linear_after": 0.6, "other_before": 0.8, "other_after": 0.6}
    alike = judged.assign(**{k: (rng.random(600) < p).astype(float) for k, p in reads.items()})
    assert compare(alike, 400, 0) is None
    rose = alike.assign(linear_after=alike["linear_before"], other_after=1.0)
    assert compare(rose, 400, 0) is None  # the other rose, linear did not fall
    assert compare(alike.iloc[:0], 400, 0) is None
