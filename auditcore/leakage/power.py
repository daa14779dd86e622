"""What a planned test can show, before any work. In: subjects, classes, budget, attackers. Out: power and sizes needed.

Everything is an exact binomial with the Clopper-Pearson interval in the place of the bootstrap's: the number of test
rows named correctly by a leak-free probe is Binomial(n, 1/K). This errs on the safe side: a probe whose per-class
recalls differ, or whose seeds disagree, varies less than that binomial.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binom, norm

from auditcore.verdict import ALPHA

TARGET = 0.8
EXACT_UP_TO = 300_000  # subjects; beyond, steps of the binomial no longer matter and the normal approximation serves


@dataclass(frozen=True)
class Power:
    """What a test of this size can show; shares and gaps lie between 0 and 1."""

    p_within_if_leak_free: float  # probability that every attacker reads `within budget` on a leak-free vector
    smallest_gap_detectable: float | None  # true gap whose lower 95 % bound lies above 0 with probability 0.8
    smallest_gap_over_budget: float | None  # true gap that one attacker reads `over budget` (after Holm) with 0.8
    subjects_needed: int  # test subjects for p_within_if_leak_free >= 0.8 from there on
    needed_by_one: int  # the same for one attacker alone
    n_effective: int  # rows that count as independent
    p_point_rule_if_leak_free: float  # the point rule |gap| <= budget, for one attacker


def power(
    n_subjects: int,
    n_classes: int,
    budget: float,
    n_attackers: int = 1,
    rows_per_subject: float = 1.0,
    rho: float = 1.0,
) -> Power:
    """Return the power of a test with `n_subjects` class-balanced test subjects.

    Attackers count as independent (they are not, so that the truth lies between one attacker's power and this).
    rho: correlation of correctness between two rows of one subject. n subjects with m rows each count as
    n m / (1 + (m - 1) rho) independent rows; the default 1 promises nothing from further rows of the same subject.
    Raises ValueError for values out of range.
    """
    _check(n_subjects, n_classes, budget, n_attackers, rows_per_subject, rho)
    gain = rows_per_subject / (1 + (rows_per_subject - 1) * rho)
    n = int(n_subjects * gain + 1e-9)
    needed, alone = (subjects_needed(n_classes, budget, tests, TARGET, gain) for tests in (n_attackers, 1))
    if n < 1:
        return Power(0.0, None, None, needed, alone, 0, 0.0)
    return Power(
        p_within_if_leak_free=float(p_within(n, n_classes, budget)) ** n_attackers,
        smallest_gap_detectable=_detectable(n, n_classes, 0.0, ALPHA),
        smallest_gap_over_budget=_detectable(n, n_classes, budget, ALPHA / n_attackers),
        subjects_needed=needed,
        needed_by_one=alone,
        n_effective=n,
        p_point_rule_if_leak_free=point_rule_passes(n, n_classes, budget),
    )


def p_within(n: int | np.ndarray, n_classes: int, budget: float, gap: float = 0.0) -> np.ndarray:
    """Return the probability that one attacker with true gap `gap` reads `within budget` on n independent rows.

    The count X ~ Binomial(n, 1/K + gap) reads so when its 90 % Clopper-Pearson interval lies in 1/K +- budget. By
    the interval's definition that is P(X >= x | 1/K - budget) <= 0.05 and P(X <= x | 1/K + budget) <= 0.05: a range
    of counts, so that no interval has to be computed.
    """
    n = np.asarray(n, dtype=np.int64)
    chance = 1 / n_classes
    lowest = np.zeros_like(n)
    highest = n.copy()
    if chance - budget > 0:
        # Smallest x with P(X >= x) <= alpha; isf is the smallest k with P(X > k) <= alpha, hence + 1.
        lowest = binom.isf(ALPHA, n, chance - budget).astype(np.int64) + 1
    if chance + budget < 1:
        # Largest x with P(X <= x) <= alpha; ppf is the smallest k with P(X <= k) >= alpha.
        k = binom.ppf(ALPHA, n, chance + budget).astype(np.int64)
        highest = np.where(binom.cdf(k, n, chance + budget) <= ALPHA, k, k - 1)
    true = chance + gap
    return np.maximum(binom.cdf(highest, n, true) - binom.cdf(lowest - 1, n, true), 0.0)


def subjects_needed(
    n_classes: int, budget: float, n_attackers: int = 1, target: float = TARGET, gain: float = 1.0
) -> int:
    """Return the smallest balanced number of test subjects from which on `within budget` keeps its power.

    Power is a saw-tooth in n: the answer is the smallest multiple of the number of classes after which it never falls
    below `target` again (for one attacker at 0.025: 2,235 with five classes, 3,480 with two). gain: independent rows
    per subject, m / (1 + (m - 1) rho).
    """
    each = target ** (1 / n_attackers)
    chance = 1 / n_classes
    z = norm.ppf(1 - ALPHA) + norm.ppf((1 + each) / 2)
    guess = z * z * chance * (1 - chance) / budget**2
    if guess > EXACT_UP_TO:
        rows = guess
    else:
        tested = np.arange(1, int(guess * 1.5 / n_classes) + 200) * n_classes
        failing = tested[p_within(tested, n_classes, budget) < each]
        rows = int(failing[-1]) + n_classes if len(failing) else n_classes
    return int(np.ceil(rows / gain / n_classes - 1e-9)) * n_classes


def point_rule_passes(n: int, n_classes: int, budget: float, gap: float = 0.0) -> float:
    """Return the probability that the point estimate alone meets the budget when the true gap is `gap`."""
    counts = np.arange(n + 1)
    passes = np.abs(counts - n / n_classes) <= budget * n + 1e-9
    return float(binom.pmf(counts[passes], n, 1 / n_classes + gap).sum())


def gap_of_leak_free(n: int, n_classes: int) -> tuple[float, float]:
    """Return mean and 95th percentile of |accuracy - 1/K| when nothing leaks: what the unsigned gap reads on noise."""
    counts = np.arange(n + 1)
    gaps = np.abs(counts / n - 1 / n_classes)
    weights = binom.pmf(counts, n, 1 / n_classes)
    order = np.argsort(gaps, kind="stable")
    below = min(int(np.searchsorted(np.cumsum(weights[order]), 0.95)), n)
    return float(gaps @ weights), float(gaps[order][below])


def _detectable(n: int, n_classes: int, beyond: float, alpha: float) -> float | None:
    """Return the gap whose lower bound exceeds `beyond` with probability 0.8, or None when no result could."""
    edge = 1 / n_classes + beyond
    if edge >= 1:
        return None
    count = int(binom.isf(alpha, n, edge)) + 1  # the smallest count that is significant
    if count > n:
        return None
    # P(X >= count | p) is the Beta(count, n - count + 1) distribution function at p.
    return float(beta.ppf(TARGET, count, n - count + 1)) - 1 / n_classes


def _check(n_subjects: int, n_classes: int, budget: float, n_attackers: int, rows: float, rho: float) -> None:
    if n_subjects < 0 or n_classes < 2 or n_attackers < 1:
        raise ValueError("power needs at least 0 subjects, 2 classes and 1 attacker")
    if not 0 < budget < 1:
        raise ValueError(f"a budget lies between 0 and 1, got {budget}")
    if rows < 1 or not 0 <= rho <= 1:
        raise ValueError("a subject has at least one row, and rho lies between 0 and 1")
