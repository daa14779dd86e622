"""The verdict rule: its four outcomes, its edges, Holm's correction and the combination over attackers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore import spec
from auditcore.verdict import MEANINGS, SYMBOLS, combine, holm, interval_verdict, point_rule

W, O, N, B = "within budget", "over budget", "not resolved", "below chance"  # noqa: E741


def test_names_agree_with_spec():
    assert set(SYMBOLS) == set(MEANINGS) == set(spec.VERDICTS)
    assert SYMBOLS == {O: "▲", W: "✓", N: "?", B: "↓"}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.02, 0.02, W),
        (-0.025, 0.025, W),  # the budget's own edge is within
        (-0.02, -0.01, W),  # first match wins: within before below chance
        (-0.03, -0.001, B),
        (-0.03, 0.0, N),
        (0.0251, 0.2, O),
        (0.025, 0.2, N),
        (-0.03, 0.02, N),
        (0.0, 0.03, N),
        (float("nan"), 0.0, N),
        (0.0, float("nan"), N),
        (None, None, N),
    ],
)
def test_first_match_wins(low, high, expected):
    assert interval_verdict(low, high, 0.025) == expected


def test_impossible_input_is_refused():
    with pytest.raises(ValueError, match="ends before"):
        interval_verdict(0.2, 0.1, 0.025)
    with pytest.raises(ValueError, match="budget"):
        interval_verdict(0.1, 0.2, float("nan"))
    with pytest.raises(ValueError, match="budget"):
        interval_verdict(0.1, 0.2, -0.1)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_wider_interval_never_turns_an_unresolved_verdict_into_a_resolved_one(low, width, left, right):
    narrow, wide = interval_verdict(low, low + width, 0.025), interval_verdict(low - left, low + width + right, 0.025)
    if wide in (W, O):
        assert narrow == wide
    if narrow == N:
        assert wide == N


def test_point_rule_takes_the_absolute_value():
    assert point_rule(-0.02, 0.025)
    assert point_rule(0.025, 0.025)
    assert not point_rule(-0.03, 0.025)
    assert not point_rule(None, 0.025)
    assert not point_rule(float("nan"), 0.025)


def test_holm_by_hand():
    # The example of Holm's own procedure: sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, made monotone.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0
    with_nan = holm([0.01, float("nan")])
    assert with_nan[0] == pytest.approx(0.02)
    assert np.isnan(with_nan[1])
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_nothing_and_bonferroni(p):
    adjusted, raw = holm(p), np.array(p)
    assert np.all(adjusted >= raw)
    assert np.all(adjusted <= np.minimum(1, raw * len(p)) + 1e-12)
    assert np.all(np.diff(adjusted[np.argsort(raw, kind="stable")]) >= 0)


def test_within_only_if_every_attacker_is():
    assert combine([W, W], [1.0, 1.0]) == W
    assert combine([W, N], [1.0, 1.0]) == N
    assert combine([W]) == W


def test_over_if_any_is_after_the_correction():
    assert combine([W, O], [1.0, 0.03]) == O
    assert combine([W, O], [1.0, 0.08]) == N  # over by its own interval, not once two were tried
    assert combine([W, O], [1.0, None]) == N
    assert combine([N, O], [float("nan"), 0.01]) == O
    assert combine([N, W], [0.01, 1.0]) == N  # a p-value alone overrules no interval


def test_below_chance_comes_after_over_and_before_within():
    assert combine([B, O], [1.0, 0.01]) == O
    assert combine([B, W], [1.0, 1.0]) == B
    assert combine([B, O], [1.0, 0.2]) == B


def test_combine_refuses_nonsense():
    with pytest.raises(ValueError, match="no verdicts"):
        combine([])
    with pytest.raises(ValueError, match="not a verdict"):
        combine(["fine"])
    with pytest.raises(ValueError, match="holm"):
        combine([W, W])
    with pytest.raises(ValueError, match="p-values"):
        combine([W, W], [1.0])
