"""Equal and nearly equal texts on both sides of the member line."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.datasets.near import across_the_line

LONG = "the patient was admitted with fever and cough and went home on the fifth day after a course of antibiotics"


def find(members, others):
    texts = [*members, *others]
    found = across_the_line(texts, [True] * len(members) + [False] * len(others))
    return found.exact.tolist(), found.near.tolist()


def test_equal_texts_whatever_their_case_and_blanks():
    exact, near = find(["Oil  rose\n", "stocks fell"], ["oil rose", "bonds"])
    assert exact == [True, False, True, False]
    assert near == [False] * 4


def test_nearly_equal_texts_are_near_and_different_ones_are_not():
    changed = LONG.replace("antibiotics", "steroids")
    exact, near = find([LONG, "something else entirely was written here today"], [changed, LONG[:40]])
    assert exact == [False] * 4
    assert near == [True, False, True, False]


def test_a_row_nearly_equal_to_one_that_has_an_equal_counterpart_is_found():
    exact, near = find([LONG, LONG], [LONG, LONG + " at home"])
    assert exact == [True, True, True, False]
    assert near == [False, False, False, True]


def test_unknown_rows_and_empty_texts_take_no_part():
    found = across_the_line(["a", "a", "", ""], [True, None, True, False])
    assert not (found.exact | found.near).any()


def test_equal_texts_on_one_side_are_no_crossing():
    assert find(["a b c", "a b c"], ["x y z"]) == ([False] * 3, [False] * 3)


def test_one_side_alone():
    assert find(["a b c"], []) == ([False], [False])
    assert find([], []) == ([], [])


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.text(alphabet="ab ", max_size=8), max_size=6), st.lists(st.text(alphabet="ab ", max_size=8), max_size=6)
)
def test_exact_is_what_comparing_every_pair_finds(members, others):
    exact, _ = find(members, others)
    plain = [" ".join(t.split()) for t in members + others]
    n = len(members)
    for i, text in enumerate(plain):
        across = plain[n:] if i < n else plain[:n]
        assert exact[i] == (text != "" and text in across)


def test_many_rows_with_planted_pairs_are_all_found():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(2000)])
    members = [" ".join(rng.choice(words, 40)) for _ in range(150)]
    others = [" ".join(rng.choice(words, 40)) for _ in range(150)]
    for k in range(20):
        copy = members[k].split()
        copy[20] = "changed"  # 35 of 41 triples stay: 0.85
        others[k] = " ".join(copy)
    _, near = find(members, others)
    assert sum(near[150:]) == sum(near[:150]) == 20
    assert all(near[:20])
