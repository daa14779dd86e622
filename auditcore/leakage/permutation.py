"""What a probe reads when there is nothing to find. In: a cell and its fitted probes. Out: accuracies on noise.

Labels are permuted by subject, inside the training rows and inside every evaluated split, and the probe is refitted on
the permuted labels at its chosen settings (one seed and its settings per permutation, in turn). One refit has a little
more variance than the mean over several seeds, so that the band is, if anything, too wide and the p-value too large.
"""

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from auditcore.leakage.cells import Cell, Part
from auditcore.leakage.probes import Fitted, in_parallel


def null_accuracies(
    cell: Cell,
    fits: Sequence[Fitted],
    permutations: int,
    seed: int,
    n_jobs: int = 1,
    on_done: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """Return the mean per-class recall of each permuted refit, split -> float64 [permutations].

    on_done(number finished) is called in order, in the caller's thread.
    """
    # Features of the same settings are the same: made once.
    made: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    keys: dict[str, int] = {}
    places = []
    for fit in fits:
        key = str(fit.settings.get("input"))
        if key not in keys:
            keys[key] = len(made)
            evaluated = {split: fit.transform(part.vectors) for split, part in cell.evaluated.items()}
            made.append((fit.transform(cell.train.vectors), evaluated))
        places.append(keys[key])

    def one(number: int) -> list[float]:
        which = number % len(fits)
        train, evaluated = made[places[which]]
        rng = np.random.default_rng([seed, 0xA11, number])
        logits = fits[which].refit(train, permute_by_subject(cell.train, rng), int(rng.integers(2**32)))
        prior = log_prior(cell.train, len(cell.classes))
        found = []
        for split, part in cell.evaluated.items():
            codes = permute_by_subject(part, rng)
            found.append(mean_recall((logits(evaluated[split]) - prior).argmax(axis=1) == codes, codes))
        return found

    accuracies = np.empty((permutations, len(cell.evaluated)))
    with closing(in_parallel(one, range(permutations), n_jobs)) as results:
        for number, found in enumerate(results):
            accuracies[number] = found
            if on_done is not None:
                on_done(number + 1)
    return {split: accuracies[:, k] for k, split in enumerate(cell.evaluated)}


def permute_by_subject(part: Part, rng: np.random.Generator) -> np.ndarray:
    """Return codes [n] with the subjects' labels dealt anew.

    A subject's rows keep one label together. Where subjects carry several labels, the whole sequence of a subject's
    labels moves, among subjects with as many rows.
    """
    where = np.unique(part.groups, return_inverse=True)[1]
    order = np.argsort(where, kind="stable")
    codes, sizes = part.codes[order], np.bincount(where)
    starts = np.cumsum(sizes) - sizes
    pure = bool(np.all(codes == np.repeat(codes[starts], sizes)))
    if pure:
        return rng.permutation(codes[starts])[where]
    moved = np.empty_like(codes)
    for size in np.unique(sizes):
        blocks = starts[sizes == size][:, None] + np.arange(size)
        moved[blocks] = codes[rng.permutation(blocks)]
    out = np.empty_like(codes)
    out[order] = moved
    return out


def mean_recall(correct: np.ndarray, codes: np.ndarray) -> float:
    """Return the mean over classes of the share of correct rows."""
    counts = np.bincount(codes)
    present = counts > 0
    return float((np.bincount(codes, weights=correct)[present] / counts[present]).mean())


def log_prior(train: Part, n_classes: int) -> np.ndarray:
    """Return the log class shares of the training rows [K]; logits minus these judge as if classes were balanced."""
    return np.log(np.bincount(train.codes, minlength=n_classes) / len(train.codes))
