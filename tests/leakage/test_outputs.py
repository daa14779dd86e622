"""Readers of texts: a giveaway is found, noise is not, subjects never help themselves, small classes are counted."""

import numpy as np
import pytest

from auditcore.errors import DatasetError
from auditcore.leakage.outputs import read_texts, read_vectors, usable

WORDS = [
    "patient",
    "admitted",
    "fever",
    "cough",
    "home",
    "oral",
    "follow",
    "weeks",
    "pain",
    "stable",
    "given",
    "fluids",
]


def _texts(n, hint, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join([*rng.choice(WORDS, 10), hint[i]]) for i in range(n)]


def test_a_word_that_names_the_class_is_read_and_noise_is_not():
    labels = np.array(["f", "m"])[np.arange(160) % 2]
    groups = np.arange(160).astype(str)
    told = read_texts(_texts(160, np.where(labels == "f", "she", "he")), labels, groups, n_boot=300)
    assert told.accuracy == 1.0
    assert told.verdict == "over budget"
    noise = read_texts(_texts(160, ["x"] * 160), labels, groups, n_boot=300)
    assert noise.low95 < 0.5 < noise.high95
    assert (noise.n_rows, noise.n_subjects, noise.n_classes) == (160, 160, 2)


def test_rows_of_a_subject_are_never_on_both_sides():
    """Each subject signs with its own word: a reader split by rows would know it, one split by subject cannot."""
    subject = np.repeat(np.arange(40), 5)
    labels = np.random.default_rng(1).permutation(np.repeat(["f", "m"], 20))[subject]
    texts = [f"signed by name{s}" for s in subject]
    found = read_texts(texts, labels, subject.astype(str), n_boot=300)
    assert found.accuracy < 0.75
    assert found.n_subjects == 40


def test_vectors_are_read_by_the_linear_probe_and_broken_ones_guessed():
    labels = np.array(["a", "b", "c"])[np.arange(150) % 3]
    x = np.random.default_rng(0).normal(size=(150, 6)).astype(np.float32)
    x[np.arange(150), np.arange(150) % 3] += 4
    x[3] = np.nan
    found = read_vectors(x, labels, np.arange(150).astype(str), n_boot=300)
    assert found.accuracy > 0.9
    assert found.chance == pytest.approx(1 / 3)


def test_small_classes_and_missing_labels_are_left_out_and_counted():
    labels = ["f"] * 10 + ["m"] * 10 + ["x"] * 3 + [None, float("nan")]
    at, notes = usable(labels, [str(i) for i in range(25)])
    assert len(at) == 20
    assert notes == ["class 'x' has 3 subjects in the generated rows, too few: left out."]
    with pytest.raises(DatasetError, match="fewer than two classes"):
        read_texts(["a"] * 10, np.array(["f"] * 10), np.arange(10).astype(str))


def test_empty_texts_are_guessed_not_an_error():
    labels = np.array(["f", "m"])[np.arange(20) % 2]
    assert read_texts([""] * 20, labels, np.arange(20).astype(str), n_boot=100).accuracy == pytest.approx(0.5)
