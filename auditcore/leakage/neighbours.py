"""Nearest neighbours as an attacker. In: features, class codes. Out: logits from the votes of the k nearest rows.

Neighbours are the rows at the smallest angle (scikit-learn's brute-force search on rows of length 1). Votes are
smoothed with one vote spread over all classes, so that no probability is 0.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

K_GRID = (1, 3, 7, 15, 31, 63, 127, 255)


class Neighbours:
    """The k nearest rows vote. found: neighbours already looked up, which permuted labels do not change."""

    def __init__(self, features: np.ndarray, codes: np.ndarray, n_classes: int, k: int, found: dict[Any, Any]) -> None:
        self._features, self._codes, self._n_classes, self._k, self._found = features, codes, n_classes, k, found

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return logits float64 [n, K]."""
        key = ("neighbours", self._k, id(self._features), id(features))
        if key not in self._found:  # the arrays stay with what was found, so that no other takes their identity
            self._found[key] = nearest(self._features, features, self._k), self._features, features
        return votes(self._found[key][0], self._codes, self._n_classes)


def nearest(train: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Positions int [n, k] of the k training rows at the smallest angle to each query, the nearest first."""
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="openmp"):
        index = NearestNeighbors(n_neighbors=min(k, len(train)), algorithm="brute").fit(_unit(train))
        return index.kneighbors(_unit(queries), return_distance=False)


def votes(found: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Log of the smoothed shares of the neighbours' classes, float64 [n, K]."""
    counts = np.stack([(codes[found] == k).sum(axis=1) for k in range(n_classes)], axis=1)
    return np.log((counts + 1 / n_classes) / (found.shape[1] + 1))


def grid(n: int) -> list[dict[str, Any]]:
    """Settings to try on n training rows."""
    return [{"k": k} for k in K_GRID if k == 1 or 2 * k <= n]


def path(
    train: np.ndarray,
    codes: np.ndarray,
    held_out: np.ndarray,
    n_classes: int,
    settings: list[dict[str, Any]],
    seed: int,
) -> Iterator[np.ndarray]:
    """Logits of the held-out rows for each setting, from one search."""
    found = nearest(train, held_out, settings[-1]["k"])
    for setting in settings:
        yield votes(found[:, : setting["k"]], codes, n_classes)


def fit(
    features: np.ndarray, codes: np.ndarray, n_classes: int, setting: dict[str, Any], seed: int, memo: dict[Any, Any]
) -> Neighbours:
    """Keep the rows at one setting."""
    return Neighbours(features, codes, n_classes, setting["k"], memo)


def _unit(features: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return np.ascontiguousarray(features / np.where(length > 0, length, 1.0), dtype=np.float32)
