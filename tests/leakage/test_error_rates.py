"""How often the verdict is wrong: a small edition of benchmarks/verdict_error_rates.py, at the bounds it is held to."""

from collections import Counter

import numpy as np
import pytest

from auditcore.leakage.power import power
from auditcore.verdict import OVER, WITHIN
from benchmarks.verdict_error_rates import BUDGET, SCENARIOS, Scenario, draw, piece, promises

DRAWS = 300
ROOM = 3 * np.sqrt(0.05 * 0.95 / DRAWS)  # Monte-Carlo error of a rate of 5 %


def counts(scenario: Scenario) -> Counter[str]:
    assert scenario in SCENARIOS
    return piece(scenario, 0, DRAWS, 1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", [Scenario(60, 2), Scenario(500, 5, notes=4, rho=0.5), Scenario(500, 5, gaps=(0.0,) * 4)], ids=str
)
def test_leak_free_vectors_are_over_budget_at_most_one_time_in_twenty(scenario) -> None:
    assert counts(scenario)[OVER] / DRAWS <= 0.05 + ROOM


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(3000, 5, gaps=(BUDGET,)),
        Scenario(3480, 2, gaps=(BUDGET,)),
        Scenario(3000, 5, gaps=(BUDGET,), notes=4, rho=0.5),
        Scenario(3000, 5, gaps=(BUDGET,), notes=4, rho=1.0),
    ],
    ids=str,
)
def test_a_gap_of_exactly_the_budget_is_within_at_most_one_time_in_twenty(scenario) -> None:
    assert counts(scenario)[WITHIN] / DRAWS <= 0.05 + ROOM


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [Scenario(2235, 5), Scenario(1400, 5, notes=4, rho=0.5)], ids=str)
def test_leak_free_vectors_are_within_as_often_as_planned(scenario) -> None:
    planned = power(scenario.n_subjects, scenario.n_classes, BUDGET, 1, scenario.notes, scenario.rho)
    assert counts(scenario)[WITHIN] / DRAWS == pytest.approx(planned.p_within_if_leak_free, abs=3 * 0.4 / DRAWS**0.5)


def test_draws_are_numbered_and_can_be_counted_in_pieces() -> None:
    one = Scenario(60, 2)
    assert piece(one, 0, 6, 200) == piece(one, 0, 2, 200) + piece(one, 2, 6, 200)
    assert {draw(one, seed, 200) for seed in range(3)} == set(piece(one, 0, 3, 200))


def test_a_rate_above_its_bound_is_called_so() -> None:
    (found,) = promises(Scenario(3000, 5, gaps=(BUDGET,)), Counter({WITHIN: 30, "not resolved": 170}), 200)
    assert not found["agrees"]
    assert found["low"] > 0.05
    over, within = promises(Scenario(2235, 5), Counter({WITHIN: 160, "not resolved": 40}), 200)
    assert over["agrees"]
    assert over["high"] < 0.05
    assert within["agrees"]
    assert within["planned"] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("gap", [BUDGET, -BUDGET])
def test_the_true_gap_of_a_simulated_attacker_is_what_it_says(gap) -> None:
    from benchmarks.verdict_error_rates import _given, vectors

    rng, k, n = np.random.default_rng(0), 5, 400_000
    codes = np.arange(n) % k
    given = _given(rng, codes, gap, k)
    shown = given >= 0
    guess = np.where(shown, given, rng.integers(0, k, n))
    assert (guess == codes).mean() == pytest.approx(1 / k + gap, abs=4 * np.sqrt(0.16 / n))
    notes = vectors(rng, codes[:500], Scenario(500, k, notes=3, rho=0.4), given[:500]).reshape(500, 3, -1)
    same = (notes == notes[:, :1]).all(axis=(1, 2)).mean()
    assert same == pytest.approx(0.4, abs=0.09)
