"""Many tests in one run. In: `probe_metrics`. Out: each test with Holm's correction, the verdict of any part of them.

Every attacker on every label, artifact and layer is one test. A test's own word comes from its own 90 % interval; what
is said of an artifact, a label or the run is said after Holm's correction over all tests of the run (leakage_verdicts
does so too), since among many tests some are over budget by luck.
"""

import numpy as np
import pandas as pd

from auditcore.findings.common import baseline
from auditcore.verdict import ALPHA, OVER, SYMBOLS, combine, holm


def every_test(metrics: pd.DataFrame, split: str = "bal_test", defence: str | None = None) -> pd.DataFrame:
    """Every test of one split and defence (None: `baseline`), seeds averaged, with p_adjusted (Holm) and survives.

    survives: `over budget` by itself and still so after the correction over all of these rows.
    """
    defence = baseline(metrics) if defence is None else defence
    return adjusted(metrics[metrics["seed"].isna() & (metrics["split"] == split) & (metrics["defence"] == defence)])


def adjusted(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with verdict and p_over (of `probe_metrics` or `verdicts`), one a test, with p_adjusted and survives."""
    p = rows["p_over"].astype(float).to_numpy() if "p_over" in rows else np.full(len(rows), np.nan)
    corrected = holm(p.tolist()) if len(rows) else p
    survives = (rows["verdict"] == OVER).to_numpy(dtype=bool) & np.less_equal(np.nan_to_num(corrected, nan=1.0), ALPHA)
    return rows.assign(p_adjusted=corrected, survives=survives)


def verdicts(found: pd.DataFrame, by: str) -> dict[str, str]:
    """Value of column `by` (attribute, artifact) -> verdict over its attackers; none before the test rows are read.

    found: of `every_test`, or some of its rows: the correction stays the one over all of them.
    """
    said = {}
    for value, mine in found.groupby(by, sort=False):
        words = mine["verdict"].tolist()
        if all(word in SYMBOLS for word in words):
            said[str(value)] = combine(words, mine["p_adjusted"].tolist())
    return said
