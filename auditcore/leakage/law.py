"""A saturating power law through a learning curve. In: sizes, accuracies, their replicates. Out: what more would give.

accuracy(n) = a - b n^-c with b >= 0 and a <= 1 (Hestness et al. 2017, arXiv 1712.00409), by weighted least squares: for
each exponent c of a grid a and b have a closed form (variable projection), so that every replicate of the bootstrap is
fitted as the estimate is. What lies beyond the largest size is an extrapolation and is refused where the sizes do not
determine it.
"""

from dataclasses import dataclass

import numpy as np

EXPONENTS = np.geomspace(0.05, 2.0, 75)
FEWEST = 4  # sizes: one more than the law has parameters
MISS = 0.02  # accuracy by which the law, fitted without the largest size, may foretell too much for it
WIDEST = 0.25  # of a band, as a share of the way from guessing to certainty


@dataclass(frozen=True)
class Law:
    """a, b: of sizes relative to the largest; c: the exponent. Each float64 [B]."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    def at(self, times: float) -> np.ndarray:
        """Accuracy at so many times the largest size, float64 [B]."""
        return np.asarray(self.a - self.b * times**-self.c)


@dataclass(frozen=True)
class Extrapolation:
    """What the law says at each of `times` the largest size, with 95 % bands; why not, where it was refused.

    predicted, measured: the largest size, by the law fitted without it, and as it was found.
    """

    times: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    law: Law
    predicted: float
    measured: float
    refused: str


def fit_law(sizes: np.ndarray, accuracy: np.ndarray, weights: np.ndarray, largest: float) -> Law:
    """Fit every row of accuracy [B, P] at sizes [P] (training rows) with weights [P] (inverse variances)."""
    w = weights / weights.sum()
    x = (sizes / largest) ** -EXPONENTS[:, None]  # [C, P]
    mx, my = x @ w, accuracy @ w  # [C], [B]
    sxx = (x * x) @ w - mx**2
    sxy = (accuracy * w) @ x.T - my[:, None] * mx  # [B, C]
    b = np.maximum(-sxy / np.maximum(sxx, 1e-12), 0.0)
    a = my[:, None] + b * mx
    # Where a would lie above 1 it is 1, and b what then fits best.
    held = ((1 - accuracy) * w) @ x.T / ((x * x) @ w)
    over = a > 1
    a, b = np.where(over, 1.0, a), np.where(over, held, b)
    missed = accuracy[:, None, :] - (a[..., None] - b[..., None] * x)  # [B, C, P]
    best = np.argmin((missed**2) @ w, axis=1)
    row = np.arange(len(accuracy))
    return Law(a[row, best], b[row, best], EXPONENTS[best])


def extrapolate(
    sizes: np.ndarray, accuracy: np.ndarray, replicates: np.ndarray, chance: float, low: float, times: list[float]
) -> Extrapolation:
    """Fit and extrapolate.

    sizes: training rows [P], ascending; accuracy: [P]; replicates: bootstrap of it [B, P]; low: lower 95 % end at the
    largest size; times: of the largest size, ascending, the last is what is asked.
    """
    n = len(sizes)
    nothing = Law(*(np.full(1, np.nan) for _ in range(3)))
    none = Extrapolation([], [], [], [], nothing, float("nan"), float(accuracy[-1]), "")
    if n < FEWEST:
        return _refuse(none, f"{n} sizes do not determine a law of three numbers; {FEWEST} are needed")
    if low <= chance:
        return _refuse(
            none, "nothing is read yet from all rows, and where nothing has begun to grow no growth can be continued"
        )
    weights = 1 / np.maximum(replicates.var(axis=0), 1e-6)
    both = np.vstack([accuracy[None], replicates])
    largest = float(sizes[-1])
    fewer = fit_law(sizes[:-1], both[:, :-1], weights[:-1], largest).at(1.0)
    miss = np.quantile(fewer[1:] - replicates[:, -1], [0.025, 0.975])
    predicted, measured = float(fewer[0]), float(accuracy[-1])
    law = fit_law(sizes, both, weights, largest)
    values = np.stack([law.at(t) for t in times])  # [T, 1 + B]
    ends = np.quantile(values[:, 1:], [0.025, 0.975], axis=1)
    made = Extrapolation(times, values[:, 0].tolist(), ends[0].tolist(), ends[1].tolist(), law, predicted, measured, "")
    bend = np.polyfit(np.log(sizes), accuracy, 2, w=np.sqrt(weights))[0]
    if bend >= 0 and np.quantile(replicates[:, -1] - replicates[:, 0], 0.025) > 0:
        return _refuse(made, "the curve does not flatten yet: it grows as fast as the logarithm of the rows, or faster")
    if miss[1] < 0:  # the dangerous side, so that no tolerance is granted
        return _refuse(made, "the curve does not flatten as such a law: fitted to fewer rows it foretells too little")
    if predicted - measured > MISS and miss[0] > 0:
        return _refuse(made, "the curve follows no such law: fitted to fewer rows it foretells too much")
    if float(ends[1][-1] - ends[0][-1]) > WIDEST * (1 - chance):
        return _refuse(
            made,
            "these sizes do not determine it: its 95 % band reaches from "
            f"{100 * ends[0][-1]:.0f} to {100 * ends[1][-1]:.0f} %",
        )
    return made


def _refuse(found: Extrapolation, why: str) -> Extrapolation:
    return Extrapolation([], [], [], [], found.law, found.predicted, found.measured, why)
