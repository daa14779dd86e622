"""What a defence costs: overlap of neighbours and variance kept, against plain arithmetic."""

import numpy as np
import pytest

from auditcore.leakage.erasure import DEFENCES, Options
from auditcore.leakage.utility import overlaps, utility


def _vectors(n=200, d=12, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 1.0


def _named(found):
    return {m.measure: m for m in found}


def test_nothing_changed_costs_nothing():
    x, groups = _vectors(), np.arange(200).astype(str)
    found = _named(utility(x, x, groups, 200, 0))
    for measure in found.values():
        assert (measure.value, measure.low, measure.high) == (1.0, 1.0, 1.0)
        assert (measure.n_rows, measure.n_subjects) == (200, 200)


def test_vectors_of_noise_keep_no_more_than_chance():
    x, groups = _vectors(400), np.arange(400).astype(str)
    found = _named(utility(x, _vectors(400, seed=1), groups, 200, 0))["retrieval_overlap_at_10"]
    assert found.value == pytest.approx(10 / 399, abs=0.02)
    assert found.low < found.value < found.high


def test_variance_kept_is_the_share_left_by_a_projection_and_one_minus_the_noise():
    x = _vectors(2000) * np.arange(1, 13)
    codes, groups = np.arange(2000) % 3, np.arange(2000).astype(str)
    cut = DEFENCES["truncate"](x, codes, groups, Options(keep=0.5), 0).apply(x)
    kept = _named(utility(x, cut, groups, 200, 0))["variance_kept"]
    assert kept.value == pytest.approx(cut.var(axis=0).sum() / x.var(axis=0).sum(), rel=1e-3)
    noisy = DEFENCES["noise"](x, codes, groups, Options(noise=0.5), 0).apply(x)
    assert _named(utility(x, noisy, groups, 200, 0))["variance_kept"].value == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("n", [30, 150])
def test_overlap_agrees_with_counting_by_hand(n):
    x, y = _vectors(n), _vectors(n) + 0.7 * _vectors(n, seed=2)
    unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)  # noqa: E731
    found = overlaps(x, y, np.arange(n), k=3)
    for i in range(n):
        near = [
            set(sorted((j for j in range(n) if j != i), key=lambda j: -(unit(v)[i] @ unit(v)[j]))[:3]) for v in (x, y)
        ]
        assert found[i] == pytest.approx(len(near[0] & near[1]) / 3)


def test_several_rows_of_a_subject_widen_the_interval():
    x = np.repeat(_vectors(60), 5, axis=0) + 0.01 * _vectors(300, seed=3)
    y = x.copy()
    y[:150] = _vectors(150, seed=4)  # half of the subjects lose their neighbours
    subjects = np.repeat(np.arange(60), 5).astype(str)
    one = _named(utility(x, y, np.arange(300).astype(str), 500, 0))["retrieval_overlap_at_10"]
    other = _named(utility(x, y, subjects, 500, 0))["retrieval_overlap_at_10"]
    assert other.value == one.value
    assert other.high - other.low > 1.3 * (one.high - one.low)
    assert other.n_subjects == 60


def test_rows_that_are_not_finite_or_too_few_give_no_number_rather_than_a_wrong_one():
    x = _vectors(11)
    found = _named(utility(x, x, np.arange(11).astype(str), 100, 0))
    assert np.isnan(found["retrieval_overlap_at_10"].value)
    assert found["variance_kept"].value == 1.0
    y = _vectors(40)
    y[0, 0] = np.nan
    assert _named(utility(y, y, np.arange(40).astype(str), 100, 0))["variance_kept"].n_rows == 39
    flat = np.ones((20, 3))
    assert np.isnan(_named(utility(flat, flat, np.arange(20).astype(str), 100, 0))["variance_kept"].value)
