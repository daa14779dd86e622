"""Subjects: counts worked out by hand, exact intervals, and a test that does not see what is not there."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, fisher_exact

from auditcore import findings
from auditcore.membership.groups import by_subject, subject_rates


def test_rates_by_hand() -> None:
    group = ["a", "a", "b", "c", "c", "d", "e", "e", "f", "g"]
    member = [True, True, True, False, False, False, True, False, None, True]
    flagged = [True, False, False, True, False, False, False, True, True, None]
    rates = subject_rates(group, member, flagged).set_index("kind")
    inside, outside = rates.loc["in training"], rates.loc["not in training"]
    # a, b, e are in training (e by one row; its other row does not make it "found"); f is unknown, g has no evidence.
    assert inside[["n_subjects", "n_rows", "n_flagged", "n_found"]].tolist() == [3, 4, 1, 1]
    assert outside[["n_subjects", "n_rows", "n_flagged", "n_found"]].tolist() == [2, 3, 1, 1]
    exact = binomtest(1, 3).proportion_ci(method="exact")
    assert (inside["low"], inside["high"]) == pytest.approx((exact.low, exact.high))


def test_subjects_by_hand_and_against_fisher() -> None:
    group = ["a"] * 6 + ["b"] * 6 + ["c"] * 8 + ["d"] + ["e"] * 3
    member = [True] * 21 + [False] * 3
    flagged = [True] * 6 + [True] + [False] * 5 + [False] * 8 + [True] + [True] * 3
    table = by_subject(group, member, flagged)
    assert table["group"].tolist() == ["a", "b", "c"]  # d has one training row only, e none
    assert table["n_found"].tolist() == [6, 1, 0]
    assert table["share"].tolist() == pytest.approx([1.0, 1 / 6, 0.0])
    raw = fisher_exact([[6, 0], [2, 13]], alternative="greater").pvalue
    assert table["p_value"].iloc[0] == pytest.approx(3 * raw)
    assert table["stands_out"].tolist() == [True, False, False]
    assert table["high"].iloc[2] == pytest.approx(binomtest(0, 8).proportion_ci(method="exact").high)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 80))
def test_tables_agree_with_a_plain_count_and_do_not_mind_the_order(seed, n) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "group": rng.integers(0, 12, n).astype(str),
            "member": pd.array(rng.integers(0, 2, n), dtype="boolean"),
            "flagged": pd.array(rng.integers(0, 2, n), dtype="boolean"),
        }
    )
    frame.loc[rng.random(n) < 0.1, "flagged"] = pd.NA
    asked = (frame["group"], frame["member"], frame["flagged"])
    table = by_subject(*asked)
    shuffled = frame.sample(frac=1, random_state=seed)
    pd.testing.assert_frame_equal(table, by_subject(shuffled["group"], shuffled["member"], shuffled["flagged"]))
    known = frame.dropna()
    mine = known[known["member"].astype(bool)]
    hits, total = int(mine["flagged"].sum()), len(mine)
    raw = []
    for row in table.itertuples():
        rows = mine[mine["group"] == row.group]
        assert (row.n_members, row.n_found) == (len(rows), int(rows["flagged"].sum()))
        assert row.low <= row.share <= row.high
        rest = [
            [row.n_found, row.n_members - row.n_found],
            [hits - row.n_found, total - row.n_members - hits + row.n_found],
        ]
        raw.append(fisher_exact(rest, alternative="greater").pvalue)
    assert all(a <= b + 1e-9 for a, b in zip(raw, table["p_value"], strict=True))
    if raw:
        assert table["p_value"].min() == pytest.approx(min(1.0, min(raw) * len(raw)))
    rates = subject_rates(*asked)
    assert rates["n_rows"].sum() <= len(known)
    assert rates["n_subjects"].sum() == known["group"].nunique()


def test_equal_subjects_seldom_stand_out() -> None:
    """Under one common rate the corrected test names somebody in at most 5 % of the runs."""
    rng = np.random.default_rng(1)
    group, member = np.repeat(np.arange(60).astype(str), 5), np.ones(300, dtype=bool)
    named = [bool(by_subject(group, member, rng.random(300) < 0.3)["stands_out"].any()) for _ in range(200)]
    assert np.mean(named) <= 0.06


def found(n_in: int, hits: int, n_out: int, accused: int):
    inside = pd.DataFrame({"group": [f"i{k}" for k in range(n_in)] * 2, "member": True})
    inside["rank_score"] = [2.0 if k < hits else 0.0 for k in range(n_in)] + [0.0] * n_in
    outside = pd.DataFrame({"group": [f"o{k}" for k in range(n_out)], "member": False})
    outside["rank_score"] = [2.0 if k < accused else 0.0 for k in range(n_out)]
    return findings.subjects(pd.concat([inside, outside], ignore_index=True), 1.0)


def test_what_is_said_of_subjects() -> None:
    said = "".join(findings.subjects_finding(found(40, 30, 50, 2), "ez", 0.01))
    assert "EZ finds at least one row of 30 of 40 subjects with rows in training (75" in said
    assert "falsely accused by at least one row: 2 of 50 subjects without (4" in said
    assert "accuses 1 row in 100." in said
    assert "Of 40 subjects with two or more rows in training, none have clearly more" in said
    assert findings.subjects(pd.DataFrame({"group": [], "member": [], "rank_score": []}), None) is None


def test_reports_tell_no_count_of_fewer_than_ten_subjects() -> None:
    said = "".join(findings.subjects_finding(found(40, 30, 50, 2), "ez", 0.01, 10))
    assert "by at least one row: fewer than 10 of 50 subjects without, at a threshold" in said
    few = "".join(findings.subjects_finding(found(7, 7, 50, 0), "ez", 0.01, 10))
    assert "fewer than 10 subjects are with rows in training: nothing is told of them; " in few
    assert "by at least one row: none of 50 subjects without (0" in few
    assert "7 of" not in few
    assert "100 %" not in few.replace("\u202f", " ")
    assert "two or more" not in few


@pytest.mark.parametrize(
    ("data", "groups", "shared"),
    [
        ({"roles": {"group": "patient"}}, ["a", "a", "b"], True),
        ({"roles": {"group": "patient"}}, ["a", "b"], False),
        ({"roles": {"text": "text"}}, ["a", "a"], False),  # equal texts only
        ({"roles": {}, "corpus": {"name": "wikitext"}}, ["a", "a"], True),
        ({}, ["a", "a"], False),
    ],
)
def test_subjects_are_told_only_where_rows_share_them(data, groups, shared) -> None:
    assert findings.shared_subjects(data, pd.Series(groups)) is shared
