"""What a probe's probabilities are worth. In: log-probabilities, classes, subjects. Out: bits, confident inferences.

V-information (Xu et al. 2020): what the probe's family can extract of the label, in bits, log2 K minus its log-loss.
Confident inferences: the share of subjects whose label is named with calibrated precision >= 0.9, since an average
within budget can hide a few certain giveaways. Both are calibrated on rows that share no subject with those they are
reported on.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import beta, binom

from auditcore.leakage.folds import inner_folds, log_softmax, subjects_per_class
from auditcore.verdict import wilson

PRECISION = 0.9
FEWEST = 10  # subjects above a threshold before its precision is believed


@dataclass(frozen=True)
class Confident:
    """Confident inferences of one evaluation set. Shares are of subjects."""

    share: float
    low: float  # 95 % interval of the share (Wilson)
    high: float
    by_class: np.ndarray  # float64 [K], share of each class's subjects whose own label is named so: rightly
    precision: float  # realised on the reported subjects, NaN when none is named
    p_guessed: float  # probability that guessing names as many of those subjects correctly, 1 when none is named
    threshold: float  # probability from which on the calibration subjects were named with precision 0.9; inf = none
    least: float  # smallest share of certain giveaways that so many subjects can show (`smallest_share`)


def v_information_bits(
    log_p: np.ndarray, codes: np.ndarray, calibration: tuple[np.ndarray, np.ndarray] | None, groups: np.ndarray
) -> float:
    """Return V-information in bits (at most log2 K, at least about 0), every class counting the same.

    log_p: float64 [n, K]; codes: int [n]; calibration: (log_p, codes) of other subjects, on which one temperature is
    fitted, or None to fit it by halves of the same rows, each half serving the other.
    """
    if calibration is not None:
        scaled = _sharpen(log_p, _sharpness(*calibration))
    else:
        scaled = log_p.copy()
        for half in halves(codes, groups):
            scaled[half] = _sharpen(log_p[half], _sharpness(log_p[~half], codes[~half]))
    k = log_p.shape[1]
    loss = [-scaled[codes == c, c].mean() for c in range(k)]
    return float((np.log(k) - np.mean(loss)) / np.log(2))


def confident(
    log_p: np.ndarray,
    codes: np.ndarray,
    groups: np.ndarray,
    calibration: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> Confident:
    """Count subjects named with calibrated precision >= 0.9.

    A subject's probabilities are the mean over its rows. The threshold is the lowest probability above which the
    calibration subjects were named with precision >= 0.9 (median of the posterior under a flat prior, at least 10
    subjects). Each half of the subjects is calibrated on the other half, and on `calibration`, (log_p, codes, groups)
    of further subjects, where there are any: giveaways in 2 % of the rows are too few to be seen in a small split.
    `share` counts every subject named so, rightly or not (`precision`); `by_class` only those named rightly: a class
    that others are taken for with certainty, and whose own subjects never are, gives nobody away.
    """
    p, actual, subjects = _by_subject(log_p, codes, groups)
    named, sure = p.argmax(axis=1), p.max(axis=1)
    right = named == actual
    more_sure, more_right = np.zeros(0), np.zeros(0, dtype=bool)
    if calibration is not None:
        cp, cc, _ = _by_subject(*calibration)
        more_sure, more_right = cp.max(axis=1), cp.argmax(axis=1) == cc
    above, cuts = np.zeros(len(p), dtype=bool), []
    for half in halves(actual, subjects):
        cuts.append(_threshold(np.append(sure[~half], more_sure), np.append(right[~half], more_right)))
        above[half] = sure[half] >= cuts[-1]
    given = above & right
    by_class = np.array([given[actual == c].mean() if (actual == c).any() else np.nan for c in range(p.shape[1])])
    hits, n = int(given.sum()), int(above.sum())
    low, high = wilson(n / len(p), len(p))
    guessed = float(binom.sf(hits - 1, n, 1 / p.shape[1])) if n else 1.0
    precision, least = hits / n if n else float("nan"), smallest_share(len(p), len(more_sure))
    return Confident(n / len(p), low, high, by_class, precision, guessed, float(max(cuts)), least)


def smallest_share(n_subjects: int, n_calibration: int = 0) -> float:
    """Return the smallest share of certain giveaways that `confident` can be expected to find, 1 where it finds none.

    n_subjects: judged; n_calibration: further ones. A threshold is set on half of the first and all of the second, and
    takes at least 10 subjects above it, all named rightly: a share of which fewer are expected there is more likely
    missed than found, though nothing is wrong with the attacker.
    """
    believed = math.ceil(math.log(0.5) / math.log(PRECISION)) - 1  # from so many on, all right, the median is >= 0.9
    return min(1.0, max(FEWEST, believed) / max(n_calibration + n_subjects // 2, 1))


def confident_count(log_p: np.ndarray, codes: np.ndarray, groups: np.ndarray) -> int:
    """Count subjects above the threshold found on themselves: to compare settings by, never to report."""
    p, actual, _ = _by_subject(log_p, codes, groups)
    sure = p.max(axis=1)
    return int((sure >= _threshold(sure, p.argmax(axis=1) == actual)).sum())


def halves(codes: np.ndarray, groups: np.ndarray) -> list[np.ndarray]:
    """Return two complementary masks that share no subject, each class in both where it has two subjects."""
    if subjects_per_class(codes, groups).min() < 2:
        odd = np.unique(groups, return_inverse=True)[1] % 2 == 1
        return [odd, ~odd] if odd.any() else [np.ones(len(codes), dtype=bool)]
    return inner_folds(codes, groups, seed=0, n_folds=2)


def _sharpen(log_p: np.ndarray, factor: float) -> np.ndarray:
    return log_softmax(log_p * factor)


def _sharpness(log_p: np.ndarray, codes: np.ndarray) -> float:
    """Return the factor on the logits (1 / temperature) with the lowest log-loss; near 0 means "knows nothing"."""
    if len(codes) == 0:
        return 1.0
    rows = np.arange(len(codes))

    def loss(log_factor: float) -> float:
        return float(-_sharpen(log_p, np.exp(log_factor))[rows, codes].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 3.0), method="bounded", options={"xatol": 1e-3}).x))


def _by_subject(log_p: np.ndarray, codes: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean probabilities [s, K], class of the first row [s] and name [s] of each subject."""
    subjects, first, where = np.unique(groups, return_index=True, return_inverse=True)
    p = np.zeros((len(subjects), log_p.shape[1]))
    np.add.at(p, where, np.exp(log_p))
    return p / np.bincount(where)[:, None], codes[first], subjects


def _threshold(sure: np.ndarray, right: np.ndarray) -> float:
    """Return the lowest probability above which precision is 0.9, inf when there is none."""
    order = np.argsort(-sure, kind="stable")
    sure, hits = sure[order], np.cumsum(right[order])
    n = np.arange(1, len(sure) + 1)
    last_of_ties = np.append(sure[1:] < sure[:-1], True) if len(sure) else np.zeros(0, dtype=bool)
    good = last_of_ties & (n >= FEWEST) & (beta.ppf(0.5, hits + 1, n - hits + 1) >= PRECISION)
    return float(sure[np.flatnonzero(good)[-1]]) if good.any() else float("inf")
