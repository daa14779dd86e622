"""Window comparison. In: losses of two models, row after row. Out: per row, the share of windows one of them wins."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from auditcore.membership.sums import equally_long


def win_share(
    target: np.ndarray, reference: np.ndarray, lengths: np.ndarray, windows: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Share of windows whose reference sum exceeds the target's, averaged over window sizes: float64 [n], NaN if empty.

    target, reference: losses [t], finite, row after row; lengths: int64 [n], their numbers per row; windows: sizes,
    each cut to the row's length. Sums are float64, term after term, so that equal losses give equal sums: a tie is no
    win.
    """
    target, reference = target.astype(np.float64), reference.astype(np.float64)
    share = np.full(len(lengths), np.nan)
    for rows, cells in equally_long(np.asarray(lengths, dtype=np.int64)):
        share[rows] = _won(target[cells], reference[cells], windows)
    return share


def _won(target: np.ndarray, reference: np.ndarray, windows: Sequence[int]) -> npt.NDArray[np.float64]:
    """The same for rows [n, length] of one length."""
    length = target.shape[1]
    sizes = np.minimum(windows, length)
    won = np.zeros(len(target))
    mine, theirs = np.zeros_like(target), np.zeros_like(reference)  # sums of windows that begin at a position
    for size in range(1, int(sizes.max()) + 1):
        last = length - size + 1  # windows of this size
        mine[:, :last] += target[:, size - 1 :]
        theirs[:, :last] += reference[:, size - 1 :]
        times = int(np.sum(sizes == size))
        if times:
            won += times * (theirs[:, :last] > mine[:, :last]).mean(axis=1)
    return won / len(sizes)
