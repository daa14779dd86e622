"""Membership metrics and verdicts. In: table `membership_scores`. Out: tables `attack_metrics`, `roc` and `verdicts`.

A false-positive rate pooled over rows is not one person's false-positive rate: a page that shows these says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from auditcore.errors import DatasetError
from auditcore.membership.bootstrap import (
    Draws,
    bootstrap_points,
    count_subjects,
    enough_subjects,
    interval,
    paired_difference,
    subject_codes,
)
from auditcore.membership.thresholds import (
    MIN_FALSE_POSITIVES,
    Roc,
    auc,
    classify,
    exact_interval,
    exact_roc,
    needed_nonmembers,
    operating_point,
    resolvable,
    shows_nothing,
    tied_out,
    why_unresolved,
)
from auditcore.membership.ties import reasons
from auditcore.verdict import NOT_RESOLVED, WITHIN, combine, holm, interval_verdict

__all__ = [
    "attack_metrics",
    "classify",
    "exact_roc",
    "membership_verdicts",
    "needed_nonmembers",
    "paired_difference",
    "reasons",
    "why_unresolved",
]

VERDICT_FPR = 0.01
METRIC_COLUMNS = [
    *("attack", "metric", "target_fpr", "value", "low", "high", "realised_fpr", "threshold", "resolvable"),
    *("n_member", "n_nonmember", "n_no_evidence"),
]
VERDICT_COLUMNS = [
    *("kind", "attribute", "artifact", "layer", "defence", "attacker", "split", "budget"),
    *("value", "low", "high", "n_subjects", "verdict"),
]
Groups = Mapping[str, Any] | pd.Series | Sequence[Any] | np.ndarray | None


@dataclass(frozen=True)
class _Evidence:
    """Rows of one attack that count: known membership, finite rank; sorted by example id."""

    attack: str
    member: np.ndarray
    rank: np.ndarray
    example: np.ndarray
    subjects: np.ndarray | None
    n_no_evidence: int

    @property
    def n_member(self) -> int:
        return int(self.member.sum())

    @property
    def n_nonmember(self) -> int:
        return len(self.member) - self.n_member


def attack_metrics(
    scores: pd.DataFrame,
    groups: Groups = None,
    target_fprs: Sequence[float] = (0.001, 0.01, 0.05, 0.1),
    n_boot: int = 2000,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute AUC and TPR of every attack: tables `attack_metrics` and `roc`.

    groups: the subject of each example, as a mapping or Series by example_id, or as values in the order in which the
    examples first appear in `scores` (data order); None or missing: the row is its own subject. The order of the rows
    of `scores` changes nothing.

    AUC: value with 95 % bootstrap interval; target_fpr, realised_fpr, threshold and resolvable null. TPR: the exact
    step; `threshold` is the lowest rank_score still called a member. Where too few non-members resolve the target FPR
    (`resolvable` False), or tied scores leave no threshold there (`resolvable` stays True, module `ties`), value,
    interval and threshold are null and `realised_fpr` stays (`why_unresolved` gives the words). The interval of a TPR
    is never narrower than Clopper-Pearson's over member subjects, since resampling cannot spread a share of 0 or 1.
    `roc` holds every vertex; the threshold of its first one (nothing called a member) is null. Raises DatasetError for
    an example scored twice by one attack.
    """
    metrics: list[dict[str, Any]] = []
    curves = []
    attacks = list(_attacks(scores, groups))
    draws = _draws(attacks, target_fprs, n_boot, seed)
    for one in attacks:
        roc = exact_roc(one.member, one.rank)
        metrics += _metric_rows(one, roc, draws.get(one.attack), target_fprs)
        threshold = np.where(np.isinf(roc.threshold), np.nan, roc.threshold)
        curves.append(pd.DataFrame({"attack": one.attack, "fpr": roc.fpr, "tpr": roc.tpr, "threshold": threshold}))
    table = pd.DataFrame(metrics, columns=METRIC_COLUMNS)
    table["resolvable"] = table["resolvable"].astype("boolean")
    return table, pd.concat(curves, ignore_index=True)


