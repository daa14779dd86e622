"""Defences on vectors. In: vectors and labels of `defence_fit` rows. Out: a map that is applied to every vector.

Erasers remove what a linear probe could read and keep the mean: `leace` (Belrose et al. 2023, arXiv 2306.03819; closed
form, one-hot labels, float64), `inlp` (Ravfogel et al. 2020, arXiv 2004.07667), `pca` (the directions in which the
classes' means differ) and `pca_vectors` (the widest directions of the vectors themselves, Mu & Viswanath 2018, no label
needed). `noise` and `truncate` are controls that know nothing about the label.

An eraser has to be fitted on subjects of its own. Fitted on the probe's training rows, those rows hold nothing left to
learn and any vector reads as safe; fitted on test rows, the probe does worse than guessing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, SpecError, did_you_mean
from auditcore.leakage.cells import FEWEST, check_disjoint
from auditcore.leakage.logistic import fit_logistic
from auditcore.leakage.probes import C_GRID, inner_folds, one_thread, subjects_per_class

FIT = "defence_fit"
SMALLEST_CORRELATION = 1e-8  # canonical correlations below it are rounding: one-hot labels have rank K - 1
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Options:
    """What the defences can be told. dimensions: directions to remove, None for K - 1 (all that class means span);

    noise: standard deviation of `noise`, in standard deviations of each column; keep: share of the columns `truncate`
    keeps, the first ones.
    """

    dimensions: int | None = None
    noise: float = 0.5
    keep: float = 0.5


@dataclass(frozen=True)
class Defence:
    """A fitted defence: x -> x - (x - centre) right' left', or a function of its own where it is no such map.

    centre: [d]; left: [d, r]; right: [r, d], all float64; removed: how many directions are gone; settings: as chosen.
    """

    name: str
    removed: int
    settings: dict[str, Any] = field(default_factory=dict)
    centre: np.ndarray | None = None
    left: np.ndarray | None = None
    right: np.ndarray | None = None
    function: Callable[[np.ndarray], np.ndarray] | None = None

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return defended vectors, float64 [n, d]; a row that is not finite becomes NaN throughout."""
        wide = np.asarray(vectors, dtype=np.float64)
        broken = np.logical_not(np.isfinite(wide).all(axis=1))
        wide = np.where(broken[:, None], 0.0, wide)
        if self.function is not None:
            out = self.function(wide)
        elif self.centre is None or self.left is None or self.right is None:
            out = wide.copy()
        else:
            out = wide - ((wide - self.centre) @ self.right.T) @ self.left.T
        out[broken] = np.nan
        return out

    def projection(self) -> np.ndarray:
        """Return the matrix P [d, d] of x -> centre + P (x - centre)."""
        assert self.left is not None and self.right is not None  # noqa: PT018
        return np.eye(len(self.left)) - self.left @ self.right


@dataclass(frozen=True)
class Protected:
    """Defended vectors of all rows, float32 [n, d]; how many rows the defence was fitted on; what a page must show."""

    vectors: np.ndarray
    defence: Defence
    n_fit: int
    n_subjects_fit: int
    notes: list[str]


