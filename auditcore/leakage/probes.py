"""Attackers on frozen vectors. In: training vectors, class codes, subjects, a seed. Out: a fitted probe, its refits.

Every probe is standardised on its own training rows, and its settings are chosen on inner folds of those rows that
share no subject; then it is fitted on all of them. `linear` is multinomial logistic regression (the optimum of
scikit-learn's, float64); `mlp` a two-layer perceptron (256 hidden units, Adam, float32). Both are deterministic for
a given seed.

The perceptron has no early stopping: an inner stop after a few flat epochs can read "chance" where a leak sits in
directions of low variance that learning reaches late. It runs a fixed number of epochs on the inner folds, once on
standardised columns and once on whitened ones (where low-variance directions count as much as any), and is then
refitted for the number of epochs that named most inner rows correctly.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from os import cpu_count
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from auditcore.leakage.logistic import fit_logistic
from auditcore.leakage.perceptron import Perceptron

Logits = Callable[[np.ndarray], np.ndarray]  # features [n, f] -> logits float64 [n, K]

FOLDS = 3
C_GRID = tuple(10.0**e for e in range(-4, 3))
EPOCH_GRID = (2, 4, 8, 16, 32, 64)
MLP_GRID = tuple(product(("standardised", "whitened"), (1.0, 10.0)))  # input, alpha (scikit-learn's L2)
SHRINKAGE = 1e-3  # added to each whitened variance, as a share of their mean

# Results must not depend on how many threads a matrix product uses; the processors are used by fitting side by side.
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")


@dataclass(frozen=True)
class Fitted:
    """A probe fitted on all of its training rows.

    transform: vectors [n, d] -> features, fitted on the training rows; logits: features -> float64 [n, K];
    refit: (training features, codes, seed) -> logits, the same procedure at the chosen settings.
    """

    transform: Callable[[np.ndarray], np.ndarray]
    logits: Logits
    refit: Callable[[np.ndarray, np.ndarray, int], Logits]
    settings: dict[str, Any]
    converged: bool
    inner_accuracy: float  # mean per-class recall on the inner folds at the chosen settings
    notes: list[str] = field(default_factory=list)


@one_thread
def linear(
    vectors: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_classes: int, seed: int, n_jobs: int = 1
) -> Fitted:
    """Fit multinomial logistic regression; C from `C_GRID` by inner folds.

    vectors: float [n, d], finite; codes: int [n] in 0..n_classes-1; groups: [n] subjects; seed deals the inner folds.
    Features are the principal axes of the training rows, a rotation that leaves the L2-regularised solution as it is.
    `converged` is False when the final fit stopped before its gradient vanished.
    """
    folds = inner_folds(codes, groups, seed)
    parts = []
    for fold in folds:
        transform = _rotated(vectors[~fold])
        parts.append((transform(vectors[~fold]), codes[~fold], transform(vectors[fold])))

    def score(task: tuple[int, float]) -> np.ndarray:
        train, train_codes, held_out = parts[task[0]]
        return log_softmax(fit_logistic(train, train_codes, task[1], n_classes).logits(held_out))

    found = list(in_parallel(score, list(product(range(len(folds)), C_GRID)), n_jobs))
    inner = np.full((len(C_GRID), len(codes), n_classes), np.nan)
    for (fold_index, c), log_p in zip(product(range(len(folds)), C_GRID), found, strict=True):
        inner[C_GRID.index(c), folds[fold_index]] = log_p
    best, accuracy = _best(inner, codes)
    c = C_GRID[best]
    transform = _rotated(vectors)
    model = fit_logistic(transform(vectors), codes, c, n_classes)

    def refit(features: np.ndarray, new_codes: np.ndarray, new_seed: int) -> Logits:
        return fit_logistic(features, new_codes, c, n_classes).logits

    return Fitted(transform, model.logits, refit, {"C": c, "steps": model.steps}, model.converged, accuracy)


@one_thread
def mlp(
    vectors: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_classes: int, seed: int, n_jobs: int = 1
) -> Fitted:
    """Fit a two-layer perceptron; input form, L2 strength and number of epochs by inner folds.

    Arguments as in `linear`; seed also draws the first weights and the order of the rows. `converged` is False when
    the inner folds were still getting better at the last epoch tried.
    """
    folds = inner_folds(codes, groups, seed)
    tasks = list(product(range(len(folds)), MLP_GRID))

    def score(task: tuple[int, tuple[str, float]]) -> np.ndarray:
        fold, (form, alpha) = folds[task[0]], task[1]
        transform = INPUTS[form](vectors[~fold])
        held_out = transform(vectors[fold])
        model = Perceptron(transform(vectors[~fold]), codes[~fold], n_classes, seed, alpha=alpha)
        passes = np.diff(EPOCH_GRID, prepend=0)
        return np.stack([log_softmax(model.run(int(more)).logits(held_out)) for more in passes])

    n_epochs = len(EPOCH_GRID)
    inner = np.full((len(MLP_GRID), n_epochs, len(codes), n_classes), np.nan, dtype=np.float32)
    for (fold_index, setting), log_p in zip(tasks, in_parallel(score, tasks, n_jobs), strict=True):
        inner[MLP_GRID.index(setting)][:, folds[fold_index]] = log_p
    best, accuracy = _best(inner.reshape(-1, len(codes), n_classes), codes)
    (form, alpha), epochs = MLP_GRID[best // n_epochs], EPOCH_GRID[best % n_epochs]
    transform = INPUTS[form](vectors)

    def refit(features: np.ndarray, new_codes: np.ndarray, new_seed: int) -> Logits:
        return Perceptron(features, new_codes, n_classes, new_seed, alpha=alpha).run(epochs).logits

    settings = {"input": form, "alpha": alpha, "epochs": epochs}
    logits = refit(transform(vectors), codes, seed)
    return Fitted(transform, logits, refit, settings, epochs < EPOCH_GRID[-1], accuracy)


# The names a spec can choose (`spec.PROBES`), each with the function that fits it.
PROBES: dict[str, Callable[..., Fitted]] = {"linear": linear, "mlp": mlp}


def inner_folds(codes: np.ndarray, groups: np.ndarray, seed: int, n_folds: int = FOLDS) -> list[np.ndarray]:
    """Deal whole subjects into folds, class by class, so that no class is missing from any training part.

    codes: int [n]; groups: [n]. Returns one boolean mask [n] of held-out rows per fold: `n_folds`, or fewer where a
    class has fewer subjects. Raises ValueError when a class has a single subject.
    """
    subjects, first, where = np.unique(groups, return_index=True, return_inverse=True)
    main = codes[first]  # a subject with several classes is dealt by its first row
    n_folds = min(n_folds, int(subjects_per_class(codes, groups).min()))
    if n_folds < 2:
        raise ValueError("inner folds need at least two subjects of every class")
    rng = np.random.default_rng([seed, 0xF01D])
    fold = np.empty(len(subjects), dtype=np.int64)
    for code in range(int(main.max()) + 1):
        mine = np.flatnonzero(main == code)
        fold[rng.permutation(mine)] = (np.arange(len(mine)) + code) % n_folds
    return [fold[where] == k for k in range(n_folds)]


def subjects_per_class(codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return how many subjects have a row of each class, int64 [K] (K = highest code + 1)."""
    index = np.unique(groups, return_inverse=True)[1]
    return np.bincount(np.unique(np.stack([codes, index]), axis=1)[0])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities, float64 [n, K]."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def in_parallel(function: Callable[[Any], Any], tasks: Iterable[Any], n_jobs: int) -> Generator[Any, None, None]:
    """Yield function(task) in order. Threads, one BLAS thread each: results do not depend on `n_jobs`.

    Close the iterator (contextlib.closing) to drop what has not begun when its results are no longer wanted.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        if n_jobs == 1:
            yield from map(function, tasks)
            return
        with ThreadPoolExecutor(n_jobs) as pool:
            waiting = deque(pool.submit(function, task) for task in tasks)
            try:
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def default_jobs() -> int:
    """Return the number of processors."""
    return cpu_count() or 1


def _best(inner: np.ndarray, codes: np.ndarray) -> tuple[int, float]:
    """Return the candidate with the highest inner recall (ties: lowest log-loss, then the first) and that recall."""
    n_classes = inner.shape[2]
    right = inner.argmax(axis=2) == codes
    recall = np.mean([right[:, codes == k].mean(axis=1) for k in range(n_classes)], axis=0)
    loss = -inner[:, np.arange(len(codes)), codes].mean(axis=1)
    best = int(np.lexsort((np.arange(len(inner)), loss, -recall.round(12)))[0])
    return best, float(recall[best])


# --- features ---


def _standardised(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Mean 0, deviation 1 per column, in float64; a column that is constant on the training rows becomes 0."""
    wide = train.astype(np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    # Rounding leaves a constant column with a deviation near, not at, zero.
    constant = deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return lambda vectors: (vectors.astype(np.float64) - mean) * scale


def _principal_axes(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (axes [d, min(n, d)], variances) of standardised rows; the axes span them exactly."""
    n, width = standard.shape
    span = np.linalg.qr(standard.T)[0] if width > n else None
    inside = standard if span is None else standard @ span
    variances, axes = np.linalg.eigh(inside.T @ inside / n)
    return (axes if span is None else span @ axes), np.maximum(variances, 0.0)


def _rotated(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Standardised, in the coordinates of the training rows' principal axes, float64."""
    standardise = _standardised(train)
    axes = _principal_axes(standardise(train))[0]
    return lambda vectors: standardise(vectors) @ axes


def _standardised_single(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    standardise = _standardised(train)
    return lambda vectors: standardise(vectors).astype(np.float32)


def _whitened(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Principal axes of the standardised training rows, each scaled to deviation 1 (slightly less for the smallest)."""
    standardise = _standardised(train)
    axes, variances = _principal_axes(standardise(train))
    kept = variances > 1e-10 * max(float(variances.max()), np.finfo(float).tiny)
    if not kept.any():  # every column is constant
        return lambda vectors: np.zeros((len(vectors), 1), dtype=np.float32)
    basis = axes[:, kept] / np.sqrt(variances[kept] + SHRINKAGE * variances[kept].mean())
    return lambda vectors: (standardise(vectors) @ basis).astype(np.float32)


INPUTS = {"standardised": _standardised_single, "whitened": _whitened}
