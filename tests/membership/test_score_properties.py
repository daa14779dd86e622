"""Scores under transformations: scaled shifts, other rows beside them, plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.membership.scores import (
    ATTACKS,
    FORCED_FROM,
)
from tests.score_rows import NUMBERS, score

# Multiples of 1/64, so that scaled values are exact in float32.
log_prob = st.integers(-640, 0).map(lambda k: k / 64)
token = st.tuples(log_prob, log_prob, st.booleans(), st.booleans())
token_rows = st.lists(st.lists(token, max_size=12), min_size=1, max_size=8)


def columns_of(row):
    return tuple(np.array([t[i] for t in row]) for i in range(4))


@settings(deadline=None, max_examples=40)
@given(token_rows, st.sampled_from([0.125, 0.5, 2.0, 3.0, 7.0]))
def test_ez_does_not_change_when_all_shifts_are_scaled(rows, c):
    rows = [columns_of(r) for r in rows]
    scaled = [(a * c, b * c, wrong, scored) for a, b, wrong, scored in rows]
    one, other = score(rows), score(scaled)
    assert list(one.status) == list(other.status)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(token_rows, st.randoms(use_true_random=False))
def test_rows_do_not_know_each_other(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    columns = [columns_of(r) for r in rows]
    attacks = tuple(ATTACKS)
    together = score(columns, attacks)
    shuffled = score([columns[i] for i in order], attacks)
    n = len(rows)
    for k in range(len(attacks)):
        part = together.iloc[k * n : (k + 1) * n].iloc[order]
        other = shuffled.iloc[k * n : (k + 1) * n]
        np.testing.assert_array_equal(part[NUMBERS], other[NUMBERS])
        assert list(part.status) == list(other.status)
    alone = score([columns[0]], attacks)
    np.testing.assert_array_equal(alone[NUMBERS], together.iloc[::n][NUMBERS])


maybe_broken = st.one_of(log_prob, st.sampled_from([np.nan, -np.inf, np.inf]))
broken_token = st.tuples(maybe_broken, maybe_broken, st.booleans(), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(broken_token, max_size=6), min_size=1, max_size=6), st.sampled_from(["paper", "official"]))
def test_ranks_are_finite_or_there_is_no_evidence(rows, policy):
    table = score([columns_of(r) for r in rows], tuple(ATTACKS), ez_policy=policy)
    no_evidence = table.status == "no_evidence"
    assert np.isfinite(table.rank_score[~no_evidence]).all()
    assert table.rank_score[no_evidence].isna().all()
    assert table.score[no_evidence].isna().all()
    used = [[t for t in row[1:] if t[3]] for row in rows]
    broken = [not np.isfinite([t[:2] for t in row]).all() for row in used]
    on_top = (table.rank_score >= FORCED_FROM).to_numpy()[: len(rows)]
    assert not (on_top & np.array(broken)).any()


@settings(deadline=None, max_examples=40)
@given(token_rows)
def test_plain_python_gives_the_same(rows):
    table = score([columns_of(r) for r in rows], tuple(ATTACKS)).groupby("attack")["score"].apply(list)
    for i, row in enumerate(rows):
        zone = [t - r for t, r, wrong, scored in row[1:] if wrong and scored]
        p, n = sum(max(d, 0) for d in zone), sum(max(-d, 0) for d in zone)
        if len(zone) >= 2 and n > 0:
            assert table["ez"][i] == pytest.approx(p / n, rel=1e-12)
        else:
            assert np.isnan(table["ez"][i])
        used = [(t, r) for t, r, _, scored in row if scored]
        if used:
            assert table["loss"][i] == pytest.approx(np.mean([t for t, _ in used]))
            assert table["reference"][i] == pytest.approx(np.mean([t - r for t, r in used]))
        else:
            assert np.isnan(table["loss"][i])
