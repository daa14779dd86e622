"""Differences of two readings of the same rows: known values, intervals that no sample belies, pairing that pays."""

import numpy as np
import pytest

from auditcore.leakage.intervals import resample
from auditcore.leakage.paired import paired


def test_equal_readings_differ_by_nothing_but_not_for_certain():
    right = np.random.default_rng(0).integers(0, 2, 200)
    codes, groups = np.arange(200) % 2, np.arange(200)
    found = paired(right, right, codes, groups, 500, 0)
    assert found.change == 0
    # Tango's score interval without a discordant pair is z^2 / (n + z^2) on either side, here of 100 rows a class.
    alone = 1.959964**2 / (100 + 1.959964**2)
    assert alone == pytest.approx(0.0369935, abs=1e-6)
    assert found.high == pytest.approx(alone / np.sqrt(2), abs=1e-6)
    assert found.low == -found.high


def test_the_change_is_that_of_mean_recalls_and_turns_with_the_order():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], [50, 80, 20])
    first, second = rng.random(150), rng.random(150) * 0.5
    one, other = (
        paired(first, second, codes, np.arange(150), 2000, 0),
        paired(second, first, codes, np.arange(150), 2000, 0),
    )
    wanted = np.mean([second[codes == k].mean() - first[codes == k].mean() for k in range(3)])
    assert one.change == pytest.approx(wanted)
    assert one.second - one.first == pytest.approx(wanted)
    assert other.change == pytest.approx(-wanted)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=0.01)


def test_rows_that_go_together_make_a_narrower_interval_than_either_accuracy():
    rng = np.random.default_rng(2)
    codes, groups = np.arange(1000) % 2, np.arange(1000)
    first = (rng.random(1000) < 0.6).astype(float)
    second = np.where(rng.random(1000) < 0.05, 1.0, first)
    found = paired(first, second, codes, groups, 1000, 0)
    alone = resample(second, codes, groups, 1000, 0).replicates.mean(axis=1)
    assert found.high - found.low < 0.6 * np.ptp(np.quantile(alone, [0.025, 0.975]))
    assert found.low > 0


def test_rows_of_a_subject_are_drawn_together():
    rng = np.random.default_rng(3)
    subject = np.repeat(np.arange(60), 10)
    moved = rng.choice([-1.0, 1.0], 60)[subject]
    codes = (subject % 2).astype(int)
    wide = paired(np.zeros(600), moved, codes, subject, 1000, 0)
    narrow = paired(np.zeros(600), moved, codes, np.arange(600), 1000, 0)
    assert wide.n_subjects == 60
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """400 samples of 80 subjects, a true difference of 0.1 in one class of two, few discordant subjects."""
    rng = np.random.default_rng(4)
    codes, held = np.arange(80) % 2, 0
    for _ in range(400):
        first = (rng.random(80) < 0.7).astype(float)
        second = np.where((codes == 0) & (rng.random(80) < 1 / 3), 1.0, first)  # 0.3 * 1/3 of class 0 gained
        found = paired(first, second, codes, np.arange(80), 200, 0)
        held += found.low <= 0.05 <= found.high
    assert held / 400 > 0.93
