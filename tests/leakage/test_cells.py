"""What a probe may see: disjoint subjects, classes that can be judged, rows left out and counted."""

import numpy as np
import pytest

from auditcore.errors import DatasetError
from auditcore.leakage.cells import check_disjoint, make_cell

N = 60
VECTORS = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)
LABELS = np.array(["x", "y", "z"], dtype=object)[np.arange(N) % 3]
GROUPS = np.array([f"s{i}" for i in range(N)], dtype=object)
ROWS = {"bal_train": np.arange(30), "bal_val": np.arange(30, 42), "bal_test": np.arange(42, 60)}


def test_cuts_rows_and_codes_classes():
    cell = make_cell(VECTORS, LABELS, GROUPS, ROWS)
    assert sorted(cell.classes) == ["x", "y", "z"]
    assert len(cell.train.positions) == 30
    for part in (cell.train, *cell.evaluated.values()):
        assert [cell.classes[c] for c in part.codes] == list(LABELS[part.positions])
        assert np.array_equal(part.vectors, VECTORS[part.positions])
    assert cell.notes == []


def test_one_subject_in_two_splits_is_refused_with_the_reason():
    groups = GROUPS.copy()
    groups[50] = "s3"
    with pytest.raises(DatasetError, match=r"1 subject in both bal_train and bal_test \(for example 's3'\).*judged"):
        make_cell(VECTORS, LABELS, groups, ROWS)
    with pytest.raises(DatasetError, match="both defence_fit and bal_train"):
        check_disjoint(GROUPS, {"defence_fit": np.array([0, 1]), "bal_train": np.array([1, 2])})
    check_disjoint(GROUPS, {"defence_fit": np.array([0, 1]), "bal_train": np.array([2, 3])})


def test_rows_with_nan_or_without_label_are_left_out_and_counted():
    vectors, labels = VECTORS.copy(), LABELS.copy()
    vectors[[2, 45]] = [[np.nan] * 4, [np.inf] * 4]
    labels[5] = None
    labels[6] = float("nan")
    cell = make_cell(vectors, labels, GROUPS, ROWS, "race lasttok")
    assert set(range(30)) - set(cell.train.positions) == {2, 5, 6}
    assert len(cell.evaluated["bal_test"].positions) == 17
    assert cell.notes[0].startswith("race lasttok: 1 of 30 bal_train rows left out")
    assert "bal_test" in cell.notes[1]


def test_classes_that_cannot_be_judged_are_refused():
    labels = LABELS.copy()
    labels[50] = "rare"
    with pytest.raises(DatasetError, match="class 'rare' is in bal_test but not in bal_train"):
        make_cell(VECTORS, labels, GROUPS, ROWS)
    labels = LABELS.copy()
    labels[42:] = "x"
    with pytest.raises(DatasetError, match="has 0 subjects in bal_test"):
        make_cell(VECTORS, labels, GROUPS, ROWS)
    with pytest.raises(DatasetError, match="one class only"):
        make_cell(VECTORS, np.full(N, "x"), GROUPS, ROWS)
    with pytest.raises(DatasetError, match="no usable rows"):
        make_cell(np.full_like(VECTORS, np.nan), LABELS, GROUPS, ROWS)
    with pytest.raises(DatasetError, match="nothing to judge"):
        make_cell(VECTORS, LABELS, GROUPS, {"bal_train": np.arange(30)})
    one_subject = GROUPS.copy()
    one_subject[[i for i in range(30) if i % 3 == 0]] = "same"
    with pytest.raises(DatasetError, match="class 'x' has 1 subject in bal_train"):
        make_cell(VECTORS, LABELS, one_subject, ROWS)


def test_a_small_bal_val_is_dropped_not_fatal():
    cell = make_cell(VECTORS, LABELS, GROUPS, {**ROWS, "bal_val": np.array([30, 31])})
    assert set(cell.evaluated) == {"bal_test"}
    assert "bal_val is not reported" in cell.notes[0]


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="one of each per row"):
        make_cell(VECTORS, LABELS[:-1], GROUPS, ROWS)
