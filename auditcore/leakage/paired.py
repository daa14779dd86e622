"""Two readings of the same rows. In: correctness row by row, classes, subjects. Out: their difference, with interval.

Rows are paired and subjects resampled within their class, so that the difference is known more closely than either
accuracy; conditional on the fitted attackers. Where the two differ on few subjects, the bootstrap has seen too little:
the interval reaches at least as far as the score interval of no discordant subject (Tango 1998, +-z^2 / (n + z^2) for
each class), the classes joined by square-and-add.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from auditcore.leakage.intervals import resample

LEVEL = 0.95


@dataclass(frozen=True)
class Paired:
    """first, second: mean per-class recall on the rows both read; change: second - first, low and high its interval."""

    first: float
    second: float
    change: float
    low: float
    high: float
    n_rows: int
    n_subjects: int


def paired(
    first: np.ndarray, second: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_boot: int, seed: int
) -> Paired:
    """Compare two readings of the same rows.

    first, second: [n] correctness, 0 to 1 (averaged over seeds); codes: int [n], classes 0..K-1, every one present;
    groups: [n] subjects; n_boot: resamples. The interval is at two-sided `LEVEL`.
    """
    moved = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    drawn = resample(moved, codes, groups, n_boot, seed)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn.replicates.mean(axis=1), [tail, 1 - tail])
    z2 = float(norm.isf(tail)) ** 2
    least = float(np.sqrt(np.sum((z2 / (drawn.n_subjects + z2)) ** 2))) / len(drawn.n_subjects)
    change = drawn.accuracy
    sizes = len(codes), len(np.unique(groups))
    ends = max(-1.0, min(float(low), change - least)), min(1.0, max(float(high), change + least))
    return Paired(_recall(first, codes), _recall(second, codes), change, *ends, *sizes)


def _recall(right: np.ndarray, codes: np.ndarray) -> float:
    counts = np.bincount(codes)
    return float((np.bincount(codes, weights=np.asarray(right, dtype=np.float64)) / counts).mean())
