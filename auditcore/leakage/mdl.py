"""Minimum description length of the labels, given the vectors. In: training rows, a fitted probe. Out: bits per row.

Online coding (Voita and Titov 2020, arXiv 2003.12298): the first block of labels is sent as it is, log2 K bits each;
every later block with the probabilities of the probe refitted on all rows before it. Short means that the label is
easy to learn from the vectors: unlike accuracy, it also tells how many rows that takes. Blocks double, from about 1/64
of the rows to all, and whole subjects are sent; the probe keeps the settings that all rows chose.
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
        p = np.exp(log_softmax(logits))[np.arange(len(sent)), train.codes[sent]]
        total -= float(np.log2((begin * p + 1 / n_classes) / (begin + 1)).sum())
    bits = total / len(order)
    return CodeLength(bits, uniform, uniform / bits if bits > 0 else float("inf"))


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