def _metric_rows(
    one: _Evidence, roc: Roc, draws: Draws | None, target_fprs: Sequence[float]
) -> Iterator[dict[str, Any]]:
    counts = {"n_member": one.n_member, "n_nonmember": one.n_nonmember, "n_no_evidence": one.n_no_evidence}
    nothing = {"value": np.nan, "low": np.nan, "high": np.nan, "realised_fpr": np.nan, "threshold": np.nan}
    whole = {"value": auc(one.member, one.rank)}
    if draws is not None and enough_subjects(one.member, one.subjects):
        whole["low"], whole["high"] = interval(draws.auc)
    base = {"attack": one.attack, **nothing, **counts}
    yield {**base, "metric": "auc", "target_fpr": np.nan, "resolvable": None, **whole}
    for j, f in enumerate(target_fprs):
        point = operating_point(roc, f)
        row = {**base, "metric": "tpr", "target_fpr": f, "realised_fpr": point.fpr}
        row["resolvable"] = draws is not None and resolvable(one.n_nonmember, f)
        if row["resolvable"] and not shows_nothing(roc, f, one.n_nonmember):
            row["value"] = point.tpr
            row["threshold"] = point.threshold if np.isfinite(point.threshold) else np.nan
            if draws is not None and one.n_nonmember * f >= MIN_FALSE_POSITIVES:
                n = count_subjects(one.member, one.subjects)[0]
                row["low"], row["high"] = _widen(interval(draws.tpr[:, j]), exact_interval(point.tpr, n, 0.025))
        yield row


def _widen(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), max(a[1], b[1])


