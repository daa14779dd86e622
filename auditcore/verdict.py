"""The one rule that turns intervals into verdicts. In: bounds, a budget, p-values. Out: one of `spec.VERDICTS`.

Leakage gaps and membership excesses are judged by the same rule: the 90 % interval [low, high] of a signed quantity
(0 = nothing leaks) against a budget. Each side of the interval errs at most 5 % of the time, so that `within budget` is
an equivalence test at 5 % (two one-sided tests, Schuirmann 1987) and `over budget` a one-sided test at 5 %.
"""

import math
from collections.abc import Sequence

import numpy as np

WITHIN = "within budget"
OVER = "over budget"
NOT_RESOLVED = "not resolved"
BELOW = "below chance"

ALPHA = 0.05  # each side of the 90 % interval

# Shown beside the words, so that no verdict is told by colour alone.
SYMBOLS = {OVER: "▲", WITHIN: "✓", NOT_RESOLVED: "?", BELOW: "↓"}

# What a verdict means, in one sentence for a page or a report.
MEANINGS = {
    WITHIN: "the whole 90 % interval lies within the budget",
    OVER: "even the lower end of the 90 % interval lies above the budget",
    NOT_RESOLVED: "the interval reaches across the budget: this much data cannot tell",
    BELOW: "the attacker does worse than guessing: check the splits before reading anything else",
}

# Under a table of verdicts, whose intervals are all of the one kind.
JUDGED = (
    "A verdict is read off the 90\u00a0% interval, on purpose: each of its two ends errs at most 5 times in 100, which "
    "makes “within budget” a test at 5\u00a0%."
)
# Why two levels stand on one page.
LEVELS = f"A number carries its 95\u00a0% interval; {JUDGED[:1].lower()}{JUDGED[1:]}"


def power_basis(tests: int, needed_by_one: int) -> str:
    """What a stated power assumes, in one clause for a page or a terminal.

    tests: attackers times vectors that must all be within budget. needed_by_one: subjects that one of them would take.
    """
    if tests == 1:
        return "for one attacker on one vector"
    return f"for all {tests:,} tests (attacker × vector), counted as independent; one alone takes {needed_by_one:,}"


def wilson(share: float, n: float) -> tuple[float, float]:
    """95 % score interval (low, high) of a share of n (Wilson 1927); NaN where either is NaN, or n is 0."""
    if not n > 0 or math.isnan(share):
        return math.nan, math.nan
    z2 = 1.959963984540054**2 / n
    centre, half = share + z2 / 2, math.sqrt(share * (1 - share) * z2 + z2 * z2 / 4)
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


def interval_verdict(low: float | None, high: float | None, budget: float) -> str:
    """Judge the 90 % interval [low, high] of a signed gap or excess against `budget`; the first match wins.

    `within budget` if -budget <= low and high <= budget; `below chance` if high < 0; `over budget` if low > budget;
    else `not resolved`. A missing or NaN bound is `not resolved`. Raises ValueError for a budget that is not a finite
    number >= 0 and for low > high.
    """
    if not (np.isfinite(budget) and budget >= 0):
        raise ValueError(f"a budget is a finite number of at least 0, got {budget}")
    if low is None or high is None or np.isnan(low) or np.isnan(high):
        return NOT_RESOLVED
    if low > high:
        raise ValueError(f"the interval [{low}, {high}] ends before it begins")
    if -budget <= low and high <= budget:
        return WITHIN
    if high < 0:
        return BELOW
    if low > budget:
        return OVER
    return NOT_RESOLVED


def point_rule(value: float | None, budget: float) -> bool:
    """Say whether the point estimate alone meets the budget: |value| <= budget (the rule of arXiv 2605.26433).

    Shown beside the verdict as what it is: it does not know how many subjects stand behind the number.
    """
    return value is not None and bool(abs(value) <= budget)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Adjust p-values for being several (Holm 1979): float64 [m], in the order given, monotone, at most 1.

    A NaN p-value stays NaN, and still counts as one of the m tests. Raises ValueError outside [0, 1].
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or np.any((p < 0) | (p > 1)):
        raise ValueError(f"p-values are numbers between 0 and 1, got {p_values}")
    order = np.argsort(p, kind="stable")  # NaN sorts last
    stepped = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


def combine(verdicts: Sequence[str], adjusted_p_over: Sequence[float | None] | None = None) -> str:
    """Judge a run from the verdicts of all its declared attackers.

    verdicts: one per declared attacker (attack, probe, artifact); an attacker that could not be run is declared all
    the same and stands here as `not resolved`. adjusted_p_over: for each, the p-value of "the true value is at most
    the budget" after `holm` over the same attackers; None or NaN where it was not computed (never significant).

    The first match wins: `over budget` if any attacker is after the correction (its verdict is `over budget` and its
    adjusted p <= 0.05); `below chance` if any is (a broken split makes every other number suspect); `within budget`
    only if every one is, so that no choice of attacker can hide one; else `not resolved`. Leaving `adjusted_p_over`
    out is right for one attacker only, whose interval is its own test. Raises ValueError otherwise.
    """
    if not verdicts:
        raise ValueError("no verdicts to combine: at least one attacker is declared")
    for verdict in verdicts:
        if verdict not in SYMBOLS:
            raise ValueError(f"'{verdict}' is not a verdict")
    if adjusted_p_over is None:
        if len(verdicts) > 1:
            raise ValueError("several attackers need p-values corrected by holm()")
        return verdicts[0]
    if len(adjusted_p_over) != len(verdicts):
        raise ValueError(f"{len(verdicts)} verdicts but {len(adjusted_p_over)} p-values")
    significant = [p is not None and bool(p <= ALPHA) for p in adjusted_p_over]  # NaN <= x is False
    if any(v == OVER and s for v, s in zip(verdicts, significant, strict=True)):
        return OVER
    if BELOW in verdicts:
        return BELOW
    if all(v == WITHIN for v in verdicts):
        return WITHIN
    return NOT_RESOLVED
