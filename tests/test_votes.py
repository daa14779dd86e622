"""Blind votes: the rows and their order are nobody's choice, and a tally counts each reviewer once a row."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore import votes

A, B = ("one", 50), ("two", 100)


def texts(n: int = 30) -> dict:
    ids = [f"N{i}" for i in range(n)]
    frame = pd.DataFrame({"example_id": ids, "reference": "r", "generated": [f"text of {i}" for i in ids]})
    return {A: frame.assign(generated="A " + frame["generated"]), B: frame.assign(generated="B " + frame["generated"])}


def test_every_reviewer_gets_the_same_ten_rows_in_an_order_of_their_own() -> None:
    ada, bo = votes.ballots(texts(), "Ada", "run"), votes.ballots(texts(), "Bo", "run")
    assert [b.example_id for b in ada] == [b.example_id for b in bo]
    assert len(ada) == votes.ROWS
    assert [b.order for b in ada] != [b.order for b in bo]
    assert {b.order[0] for b in ada} == {A, B}  # a letter says nothing about a checkpoint
    for ballot in ada:
        assert [t[0] for t in ballot.texts] == ["A" if c == A else "B" for c in ballot.order]


def test_rows_that_a_candidate_lacks_are_left_out() -> None:
    both = texts(12)
    both[A].loc[:8, "generated"] = None
    assert {b.example_id for b in votes.ballots(both, "Ada", "run")} == {"N9", "N10", "N11"}
    assert votes.ballots({}, "Ada", "run") == []


def test_a_later_vote_replaces_an_earlier_one_and_votes_on_other_candidates_do_not_count() -> None:
    first, second = votes.ballots(texts(), "Ada", "run")[:2]
    other = votes.ballots({A: texts()[A], ("two", 7): texts()[B]}, "Ada", "run")[0]
    records = [
        {"by": "Ada", "content": votes.vote(first, 0)},
        {"by": "Ada", "content": votes.vote(first, 1)},
        {"by": "Bo", "content": votes.vote(first, 1)},
        {"by": "Ada", "content": votes.vote(second, None)},
        {"by": "Ada", "content": votes.vote(other, 0)},
    ]
    found = votes.tally(votes.counted(records, [A, B]), [A, B])
    assert found.wins[first.order[1]] == 2
    assert found.wins[first.order[0]] == 0
    assert (found.no_difference, found.reviewers, found.rows) == (1, 2, 2)
    assert found.p == 0.5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_the_sign_test_is_scipys(a: int, b: int) -> None:
    from scipy.stats import binomtest

    if a + b:
        assert votes.sign_test(a, b) == pytest.approx(binomtest(a, a + b).pvalue)


def test_three_candidates_have_no_sign_test() -> None:
    assert votes.tally([], [A, B]).p is None
    assert votes.tally([{"by": "x", "example_id": "N1", "choice": A}], [A, B, ("three", 1)]).p is None
