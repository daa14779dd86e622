"""Accuracy against training rows. In: a cell and a probe. Out: how well fewer rows do, and what more might give.

The probe is fitted, tuning included, on subsamples of `bal_train`: whole subjects, each class in one random order of
which a share is taken, so that a smaller subsample lies inside a larger one. Several draws make several orders. All are
judged on the same rows; intervals resample test subjects and draws together, and hold for these training rows.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from auditcore.leakage.cells import Cell, Part
from auditcore.leakage.folds import default_jobs, one_thread
from auditcore.leakage.intervals import accuracy_interval, resample
from auditcore.leakage.law import extrapolate
from auditcore.leakage.permutation import log_prior
from auditcore.leakage.probes import PROBES

FEWEST = 4  # subjects of each class in the smallest subsample
CHUNK = 200  # resamples at once
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # times the rows, at which a band is drawn on the way to what is asked
CURVE_COLUMNS = [
    *("attribute", "artifact", "layer", "probe", "split", "share", "n_train", "n_subjects_train", "draws"),
    *("n_eval", "n_subjects", "n_classes", "chance", "accuracy", "accuracy_low", "accuracy_high", "draw_deviation"),
]
MORE_COLUMNS = [
    *("attribute", "artifact", "layer", "probe", "split", "times", "n_train", "accuracy", "low", "high", "chance"),
    *("predicted", "measured", "settings", "refused"),
]


@dataclass(frozen=True)
class Point:
    """One size. right: bool [draws, n], row by row of the judged split; n_train, n_subjects: means over draws."""

    share: float
    n_train: float
    n_subjects: float
    right: np.ndarray


@dataclass(frozen=True)
class Curve:
    """Rows of `sample_curve` and of `sample_extrapolation`."""

    points: pd.DataFrame
    more: pd.DataFrame


def subsample(train: Part, share: float, draw: int, seed: int) -> Part | None:
    """Return whole subjects, a share of each class's; None where a class would keep fewer than `FEWEST`."""
    subjects, first, where = np.unique(train.groups, return_index=True, return_inverse=True)
    main = train.codes[first]  # a subject with several classes counts with its first row
    rng = np.random.default_rng([seed, 0xC0DE, draw])
    keep = np.zeros(len(subjects), dtype=bool)
    for code in range(int(main.max()) + 1):
        order = rng.permutation(np.flatnonzero(main == code))
        n = round(share * len(order))
        if n < FEWEST:
            return None
        keep[order[:n]] = True
    at = np.flatnonzero(keep[where])
    return Part(train.positions[at], train.vectors[at], train.codes[at], train.groups[at])


def usable(train: Part, shares: Sequence[float]) -> list[float]:
    """The shares that leave enough subjects of every class, ascending."""
    return [share for share in sorted(shares) if subsample(train, share, 0, 0) is not None]


@one_thread
def learn(
    cell: Cell,
    split: str,
    probe: str,
    shares: Sequence[float],
    draws: int,
    seeds: Sequence[int],
    seed: int,
    on_step: Callable[[int, int], None] | None = None,
) -> list[Point]:
    """Fit `probe` on every subsample and judge it on `split`; seeds: of the probe, one draw after the other."""
    part, points = cell.evaluated[split], []
    kept = usable(cell.train, shares)
    for number, share in enumerate(kept):
        right, rows, people = [], [], []
        for draw in range(draws):
            some = subsample(cell.train, share, draw, seed)
            assert some is not None
            fitted_on = (some.vectors, some.codes, some.groups, len(cell.classes), seeds[draw % len(seeds)])
            fit = PROBES[probe](*fitted_on, n_jobs=default_jobs())
            logits = fit.logits(fit.transform(part.vectors)) - log_prior(some, len(cell.classes))
            right.append(logits.argmax(axis=1) == part.codes)
            rows.append(len(some.positions))
            people.append(some.n_subjects)
            if on_step is not None:
                on_step(number * draws + draw + 1, len(kept) * draws)
        points.append(Point(share, float(np.mean(rows)), float(np.mean(people)), np.stack(right)))
    return points


