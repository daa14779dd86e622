"""What a defence costs the vectors' user. In: vectors before and after. Out: retrieval overlap, variance kept.

Retrieval overlap at 10: of the ten nearest neighbours (cosine) a row had before, the share it still has after. Variance
kept: 1 - mean squared change / total variance, which is the share of the variance that is left wherever the defence is
a projection, and falls with added noise too. Both with a 95 % percentile bootstrap over subjects.
"""

from dataclasses import dataclass

import numpy as np

NEIGHBOURS = 10
QUERIES = 2000  # more rows than this ask by a sample of them; all rows are answers
BLOCK = 512


@dataclass(frozen=True)
class Measured:
    """One cost: value in 0..1 (variance kept may be below 0), 95 % interval, rows and subjects that stand behind it."""

    measure: str
    value: float
    low: float
    high: float
    n_rows: int
    n_subjects: int


def utility(before: np.ndarray, after: np.ndarray, groups: np.ndarray, n_boot: int, seed: int) -> list[Measured]:
    """Return retrieval overlap at 10 and share of variance kept.

    before, after: float [n, d], row by row the same; rows with a value that is not finite are left out; groups: [n]
    subjects. A measure that so few rows cannot give (fewer than 12 for the overlap, 2 otherwise) is NaN.
    """
    finite = np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1)
    before, after, groups = before[finite], after[finite], np.asarray(groups)[finite]
    n = len(before)
    rng = np.random.default_rng([seed % 2**32, 0x0717])
    asked = np.sort(rng.choice(n, QUERIES, replace=False)) if n > QUERIES else np.arange(n)
    shares = overlaps(before, after, asked) if n >= NEIGHBOURS + 2 else np.zeros(0)
    names = groups[asked] if len(shares) else groups[:0]
    return [
        _mean("retrieval_overlap_at_10", shares, np.ones(len(shares)), names, n_boot, rng),
        _variance_kept(before, after, groups, n_boot, rng),
    ]


def overlaps(before: np.ndarray, after: np.ndarray, asked: np.ndarray, k: int = NEIGHBOURS) -> np.ndarray:
    """Share of the k nearest rows before that are among the k nearest after, float64 [len(asked)].

    asked: positions of the rows that ask; a row is no neighbour of its own. Ties go to the earlier row.
    """
    one, two = _unit(before), _unit(after)
    shares = np.empty(len(asked))
    for start in range(0, len(asked), BLOCK):
        at = asked[start : start + BLOCK]
        first, second = (_nearest(vectors, at, k) for vectors in (one, two))
        same = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(first, second, strict=True)]
        shares[start : start + BLOCK] = np.array(same) / k
    return shares


def _unit(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(length > 0, length, 1.0)).astype(np.float32)


def _nearest(vectors: np.ndarray, at: np.ndarray, k: int) -> np.ndarray:
    likeness = vectors[at] @ vectors.T
    likeness[np.arange(len(at)), at] = -np.inf
    return np.argsort(-likeness, axis=1, kind="stable")[:, :k] if len(vectors) <= 64 else _top(likeness, k)


def _top(likeness: np.ndarray, k: int) -> np.ndarray:
    return np.argpartition(-likeness, k - 1, axis=1)[:, :k]


def _variance_kept(
    before: np.ndarray, after: np.ndarray, groups: np.ndarray, n_boot: int, rng: np.random.Generator
) -> Measured:
    wide = before.astype(np.float64)
    centre = wide.mean(axis=0) if len(wide) else 0.0
    spread = ((wide - centre) ** 2).sum(axis=1)
    changed = ((after.astype(np.float64) - wide) ** 2).sum(axis=1)
    if not spread.sum() > 0:
        spread, changed, groups = spread[:0], changed[:0], groups[:0]
    return _mean("variance_kept", spread - changed, spread, groups, n_boot, rng)


def _mean(
    measure: str, over: np.ndarray, under: np.ndarray, groups: np.ndarray, n_boot: int, rng: np.random.Generator
) -> Measured:
    """Ratio of sums, resampled by subject."""
    if not len(over):
        return Measured(measure, np.nan, np.nan, np.nan, 0, 0)
    subject = np.unique(groups, return_inverse=True)[1]
    n = int(subject.max()) + 1
    a, b = np.bincount(subject, weights=over), np.bincount(subject, weights=under)
    drawn = np.empty(n_boot)
    for start in range(0, n_boot, 100):
        times = rng.multinomial(n, np.full(n, 1 / n), size=min(100, n_boot - start))
        with np.errstate(invalid="ignore"):
            drawn[start : start + 100] = (times @ a) / (times @ b)
    low, high = np.nanquantile(drawn, [0.025, 0.975]) if n > 1 else (np.nan, np.nan)
    return Measured(measure, float(a.sum() / b.sum()), float(low), float(high), len(over), n)
