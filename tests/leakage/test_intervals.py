"""Intervals of a mean per-class recall: coverage, subjects, seeds, the ends of the scale, row order."""

import numpy as np
import pytest
from scipy.stats import beta, norm

from auditcore.leakage.intervals import accuracy_interval, p_at_most, resample, resamples
from auditcore.verdict import holm, interval_verdict


def _correct(
    rng: np.random.Generator, n_subjects: int, n_classes: int, accuracy: float, notes: int = 1, shared: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correctness of rows whose notes of one subject agree with probability `shared`."""
    groups = np.repeat(np.arange(n_subjects), notes)
    codes = groups % n_classes
    own, of_subject = rng.random(len(groups)), rng.random(n_subjects)[groups]
    right = np.where(rng.random(len(groups)) < shared, of_subject, own) < accuracy
    return right.astype(float), codes, groups


def test_agrees_with_the_normal_interval_in_large_samples():
    correct, codes, groups = _correct(np.random.default_rng(0), 5000, 5, 0.4)
    found = resample(correct, codes, groups, 4000, seed=0)
    half = norm.isf(0.05) * np.sqrt(np.mean(found.recall * (1 - found.recall)) / 5000)
    low, high = accuracy_interval(found, 0.90)
    assert low == pytest.approx(found.accuracy - half, abs=0.0008)
    assert high == pytest.approx(found.accuracy + half, abs=0.0008)
    wider = accuracy_interval(found, 0.95)
    assert wider[0] < low < high < wider[1]


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_nothing_varies_at_the_ends_of_the_scale_and_the_interval_still_has_width(accuracy):
    codes = np.arange(60) % 3
    found = resample(np.full(60, accuracy), codes, np.arange(60), 200, seed=0)
    low, high = accuracy_interval(found, 0.90)
    one_sided = beta.ppf(0.05, 60, 1) if accuracy else 1 - beta.ppf(0.05, 60, 1)
    if accuracy:
        assert high == 1
        assert 0.85 < low <= one_sided  # Clopper-Pearson: 0.951
    else:
        assert low == 0
        assert one_sided <= high < 0.15


def test_a_probe_that_names_one_class_only_is_not_certain():
    codes = np.arange(100) % 5
    low, high = accuracy_interval(resample((codes == 0).astype(float), codes, np.arange(100), 200, seed=0), 0.90)
    assert low < 0.2 < high
    assert interval_verdict(low - 0.2, high - 0.2, 0.025) == "not resolved"


def test_rows_of_one_subject_count_less():
    rng = np.random.default_rng(1)
    correct, codes, groups = _correct(rng, 400, 2, 0.5, notes=4, shared=1.0)
    by_subject = accuracy_interval(resample(correct, codes, groups, 2000, seed=0), 0.90)
    by_row = accuracy_interval(resample(correct, codes, np.arange(len(codes)), 2000, seed=0), 0.90)
    assert (by_subject[1] - by_subject[0]) / (by_row[1] - by_row[0]) == pytest.approx(2.0, abs=0.15)


def test_p_value_agrees_with_the_interval():
    rng = np.random.default_rng(2)
    for draw in range(60):
        found = resample(*_correct(rng, 300, 3, 0.4), 1000, seed=draw)
        low = accuracy_interval(found, 0.90)[0]
        for at_most in (0.33, 0.37, 0.42):
            p = p_at_most(found, at_most)
            assert 0 < p <= 1
            if abs(p - 0.05) > 0.002:
                assert (p < 0.05) == (low > at_most)
    assert p_at_most(found, 0.99) >= 0.5


def test_row_order_does_not_matter():
    rng = np.random.default_rng(3)
    correct, codes, groups = _correct(rng, 60, 3, 0.5, notes=2)
    correct = correct / 3 + 0.1  # as after averaging over seeds
    shuffled = rng.permutation(len(codes))
    one = resample(correct, codes, groups, 300, seed=5)
    other = resample(correct[shuffled], codes[shuffled], groups[shuffled], 300, seed=5)
    assert np.allclose(one.replicates, other.replicates, atol=1e-12)
    assert accuracy_interval(one, 0.9) == pytest.approx(accuracy_interval(other, 0.9), abs=1e-12)


def test_subjects_that_look_the_same_are_found_as_by_numpy():
    from auditcore.leakage.intervals import _alike

    rng = np.random.default_rng(0)
    for n, width, values in ((1, 3, 4), (50, 2, 2), (400, 10, 3), (300, 90, 7)):
        table = rng.integers(0, values, (n, width)) / 3
        table[:, 0] = 0.5
        table[n // 2 :] = table[: n - n // 2]  # every look at least twice
        assert np.array_equal(_alike(table), np.unique(table, axis=0, return_inverse=True)[1].ravel())
        assert np.array_equal(_alike(table > 0.5), np.unique(table > 0.5, axis=0, return_inverse=True)[1].ravel())


def test_subjects_with_several_classes_are_drawn_whole():
    groups = np.repeat(np.arange(40), 2)
    codes = np.tile([0, 1], 40)
    right = np.repeat(np.arange(40) % 2, 2).astype(float)  # a subject is right in both or in none
    found = resample(right, codes, groups, 500, seed=0)
    assert np.allclose(found.replicates[:, 0], found.replicates[:, 1])


@pytest.mark.parametrize(
    ("n_subjects", "n_classes", "accuracy", "notes", "shared"),
    [(40, 2, 0.5, 1, 0.0), (40, 5, 0.95, 1, 0.0), (300, 5, 0.225, 4, 0.5), (1000, 5, 0.225, 1, 0.0)],
)
def test_each_side_misses_about_one_time_in_twenty_at_most(n_subjects, n_classes, accuracy, notes, shared):
    rng, draws, missed = np.random.default_rng(4), 200, np.zeros(2)
    for draw in range(draws):
        found = resample(*_correct(rng, n_subjects, n_classes, accuracy, notes, shared), 400, seed=draw)
        low, high = accuracy_interval(found, 0.90)
        missed += [low > accuracy, high < accuracy]
    # 0.05 plus 2.5 standard errors of 200 draws.
    assert np.all(missed / draws <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / draws))


@pytest.mark.parametrize("n_tests", [1, 50, 186, 558])
def test_a_plain_leak_survives_the_correction_however_many_tests_are_declared(n_tests):
    correct, codes, groups = _correct(np.random.default_rng(0), 1500, 5, 0.5)
    found = resample(correct, codes, groups, resamples(2000, n_tests), seed=0)
    assert holm([p_at_most(found, 0.225)] * n_tests).max() <= 0.05
    assert resamples(2000, n_tests) >= 2000
    assert resamples(0, n_tests) == 0
    assert resamples(19, 1) == 19  # one test is not corrected for
    too_few = p_at_most(resample(correct, codes, groups, 2000, seed=0), 0.225)
    assert (holm([too_few] * n_tests).max() <= 0.05) == (n_tests < 100)