def replicates(points: Sequence[Point], part: Part, n_boot: int, seed: int) -> np.ndarray:
    """Return bootstrap replicates of the accuracy at every size, float64 [B, sizes].

    The same subjects are drawn for every size, stratified by class, and at each size one draw less than there are, with
    replacement: so few draws, resampled as they are, would vary too little (Rao and Wu 1988).
    """
    k = int(part.codes.max()) + 1
    subject = np.unique(part.groups, return_inverse=True)[1]
    n = int(subject.max()) + 1
    rows = np.zeros((n, k))
    np.add.at(rows, (subject, part.codes), 1.0)
    right = np.concatenate([point.right for point in points]).T.astype(np.float64)  # [rows, all draws]
    hits = np.zeros((n, k, right.shape[1]))
    np.add.at(hits, (subject, part.codes), right)
    strata = np.unique(rows > 0, axis=0, return_inverse=True)[1].ravel()
    rng = np.random.default_rng([seed, 0xC0F])
    flat, found = hits.reshape(n, -1), []
    for begin in range(0, n_boot, CHUNK):
        size = min(CHUNK, n_boot - begin)
        drawn = np.zeros((size, n))
        for stratum in range(strata.max() + 1):
            mine = np.flatnonzero(strata == stratum)
            drawn[:, mine] = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=size)
        with np.errstate(invalid="ignore"):
            recall = (drawn @ flat).reshape(size, k, -1) / (drawn @ rows)[:, :, None]
        each, sizes, start = recall.mean(axis=1), [], 0  # [size, all draws]
        for point in points:
            count = len(point.right)
            chosen = rng.integers(0, count, (size, max(count - 1, 1)))
            sizes.append(np.take_along_axis(each[:, start : start + count], chosen, axis=1).mean(axis=1))
            start += count
        found.append(np.stack(sizes, axis=1))
    every = np.concatenate(found)
    return every[np.isfinite(every).all(axis=1)]


def curve(
    cell: Cell,
    split: str,
    points: Sequence[Point],
    times: float,
    n_boot: int,
    seed: int,
    names: dict[str, object],
) -> Curve:
    """Tables of one probe. points: sizes ascending, the last all training rows; names: attribute ... probe."""
    part, chance = cell.evaluated[split], 1 / len(cell.classes)
    drawn = replicates(points, part, n_boot, seed)
    lines, accuracies, lows = [], [], []
    for place, point in enumerate(points):
        mean = point.right.mean(axis=0)
        found = resample(mean, part.codes, part.groups, n_boot, seed)
        low, high = accuracy_interval(found, 0.95)
        ends = np.quantile(drawn[:, place], [0.025, 0.975])
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
        each = [_recall(one, part.codes) for one in point.right]
        sizes = (point.share, point.n_train, point.n_subjects, len(point.right), len(part.codes), part.n_subjects)
        spread = float(np.std(each, ddof=1)) if len(each) > 1 else np.nan
        lines.append((*names.values(), split, *sizes, len(cell.classes), chance, found.accuracy, low, high, spread))
        accuracies.append(found.accuracy)
        lows.append(low)
    rows = np.array([point.n_train for point in points])
    wanted = [*(t for t in STEPS if t < times), times]
    more = extrapolate(rows, np.array(accuracies), drawn, chance, lows[-1], wanted)
    law = {"limit": more.law.a[0], "slope": more.law.b[0], "exponent": more.law.c[0]}
    settings = json.dumps({name: None if np.isnan(value) else float(value) for name, value in law.items()})
    told = (chance, more.predicted, more.measured, settings, more.refused)
    values = list(zip(more.times, more.accuracy, more.low, more.high, strict=True))
    values = values or [(times, np.nan, np.nan, np.nan)]
    beyond = [(*names.values(), split, t, t * rows[-1], a, low, high, *told) for t, a, low, high in values]
    return Curve(pd.DataFrame(lines, columns=CURVE_COLUMNS), pd.DataFrame(beyond, columns=MORE_COLUMNS))


def _recall(right: np.ndarray, codes: np.ndarray) -> float:
    return float((np.bincount(codes, weights=right) / np.bincount(codes)).mean())
