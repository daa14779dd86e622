"""Power before work: the numbers the method states, exact binomials, monotone sizes, design effect."""

import json
from pathlib import Path

import pytest
from scipy.stats import beta, binom

from auditcore.leakage.power import gap_of_leak_free, p_within, point_rule_passes, power, subjects_needed

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "leakage_budget_null.json").read_text())


@pytest.mark.parametrize(
    ("n_classes", "n_attackers", "expected"), [(5, 1, 2235), (2, 1, 3480), (5, 2, 2785), (2, 2, 4294)]
)
def test_subjects_needed_for_a_budget_of_0025(n_classes, n_attackers, expected):
    assert subjects_needed(n_classes, 0.025, n_attackers) == expected
    planned = power(expected, n_classes, 0.025, n_attackers)
    assert planned.p_within_if_leak_free >= 0.8
    assert planned.subjects_needed == expected
    assert planned.needed_by_one == subjects_needed(n_classes, 0.025)
    assert power(expected - n_classes, n_classes, 0.025, n_attackers).p_within_if_leak_free < 0.8


def test_five_hundred_subjects_cannot_show_within_budget():
    assert power(500, 5, 0.025).p_within_if_leak_free < 0.02
    assert power(500, 2, 0.025).p_within_if_leak_free == 0


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda r: f"K{r['K']}-n{r['n_test']}")
def test_point_rule_golden(row):
    n, k = row["n_test"], row["K"]
    mean, p95 = gap_of_leak_free(n, k)
    assert point_rule_passes(n, k, 0.025) == pytest.approx(row["P_null_within_budget_0025"], abs=1e-4)
    assert point_rule_passes(n, k, 0.025, gap=0.05) == pytest.approx(row["P_pass_if_true_gap_005"], abs=1e-4)
    assert mean == pytest.approx(row["E_gap_null"], abs=1e-4)
    assert p95 == pytest.approx(row["q95_gap_null"], abs=1e-4)


@pytest.mark.parametrize(("n", "n_classes", "budget"), [(400, 2, 0.1), (300, 5, 0.08), (61, 3, 0.2), (20, 5, 0.3)])
def test_p_within_is_the_sum_over_intervals_that_fit(n, n_classes, budget):
    chance, total = 1 / n_classes, 0.0
    for x in range(n + 1):
        low = beta.ppf(0.05, x, n - x + 1) if x else 0.0
        high = beta.ppf(0.95, x + 1, n - x) if x < n else 1.0
        if low >= chance - budget and high <= chance + budget:
            total += binom.pmf(x, n, chance)
    assert p_within(n, n_classes, budget) == pytest.approx(total, abs=1e-12)


def test_at_a_true_gap_of_exactly_the_budget_within_is_at_most_five_percent():
    for n_classes in (2, 5):
        for gap in (0.025, -0.025):
            assert p_within(4000, n_classes, 0.025, gap) <= 0.05


def test_smallest_gap_detectable_has_power_0_8():
    planned = power(3000, 5, 0.025)
    assert planned.smallest_gap_detectable is not None
    assert planned.smallest_gap_over_budget is not None
    assert planned.smallest_gap_detectable == pytest.approx(0.0187, abs=2e-3)
    assert planned.smallest_gap_over_budget > 0.025 + 0.015
    significant = int(binom.isf(0.05, 3000, 0.2)) + 1
    assert binom.sf(significant - 1, 3000, 0.2 + planned.smallest_gap_detectable) == pytest.approx(0.8, abs=1e-9)
    four = power(3000, 5, 0.025, n_attackers=4).smallest_gap_over_budget
    assert four is not None
    assert four > planned.smallest_gap_over_budget


def test_more_rows_of_one_subject_help_only_as_far_as_they_differ():
    one = power(1000, 5, 0.025)
    assert power(1000, 5, 0.025, rows_per_subject=4) == one  # rho = 1: promised nothing
    half = power(1000, 5, 0.025, rows_per_subject=4, rho=0.5)
    assert half.n_effective == 1600
    assert half.subjects_needed * 4 == pytest.approx(2235 * (1 + 3 * 0.5), abs=20)  # rows times the design effect
    assert power(1000, 5, 0.025, rows_per_subject=4, rho=0.0).n_effective == 4000


def test_tiny_and_huge_plans_have_an_answer():
    assert power(0, 5, 0.025).p_within_if_leak_free == 0
    assert power(1, 2, 0.025).smallest_gap_detectable is None
    assert subjects_needed(5, 1e-4) > 1e8
    assert subjects_needed(2, 0.6) >= 2
    with pytest.raises(ValueError, match="budget"):
        power(10, 5, 0)
    with pytest.raises(ValueError, match="rho"):
        power(10, 5, 0.1, rho=2)
    with pytest.raises(ValueError, match="classes"):
        power(10, 1, 0.1)
