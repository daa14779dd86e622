"""Forms in which an attacker takes vectors. In: training vectors [n, d]. Out: a function vectors -> features.

Every form is fitted on the training rows alone. Whitening makes directions of low variance count as much as any: a leak
often sits there, where learning on standardised columns reaches it late.
"""

from collections.abc import Callable

import numpy as np

Transform = Callable[[np.ndarray], np.ndarray]
SHRINKAGE = 1e-3  # added to each whitened variance, as a share of their mean


def standardised_exact(train: np.ndarray) -> Transform:
    """Mean 0, deviation 1 per column, in float64; a column that is constant on the training rows becomes 0."""
    return _standardisation(train)[0]


def principal(train: np.ndarray) -> Transform:
    """Standardised, in the coordinates of the training rows' principal axes, float64."""
    standardise, mean, scale = _standardisation(train)
    return _affine(mean, scale[:, None] * _principal_axes(standardise(train))[0], np.float64)


def standardised(train: np.ndarray) -> Transform:
    """Mean 0, deviation 1 per column, float32."""
    standardise, _, _ = _standardisation(train)
    return lambda vectors: standardise(vectors).astype(np.float32)


def whitened(train: np.ndarray) -> Transform:
    """Principal axes of the standardised training rows, each scaled to deviation 1 (slightly less for the smallest)."""
    standardise, mean, scale = _standardisation(train)
    axes, variances = _principal_axes(standardise(train))
    kept = variances > 1e-10 * max(float(variances.max()), np.finfo(float).tiny)
    if not kept.any():  # every column is constant
        return lambda vectors: np.zeros((len(vectors), 1), dtype=np.float32)
    basis = axes[:, kept] / np.sqrt(variances[kept] + SHRINKAGE * variances[kept].mean())
    return _affine(mean, scale[:, None] * basis, np.float32)


INPUTS: dict[str, Callable[[np.ndarray], Transform]] = {
    "principal": principal,
    "standardised": standardised,
    "whitened": whitened,
}


def _standardisation(train: np.ndarray) -> tuple[Transform, np.ndarray, np.ndarray]:
    """The function, and the mean and the factor of each column."""
    mean = train.mean(axis=0, dtype=np.float64)
    deviation = train.std(axis=0, dtype=np.float64)
    # Rounding leaves a constant column with a deviation near, not at, zero.
    constant = deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))

    def standardise(vectors: np.ndarray) -> np.ndarray:
        moved = vectors - mean  # float64
        moved *= scale
        return moved

    return standardise, mean, scale


def _affine(mean: np.ndarray, basis: np.ndarray, dtype: type) -> Transform:
    """(vectors - mean) @ basis in float64, without a second copy of the vectors."""
    offset = mean @ basis

    def transform(vectors: np.ndarray) -> np.ndarray:
        moved = vectors.astype(np.float64) @ basis
        moved -= offset
        return moved.astype(dtype, copy=False)

    return transform


def _principal_axes(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (axes [d, min(n, d)], variances) of standardised rows; the axes span them exactly."""
    n, width = standard.shape
    span = np.linalg.qr(standard.T)[0] if width > n else None
    inside = standard if span is None else standard @ span
    variances, axes = np.linalg.eigh(inside.T @ inside / n)
    return (axes if span is None else span @ axes), np.maximum(variances, 0.0)
