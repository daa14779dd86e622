"""Attackers on texts. In: texts or their vectors, labels, subjects. Out: how well the label is read, cross-validated.

Two readers: `tfidf`, words and pairs of words weighted by TF-IDF under logistic regression, and `embedding`, the linear
probe on vectors that a language model makes of the text. Every row is read by a probe that was fitted on other subjects
(five folds); C is chosen on inner folds. The same rows are read in the prompt, in the reference and in what the model
writes, so that the three can be compared; with few rows cross-validated accuracy of noise lies a little below guessing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditcore.errors import DatasetError
from auditcore.leakage.intervals import accuracy_interval, resample
from auditcore.leakage.probes import PROBES, inner_folds
from auditcore.leakage.tfidf import fit_texts
from auditcore.verdict import interval_verdict

FOLDS = 5
FEWEST = 4  # subjects of a class: two to learn from in every inner fold, two to be held out


@dataclass(frozen=True)
class Read:
    """How well a label is read from one kind of text; right: bool [n], row by row."""

    accuracy: float
    low95: float
    high95: float
    low90: float
    high90: float
    chance: float
    n_rows: int
    n_subjects: int
    n_classes: int
    verdict: str
    right: np.ndarray


def usable(labels: Sequence[object], groups: Sequence[object]) -> tuple[np.ndarray, list[str]]:
    """Positions of the rows that can be cross-validated, and words for what is left out.

    A class with fewer than four subjects cannot be dealt into folds; a row without a label says nothing.
    """
    known = np.array([label is not None and label == label for label in labels], dtype=bool)
    texts = np.array([str(label) if k else "" for label, k in zip(labels, known, strict=True)])
    names = np.array([str(g) for g in groups])
    keep, notes = known.copy(), []
    for name in sorted(set(texts[known])):
        subjects = len(set(names[known & (texts == name)]))
        if subjects < FEWEST:
            keep &= texts != name
            notes.append(f"class '{name}' has {subjects} subjects in the generated rows, too few: left out.")
    return np.flatnonzero(keep), notes


def read_texts(texts: Sequence[str], labels: np.ndarray, groups: np.ndarray, **options) -> Read:
    """Read a label from texts with TF-IDF and logistic regression.

    texts, labels, groups: [n]; options: seed, n_boot (of the intervals), budget (of the verdict). Raises DatasetError
    with fewer than two classes.
    """

    def fit(train: np.ndarray, codes: np.ndarray, names: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
        return fit_texts([texts[int(i)] for i in train], codes, names, seed).name([texts[int(i)] for i in test])

    return _cross_validate(fit, labels, groups, **options)


def read_vectors(vectors: np.ndarray, labels: np.ndarray, groups: np.ndarray, **options) -> Read:
    """Read a label from vectors float [n, d] of the texts with the linear probe; a row that is not finite is 0."""
    wide = np.where(np.isfinite(vectors).all(axis=1)[:, None], vectors, 0.0).astype(np.float32)
    n_classes = len(set(labels))

    def fit(train: np.ndarray, codes: np.ndarray, names: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
        probe = PROBES["linear"](wide[train], codes, names, n_classes, seed)
        return probe.logits(probe.transform(wide[test])).argmax(axis=1)

    return _cross_validate(fit, labels, groups, **options)


def _cross_validate(
    fit, labels: np.ndarray, groups: np.ndarray, seed: int = 0, n_boot: int = 2000, budget: float = 0.025
) -> Read:
    names, texts = np.asarray(groups, dtype=str), np.asarray(labels, dtype=str)
    classes = sorted(set(texts))
    if len(classes) < 2:
        raise DatasetError("fewer than two classes are left among the generated rows: nothing can be read.")
    codes = np.searchsorted(classes, texts)
    found = np.empty(len(codes), dtype=np.int64)
    for held in inner_folds(codes, names, seed, FOLDS):
        train, test = np.flatnonzero(~held), np.flatnonzero(held)
        found[test] = fit(train, codes[train], names[train], test, seed)
    right = found == codes
    drawn = resample(right.astype(np.float64), codes, names, n_boot, seed)
    (low95, high95), (low90, high90) = accuracy_interval(drawn, 0.95), accuracy_interval(drawn, 0.90)
    chance = 1 / len(classes)
    verdict = interval_verdict(low90 - chance, high90 - chance, budget)
    sizes = (len(codes), len(set(names)), len(classes))
    return Read(drawn.accuracy, low95, high95, low90, high90, chance, *sizes, verdict, right)
