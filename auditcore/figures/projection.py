"""A file of exported vectors in; a sample of its rows on the first two principal components out. numpy only."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open

from auditcore.errors import RunError

SMALL, BLOCK = 64, 12
SAMPLE = 1500  # points that a screen can show, and rows enough for two components


@dataclass(frozen=True)
class Projection:
    """Points and what they stand for."""

    points: pd.DataFrame  # x, y float64; row int64: position in the file
    explained: tuple[float, float]  # share of the variance of the sample on each component
    total: int  # rows asked for
    not_finite: int  # sampled rows left out because a value is not finite
    width: int


def project(path: Path, rows: np.ndarray, sample: int = SAMPLE, seed: int = 0) -> Projection:
    """Project `rows` of the tensor `vectors` (float32 [n, width]) on their first two principal components.

    rows: int [m], positions in the file; at most `sample` of them are drawn, without replacement, by `seed`. Columns
    are centred, not scaled. The sign of a component is fixed (its largest loading is positive), so that the same file
    gives the same picture. Raises RunError for a file that is missing, broken or shorter than `rows` say.
    """
    vectors = _read(path)
    rows = np.asarray(rows, dtype=np.int64)
    if len(rows) and int(rows.max()) >= len(vectors):
        raise RunError(f"{path.name}: holds {len(vectors)} vectors, but the run has {int(rows.max()) + 1} examples.")
    chosen = rows
    if len(rows) > sample:
        chosen = np.sort(np.random.default_rng(seed).choice(rows, sample, replace=False))
    picked = np.asarray(vectors[chosen], dtype=np.float64)
    finite = np.isfinite(picked).all(axis=1)
    picked, kept = picked[finite], chosen[finite]
    scores, explained = _components(picked)
    points = pd.DataFrame({"x": scores[:, 0], "y": scores[:, 1], "row": kept})
    return Projection(points, explained, len(rows), int((~finite).sum()), int(vectors.shape[1]))


def _components(data: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Scores [n, 2] on the two directions of largest variance, by the smaller of the two Gram matrices."""
    n, width = data.shape
    out, shares = np.zeros((n, 2)), [0.0, 0.0]
    if n < 2:
        return out, (0.0, 0.0)
    centred = data - data.mean(axis=0)
    total = float((centred**2).sum())
    if total == 0:
        return out, (0.0, 0.0)
    gram = centred.T @ centred if width <= n else centred @ centred.T
    values, directions = np.linalg.eigh(gram) if len(gram) <= SMALL else _leading(gram)
    for k in range(min(2, len(values))):
        value, direction = float(values[-1 - k]), directions[:, -1 - k]
        loading = direction if width <= n else centred.T @ direction
        sign = 1.0 if loading[np.argmax(np.abs(loading))] >= 0 else -1.0
        out[:, k] = sign * (centred @ direction if width <= n else direction * np.sqrt(max(value, 0.0)))
        shares[k] = max(value, 0.0) / total
    return out, (shares[0], shares[1])


def _leading(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a symmetric matrix, ascending, and their vectors: block power iteration.

    All 576 of them take half a second, the first two a few milliseconds.
    """
    block = np.random.default_rng(0).normal(size=(len(gram), BLOCK))
    values = np.zeros(BLOCK)
    for _ in range(300):
        block, _ = np.linalg.qr(gram @ block)
        before, (values, turn) = values, np.linalg.eigh(block.T @ gram @ block)
        block = block @ turn
        if np.allclose(values[-2:], before[-2:], rtol=1e-10, atol=0):
            break
    return values, block


def _read(path: Path) -> np.ndarray:
    try:
        with safe_open(str(path), framework="numpy") as handle:
            return handle.get_tensor("vectors")
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path.name}: the vectors cannot be read ({error}).") from None
