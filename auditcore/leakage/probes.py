"""Attackers on frozen vectors. In: training vectors, class codes, subjects, a seed. Out: a fitted probe, its refits.

Every probe is standardised on its own training rows, and its settings are chosen on inner folds of those rows that
share no subject; then it is fitted on all of them. `linear` is multinomial logistic regression (the optimum of
scikit-learn's, float64); `mlp` a two-layer perceptron (256 hidden units, Adam, float32); `gbt` gradient-boosted trees
and `knn` nearest neighbours, both scikit-learn's. All are deterministic for a given seed.

No attacker stops early on its own: an inner stop after a few flat epochs can read "chance" where a leak sits in
directions of low variance that learning reaches late. What grows (strength, epochs, trees, neighbours) grows to the end
on the inner folds, on standardised and on whitened columns, and the size that named most inner rows correctly is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Protocol

import numpy as np

from auditcore.leakage import neighbours, trees
from auditcore.leakage.folds import (
    default_jobs,
    in_parallel,
    inner_folds,
    log_softmax,
    one_thread,
    subjects_per_class,
)
from auditcore.leakage.information import confident_count
from auditcore.leakage.inputs import INPUTS
from auditcore.leakage.logistic import Logistic, fit_logistic
from auditcore.leakage.perceptron import Perceptron

__all__ = [
    "C_GRID", "PROBES", "Fitted", "default_jobs", "in_parallel", "inner_folds", "log_softmax", "one_thread",
    "subjects_per_class",
]  # fmt: skip

Logits = Callable[[np.ndarray], np.ndarray]  # features [n, f] -> logits float64 [n, K]
Setting = dict[str, Any]

C_GRID = tuple(10.0**e for e in range(-4, 3))
EPOCH_GRID = (2, 4, 8, 16, 32, 64)
ALPHA_GRID = (1.0, 10.0)  # scikit-learn's L2
FITTED = "fitted"  # key of the last probe in what fits of the same rows share
UPDATES = 1024  # of the perceptron, at most: with many rows a pass holds more of them than with few


class Model(Protocol):
    """A fitted attacker: features [n, f] -> logits float64 [n, K]."""

    def logits(self, features: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Kind:
    """How one kind of attacker is tried and fitted.

    forms: of the input, tried in turn; grid: number of training rows -> settings, the weakest first; path: (training
    features, codes, held-out features, number of classes, settings, seed) -> logits of the held-out rows for one
    setting after the other; fit: (features, codes, number of classes, setting, seed, memo) -> a model; grows: the
    setting that grows, at the end of which more might be learnt; random: a fit depends on its seed (else it is chosen
    and fitted once, on the folds that the first seed deals, and serves every seed); null_refits: how
    many refits on permuted labels the null band makes, None for one per permutation; null_all: it refits on all rows.
    """

    forms: tuple[str, ...]
    grid: Callable[[int], list[Setting]]
    path: Callable[[np.ndarray, np.ndarray, np.ndarray, int, list[Setting], int], Iterator[np.ndarray]]
    fit: Callable[[np.ndarray, np.ndarray, int, Setting, int, dict[Any, Any]], Model]
    grows: str | None = None
    random: bool = True
    null_refits: int | None = None
    null_all: bool = False


@dataclass(frozen=True)
class Fitted:
    """A probe fitted on all of its training rows.

    transform: vectors [n, d] -> features, fitted on the training rows; logits: features -> float64 [n, K];
    refit: (training features, codes, seed) -> logits, the same procedure at the chosen settings.
    """

    transform: Callable[[np.ndarray], np.ndarray]
    logits: Logits
    refit: Callable[[np.ndarray, np.ndarray, int], Logits]
    form: str  # of the input: fits of one form share their features
    settings: Setting
    converged: bool
    inner_accuracy: float  # mean per-class recall on the inner folds at the chosen settings
    held_out: np.ndarray  # log-probabilities of the training rows, each from a fit that has not seen its subject
    surest: Logits | None  # vectors -> logits at the setting that is surest of most subjects; None: at these settings
    null_refits: int | None = None
    null_all: bool = False
    notes: list[str] = field(default_factory=list)


@one_thread
def fit_probe(
    kind: Kind,
    vectors: np.ndarray,
    codes: np.ndarray,
    groups: np.ndarray,
    n_classes: int,
    seed: int,
    n_jobs: int = 1,
    memo: dict[Any, Any] | None = None,
) -> Fitted:
    """Choose form and setting on inner folds, then fit on all rows.

    vectors: float [n, d], finite; codes: int [n] in 0..n_classes-1; groups: [n] subjects; seed deals the inner folds
    and starts whatever is random; memo: what fits of the same rows share, kept by the caller. `converged` is False when
    the last fit stopped before it was done, or when the setting that grows was still getting better at its end.
    """
    memo = {} if memo is None else memo
    if not kind.random and FITTED in memo:
        return memo[FITTED]
    folds = inner_folds(codes, groups, seed)
    grid = kind.grid(len(codes) - int(folds[0].sum()))

    def score(task: tuple[str, int]) -> np.ndarray:
        form, fold = task[0], folds[task[1]]
        transform = INPUTS[form](vectors[~fold])
        train, held_out = transform(vectors[~fold]), transform(vectors[fold])
        found = kind.path(train, codes[~fold], held_out, n_classes, grid, seed)
        return np.stack([log_softmax(logits) for logits in found]).astype(np.float32)

    tasks = list(product(kind.forms, range(len(folds))))
    inner = np.full((len(kind.forms), len(grid), len(codes), n_classes), np.nan, dtype=np.float32)
    for (form, number), log_p in zip(tasks, in_parallel(score, tasks, n_jobs), strict=True):
        inner[kind.forms.index(form)][:, folds[number]] = log_p
    candidates = inner.reshape(-1, len(codes), n_classes)
    best, accuracy = _best(candidates, codes)

    def fitted(candidate: int) -> tuple[str, Setting, Callable[[np.ndarray], np.ndarray], Model]:
        form, setting = kind.forms[candidate // len(grid)], grid[candidate % len(grid)]
        transform, features = _input(form, vectors, memo)
        key = ("model", tuple(setting.items()), form, seed if kind.random else None)
        if key not in memo:
            memo[key] = kind.fit(features, codes, n_classes, setting, seed, memo)
        return form, setting, transform, memo[key]

    form, setting, transform, model = fitted(best)
    surest, more = _surest(candidates, codes, groups, best), None
    if surest != best:
        _, _, sure_transform, sure_model = fitted(surest)

        def more(new: np.ndarray) -> np.ndarray:
            return sure_model.logits(sure_transform(new))

    def refit(new_features: np.ndarray, new_codes: np.ndarray, new_seed: int) -> Logits:
        return kind.fit(new_features, new_codes, n_classes, setting, new_seed, memo).logits

    settings = {**({"input": form} if len(kind.forms) > 1 else {}), **setting}
    if isinstance(model, Logistic):
        settings["steps"] = model.steps
    grown = kind.grows is not None and setting[kind.grows] == grid[-1][kind.grows]
    converged = bool(getattr(model, "converged", True)) and not grown
    memo[FITTED] = Fitted(
        transform,
        model.logits,
        refit,
        form,
        settings,
        converged,
        accuracy,
        held_out=candidates[best].astype(np.float64),
        surest=more,
        null_refits=kind.null_refits,
        null_all=kind.null_all,
    )
    return memo[FITTED]


def _input(form: str, vectors: np.ndarray, memo: dict[Any, Any]) -> tuple[Callable[[np.ndarray], np.ndarray], Any]:
    """The form fitted on all rows, and their features: the same for every seed."""
    if form not in memo:
        transform = INPUTS[form](vectors)
        memo[form] = transform, transform(vectors)
    return memo[form]


def _best(inner: np.ndarray, codes: np.ndarray) -> tuple[int, float]:
    """Return the candidate with the highest inner recall (ties: lowest log-loss, then the first) and that recall."""
    n_classes = inner.shape[2]
    right = inner.argmax(axis=2) == codes
    recall = np.mean([right[:, codes == k].mean(axis=1) for k in range(n_classes)], axis=0)
    loss = -inner[:, np.arange(len(codes)), codes].mean(axis=1)
    best = int(np.lexsort((np.arange(len(inner)), loss, -recall.round(12)))[0])
    return best, float(recall[best])


def _surest(inner: np.ndarray, codes: np.ndarray, groups: np.ndarray, best: int) -> int:
    """Return the candidate that names most subjects with certainty, `best` unless another names more.

    What names most rows correctly is smooth, and passes over giveaways in a few rows.
    """
    counts = [confident_count(log_p.astype(np.float64), codes, groups) for log_p in inner]
    return best if counts[best] == max(counts) else int(np.argmax(counts))


# --- linear ---


def _linear_grid(n: int) -> list[Setting]:
    return [{"C": c} for c in C_GRID]


def _linear_path(
    train: np.ndarray, codes: np.ndarray, held_out: np.ndarray, n_classes: int, grid: list[Setting], seed: int
) -> Iterator[np.ndarray]:
    # Each strength starts where the one before ended; single precision is enough to choose one.
    train, held_out = train.astype(np.float32), held_out.astype(np.float32)
    model = None
    for setting in grid:
        model = fit_logistic(train, codes, setting["C"], n_classes, start=model)
        yield model.logits(held_out)


def _linear_fit(
    features: np.ndarray, codes: np.ndarray, n_classes: int, setting: Setting, seed: int, memo: dict[Any, Any]
) -> Model:
    # Features are principal axes, a rotation that leaves the L2-regularised solution as it is.
    return fit_logistic(features, codes, setting["C"], n_classes)


# --- mlp ---


def _mlp_grid(n: int) -> list[Setting]:
    batches = -(-n // 256)
    epochs = [e for e in EPOCH_GRID if e <= 8 or e * batches <= UPDATES]
    return [{"alpha": alpha, "epochs": e} for alpha, e in product(ALPHA_GRID, epochs)]


def _mlp_path(
    train: np.ndarray, codes: np.ndarray, held_out: np.ndarray, n_classes: int, grid: list[Setting], seed: int
) -> Iterator[np.ndarray]:
    model, alpha, done = None, None, 0
    for setting in grid:
        if model is None or setting["alpha"] != alpha:
            alpha, done = setting["alpha"], 0
            model = Perceptron(train, codes, n_classes, seed, alpha=setting["alpha"])
        model.run(setting["epochs"] - done)
        done = setting["epochs"]
        yield model.logits(held_out)


def _mlp_fit(
    features: np.ndarray, codes: np.ndarray, n_classes: int, setting: Setting, seed: int, memo: dict[Any, Any]
) -> Model:
    return Perceptron(features, codes, n_classes, seed, alpha=setting["alpha"]).run(setting["epochs"])


KINDS: dict[str, Kind] = {
    "linear": Kind(("principal",), _linear_grid, _linear_path, _linear_fit, random=False),
    "mlp": Kind(("standardised", "whitened"), _mlp_grid, _mlp_path, _mlp_fit, "epochs", null_refits=16),
    # No row is drawn and no feature left out: trees do not depend on the seed.
    "gbt": Kind(("standardised", "whitened"), trees.grid, trees.path, trees.fit, "trees", random=False, null_refits=16),
    # Permuted labels have the neighbours of the true ones: a refit costs nothing.
    "knn": Kind(
        ("standardised", "whitened"), neighbours.grid, neighbours.path, neighbours.fit, random=False, null_all=True
    ),
}
# The names a spec can choose (`spec.PROBES`), each with the function that fits it.
PROBES: dict[str, Callable[..., Fitted]] = {name: partial(fit_probe, kind) for name, kind in KINDS.items()}
