"""Gradient-boosted trees as an attacker. In: features, class codes. Out: logits after any number of trees.

scikit-learn's HistGradientBoostingClassifier: small trees (8 leaves), 64 bins per feature, so that a giveaway in 2 % of
the rows still has a bin of its own.
"""

import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

TREES = (5, 10, 20, 40, 80)
SHAPE: dict[str, Any] = {"max_leaf_nodes": 8, "max_bins": 64, "learning_rate": 0.2, "early_stopping": False}
_BINNING = threading.Lock()
FEWEST = 20  # rows in a leaf; fewer where a class has few rows


class Trees:
    """Boosted trees; a class without rows is named by no row."""

    def __init__(self, features: np.ndarray, codes: np.ndarray, n_classes: int, trees: int, seed: int) -> None:
        counts = np.bincount(codes, minlength=n_classes)
        self._present, self._n_classes = np.flatnonzero(counts), n_classes
        leaf = int(np.clip(counts[self._present].min() // 4, 2, FEWEST))
        self._model = _classifier()(**SHAPE, max_iter=trees, min_samples_leaf=leaf, random_state=seed % 2**32)
        with threadpool_limits(limits=1, user_api="openmp"):
            self._model.fit(features, codes)

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return logits float64 [n, K] of all trees."""
        with threadpool_limits(limits=1, user_api="openmp"):
            return self._spread(self._model.decision_function(features))

    def staged(self, features: np.ndarray, sizes: list[int]) -> Iterator[np.ndarray]:
        """Yield logits after each number of trees in `sizes`, ascending."""
        with threadpool_limits(limits=1, user_api="openmp"):
            for number, raw in enumerate(self._model.staged_decision_function(features)):
                if number + 1 in sizes:
                    yield self._spread(raw)

    def _spread(self, raw: np.ndarray) -> np.ndarray:
        raw = np.asarray(raw, dtype=np.float64)
        if raw.ndim == 1 or raw.shape[1] == 1:  # two classes: one number
            raw = np.stack([np.zeros(len(raw)), raw.reshape(-1)], axis=1)
        logits = np.full((len(raw), self._n_classes), -1e3)
        logits[:, self._present] = raw
        return logits


@cache
def _classifier() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    class Boosted(HistGradientBoostingClassifier):
        """scikit-learn resets the process's warning filters while it bins: two fits at once must take turns there."""

        def _bin_data(self, *arguments: Any, **named: Any) -> Any:
            with _BINNING:
                return super()._bin_data(*arguments, **named)

    return Boosted


def grid(n: int) -> list[dict[str, Any]]:
    """Settings to try on n training rows."""
    return [{"trees": trees} for trees in TREES]


def path(
    train: np.ndarray,
    codes: np.ndarray,
    held_out: np.ndarray,
    n_classes: int,
    settings: list[dict[str, Any]],
    seed: int,
) -> Iterator[np.ndarray]:
    """Logits of the held-out rows for each setting, from one fit."""
    sizes = [setting["trees"] for setting in settings]
    yield from Trees(train, codes, n_classes, sizes[-1], seed).staged(held_out, sizes)


def fit(
    features: np.ndarray, codes: np.ndarray, n_classes: int, setting: dict[str, Any], seed: int, memo: dict[Any, Any]
) -> Trees:
    """Fit at one setting."""
    return Trees(features, codes, n_classes, setting["trees"], seed)
