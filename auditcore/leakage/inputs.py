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
    wide = train.astype(np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    # Rounding leaves a constant column with a deviation near, not at, zero.
    constant = deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return lambda vectors: (vectors.astype(np.float64) - mean) * scale


def principal(train: np.ndarray) -> Transform:
    """Standardised, in the coordinates of the training rows' principal axes, float64."""
    standardise = standardised_exact(train)
    axes = _principal_axes(standardise(train))[0]
    return lambda vectors: standardise(vectors) @ axes


def standardised(train: np.ndarray) -> Transform:
    """Mean 0, deviation 1 per column, float32."""
    standardise = standardised_exact(train)
    return lambda vectors: standardise(vectors).astype(np.float32)


def whitened(train: np.ndarray) -> Transform:
    """Principal axes of the standardised training rows, each scaled to deviation 1 (slightly less for the smallest)."""
    standardise = standardised_exact(train)
    axes, variances = _principal_axes(standardise(train))
    kept = variances > 1e-10 * max(float(variances.max()), np.finfo(float).tiny)
    if not kept.any():  # every column is constant
        return lambda vectors: np.zeros((len(vectors), 1), dtype=np.float32)
    basis = axes[:, kept] / np.sqrt(variances[kept] + SHRINKAGE * variances[kept].mean())
    return lambda vectors: (standardise(vectors) @ basis).astype(np.float32)


INPUTS: dict[str, Callable[[np.ndarray], Transform]] = {
    "principal": principal,
    "standardised": standardised,
    "whitened": whitened,
}


def _principal_axes(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (axes [d, min(n, d)], variances) of standardised rows; the axes span them exactly."""
    n, width = standard.shape
    span = np.linalg.qr(standard.T)[0] if width > n else None
    inside = standard if span is None else standard @ span
    variances, axes = np.linalg.eigh(inside.T @ inside / n)
    return (axes if span is None else span @ axes), np.maximum(variances, 0.0)
