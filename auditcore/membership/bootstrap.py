"""Resampling of operating points. In: membership, rank scores, subjects. Out: AUC, TPR and FPR of every resample.

Rows are drawn with replacement within members and within non-members; where rows share a subject, whole subjects are
drawn, within subjects of members, of non-members and of both. The threshold is found anew in every resample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import SpecError
from auditcore.membership.thresholds import (
    MIN_FALSE_POSITIVES,
    allowed_false_positives,
    auc,
    evidence,
    exact_interval,
    exact_roc,
    operating_point,
    shows_nothing,
)

CHUNK = 400_000  # draws held in memory at once; small enough to stay in the cache
MIN_SUBJECTS = 5  # per class; resampling fewer shows no spread


@dataclass(frozen=True)
class Draws:
    """What B resamples gave: auc float64 [B], tpr and fpr float64 [B, number of target FPRs]."""

    auc: np.ndarray
    tpr: np.ndarray
    fpr: np.ndarray


@dataclass(frozen=True)
class _Ranked:
    """One ranking prepared for weighted counting; non-members sorted by falling score."""

    members: np.ndarray  # positions of members, by falling score
    nonmembers: np.ndarray
    above: np.ndarray  # per non-member: members with a higher score
    at_least: np.ndarray  # members with at least its score
    block: np.ndarray  # non-members with a higher score


def subject_codes(groups: Sequence[Any] | None, n: int) -> np.ndarray | None:
    """Number the subjects: int64 [n], or None when every row is a subject of its own. A missing group is its own."""
    if groups is None:
        return None
    codes, names = pd.factorize(pd.Series(list(groups), dtype="str"), sort=True)
    codes = np.asarray(codes, dtype=np.int64)
    missing = codes < 0
    codes[missing] = len(names) + np.arange(missing.sum())
    if len(codes) != n:
        raise ValueError(f"{len(codes)} groups for {n} rows")
    return None if len(np.unique(codes)) == n else np.unique(codes, return_inverse=True)[1]


def bootstrap_points(
    member: np.ndarray,
    ranks: Sequence[np.ndarray],
    subjects: np.ndarray | None,
    target_fprs: Sequence[float],
    n_boot: int,
    seed: int,
) -> list[Draws]:
    """Resample `n_boot` times; the same draws for every ranking, so that differences between them are paired.

    member: bool [n], both values present; ranks: float64 [n] each, finite; subjects: int64 [n] from `subject_codes`.
    The result depends on the order of the rows only through which row is drawn: sort them first.
    """
    ranked = [_rank(member, rank) for rank in ranks]
    shape = (n_boot, len(target_fprs))
    out = [Draws(np.empty(n_boot), np.empty(shape), np.empty(shape)) for _ in ranks]
    start = 0
    for counts in _resamples(member, subjects, n_boot, seed):
        rows = slice(start, start + len(counts))
        for one, draws in zip(ranked, out, strict=True):
            draws.auc[rows], draws.tpr[rows], draws.fpr[rows] = _points(one, counts, target_fprs)
        start = rows.stop
    return out


def _rank(member: np.ndarray, rank: np.ndarray) -> _Ranked:
    order = np.argsort(-rank, kind="stable")
    members, nonmembers = order[member[order]], order[~member[order]]
    high, low = -rank[members], -rank[nonmembers]  # both rising
    return _Ranked(
        members=members,
        nonmembers=nonmembers,
        above=np.searchsorted(high, low, side="left"),
        at_least=np.searchsorted(high, low, side="right"),
        block=np.searchsorted(low, low, side="left"),
    )


def _resamples(member: np.ndarray, subjects: np.ndarray | None, n_boot: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each row is drawn: int64 [chunk, n]."""
    rng = np.random.default_rng(seed)
    unit = np.arange(len(member)) if subjects is None else subjects
    n_units = int(unit.max()) + 1
    has_member = np.bincount(unit, weights=member, minlength=n_units) > 0
    has_other = np.bincount(unit, weights=~member, minlength=n_units) > 0
    strata = [np.flatnonzero((has_member == a) & (has_other == b)) for a, b in ((1, 0), (0, 1), (1, 1))]
    chunk = max(1, CHUNK // len(member))
    for start in range(0, n_boot, chunk):
        size = min(chunk, n_boot - start)
        counts = np.zeros((size, n_units), dtype=np.int64)
        for units in strata:
            u = len(units)
            if u:
                drawn = rng.integers(0, u, size=(size, u)) + u * np.arange(size)[:, None]
                counts[:, units] = np.bincount(drawn.ravel(), minlength=size * u).reshape(size, u)
        yield counts if subjects is None else counts[:, subjects]


def _points(
    one: _Ranked, counts: np.ndarray, target_fprs: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return AUC [b], TPR [b, f] and FPR [b, f] of b resamples given how often each row was drawn, int64 [b, n]."""
    size = len(counts)
    weight = counts[:, one.nonmembers]
    true = np.zeros((size, len(one.members) + 1), dtype=np.int64)  # members among the first i
    false = np.zeros((size, len(one.nonmembers) + 1), dtype=np.int64)
    np.cumsum(counts[:, one.members], axis=1, out=true[:, 1:])
    np.cumsum(weight, axis=1, out=false[:, 1:])
    n_true, n_false = true[:, -1], false[:, -1]
    wins = np.einsum("ij,ij->i", weight, true[:, one.above] + true[:, one.at_least])
    auc = wins / (2 * n_true * n_false)

    tpr = np.empty((size, len(target_fprs)))
    fpr = np.empty_like(tpr)
    resample = np.arange(size)
    above = np.append(one.above, len(one.members))
    block = np.append(one.block, len(one.nonmembers))
    for j, target in enumerate(target_fprs):
        allowed = allowed_false_positives(n_false, target)
        # The first non-member that is one too many bars its whole tied block: the threshold stands just above it.
        first = np.count_nonzero(false[:, 1:] <= allowed[:, None], axis=1)
        tpr[:, j] = true[resample, above[first]] / n_true
        fpr[:, j] = false[resample, block[first]] / n_false
    return auc, tpr, fpr


def interval(draws: np.ndarray, coverage: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of one statistic's resamples."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def paired_difference(
    member: Any,
    rank_a: Any,
    rank_b: Any,
    groups: Sequence[Any] | None = None,
    target_fprs: Sequence[float] = (0.01,),
    n_boot: int = 2000,
    seed: int = 0,
    coverage: float = 0.95,
) -> pd.DataFrame:
    """Compare two attacks, or one attack on two models, on the same rows: a minus b with its paired interval.

    All arrays are [n] in one order; rows without evidence in either are left out of both. Returns one row per metric:
    metric (auc | tpr), target_fpr, value_a, value_b, difference, low, high, p_value, n_member, n_nonmember. p_value:
    two-sided, by the same resamples, at least 2 / (n_boot + 1). low, high and p_value are null where an interval makes
    no sense (fewer than 5 subjects of a class, or non-members x target FPR < 5). A TPR that tied scores leave without a
    threshold is null (`ties.kept_from`), and so is its difference. Where no resample moves a difference
    of TPRs, two rankings that differ have agreed on every member so far: the interval is then Clopper-Pearson's of
    seeing none of so many member subjects disagree, to either side.
    """
    label, use_a = evidence(member, rank_a)
    use = use_a & evidence(member, rank_b)[1]
    if not label[use].any() or label[use].all():
        raise SpecError("the two rankings share no members, or no non-members, with evidence in both.")
    ranks = [np.asarray(r, dtype=np.float64)[use] for r in (rank_a, rank_b)]
    label = label[use]
    subjects = subject_codes(None if groups is None else np.asarray(groups, dtype=object)[use], len(label))
    a, b = bootstrap_points(label, ranks, subjects, target_fprs, n_boot, seed)
    rocs = [exact_roc(label, rank) for rank in ranks]
    n_nonmember = int(np.sum(~label))
    spread = enough_subjects(label, subjects)
    order_a, order_b = (np.unique(rank, return_inverse=True)[1] for rank in ranks)
    alike = np.array_equal(order_a, order_b)  # one ranking, whatever its numbers: no row can tell them apart
    unseen = 0.0 if alike else exact_interval(0.0, count_subjects(label, subjects)[0], 0.025)[1]
    rows = [("auc", np.nan, *(auc(label, rank) for rank in ranks), a.auc - b.auc, spread)]
    for j, f in enumerate(target_fprs):
        values = [np.nan if shows_nothing(roc, f, n_nonmember) else operating_point(roc, f).tpr for roc in rocs]
        shown = spread and n_nonmember * f >= MIN_FALSE_POSITIVES and not np.isnan(values).any()
        rows.append(("tpr", f, *values, a.tpr[:, j] - b.tpr[:, j], shown))
    return pd.DataFrame(
        [
            {
                "metric": metric,
                "target_fpr": f,
                "value_a": value_a,
                "value_b": value_b,
                "difference": value_a - value_b,
                **_compared(d, coverage, unseen if metric == "tpr" else 0.0, shown),
                "n_member": len(label) - n_nonmember,
                "n_nonmember": n_nonmember,
            }
            for metric, f, value_a, value_b, d, shown in rows
        ]
    )


def _compared(draws: np.ndarray, coverage: float, unseen: float, shown: bool) -> dict[str, float]:
    """Interval and two-sided p-value of one difference. unseen: half width where no resample moved."""
    if not shown:
        return {"low": np.nan, "high": np.nan, "p_value": np.nan}
    low, high = interval(draws, coverage)
    if low == high:
        low, high = max(low - unseen, -1.0), min(high + unseen, 1.0)
    side = 1 + min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    return {"low": low, "high": high, "p_value": min(1.0, 2 * side / (1 + len(draws)))}


def enough_subjects(member: np.ndarray, subjects: np.ndarray | None) -> bool:
    """Say whether each class has the 5 subjects below which resampling shows no spread."""
    return min(count_subjects(member, subjects)) >= MIN_SUBJECTS


def count_subjects(member: np.ndarray, subjects: np.ndarray | None) -> tuple[int, int]:
    """Return how many subjects have a member row and how many a non-member row."""
    unit = np.arange(len(member)) if subjects is None else subjects
    return len(np.unique(unit[member])), len(np.unique(unit[~member]))
