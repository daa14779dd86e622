"""Tied scores that leave no threshold. In: an ROC, or a row of `attack_metrics`. Out: whether, and why in words.

Rows that share a score stand or fall together. Where more non-members share one than the target rate may accuse, the
exact step stops before them: finding nobody there says nothing about the attack, least of all that nothing leaks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def percent(rate: float) -> str:
    """Write a rate the way a reader does: 0.001 -> "0.1 %"."""
    return f"{100 * rate:.6g} %"


def kept_from(fpr: np.ndarray, tpr: np.ndarray, at: int, allowed: int, n_nonmember: int) -> bool:
    """Whether ties keep the exact step from the target rate, so that it shows nothing (or only the members on top).

    fpr, tpr: every vertex of the ROC, float64; at: the step's vertex; allowed: non-members that may be accused. Either
    the step accuses nobody although some may be (more than `allowed` non-members share their highest score), or it
    finds nobody and the next tied block, which is too large, holds members. Any other step is a result.
    """
    used = round(float(fpr[at]) * n_nonmember)
    if used >= allowed:
        return False
    return used == 0 or (tpr[at] == 0 and tpr[at + 1] > 0)


def reason(metric: Mapping[Any, Any] | pd.Series) -> str:
    """Say which tie leaves a row of `attack_metrics` without a result at its rate; "" where none does."""
    if metric["metric"] != "tpr" or pd.isna(metric["resolvable"]) or not metric["resolvable"]:
        return ""
    rate, realised = float(metric["target_fpr"]), float(metric["realised_fpr"])
    missing = bool(pd.isna(metric["value"]))
    if realised > 0:
        return (
            f"tied scores: the next threshold accuses more than {percent(rate)} of the non-members at once, and above "
            "it there is no training row"
            if missing
            else ""
        )
    if missing:
        return (
            f"tied scores: more than {percent(rate)} of the non-members share the highest score, so no threshold "
            "accuses fewer"
        )
    if rate * int(metric["n_nonmember"]) < 1:
        return ""
    return (
        f"tied scores: more than {percent(rate)} of the non-members share their highest score, so no threshold accuses "
        "some and fewer"
    )


def reasons(metrics: pd.DataFrame, target_fpr: float) -> dict[str, str]:
    """Attack -> `reason` at one target rate, for those that have one. metrics: table `attack_metrics`."""
    at = metrics[np.isclose(metrics["target_fpr"].astype(float), target_fpr, rtol=1e-9, atol=0)]
    found = {str(row["attack"]): reason(row) for row in at.to_dict("records")}
    return {attack: why for attack, why in found.items() if why}
