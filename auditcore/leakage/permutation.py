"""What a probe reads when there is nothing to find. In: a cell and its fitted probes. Out: accuracies on noise.

Labels are permuted by subject, inside the training rows and inside every evaluated split, and the probe is refitted on
the permuted labels at its chosen settings (one seed and its settings per permutation, in turn). One refit has a little
more variance than the mean over several seeds, so that the band is, if anything, too wide and the p-value too large.

Refits use whole subjects with at most `ROWS` training rows (`knn`, whose refits cost nothing, all of them): from
permuted labels nothing can be learnt, from many rows no more than from few, and the spread of the accuracy comes from
the evaluated rows, which are all used. An attacker whose refit is costly (`Fitted.null_refits`), or that has more than
`MANY` rows to judge, is refitted fewer times, each refit judged on several permutations of the evaluated labels; so is
every attacker where more permutations are wanted than refits, because many tests are corrected for. What was done
stands in the tables, beside the band; benchmarks/null_band.py compares it with refits on all rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from auditcore.leakage.cells import Cell, Part
from auditcore.leakage.folds import in_parallel
from auditcore.leakage.probes import Fitted

ROWS = 2000
MANY, REFITS_OF_MANY = 10_000, 67

# Features of the training rows and of each evaluated split, by form of the input.
Features = Mapping[str, tuple[np.ndarray, Mapping[str, np.ndarray]]]


@dataclass(frozen=True)
class Null:
    """Mean per-class recall on permuted labels, split -> float64 [permutations]; how many refits, on how many rows."""

    accuracies: dict[str, np.ndarray]
    refits: int
    rows: int


def null_accuracies(
    cell: Cell,
    fits: Sequence[Fitted],
    made: Features,
    permutations: int,
    seed: int,
    n_jobs: int = 1,
    on_done: Callable[[int], None] | None = None,
    most_refits: int | None = None,
) -> Null:
    """Return the mean per-class recall of each permuted refit.

    made: features of all training rows and of every evaluated split, for each form that `fits` take. on_done(number
    finished) is called in order, in the caller's thread. most_refits: how many there are at most, None for one for each
    permutation.
    """
    train = cell.train
    if not all(fit.null_all for fit in fits):
        train = _some_subjects(train, np.random.default_rng([seed, 0x5B5]))
    if len(train.codes) < len(cell.train.codes):
        kept = np.flatnonzero(np.isin(cell.train.positions, train.positions))
        made = {form: (features[kept], evaluated) for form, (features, evaluated) in made.items()}
    prior = log_prior(train, len(cell.classes))
    refits = min(permutations, most_refits or permutations, *(fit.null_refits or permutations for fit in fits))
    if sum(len(part.positions) for part in cell.evaluated.values()) > MANY:
        refits = min(refits, REFITS_OF_MANY)
    deal_train, deal = dealer(train), {split: dealer(part) for split, part in cell.evaluated.items()}

    def one(number: int) -> list[list[float]]:
        fit = fits[number % len(fits)]
        features, evaluated = made[fit.form]
        rng = np.random.default_rng([seed, 0xA11, number])
        logits = fit.refit(features, deal_train(rng), int(rng.integers(2**32)))
        named = {split: (logits(evaluated[split]) - prior).argmax(axis=1) for split in cell.evaluated}
        found = []
        for _ in range(number, permutations, refits):
            dealt = {split: again(rng) for split, again in deal.items()}
            found.append([mean_recall(named[split] == codes, codes) for split, codes in dealt.items()])
        return found

    accuracies = np.empty((permutations, len(cell.evaluated)))
    done = 0
    with closing(in_parallel(one, range(refits), n_jobs)) as results:
        for number, found in enumerate(results):
            accuracies[number::refits] = found
            for _ in found:
                done += 1
                if on_done is not None:
                    on_done(done)
    return Null({split: accuracies[:, k] for k, split in enumerate(cell.evaluated)}, refits, len(train.codes))


def _some_subjects(part: Part, rng: np.random.Generator) -> Part:
    """Whole subjects drawn at random until they have `ROWS` rows; all of them where there are no more."""
    if len(part.codes) <= ROWS:
        return part
    where = np.unique(part.groups, return_inverse=True)[1]
    rank = rng.permutation(where.max() + 1)  # place of each subject in the draw
    order = np.argsort(rank[where], kind="stable")[:ROWS]
    # A class that no drawn row has could not be named; every class keeps its first subject.
    kept = np.union1d(order, [np.flatnonzero(part.codes == code)[0] for code in np.unique(part.codes)])
    at = np.flatnonzero(np.isin(where, where[kept]))
    return Part(part.positions[at], part.vectors[at], part.codes[at], part.groups[at])


def permute_by_subject(part: Part, rng: np.random.Generator) -> np.ndarray:
    """Return codes [n] with the subjects' labels dealt anew: once what `dealer` does."""
    return dealer(part)(rng)


def dealer(part: Part) -> Callable[[np.random.Generator], np.ndarray]:
    """Return what deals the subjects' labels anew at each call, as codes [n].

    A subject's rows keep one label together. Where subjects carry several labels, the whole sequence of a subject's
    labels moves, among subjects with as many rows.
    """
    where = np.unique(part.groups, return_inverse=True)[1]
    order = np.argsort(where, kind="stable")
    codes, sizes = part.codes[order], np.bincount(where)
    starts = np.cumsum(sizes) - sizes
    pure = bool(np.all(codes == np.repeat(codes[starts], sizes)))
    if pure:
        return lambda rng: rng.permutation(codes[starts])[where]
    alike = [starts[sizes == size][:, None] + np.arange(size) for size in np.unique(sizes)]

    def deal(rng: np.random.Generator) -> np.ndarray:
        out = np.empty_like(codes)
        for blocks in alike:
            out[order[blocks]] = codes[rng.permutation(blocks)]
        return out

    return deal


def mean_recall(correct: np.ndarray, codes: np.ndarray) -> float:
    """Return the mean over classes of the share of correct rows."""
    counts = np.bincount(codes)
    present = counts > 0
    return float((np.bincount(codes, weights=correct)[present] / counts[present]).mean())


def log_prior(train: Part, n_classes: int) -> np.ndarray:
    """Return the log class shares of the training rows [K]; logits minus these judge as if classes were balanced."""
    return np.log(np.bincount(train.codes, minlength=n_classes) / len(train.codes))
