"""Minimum description length of the labels, given the vectors. In: training rows, a fitted probe. Out: bits per row.

Online coding (Voita and Titov 2020, arXiv 2003.12298): the first block of labels is sent as it is, log2 K bits each;
every later block with the probabilities of the probe refitted on all rows before it. Short means that the label is
easy to learn from the vectors: unlike accuracy, it also tells how many rows that takes. Blocks double, from about 1/64
of the rows to all, and whole subjects are sent; the probe keeps the settings that all rows chose.

A probe fitted on few rows is surer than it should be, and sent as it says, wrong certainties cost more than no probe at
all. Each block is therefore sent with the Bayesian mixture of the probe's probabilities at the temperatures of a grid,
from its own to no opinion, every one weighing the same before the block begins: a code that a receiver can follow row
by row, at most log2 of the grid's size longer per block than its best temperature, so that no probe costs noticeably
more than the labels uncoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditcore.leakage.cells import Part
from auditcore.leakage.folds import log_softmax
from auditcore.leakage.probes import Fitted

DOUBLINGS = 6
FEWEST = 8  # rows per class in the first block
# Powers of the probabilities (1 / temperature): 1 is what the probe says, 0 the uniform distribution.
POWERS = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
LEAST = -1e3  # log-probability taken for 0, which has no power


@dataclass(frozen=True)
class CodeLength:
    """bits: mean per row; uniform: log2 K; compression: uniform / bits (1 = the vectors say nothing)."""

    bits: float
    uniform: float
    compression: float


def code_length(train: Part, features: np.ndarray, fit: Fitted, n_classes: int, seed: int) -> CodeLength:
    """Send the training labels online. features: [n, f], those of `train` under `fit.transform`.

    A probability is mixed with one row's worth of the uniform one, so that a class that has not been seen yet can be
    sent. Raises nothing: with too few rows for two blocks everything is sent as it is.
    """
    order, ends = _blocks(train, n_classes, seed)
    uniform = float(np.log2(n_classes))
    total = uniform * ends[0]
    for begin, end in pairwise(ends):
        known, sent = order[:begin], order[begin:end]
        logits = fit.refit(features[known], train.codes[known], seed)(features[sent])
        total += _bits(logits, train.codes[sent], begin)
    bits = total / len(order)
    return CodeLength(bits, uniform, uniform / bits if bits > 0 else float("inf"))


def _bits(logits: np.ndarray, codes: np.ndarray, known: int) -> float:
    """Return what a block takes. logits: [n, K] of the probe refitted on `known` rows; codes: int [n], what is sent."""
    log_p, n_classes = np.maximum(log_softmax(logits), LEAST), logits.shape[1]
    each = []
    for power in POWERS:
        p = np.exp(log_softmax(power * log_p))[np.arange(len(codes)), codes]
        each.append(np.log2((known * p + 1 / n_classes) / (known + 1)).sum())
    return float(np.log2(len(POWERS)) - np.logaddexp2.reduce(each))


def _blocks(train: Part, n_classes: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Rows in the order they are sent, subject by subject, and where each block ends."""
    subject = np.unique(train.groups, return_inverse=True)[1]
    rank = np.random.default_rng([seed, 0x3D1]).permutation(subject.max() + 1)
    order = np.argsort(rank[subject], kind="stable")
    n = len(order)
    starts = np.flatnonzero(np.diff(subject[order], prepend=-1))  # where a subject begins
    ends = sorted({int(starts[np.searchsorted(starts, wanted)]) for wanted in _wanted(n, n_classes, starts)})
    return order, [*ends, n]


def _wanted(n: int, n_classes: int, starts: np.ndarray) -> Iterator[int]:
    for doubling in range(DOUBLINGS, 0, -1):
        size = n // 2**doubling
        if FEWEST * n_classes <= size <= starts[-1]:
            yield size
