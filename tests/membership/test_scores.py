"""Loss and reference scores against golden values; rows without evidence; the table of scores."""

import numpy as np
import pandas as pd
import pytest

from auditcore import spec
from auditcore.errors import SpecError
from auditcore.membership.scores import (
    ATTACKS,
    Tokens,
    score_table,
    status_counts,
)
from tests.score_rows import cases, floats, pack, score


@pytest.mark.parametrize("case", cases("ratio_reference"), ids=lambda c: c["name"])
def test_reference_is_a_difference(case):
    target, other = -floats([case["inputs"]["target_nll"]]), -floats([case["inputs"]["reference_nll"]])
    result = score([(target, other, [True], [True])], ("reference",)).iloc[0]
    expected = float(case["expected"]["fast"])
    if np.isfinite(expected):
        assert result.score == result.rank_score == pytest.approx(expected, rel=1e-6)
    else:
        assert result.status == "no_evidence"


@pytest.mark.parametrize("case", cases("loss_padding"), ids=lambda c: c["name"])
def test_loss_is_the_mean_of_a_row_alone(case):
    per_token, expected = case["expected"]["wbc"]["per_token"], case["expected"]["fast"]["mean_logp"]
    rows = [
        (-floats(x), -floats(x), [True] * len(x), np.array(valid, dtype=bool))
        for x, valid in zip(per_token["losses"], per_token["valid"], strict=True)
    ]
    result = score(rows, ("loss",))
    for got, want, status in zip(result.score, expected, result.status, strict=True):
        if want is None or not np.isfinite(float(want)):
            assert status == "no_evidence"
        else:
            assert got == pytest.approx(float(want), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_a_mean_over_a_broken_number_is_no_evidence(bad, where):
    good = [np.array([-1.0, -2, -3, -4], dtype=np.float32), np.array([-2.0, -2, -1, -5], dtype=np.float32)]
    broken = [x.copy() for x in good]
    broken[where][2] = bad
    rows = [(*good, [True] * 4, [True] * 4), (*broken, [True] * 4, [True] * 4)]
    rows += [(*broken, [True] * 4, [True, True, False, True])]  # the broken position is not scored
    result = score(rows, ("loss", "reference")).set_index(["attack", "example_id"])
    for attack in ("loss", "reference"):
        used = attack == "reference" or where == 0
        assert (result.loc[(attack, "r1"), "status"] == "no_evidence") == used
        assert pd.isna(result.loc[(attack, "r1"), "rank_score"]) == used
        assert result.loc[(attack, "r1"), "n_scored"] == 4
        assert result.loc[(attack, "r2"), "status"] == "ok"


@pytest.mark.parametrize(
    ("target", "other", "wrong", "status", "value"),
    [
        ([-1, np.nan, -1, -2], [-2, -2, -2, -1], [True] * 4, "ok", 1.0),  # NaN adds to neither sum
        ([-1, -np.inf, -1, -1], [-2, -2, -2, -3], [True] * 4, "ok", 0.0),  # probability 0: the bottom
        ([-1, -1, -1, -2], [-2, -np.inf, -2, -1], [True] * 4, "no_evidence", None),  # P infinite
        ([-1, np.nan, -1, -1], [-2, -2, -2, -2], [True] * 4, "no_evidence", None),  # N = 0 only for want of a number
        ([-1, np.nan, -1, -1], [-2, -2, -2, -2], [False] * 4, "no_evidence", None),  # no errors, but who knows
        ([-1, np.nan, np.nan, np.nan], [-2, -2, -2, -2], [True] * 4, "no_evidence", None),
        ([np.nan] * 4, [-2, -2, -2, -2], [True] * 4, "no_evidence", None),  # a broken model must not look safe
        ([-np.inf, -1, -1, -2], [-2, -2, -2, -1], [True] * 4, "ok", 2.0),  # the skipped position
    ],
)
def test_ez_never_puts_a_broken_row_on_top(target, other, wrong, status, value):
    result = score([(target, other, wrong, [True] * 4)]).iloc[0]
    assert result.status == status
    assert (None if pd.isna(result.score) else result.score) == value
    assert pd.isna(result.rank_score) if value is None else result.rank_score == value


def test_no_rows_and_empty_rows():
    empty = Tokens(np.zeros(4, dtype=np.int64), *(np.empty(0, dtype=t) for t in ("i4", "f4", "f4", "?", "?")))
    result = score(empty, ("ez", "loss", "reference"))
    assert len(result) == 9
    assert set(result.status) == {"no_evidence"}
    assert result.rank_score.isna().all()
    none = Tokens(np.zeros(1, dtype=np.int64), *(np.empty(0, dtype=t) for t in ("i4", "f4", "f4", "?", "?")))
    assert len(score(none)) == 0
    last_empty = Tokens(
        np.array([0, 0, 2, 2]), *(np.array(x) for x in ([0, 1], [np.nan, -1.0], [np.nan, -2.0], [0, 1], [0, 1]))
    )
    assert list(score(last_empty, ("loss",)).status) == ["no_evidence", "ok", "no_evidence"]


def test_columns_and_types():
    rows = [([-1.0, -2], [-2.0, -1], [True] * 2, [True] * 2)] * 2
    table = score_table(pack(rows), ["ez", "loss"], ["a", "b"], [True, None])
    assert list(table.columns) == [
        *("example_id", "member", "attack", "score", "rank_score", "status", "n_scored", "n_errors", "p_sum", "n_sum")
    ]
    assert [str(t) for t in table.dtypes] == [
        *("str", "boolean", "str", "float64", "float64", "str", "int64", "Int64", "float64", "float64")
    ]
    assert table[table.attack == "loss"][["n_errors", "p_sum", "n_sum"]].isna().all().all()
    assert list(table.attack) == ["ez", "ez", "loss", "loss"]
    assert set(table.status) <= set(spec.STATUSES)


def test_messages_name_what_to_do():
    rows = [([-1.0], [-1.0], [True], [True])]
    tokens = pack(rows)
    alone = Tokens(tokens.offsets, tokens.position, tokens.logp_target, None, tokens.is_error, tokens.scored)
    assert score(alone, ("loss",)).status[0] == "ok"
    for attack in ("ez", "reference"):
        with pytest.raises(SpecError, match=r"set model\.reference"):
            score(alone, (attack,))
    with pytest.raises(SpecError, match="Did you mean 'reference'"):
        score(tokens, ("referense",))
    with pytest.raises(SpecError, match="'paper'"):
        score(tokens, ez_policy="papers")
    with pytest.raises(SpecError, match="name at least one"):
        score(tokens, ())
    with pytest.raises(ValueError, match="2 example ids"):
        score_table(tokens, ["loss"], ["a", "b"], [True])


def test_every_attack_of_the_spec_has_a_function():
    assert set(ATTACKS) == set(spec.ATTACKS)
    for attack in ATTACKS.values():
        assert attack.title
        assert attack.paper
        assert attack.access
        assert attack.passes >= 1


def test_status_counts_show_the_forced_rows():
    every = [True] * 3
    rows = [
        ([-1.0, -1, -1], [-2.0, -3, -2], [False] * 3, every),
        ([-1.0, -1, -1], [-2.0, -3, -2], every, every),
        ([-1.0, -1, -1], [-2.0, -3, -2], every, every),
        ([-1.0, -1, -1], [-2.0, -3, -0.5], every, every),
    ]
    table = score_table(pack(rows), ["ez"], list("abcd"), [True, False, None, True])
    counts = status_counts(table).set_index("status")
    assert list(counts.loc["no_errors"]) == ["ez", True, 1, 0, 0]
    assert list(counts.loc["n_zero"]) == ["ez", True, 0, 1, 1]
    assert list(counts.loc["ok"]) == ["ez", False, 1, 0, 0]
    official = score_table(pack(rows), ["ez"], list("abcd"), [True, False, None, True], ez_policy="official")
    assert not status_counts(official).forced.any()