@one_thread
def protect(
    name: str,
    vectors: np.ndarray,
    labels: Sequence[object] | np.ndarray,
    groups: Sequence[object] | np.ndarray,
    rows: Mapping[str, np.ndarray],
    options: Options | None = None,
    seed: int = 0,
    where: str = "",
) -> Protected:
    """Fit a defence on the `defence_fit` rows only and apply it to every row.

    vectors: float [n, d]; labels: [n] text, missing where unknown; groups: [n] subjects; rows: split -> positions, with
    `defence_fit` and the splits that will be probed, so that a shared subject is refused here; where: attribute and
    artifact, for messages. Raises DatasetError for rows that cannot be used, SpecError for an unknown defence.
    """
    if name not in DEFENCES:
        raise SpecError(f"defence '{name}' is unknown.{did_you_mean(name, DEFENCES)}")
    names = np.array([str(g) for g in groups])
    about = f"{where}, {name}: " if where else f"{name}: "
    at = np.asarray(rows.get(FIT, []), dtype=np.int64)
    if not len(at):
        raise DatasetError(
            f"{about}no row is in {FIT}. A defence is fitted on subjects of its own: fitted on the probe's training "
            f"rows it reads exactly chance, fitted on test rows below chance, and both look safe."
        )
    check_disjoint(names, {split: np.asarray(p, dtype=np.int64) for split, p in rows.items()})
    notes = []
    finite = np.isfinite(vectors[at]).all(axis=1)
    if not finite.all():
        notes.append(f"{about}{int((~finite).sum())} of {len(at)} {FIT} rows left out: they hold NaN or infinity.")
    known = ~pd.Series(list(labels), dtype=object).isna().to_numpy()
    at = at[finite & known[at]]
    at = at[np.lexsort((vectors[at, 0], names[at]))] if len(at) else at  # the order of the data must not matter
    texts = np.array([str(label) for label in labels])[at]
    classes = sorted(set(texts))
    codes = np.searchsorted(classes, texts)
    _check(codes, names[at], classes, about)
    fitted = DEFENCES[name](vectors[at].astype(np.float64), codes, names[at], options or Options(), seed)
    out = np.empty(vectors.shape, dtype=np.float32)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        out[start : start + ROWS_AT_ONCE] = fitted.apply(vectors[start : start + ROWS_AT_ONCE])
    return Protected(out, fitted, len(at), len(np.unique(names[at])), notes)


def _check(codes: np.ndarray, groups: np.ndarray, classes: list[str], about: str) -> None:
    if len(classes) < 2:
        what = f"one class only ('{classes[0]}')" if classes else "no usable rows"
        raise DatasetError(f"{about}{FIT} has {what}: what tells classes apart cannot be found there.")
    counts = subjects_per_class(codes, groups)
    if counts.min() < FEWEST:
        short = classes[int(counts.argmin())]
        raise DatasetError(f"{about}class '{short}' has {counts.min()} subject in {FIT}; at least {FEWEST} are needed.")


# --- the defences: (vectors float64 [n, d], codes int [n], groups [n], options, seed) -> Defence ---