def membership_verdicts(
    scores: pd.DataFrame,
    metrics: pd.DataFrame | None = None,
    groups: Groups = None,
    budget: float = 0.025,
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Judge each attack, and all of them together (attacker "all"): rows of table `verdicts`, kind "membership".

    value: excess = TPR - realised FPR at a target FPR of 1 %; low and high: its 90 % interval (bootstrap, never
    narrower than Clopper-Pearson's over member subjects). Too few non-members to resolve 1 %, or nothing found because
    tied scores leave no threshold there: value null, verdict `not resolved`. Members that stand above every non-member
    are a result where ties bar all below them, but never `within budget`: no threshold that accuses anybody was tried.
    The row "all" is `auditcore.verdict.combine` after Holm's correction over the attacks; its value and interval are
    those of the attack with the largest excess, n_subjects the largest number. metrics: the run's `attack_metrics`;
    where it is given, an attack it does not resolve at 1 % is not judged here either.
    """
    attacks = list(_attacks(scores, groups))
    draws = _draws(attacks, (VERDICT_FPR,), n_boot, seed)
    rows, p_over = [], []
    for one in attacks:
        row, p = _judge(one, draws.get(one.attack), budget, _is_resolved(metrics, one))
        rows.append(row)
        p_over.append(p)
    if rows:
        best = max(rows, key=lambda r: -np.inf if np.isnan(r["value"]) else r["value"])
        verdict = combine([r["verdict"] for r in rows], list(holm(p_over)))
        together = {**best, "attacker": "all", "n_subjects": max(r["n_subjects"] for r in rows), "verdict": verdict}
        rows.append(together)
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)


def _is_resolved(metrics: pd.DataFrame | None, one: _Evidence) -> bool:
    if not one.n_member or not resolvable(one.n_nonmember, VERDICT_FPR):
        return False
    if metrics is None:
        return True
    at = metrics[
        (metrics["attack"] == one.attack)
        & np.isclose(metrics["target_fpr"].astype(float), VERDICT_FPR, rtol=1e-9, atol=0)
    ]
    return bool(at["resolvable"].eq(True).any())


def _judge(one: _Evidence, draws: Draws | None, budget: float, resolved: bool) -> tuple[dict[str, Any], float]:
    """Return the verdict row of one attack and the p-value of "the excess is at most the budget"."""
    n_subjects = len(one.member) if one.subjects is None else len(np.unique(one.subjects))
    row: dict[str, Any] = dict.fromkeys(VERDICT_COLUMNS)
    row.update(kind="membership", attacker=one.attack, budget=budget, value=np.nan, low=np.nan, high=np.nan)
    row.update(n_subjects=n_subjects)
    p = np.nan
    roc = exact_roc(one.member, one.rank)
    point = operating_point(roc, VERDICT_FPR)
    if resolved and draws is not None and not shows_nothing(roc, VERDICT_FPR, one.n_nonmember):
        excess = draws.tpr[:, 0] - draws.fpr[:, 0]
        n = count_subjects(one.member, one.subjects)[0]
        exact = exact_interval(point.tpr, n, 0.05)
        row["value"] = point.tpr - point.fpr
        row["low"], row["high"] = _widen(interval(excess, 0.9), (exact[0] - point.fpr, exact[1] - point.fpr))
        p = (1 + np.count_nonzero(excess <= budget)) / (1 + len(excess))
        # The exact test that belongs to the widened interval: so many hits or more at a TPR of budget + realised FPR.
        hits = point.tpr * n
        p = max(p, float(beta.cdf(min(budget + point.fpr, 1.0), hits, n - hits + 1)) if hits > 0 else 1.0)
    row["verdict"] = interval_verdict(row["low"], row["high"], budget)
    if row["verdict"] == WITHIN and tied_out(roc, VERDICT_FPR, one.n_nonmember):
        row["verdict"] = NOT_RESOLVED
    return row, p


def _draws(attacks: Sequence[_Evidence], target_fprs: Sequence[float], n_boot: int, seed: int) -> dict[str, Draws]:
    """Resample every attack that has members and non-members; attacks with evidence for the same rows share draws."""
    alike: dict[bytes, list[_Evidence]] = {}
    for one in attacks:
        if one.n_member and one.n_nonmember:
            alike.setdefault(one.example.tobytes(), []).append(one)
    found: dict[str, Draws] = {}
    for some in alike.values():
        first = some[0]
        points = bootstrap_points(first.member, [s.rank for s in some], first.subjects, target_fprs, n_boot, seed)
        found.update({s.attack: p for s, p in zip(some, points, strict=True)})
    return found


def _attacks(scores: pd.DataFrame, groups: Groups) -> Iterator[_Evidence]:
    """Yield the evidence of each attack, in order of first appearance."""
    examples = pd.Index(pd.unique(scores["example_id"]))
    subject = _subject_of(examples, groups)
    # Numbered in the order of their names, so that draws do not depend on the order of the rows.
    number = np.argsort(np.argsort(examples.to_numpy(dtype=object), kind="stable"), kind="stable")
    for attack in pd.unique(scores["attack"]):
        part = scores[scores["attack"] == attack]
        place = examples.get_indexer(part["example_id"])
        if len(np.unique(place)) < len(place):
            twice = part["example_id"][part["example_id"].duplicated()].iloc[0]
            raise DatasetError(f"membership_scores: example_id '{twice}' is scored twice by attack '{attack}'.")
        order = np.argsort(number[place])
        part, place = part.iloc[order], place[order]
        known = part["member"].astype("boolean")
        rank = part["rank_score"].to_numpy(dtype=np.float64, na_value=np.nan)
        labelled = ~known.isna().to_numpy()
        use = labelled & np.isfinite(rank)
        yield _Evidence(
            attack=str(attack),
            member=known[use].to_numpy(dtype=bool),
            rank=rank[use],
            example=number[place[use]],
            subjects=None if subject is None else subject_codes(subject[place[use]], int(use.sum())),
            n_no_evidence=int(np.sum(labelled & ~use)),
        )


def _subject_of(examples: pd.Index, groups: Groups) -> np.ndarray | None:
    """Return the subject of each example: object [n], or None."""
    if groups is None:
        return None
    if isinstance(groups, pd.Series) and examples.isin(groups.index).all():
        return groups.reindex(examples).to_numpy(dtype=object)
    if isinstance(groups, Mapping):
        return np.array([groups.get(e) for e in examples], dtype=object)
    values = np.asarray(groups, dtype=object)
    if len(values) != len(examples):
        raise DatasetError(f"groups: {len(values)} subjects for {len(examples)} examples.")
    return values
