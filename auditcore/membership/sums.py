"""Numbers per row. In: token arrays of n rows. Out: means, lowest values and counts per row, and broken rows."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from auditcore.errors import SpecError
from auditcore.membership.arrays import Tokens

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

MIN_K_SHARE = 0.2
LEAST_DEVIATION = 1e-4  # variance floored at 1e-8
CELLS = 2_000_000  # values handled at once


def standardised(logp: np.ndarray, moments: tuple[np.ndarray, np.ndarray] | None, attack: str) -> Floats:
    """(log p - mean) / deviation of every token, float64 [t]. Raises SpecError when these are missing."""
    if moments is None:
        raise SpecError(f"attack '{attack}' needs mean and deviation of log p, which these token statistics lack.")
    mean, deviation = moments
    with np.errstate(invalid="ignore"):
        return (logp.astype(np.float64) - mean) / np.maximum(deviation.astype(np.float64), LEAST_DEVIATION)


def usable(tokens: Tokens, *logps: np.ndarray) -> tuple[Integers, Integers]:
    """Return positions that count, of rows without a broken number among them, and n_scored of every row.

    The whole row is set aside: without its broken positions it could rank higher than with them.
    """
    counted = tokens.scored.astype(bool)
    row, n = rows_of(tokens), len(tokens.offsets) - 1
    broken = broken_rows(row, counted, n, *logps)
    return np.flatnonzero(counted & ~broken[row]), count(row[counted], n)


def mean_per_row(tokens: Tokens, logp: np.ndarray, minus: np.ndarray | None = None) -> tuple[Floats, Integers]:
    """Mean over the scored positions, NaN without evidence: float64 [n], and n_scored."""
    use, n_scored = usable(tokens, logp, *(() if minus is None else (minus,)))
    n, row = len(n_scored), rows_of(tokens)[use]
    summed = total(row, logp[use].astype(np.float64), n)
    if minus is not None:
        summed -= total(row, minus[use].astype(np.float64), n)
    used = count(row, n)
    return np.where(used > 0, summed / np.maximum(used, 1), np.nan), n_scored


def lowest(tokens: Tokens, values: np.ndarray) -> tuple[Floats, Integers]:
    """Mean of each row's lowest max(1, floor(0.2 n)) values, NaN without evidence, and n_scored."""
    use, n_scored = usable(tokens, values)
    here = values[use].astype(np.float64)
    used = count(rows_of(tokens)[use], len(n_scored))
    found = np.full(len(n_scored), np.nan)
    for rows, cells in equally_long(used):
        length = cells.shape[1]
        keep = max(1, int(np.floor(MIN_K_SHARE * length + 1e-9)))
        low = np.partition(here[cells], keep - 1, axis=1)[:, :keep]
        low.sort(axis=1)
        found[rows] = low.cumsum(axis=1)[:, -1] / keep  # in order, so that a row alone gives the same
    return found, n_scored


def equally_long(lengths: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield the rows of one length and where their values lie, int64 [rows] and [rows, length]; no empty rows.

    lengths: values per row, laid end to end. As arrays of two dimensions rows are handled many times as fast as one by
    one; parts are small enough to stay out of the way of memory.
    """
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    if not len(order):
        return
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[rows[0]])
        for some in np.array_split(rows, -(-len(rows) * length // CELLS)):
            yield some, starts[some][:, None] + np.arange(length)


def rows_of(tokens: Tokens) -> Integers:
    """Return the row of every token: int64 [t]."""
    return np.repeat(np.arange(len(tokens.offsets) - 1, dtype=np.int64), np.diff(tokens.offsets))


def broken_rows(row: Integers, counted: Booleans, n: int, *logps: np.ndarray) -> Booleans:
    """Say which rows count a NaN or infinite log-probability: bool [n]."""
    bad = np.zeros(len(row), dtype=bool)
    for logp in logps:
        bad |= ~np.isfinite(logp)
    broken = np.zeros(n, dtype=bool)
    broken[row[bad & counted]] = True
    return broken


def count(row: Integers, n: int) -> Integers:
    """Tokens per row, int64 [n]."""
    return np.bincount(row, minlength=n).astype(np.int64)


def total(row: Integers, values: Floats, n: int) -> Floats:
    """Sum float64 values per row, in order: the same for a row alone and for a row among others."""
    return np.bincount(row, weights=values, minlength=n).astype(np.float64)
