"""Uncertainty of a mean per-class recall. In: correctness per row, classes, subjects. Out: replicates and intervals.

Two intervals are taken and the wider end kept on each side. The percentile bootstrap over subjects (stratified by
class) knows how rows of one subject go together. Where nothing varies in the sample (every row right, or a probe that
names one class only) it has width zero, which no finite sample supports; there the second one holds: Wilson's score
interval of each class recall, at the effective sample size the bootstrap found, joined by the square-and-add rule
(Newcombe 1998; Zou and Donner 2008). Both are conditional on the fitted probe.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

PER_TEST = 40  # replicates for each test that is corrected for: the smallest corrected p-value is then 0.025


@dataclass(frozen=True)
class Resampled:
    """Recalls of an evaluation set and their bootstrap replicates."""

    recall: np.ndarray  # float64 [K]
    replicates: np.ndarray  # float64 [B, K]
    n_effective: np.ndarray  # float64 [K], rows that count as independent
    n_subjects: np.ndarray  # int64 [K], subjects with at least one row of the class

    @property
    def accuracy(self) -> float:
        """Mean per-class recall."""
        return float(self.recall.mean())


def resamples(wanted: int, n_tests: int) -> int:
    """Return how many replicates or permutations several tests need: `wanted`, or more where Holm corrects over many.

    B replicates tell no p-value below 1 / (B + 1), and Holm multiplies the smallest by the number of tests: with 2,000
    replicates none of 101 tests, with 199 permutations none of 11, could ever be significant at 5 %, whatever the
    vectors leak. None wanted are none, and one test is not corrected for.
    """
    return max(wanted, PER_TEST * n_tests) if wanted and n_tests > 1 else wanted


def resample(correct: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_boot: int, seed: int) -> Resampled:
    """Draw `n_boot` bootstrap replicates of the per-class recalls.

    correct: float [n], 0 to 1 (averaged over seeds); codes: int [n], class 0..K-1 of each row, every class present;
    groups: [n] subjects. Whole subjects are drawn with replacement inside the stratum of their class (a subject whose
    rows belong to several classes lies in the stratum of that set). Rows' order does not matter.
    """
    n_classes = int(codes.max()) + 1
    subject = np.unique(groups, return_inverse=True)[1]
    n_all = int(subject.max()) + 1
    # Per subject and class: rows, and rows named correctly.
    rows = np.zeros((n_all, n_classes))
    right = np.zeros((n_all, n_classes))
    np.add.at(rows, (subject, codes), 1.0)
    np.add.at(right, (subject, codes), correct)
    right = right.round(9)  # 1/3 + 1/3 + 1/3 in another order is the same subject
    rng = np.random.default_rng([seed, 0xB007])
    numerator = np.zeros((n_boot, n_classes))
    denominator = np.zeros((n_boot, n_classes))
    strata = _alike(rows > 0)
    looks = np.hstack([right, rows])
    for stratum in range(strata.max() + 1):
        # Subjects that look the same are drawn together: a multinomial over distinct subjects, not over all.
        mine = looks[strata == stratum]
        _, first, counts = np.unique(_alike(mine), return_index=True, return_counts=True)
        kinds = mine[first]
        drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size=n_boot)
        numerator += drawn @ kinds[:, :n_classes]
        denominator += drawn @ kinds[:, n_classes:]
    with np.errstate(invalid="ignore"):
        replicates = numerator / denominator
    replicates = replicates[np.isfinite(replicates).all(axis=1)]  # a class can vanish only where subjects mix classes
    recall = right.sum(axis=0) / rows.sum(axis=0)
    n_subjects = (rows > 0).sum(axis=0)
    return Resampled(recall, replicates, _effective(recall, replicates, n_subjects, rows.sum(axis=0)), n_subjects)


def _alike(table: np.ndarray) -> np.ndarray:
    """Number of each row's look, int64 [n], in lexicographic order: as np.unique(axis=0), at a fraction of its time."""
    label, size = np.zeros(len(table), dtype=np.int64), 1
    for column in table.T:
        if (column == column[0]).all():
            continue
        values, place = np.unique(column, return_inverse=True)
        if size * len(values) >= 2**62:
            label = np.unique(label, return_inverse=True)[1]
            size = int(label.max()) + 1
        label, size = label * len(values) + place, size * len(values)
    return np.unique(label, return_inverse=True)[1]


def accuracy_interval(resampled: Resampled, level: float) -> tuple[float, float]:
    """Return (low, high) of the accuracy at two-sided `level`, the wider of bootstrap and Wilson on each side."""
    tail = (1 - level) / 2
    accuracy = resampled.replicates.mean(axis=1)
    low, high = _score_interval(resampled, student.isf(tail, _freedom(resampled)))
    if len(accuracy):
        low = min(low, float(np.quantile(accuracy, tail, method="lower")))
        high = max(high, float(np.quantile(accuracy, 1 - tail, method="higher")))
    return low, high


def p_at_most(resampled: Resampled, accuracy: float) -> float:
    """Return the one-sided p-value of "the true accuracy is at most `accuracy`": both intervals, turned round."""
    drawn = resampled.replicates.mean(axis=1)
    p = (1 + np.count_nonzero(drawn <= accuracy)) / (1 + len(drawn))
    if resampled.accuracy <= accuracy:
        return max(float(p), 0.5)

    def below(quantile: float) -> float:
        return _score_interval(resampled, quantile)[0] - accuracy

    quantile = brentq(below, 0.0, 1e3) if below(1e3) < 0 else 1e3
    return float(max(p, student.sf(quantile, _freedom(resampled))))


def _score_interval(resampled: Resampled, quantile: float) -> tuple[float, float]:
    """Square-and-add of the classes' Wilson limits."""
    r, n = resampled.recall, resampled.n_effective
    z2 = quantile * quantile / n
    centre = (r + z2 / 2) / (1 + z2)
    half = np.sqrt(r * (1 - r) * z2 + z2 * z2 / 4) / (1 + z2)
    k = len(r)
    low = resampled.accuracy - np.sqrt(np.sum((r - (centre - half)) ** 2)) / k
    high = resampled.accuracy + np.sqrt(np.sum((centre + half - r) ** 2)) / k
    return float(max(low, 0.0)), float(min(high, 1.0))


def _freedom(resampled: Resampled) -> float:
    """Degrees of freedom of the variance the subjects give: Student's quantile keeps small samples honest."""
    return float(max(resampled.n_subjects.sum() - len(resampled.n_subjects), 1))


def _effective(recall: np.ndarray, replicates: np.ndarray, n_subjects: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """Return the binomial sample size with the variance the bootstrap found, or the subjects where it found none."""
    if len(replicates) < 2:
        return n_subjects.astype(np.float64)
    # The bootstrap's variance is short by (n - 1) / n.
    variance = replicates.var(axis=0) * n_subjects / np.maximum(n_subjects - 1, 1)
    binomial = recall * (1 - recall)
    usable = (variance > 1e-12) & (binomial > 1e-12)
    n = np.where(usable, binomial / np.where(usable, variance, 1.0), n_subjects)
    # Averaging over seeds can lower the variance below the binomial; twice the rows is as far as it is believed.
    return np.clip(n, 1.0, 2.0 * np.maximum(n_rows, n_subjects))