def none(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Leave the vectors as they are."""
    return Defence("none", 0)


def leace(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Fit least-squares concept erasure, without shrinkage.

    Of all affine maps after which a linear probe of the fitted rows is no better than a constant, it changes the rows
    least in squares. With fewer rows than columns it knows the fitted rows only.
    """
    centre, n = x.mean(axis=0), len(x)
    u, s, vt = np.linalg.svd(x - centre, full_matrices=False)
    kept = s > s.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    u, deviation, vt = u[:, kept], s[kept] / np.sqrt(n), vt[kept]
    one_hot = np.eye(int(codes.max()) + 1)[codes]
    # Whitened cross-covariance with the labels, as coordinates on the principal axes.
    a, correlation, _ = np.linalg.svd(u.T @ (one_hot - one_hot.mean(axis=0)) / np.sqrt(n), full_matrices=False)
    a = a[:, correlation > SMALLEST_CORRELATION]
    return Defence("leace", a.shape[1], {}, centre, vt.T @ (deviation[:, None] * a), (a / deviation[:, None]).T @ vt)


def inlp(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Fit a logistic regression, project its row space away, and again, until the wanted directions are gone.

    C is chosen on inner folds at the first round and kept. Regressions see standardised columns; what is projected
    away are their weights on the vectors as they are.
    """
    wanted = min(options.dimensions or int(codes.max()), x.shape[1])
    mean, scale = x.mean(axis=0), _scale(x)
    c = _choose_c(_axes(x, mean, scale)[0], codes, groups, seed)
    rows = np.zeros((0, x.shape[1]))
    projected, rounds, converged = x, 0, True
    while len(rows) < wanted:
        features, back = _axes(projected, mean, scale)
        if not features.shape[1]:
            break
        model = fit_logistic(features, codes, c, int(codes.max()) + 1)
        converged &= model.converged
        weights = (back @ model.weights).T  # [K, d], on the vectors as they are
        found = orthonormal_rows(weights - (weights @ rows.T) @ rows)
        if not len(found):
            break
        rows = np.vstack([rows, found[: wanted - len(rows)]])
        rows = orthonormal_rows(rows)
        projected = x - ((x - mean) @ rows.T) @ rows
        rounds += 1
    settings = {"C": c, "rounds": rounds, "converged": converged}
    return Defence("inlp", len(rows), settings, mean, rows.T, rows)


def pca(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Remove the top principal directions of the between-class means (each class counts once), K - 1 at most."""
    means = np.stack([x[codes == k].mean(axis=0) for k in range(int(codes.max()) + 1)])
    rows = orthonormal_rows(means - means.mean(axis=0))[: options.dimensions or len(means) - 1]
    return Defence("pca", len(rows), {}, x.mean(axis=0), rows.T, rows)


def pca_vectors(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Remove the top principal directions of the vectors, whatever the label."""
    rows = orthonormal_rows(x - x.mean(axis=0))[: options.dimensions or int(codes.max())]
    return Defence("pca_vectors", len(rows), {}, x.mean(axis=0), rows.T, rows)


def noise(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Add Gaussian noise, column by column in proportion to the column's standard deviation."""
    deviation, rng = options.noise * x.std(axis=0), np.random.default_rng([seed % 2**32, 0x4015E])

    def add(vectors: np.ndarray) -> np.ndarray:
        return vectors + deviation * rng.standard_normal(vectors.shape)

    return Defence("noise", 0, {"noise": options.noise}, function=add)


def truncate(x: np.ndarray, codes: np.ndarray, groups: np.ndarray, options: Options, seed: int) -> Defence:
    """Keep the first columns only; the others hold their mean for every row."""
    width = x.shape[1]
    kept = min(max(1, round(options.keep * width)), width)
    mean = x.mean(axis=0)

    def cut(vectors: np.ndarray) -> np.ndarray:
        return np.concatenate([vectors[:, :kept], np.broadcast_to(mean[kept:], (len(vectors), width - kept))], axis=1)

    return Defence("truncate", width - kept, {"kept": kept}, function=cut)


# The names a spec can choose for vectors (`spec.DEFENCES`), each with the function that fits it.
DEFENCES: dict[str, Callable[..., Defence]] = {
    "none": none,
    "pca": pca,
    "pca_vectors": pca_vectors,
    "inlp": inlp,
    "leace": leace,
    "noise": noise,
    "truncate": truncate,
}


def orthonormal_rows(weights: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis [r, d] of the row space, strongest directions first; r is the rank."""
    _, s, vt = np.linalg.svd(weights, full_matrices=False)
    return vt[s > s.max(initial=0.0) * max(weights.shape) * np.finfo(np.float64).eps * 10]


def _scale(x: np.ndarray) -> np.ndarray:
    deviation = x.std(axis=0)
    return np.where(deviation > 1e-7 * np.maximum(np.abs(x.mean(axis=0)), np.finfo(np.float32).tiny), deviation, np.inf)


def _axes(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows on the principal axes of the standardised columns [n, r], and the map of weights back [d, r]."""
    u, s, vt = np.linalg.svd((x - mean) / scale, full_matrices=False)
    kept = s > s.max(initial=0.0) * 1e-9
    return u[:, kept] * s[kept], vt[kept].T / scale[:, None]


def _choose_c(features: np.ndarray, codes: np.ndarray, groups: np.ndarray, seed: int) -> float:
    """Return the C that names most held-out rows of the inner folds (mean over classes; ties: the smallest)."""
    n_classes = int(codes.max()) + 1
    right = np.zeros((len(C_GRID), len(codes)))
    for held in inner_folds(codes, groups, seed):
        centre = features[~held].mean(axis=0)
        for place, c in enumerate(C_GRID):
            model = fit_logistic(features[~held] - centre, codes[~held], c, n_classes)
            right[place, held] = model.logits(features[held] - centre).argmax(axis=1) == codes[held]
    recall = np.mean([right[:, codes == k].mean(axis=1) for k in range(n_classes)], axis=0)
    return C_GRID[int(recall.round(12).argmax())]
