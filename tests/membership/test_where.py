"""Shares of the evidence by kind of token."""

import numpy as np
import pandas as pd
import pytest

from auditcore.membership.where import KINDS, band, heaviest, shares, token_kinds


def test_kinds_of_tokens():
    tokens = [" 1998", "B2", ",", "\n", " Boston", "A", " the", "zyx", "", "é", "₪"]
    kinds = token_kinds(tokens, [9] * 7 + [1] + [9] * 3)
    assert kinds.tolist() == [
        *("number", "number", "punctuation", "punctuation", "name-like", "other words", "other words", "rare"),
        *("punctuation", "other words", "punctuation"),
    ]


SUMS = pd.DataFrame(
    {
        "token_id": [1, 1, 2, 3],
        "token": ["a", "a", "b", "c"],
        "kind": ["number", "number", "number", "rare"],
        "member": [True, False, True, True],
        "n_tokens": [2, 5, 1, 4],
        "p_sum": [3.0, 1.0, 1.0, 4.0],
        "n_sum": [1.0, 2.0, 1.0, 0.0],
    }
)


def test_shares_add_up_over_members_only():
    found = shares(SUMS, "kind", KINDS).set_index("kind")
    assert list(found.index) == ["number", "rare"]
    assert found["p_share"].sum() == pytest.approx(1)
    assert found.loc["number", "p_share"] == pytest.approx(0.5)
    assert found.loc["number", "n_tokens"] == 3
    assert found.loc["number", "ratio"] == pytest.approx(2)
    assert found.loc["number", "ratio_others"] == pytest.approx(0.5)
    assert np.isnan(found.loc["rare", "ratio"])
    assert np.isnan(found.loc["rare", "ratio_others"])


def test_heaviest_tokens_with_the_same_token_elsewhere():
    found = heaviest(SUMS, 2)
    assert found["token"].tolist() == ["a", "c"]
    assert found["p_others"].tolist() == [1.0, 0.0]


def test_no_members_is_an_empty_table():
    assert shares(SUMS[~SUMS["member"]], "kind", KINDS).empty


def test_bands_in_words():
    assert band(1, 7) == "1 to 7"
    assert band(10, None, " nats") == "10 nats or more"
