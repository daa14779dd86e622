"""Two-layer perceptron, an epoch at a time. In: float32 features, class codes, a seed. Out: weights, logits.

The procedure is that of scikit-learn's MLPClassifier (one hidden ReLU layer, softmax, Glorot-uniform start, Adam over
shuffled batches, L2 divided by the batch's rows); written here with updates in place, because hundreds of refits on
permuted labels are needed and a pass costs a half to a seventh of the library's. A test compares the two.
"""

from itertools import pairwise

import numpy as np

BETA1, BETA2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Perceptron:
    """features: float32 [n, f]; codes: int [n] in 0..n_classes-1. Deterministic for a seed on one BLAS thread."""

    def __init__(
        self,
        features: np.ndarray,
        codes: np.ndarray,
        n_classes: int,
        seed: int,
        *,
        hidden: int = 256,
        alpha: float = 1e-4,
        batch: int = 256,
        learning_rate: float = 3e-3,
    ) -> None:
        self._features = np.ascontiguousarray(features, dtype=np.float32)
        self._wanted = np.eye(n_classes, dtype=np.float32)[codes]
        self._batch, self._rate = min(batch, len(codes)), learning_rate
        self._decay = np.float32(alpha / self._batch)  # also for a shorter last batch
        self._rng = np.random.default_rng([seed, 0x313])
        sizes = (features.shape[1], hidden, n_classes)
        self._weights = []
        for fan_in, fan_out in pairwise(sizes):
            bound = np.sqrt(6.0 / (fan_in + fan_out))
            for shape in ((fan_in, fan_out), (fan_out,)):
                self._weights.append(self._rng.uniform(-bound, bound, shape).astype(np.float32))
        self._first = [np.zeros_like(w) for w in self._weights]  # Adam's moments
        self._second = [np.zeros_like(w) for w in self._weights]
        self._steps = 0

    def run(self, epochs: int) -> "Perceptron":
        """Pass `epochs` times over the rows, each time in a new order."""
        for _ in range(epochs):
            order = self._rng.permutation(len(self._features))
            for start in range(0, len(order), self._batch):
                self._step(order[start : start + self._batch])
        return self

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return logits float64 [n, K] of the weights reached so far."""
        w1, b1, w2, b2 = self._weights
        return (np.maximum(features @ w1 + b1, 0) @ w2 + b2).astype(np.float64)

    def _step(self, rows: np.ndarray) -> None:
        w1, b1, w2, b2 = self._weights
        x = self._features[rows]
        hidden = x @ w1
        hidden += b1
        np.maximum(hidden, 0, out=hidden)
        error = hidden @ w2
        error += b2
        error -= error.max(axis=1, keepdims=True)
        np.exp(error, out=error)
        error /= error.sum(axis=1, keepdims=True)
        error -= self._wanted[rows]
        error /= len(rows)
        back = error @ w2.T
        back *= hidden > 0
        slopes = [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        slopes[0] += self._decay * w1
        slopes[2] += self._decay * w2
        self._adam(slopes)

    def _adam(self, slopes: list[np.ndarray]) -> None:
        self._steps += 1
        correction = np.sqrt(1 - float(BETA2) ** self._steps) / (1 - float(BETA1) ** self._steps)
        rate = np.float32(self._rate * correction)
        for weight, first, second, slope in zip(self._weights, self._first, self._second, slopes, strict=True):
            first *= BETA1
            first += (1 - BETA1) * slope
            np.multiply(slope, slope, out=slope)
            second *= BETA2
            second += (1 - BETA2) * slope
            np.sqrt(second, out=slope)
            slope += EPSILON
            np.divide(first, slope, out=slope)
            slope *= rate
            weight -= slope
