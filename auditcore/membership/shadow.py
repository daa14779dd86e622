"""Likelihood ratio with shadow models. In: mean log-probs under target and shadows, who trained on what. Out: scores.

Carlini et al. 2022 (LiRA) on the mean log-probability of a row: how likely is the target's value among models that were
trained on the row, against among models that were not?
"""

import numpy as np
import numpy.typing as npt

from auditcore.spec import LiraVariant

OWN_VARIANCE_FROM = 16  # shadows on each side; below, all rows share one variance, as the authors advise
LEAST_DEVIATION = 1e-6


def lira(
    target: np.ndarray, shadows: np.ndarray, trained: np.ndarray, variant: LiraVariant = "online"
) -> npt.NDArray[np.float64]:
    """Log-likelihood ratio of every row: float64 [n], higher = more likely a member, NaN where it cannot be formed.

    target: mean log-probability under the target [n]; shadows: the same under s shadow models [s, n]; trained: bool
    [s, n], the shadow was trained on the row. online: log N(x; in) - log N(x; out), needs shadows on both sides.
    offline: from shadows that were not trained on the row only, how many deviations x stands above them. That is the
    order of log P(out < x), which itself is exactly 0 from 38 deviations on and would tie the surest members with
    whoever else is up there. Variances are shared by all rows when a side has fewer than 16 shadows. NaN values of a
    row (nothing scored) give NaN.
    """
    values = np.asarray(shadows, dtype=np.float64)
    inside = np.asarray(trained, dtype=bool) & np.isfinite(values)
    outside = ~np.asarray(trained, dtype=bool) & np.isfinite(values)
    x = np.asarray(target, dtype=np.float64)
    out_mean, out_deviation = _moments(values, outside)
    if variant == "offline":
        return (x - out_mean) / out_deviation
    in_mean, in_deviation = _moments(values, inside)
    return _log_density(x, in_mean, in_deviation) - _log_density(x, out_mean, out_deviation)


def _moments(values: np.ndarray, use: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each row over the shadows in use: float64 [n] each; NaN where there is none."""
    n = use.sum(axis=0)
    kept = np.where(use, values, 0.0)
    mean = np.where(n > 0, kept.sum(axis=0) / np.maximum(n, 1), np.nan)
    square = np.where(use, (values - mean) ** 2, 0.0).sum(axis=0)
    spare = np.maximum(n - 1, 0)
    # By the rows with the fewest: a row of unknown membership, outside every shadow, must not decide for the others.
    if (n > 0).any() and int(n[n > 0].min()) >= OWN_VARIANCE_FROM:
        variance = np.where(spare > 0, square / np.maximum(spare, 1), np.nan)
    else:
        shared = float(square.sum() / spare.sum()) if spare.sum() else np.nan
        variance = np.full(len(n), shared)
    return mean, np.maximum(np.sqrt(variance), LEAST_DEVIATION)


def _log_density(x: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    return -np.log(deviation) - 0.5 * ((x - mean) / deviation) ** 2


def shadow_halves(subjects: np.ndarray, count: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which shadow is trained on which row: bool [count, n]. Shadows come in pairs that share out all subjects.

    subjects: number of each row's subject, int64 [n]. Every subject is inside one shadow of each pair and outside the
    other, so that every row has equally many models on both sides. An odd count leaves the last pair incomplete.
    """
    names, row = np.unique(subjects, return_inverse=True)
    trained = np.zeros((count, len(subjects)), dtype=bool)
    for pair in range((count + 1) // 2):
        drawn = np.random.default_rng([seed, 2022, pair]).permutation(len(names)) < len(names) / 2
        trained[2 * pair] = drawn[row]
        if 2 * pair + 1 < count:
            trained[2 * pair + 1] = ~drawn[row]
    return trained
