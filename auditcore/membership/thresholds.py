"""Operating points. In: membership and rank scores. Out: the exact ROC, TPR at a false-positive rate, thresholds.

Rows that share a score stand or fall together: a threshold is realisable only between tied blocks. Nothing is
interpolated.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import bdtr, betaincinv  # scipy.stats would cost a page a second to import

from auditcore.errors import SpecError
from auditcore.membership.ties import kept_from, percent, reason

MIN_FALSE_POSITIVES = 5  # non-members x target FPR below this: no interval for the TPR


class Roc(NamedTuple):
    """Every realisable threshold, highest first: float64 arrays of one length."""

    fpr: np.ndarray
    tpr: np.ndarray
    threshold: np.ndarray


class Point(NamedTuple):
    """One operating point: a row is called a member when its rank_score >= threshold."""

    tpr: float
    fpr: float
    threshold: float


def evidence(member: Any, rank_score: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (member bool [n], use bool [n]): `use` marks rows of known membership with a finite rank score."""
    known = pd.array(member, dtype="boolean")
    rank = np.asarray(rank_score, dtype=np.float64)
    if len(known) != len(rank):
        raise ValueError(f"{len(known)} member values, {len(rank)} rank scores")
    use = np.isfinite(rank) & ~np.asarray(known.isna(), dtype=bool)
    return known.to_numpy(dtype=bool, na_value=False), use


def exact_roc(member: Any, rank_score: Any) -> Roc:
    """Return the ROC on all tied blocks, collinear vertices kept: (fpr, tpr, threshold).

    member: bool [n], missing allowed; rank_score: float [n]. Rows of unknown membership and rows whose rank score is
    NaN or infinite are left out. The first vertex is (0, 0) with threshold +inf: nothing is called a member. Without
    non-members the fpr is NaN, without members the tpr. Same as `sklearn.metrics.roc_curve(drop_intermediate=False)`.
    """
    label, use = evidence(member, rank_score)
    rank = np.asarray(rank_score, dtype=np.float64)[use]
    order = np.argsort(-rank, kind="stable")
    rank, label = rank[order], label[use][order]
    ends = np.flatnonzero(np.append(rank[1:] != rank[:-1], True)) if len(rank) else np.empty(0, dtype=np.int64)
    true = np.concatenate([[0], np.cumsum(label)[ends]])
    false = np.concatenate([[0], np.cumsum(~label)[ends]])
    threshold = np.concatenate([[np.inf], rank[ends]])
    return Roc(_share(false), _share(true), threshold)


def _share(counts: np.ndarray) -> np.ndarray:
    return counts / counts[-1] if counts[-1] else np.full(len(counts), np.nan)


