"""V-information and confident inferences: known values, calibration, giveaways that an average hides."""

import numpy as np
import pytest

from auditcore.leakage.folds import log_softmax
from auditcore.leakage.information import confident, halves, smallest_share, v_information_bits


def _rows(
    rng: np.random.Generator, n: int, n_classes: int, sure: float, strength: float = 8.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities: noise, but certain of the right class in a share `sure` of the rows."""
    codes = np.arange(n) % n_classes
    logits = rng.normal(0, 0.5, (n, n_classes))
    known = rng.random(n) < sure
    logits[known, codes[known]] += strength
    return log_softmax(logits), codes, np.arange(n)


def test_bits_of_a_perfect_and_of_an_ignorant_probe():
    rng = np.random.default_rng(0)
    log_p, codes, groups = _rows(rng, 400, 4, sure=1.0, strength=30)
    assert v_information_bits(log_p, codes, (log_p, codes), groups) == pytest.approx(2.0, abs=1e-3)
    log_p, codes, groups = _rows(rng, 4000, 4, sure=0.0)
    assert v_information_bits(log_p, codes, _rows(rng, 4000, 4, sure=0.0)[:2], groups) == pytest.approx(0, abs=0.005)
    # Overconfident nonsense would read far below 0 without calibration.
    assert v_information_bits(log_softmax(log_p * 50), codes, None, groups) == pytest.approx(0, abs=0.005)


def test_bits_of_a_binary_channel():
    # A probe that is right with probability 0.8 and says so: 1 - H(0.8) bits.
    rng = np.random.default_rng(1)
    codes = np.arange(20_000) % 2
    named = np.where(rng.random(20_000) < 0.8, codes, 1 - codes)
    log_p = np.log(np.where(named[:, None] == np.arange(2), 0.8, 0.2))
    expected = 1 + 0.8 * np.log2(0.8) + 0.2 * np.log2(0.2)
    assert v_information_bits(log_p, codes, None, np.arange(20_000)) == pytest.approx(expected, abs=0.01)


def test_a_few_certain_giveaways_are_found_though_the_average_is_near_chance():
    rng = np.random.default_rng(2)
    found = confident(*_rows(rng, 3000, 5, sure=0.02), calibration=_rows(rng, 1500, 5, sure=0.02))
    assert found.share == pytest.approx(0.02, abs=0.008)
    assert found.precision == pytest.approx(0.9, abs=0.05)  # of about 60 subjects
    assert found.low < 0.02 < found.high
    assert found.p_guessed < 1e-9
    assert found.by_class == pytest.approx(np.full(5, 0.02), abs=0.02)


def test_no_giveaways_none_found():
    rng = np.random.default_rng(3)
    found = [confident(*_rows(rng, 600, 2, 0.0), calibration=_rows(rng, 600, 2, 0.0)) for _ in range(40)]
    assert np.mean([f.share > 0 for f in found]) <= 0.05
    nothing = next(f for f in found if f.share == 0)
    assert np.isnan(nothing.precision)
    assert nothing.threshold == np.inf


def test_a_class_whose_subjects_are_never_named_rightly_gives_nobody_away():
    # 1 subject in 20 of class 2 is surely named class 0, as are 1 in 2 of class 0 itself: 9 of 10 such names are right.
    rng, n = np.random.default_rng(7), 6000
    codes = np.arange(n) % 3
    logits = rng.normal(0, 0.5, (n, 3))
    logits[(rng.random(n) < np.array([0.5, 0.0, 0.05])[codes]), 0] += 9
    found = confident(log_softmax(logits), codes, np.arange(n))
    assert found.precision == pytest.approx(0.9, abs=0.03)
    assert found.by_class == pytest.approx([0.5, 0, 0], abs=0.01)
    assert found.by_class.mean() == pytest.approx(found.share * found.precision)
    # Labels of classes are names: another order moves the shares with them.
    turned = confident(log_softmax(logits)[:, [2, 0, 1]], np.array([1, 2, 0])[codes], np.arange(n))
    assert turned.by_class == pytest.approx(found.by_class[[2, 0, 1]], abs=0.02)


def test_what_an_empty_result_can_have_missed():
    assert smallest_share(350, 150) == pytest.approx(10 / 325)
    assert smallest_share(600) == pytest.approx(10 / 300)
    assert smallest_share(12) == 1
    rng, least = np.random.default_rng(8), smallest_share(350, 150)

    def found(sure: float) -> float:
        draws = [confident(*_rows(rng, 350, 5, sure, 20), _rows(rng, 150, 5, sure, 20)) for _ in range(40)]
        assert {d.least for d in draws} == {least}
        return float(np.mean([d.share > 0 for d in draws]))

    assert found(0.5 * least) < 0.2
    assert 0.25 < found(least) < 0.9
    assert found(2 * least) > 0.9


def test_without_calibration_rows_each_half_serves_the_other():
    found = confident(*_rows(np.random.default_rng(4), 2000, 4, sure=0.05), calibration=None)
    assert found.share == pytest.approx(0.05, abs=0.015)


def test_rows_of_a_subject_are_averaged_and_stay_in_one_half():
    log_p, codes, _ = _rows(np.random.default_rng(5), 800, 2, sure=0.3)
    groups = np.arange(800) // 4 * 2 + codes  # two rows of the same class per subject
    one, other = halves(codes, groups)
    assert np.array_equal(one, ~other)
    assert not set(groups[one]) & set(groups[other])
    assert confident(log_p, codes, groups, None).share <= 1


def test_tiny_sets_do_not_fail():
    log_p, codes, groups = _rows(np.random.default_rng(6), 3, 3, sure=1.0)
    assert confident(log_p, codes, groups, None).share == 0  # too few to believe any precision
    assert np.isfinite(v_information_bits(log_p, codes, None, groups))
    assert np.isfinite(v_information_bits(log_p, codes, None, np.zeros(3)))
