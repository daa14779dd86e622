"""The power law: the known one is found, its band holds the truth, and what is not determined is refused."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from auditcore.leakage.law import extrapolate, fit_law

SIZES = np.array([100.0, 200, 400, 800, 1600])
N = 2000  # test rows behind each accuracy


def law(n, a=0.85, b=0.4, c=0.5):
    return a - b * (n / 100) ** -c


def drawn(truth: np.ndarray, seed: int, boot: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies measured on N rows, and bootstrap replicates of them."""
    rng = np.random.default_rng(seed)
    found = rng.binomial(N, truth) / N
    return found, rng.binomial(N, found, (boot, len(truth))) / N


def ask(found, replicates, sizes=SIZES, chance=0.2):
    return extrapolate(sizes, found, replicates, chance, float(np.quantile(replicates[:, -1], 0.025)), [1.0, 3.0, 10.0])


def test_an_exact_law_is_found_and_continued():
    truth = law(SIZES)
    found = fit_law(SIZES, truth[None], np.ones(5), 1600.0)
    assert found.at(1.0)[0] == pytest.approx(truth[-1], abs=1e-3)
    assert found.at(10.0)[0] == pytest.approx(law(16_000.0), abs=3e-3)
    assert found.c[0] == pytest.approx(0.5, rel=0.05)


def test_it_is_the_least_squares_fit_of_scipy():
    for seed in range(5):
        y, _ = drawn(law(SIZES), seed)
        weights = np.array([1.0, 1, 2, 2, 3])
        mine = fit_law(SIZES, y[None], weights, 1600.0)
        free = ([-np.inf, 0, 0.05], [1, np.inf, 2])
        theirs, _ = curve_fit(lambda n, a, b, c: a - b * (n / 1600) ** -c, SIZES, y, (0.8, 0.1, 0.5),
                              sigma=weights**-0.5, bounds=free, max_nfev=10_000)  # fmt: skip
        assert mine.at(10.0)[0] == pytest.approx(theirs[0] - theirs[1] * 10.0 ** -theirs[2], abs=0.01)


def test_no_law_rises_above_certainty_or_falls():
    up = fit_law(SIZES, np.array([[0.5, 0.62, 0.74, 0.86, 0.98]]), np.ones(5), 1600.0)
    assert up.a[0] <= 1
    assert up.at(1e9)[0] <= 1
    down = fit_law(SIZES, np.array([[0.6, 0.59, 0.58, 0.57, 0.56]]), np.ones(5), 1600.0)
    assert down.b[0] == 0
    assert down.at(10.0)[0] == pytest.approx(0.58)


def test_the_band_holds_the_truth_as_often_as_it_says():
    held = refused = 0
    for seed in range(200):
        found = ask(*drawn(law(SIZES), seed))
        if found.refused:
            refused += 1
            continue
        assert found.low[-1] <= found.accuracy[-1] <= found.high[-1]
        held += found.low[-1] <= law(16_000.0) <= found.high[-1]
    assert refused < 20
    assert held / (200 - refused) > 0.9


def test_a_plateau_is_continued_as_one():
    found = ask(*drawn(np.full(5, 0.9), 1))
    assert found.refused == ""
    assert found.accuracy[-1] == pytest.approx(0.9, abs=0.02)
    assert found.high[-1] - found.low[-1] < 0.06


def test_what_is_not_determined_is_refused_in_words():
    noise, more = drawn(np.full(5, 0.2), 1)
    assert "nothing is read yet" in extrapolate(SIZES, noise, more, 0.2, 0.19, [10.0]).refused
    few = law(SIZES[:3])
    assert "3 sizes do not determine" in ask(few, np.tile(few, (50, 1)), SIZES[:3]).refused
    # Guessing up to 800 rows, then a jump: nothing saturates there.
    jump, more = drawn(np.array([0.2, 0.2, 0.2, 0.25, 0.6]), 2)
    found = ask(jump, more)
    assert "does not flatten yet" in found.refused
    assert found.predicted < 0.3 < found.measured
    assert found.accuracy == []
    # It flattens, and rises again.
    again, more = drawn(np.array([0.2, 0.35, 0.42, 0.43, 0.5]), 5)
    assert "foretells too little" in ask(again, more).refused
    # Growth that stops short of what was begun.
    early, more = drawn(np.array([0.3, 0.42, 0.53, 0.63, 0.5]), 4)
    assert "foretells too much" in ask(early, more).refused
    # Few test rows and a steep curve: every end is as likely.
    rng = np.random.default_rng(3)
    steep = np.array([0.25, 0.34, 0.42, 0.48, 0.53])
    found = ask(steep, np.clip(steep + rng.normal(0, 0.05, (500, 5)), 0, 1))
    assert "these sizes do not determine it: its 95 % band reaches from" in found.refused