def auc(member: Any, rank_score: Any) -> float:
    """Area under the exact ROC, ties counted half (Mann-Whitney); NaN without members or without non-members."""
    label, use = evidence(member, rank_score)
    label = label[use]
    n_true = int(label.sum())
    n_false = len(label) - n_true
    if not n_true or not n_false:
        return np.nan
    from scipy.stats import rankdata

    ranks = rankdata(np.asarray(rank_score, dtype=np.float64)[use])  # half-integers: their sum is exact
    return float((ranks[label].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def operating_point(roc: Roc, target_fpr: float) -> Point:
    """Return the exact step: the lowest realisable threshold whose FPR is <= target_fpr, so the largest TPR there.

    NaN throughout without members or without non-members.
    """
    if np.isnan(roc.fpr[-1]) or np.isnan(roc.tpr[-1]):
        return Point(np.nan, np.nan, np.nan)
    i = int(np.searchsorted(roc.fpr, target_fpr, side="right")) - 1
    if i < 0:
        raise ValueError(f"a false-positive rate is a number from 0 to 1, got {target_fpr}")
    return Point(float(roc.tpr[i]), float(roc.fpr[i]), float(roc.threshold[i]))


def tied_out(roc: Roc, target_fpr: float, n_nonmember: int) -> bool:
    """Whether tied scores keep the exact step from the target rate (`ties.kept_from`)."""
    at = int(np.searchsorted(roc.fpr, target_fpr, side="right")) - 1
    allowed = int(allowed_false_positives(n_nonmember, target_fpr))
    return kept_from(roc.fpr, roc.tpr, at, allowed, n_nonmember)


def shows_nothing(roc: Roc, target_fpr: float, n_nonmember: int) -> bool:
    """Whether a step finds nobody because of a tie: no result. What stands above every non-member is one."""
    return operating_point(roc, target_fpr).tpr == 0 and tied_out(roc, target_fpr, n_nonmember)


def allowed_false_positives(n_nonmember: Any, target_fpr: float) -> np.ndarray:
    """Return the largest k with k / n_nonmember <= target_fpr, without the rounding of floor(n * f): int64."""
    n = np.asarray(n_nonmember, dtype=np.int64)
    k = np.floor(target_fpr * n).astype(np.int64) + 1
    for _ in range(2):  # 0.29 * 100 is 28.99..., other products round up
        k = k - (k / np.maximum(n, 1) > target_fpr)
    return np.minimum(k, n)


@lru_cache(maxsize=256)
def needed_nonmembers(target_fpr: float) -> int:
    """Return how many non-members resolve a target FPR: 718 for 1 %, 7,208 for 0.1 %.

    The smallest number from which on the Clopper-Pearson 95 % upper bound (97.5 % on its side) of the largest realised
    FPR <= target_fpr is never above 2 * target_fpr. Raises ValueError outside (0, 1].
    """
    if not 0 < target_fpr <= 1:
        raise ValueError(f"a false-positive rate is a number above 0 and at most 1, got {target_fpr}")
    if target_fpr >= 0.5:
        return 1  # an upper bound is never above 1
    needed = 1
    # While k false positives are allowed the bound falls with n, then k + 1 are allowed and it jumps up. The jumps stop
    # mattering near k = 8.
    for k in range(40):
        low, high = _first_allowing(k, target_fpr), _first_allowing(k + 1, target_fpr)
        if _too_wide(k, low, target_fpr):
            while high - low > 1:  # too wide at low
                middle = (low + high) // 2
                low, high = (middle, high) if _too_wide(k, middle, target_fpr) else (low, middle)
            needed = max(needed, low + 1)
    return needed


def _first_allowing(k: int, target_fpr: float) -> int:
    n = max(1, int(k / target_fpr) - 1)
    while k / n > target_fpr:
        n += 1
    return n


def _too_wide(k: int, n: int, target_fpr: float) -> bool:
    # upper bound <= 2f exactly when seeing k or fewer at a true rate of 2f has probability <= 2.5 %
    return bool(bdtr(k, n, 2 * target_fpr) > 0.025)


def resolvable(n_nonmember: int, target_fpr: float) -> bool:
    """Say whether so many non-members can show a false-positive rate of target_fpr at all."""
    return n_nonmember >= needed_nonmembers(target_fpr)


def exact_interval(share: float, n: int, each_side: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share of n, `each_side` outside on either side; NaN for n = 0."""
    if n == 0 or np.isnan(share):
        return np.nan, np.nan
    hits = share * n
    low = float(betaincinv(hits, n - hits + 1, each_side)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - each_side)) if hits < n else 1.0
    return low, high


def why_unresolved(metric: Mapping[str, Any] | pd.Series) -> str:
    """Say in words why a row of `attack_metrics` has no value, or no threshold; "" when it has both."""
    if not pd.isna(metric["value"]) and (metric["metric"] == "auc" or not pd.isna(metric["threshold"])):
        return ""
    members, others = int(metric["n_member"]), int(metric["n_nonmember"])
    if not members and not others:
        return "no row of known membership has evidence"
    if not others:
        return "no non-members with evidence: neither a false-positive rate nor an AUC exists"
    if not members:
        return "no members with evidence: neither a true-positive rate nor an AUC exists"
    if tie := reason(metric):
        return tie
    f = float(metric["target_fpr"])
    return (
        f"a false-positive rate of {percent(f)} is not resolved by {others:,} non-members: "
        f"{needed_nonmembers(f):,} are needed"
    )


def classify(score_row: Mapping[str, Any] | pd.Series, metrics: pd.DataFrame, attack: str, target_fpr: float) -> str:
    """Classify one row of `membership_scores` with a run's threshold: "member", "not a member" or "no evidence".

    metrics: the run's `attack_metrics`; the row must have been scored by the same attack, models and options. Raises
    SpecError when the run has no such operating point or could not resolve it.
    """
    if "attack" in score_row and score_row["attack"] != attack:
        raise SpecError(f"the row was scored by attack '{score_row['attack']}', not by '{attack}'.")
    points = metrics[(metrics["attack"] == attack) & (metrics["metric"] == "tpr")]
    if points.empty:
        raise SpecError(f"attack '{attack}' is not part of this run: it has {', '.join(metrics['attack'].unique())}.")
    offered = [f"{f:g} ({percent(f)})" for f in points.loc[points["threshold"].notna(), "target_fpr"]]
    choose = f"choose --fpr {' or '.join(offered)}" if offered else "this attack has no threshold at any rate here"
    point = points[np.isclose(points["target_fpr"].astype(float), target_fpr, rtol=1e-9, atol=0)]
    if point.empty:
        meant = f"{target_fpr / 100:g} for {percent(target_fpr / 100)}"
        hint = f" It is a fraction, not a percentage: {meant}." if target_fpr >= 1 else ""
        raise SpecError(
            f"this run has no threshold at --fpr {target_fpr:g}, a false-positive rate of {percent(target_fpr)}."
            f"{hint} {choose[:1].upper()}{choose[1:]}."
        )
    first = point.iloc[0]
    if pd.isna(first["threshold"]):
        raise SpecError(f"attack '{attack}': {why_unresolved(first)}; {choose}.")
    rank = score_row["rank_score"]
    # One error position, or none that moved, is no ground to clear a text on, whatever its place in a ranking.
    if score_row["status"] in ("no_evidence", "insufficient") or pd.isna(rank) or not np.isfinite(rank):
        return "no evidence"
    return "member" if rank >= first["threshold"] else "not a member"
