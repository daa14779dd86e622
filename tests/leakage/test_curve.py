"""Learning curves: subsamples are nested whole subjects, theory is met, both kinds of chance are in the interval."""

import numpy as np
import pytest
from scipy.stats import norm

from auditcore.leakage.cells import make_cell
from auditcore.leakage.curve import Point, curve, learn, replicates, subsample, usable

NAMES = {"attribute": "sex", "artifact": "v", "layer": 0, "probe": "linear"}


def cell_of(n_train=1200, n_test=800, width=40, shift=1.0, per_subject=1, seed=0):
    """Two classes whose means differ by `shift` in one of `width` directions, unit variance."""
    rng = np.random.default_rng(seed)
    n = n_train + n_test
    subject = np.arange(n) // per_subject
    code = subject % 2
    x = rng.normal(size=(n, width)).astype(np.float32)
    x[:, 0] += shift * code
    rows = {"bal_train": np.arange(n_train), "bal_test": np.arange(n_train, n)}
    return make_cell(x, np.array(["f", "m"])[code], subject, rows)


def test_subsamples_are_whole_subjects_one_inside_the_other_with_every_class():
    cell = cell_of(per_subject=3)
    for draw in range(3):
        inner = set()
        for share in (0.1, 0.25, 0.5):
            some = subsample(cell.train, share, draw, 0)
            mine = set(some.positions.tolist())
            assert inner <= mine
            assert some.n_subjects == round(share * 200) * 2
            assert len(mine) == 3 * some.n_subjects  # a subject's rows come together
            assert np.bincount(some.codes).tolist() == [len(mine) // 2] * 2
            inner = mine
    assert subsample(cell.train, 0.1, 0, 0).positions.tolist() != subsample(cell.train, 0.1, 1, 0).positions.tolist()
    assert usable(cell.train, [0.5, 0.001, 0.1]) == [0.1, 0.5]
    assert not set(subsample(cell.train, 0.5, 0, 0).positions) & set(cell.evaluated["bal_test"].positions)


def test_accuracy_grows_with_the_rows_towards_what_theory_allows():
    cell = cell_of(shift=1.5)
    points = learn(cell, "bal_test", "linear", [1 / 16, 1 / 4], 3, [0, 1], 0)
    whole = learn(cell, "bal_test", "linear", [0.999], 2, [0], 0)[0]
    whole = Point(1.0, 1200, 1200, whole.right)
    found = curve(cell, "bal_test", [*points, whole], 10.0, 400, 0, NAMES)
    accuracy = found.points["accuracy"].to_numpy()
    assert (np.diff(accuracy) > 0).all()
    best = norm.cdf(1.5 / 2)
    assert accuracy[-1] == pytest.approx(best, abs=0.035)
    assert found.points["n_train"].tolist() == [76, 300, 1200]
    assert found.points["draws"].tolist() == [3, 3, 2]
    assert (found.points["accuracy_low"] < accuracy).all()
    assert (found.points["accuracy_high"] > accuracy).all()
    assert found.more["refused"].tolist() == ["3 sizes do not determine a law of three numbers; 4 are needed"]
    again = learn(cell, "bal_test", "linear", [1 / 16, 1 / 4], 3, [0, 1], 0)
    assert all((a.right == b.right).all() for a, b in zip(points, again, strict=True))


def test_noise_is_at_guessing_and_is_not_extrapolated():
    cell = cell_of(shift=0.0, n_train=640)
    points = learn(cell, "bal_test", "linear", [1 / 8, 1 / 4, 1 / 2], 2, [0], 0)
    found = curve(cell, "bal_test", [*points, Point(1.0, 640, 640, points[-1].right)], 10.0, 300, 0, NAMES)
    assert (found.points["accuracy_low"] < 0.5).all()
    assert "nothing is read yet" in found.more["refused"].iloc[0]
    assert np.isnan(found.more["accuracy"].iloc[0])


def test_the_interval_holds_the_chance_of_rows_and_of_draws():
    """Draws of accuracies 0.6 and 0.8 in turn: resampling subjects alone would miss most of the spread."""
    cell = cell_of(n_train=100, n_test=4000)
    part = cell.evaluated["bal_test"]
    rng = np.random.default_rng(0)
    each = np.array([0.6, 0.8, 0.6, 0.8, 0.7])
    right = rng.random((5, 4000)) < each[:, None]
    one = replicates([Point(1.0, 100, 100, right)], part, 2000, 0)
    assert one.std() == pytest.approx(each.std(ddof=1) / np.sqrt(5), rel=0.1)
    same = replicates([Point(1.0, 100, 100, np.tile(right[:1], (5, 1)))], part, 2000, 0)
    assert same.std() == pytest.approx(np.sqrt(0.24 / 4000), rel=0.1)


def test_one_subject_moves_every_size_together():
    cell = cell_of(n_train=100, n_test=600)
    part = cell.evaluated["bal_test"]
    right = np.random.default_rng(1).random((1, 600)) < 0.7
    both = replicates([Point(0.5, 50, 50, right), Point(1.0, 100, 100, right)], part, 300, 0)
    assert np.corrcoef(both.T)[0, 1] == pytest.approx(1.0)
