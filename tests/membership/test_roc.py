"""The exact ROC, its operating points, and what so many non-members resolve."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from sklearn.metrics import roc_auc_score, roc_curve

from auditcore.membership.roc import exact_roc, needed_nonmembers
from auditcore.membership.thresholds import (
    allowed_false_positives,
    auc,
    classify,
    exact_interval,
    operating_point,
    resolvable,
)

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = {c["name"]: c for c in json.loads((GOLDEN / "tpr_at_fpr.json").read_text())["cases"]}
CASES = {
    name: c for name, c in CASES.items() if c["expected"]["derived_not_peer_exact_step_le"]
}  # not one class or inf


# --- the exact ROC ---


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tpr_is_the_exact_step(case):
    x, expected = case["inputs"], case["expected"]["derived_not_peer_exact_step_le"]
    roc = exact_roc(np.array(x["labels"]) == 1, [float(s) for s in x["scores"]])
    for target, tpr in expected.items():
        point = operating_point(roc, float(target))
        assert point.tpr == tpr
        assert point.fpr <= float(target)
        called = np.array([float(s) for s in x["scores"]]) >= point.threshold
        labels = np.array(x["labels"]) == 1
        assert called[labels].mean() == point.tpr
        assert called[~labels].mean() == point.fpr
    area = auc(labels, [float(s) for s in x["scores"]])
    assert area == pytest.approx(case["expected"]["ez"]["auc_roc_auc_score"], abs=1e-12)


def test_roc_of_one_class_or_of_nothing():
    roc = exact_roc([True, True], [1.0, 2.0])
    assert np.isnan(roc.fpr).all()
    assert list(roc.tpr) == [0, 0.5, 1]
    assert np.isnan(auc([True, True], [1.0, 2.0]))
    assert np.isnan(operating_point(roc, 0.5)).all()
    for rows in (([], []), ([None], [1.0]), ([True], [np.nan])):
        nothing = exact_roc(*rows)
        assert len(nothing.fpr) == 1
        assert np.isnan(auc(*rows))
        assert np.isnan(operating_point(nothing, 0.1)).all()
    with pytest.raises(ValueError, match="2 member values"):
        exact_roc([True, False], [1.0])
    with pytest.raises(ValueError, match="from 0 to 1"):
        operating_point(exact_roc([True, False], [1.0, 2.0]), -0.1)


def test_roc_leaves_out_unknown_members_and_broken_ranks():
    member = [True, False, None, True, False, True]
    rank = [3.0, 1.0, 9.0, np.nan, np.inf, -np.inf]
    np.testing.assert_array_equal(exact_roc(member, rank), exact_roc([True, False], [3.0, 1.0]))


few = st.integers(-4, 4).map(float)
ranks = st.lists(st.tuples(st.booleans(), few | st.floats(-1e6, 1e6)), min_size=2, max_size=60)


@settings(deadline=None, max_examples=150)
@given(ranks)
def test_roc_is_monotone_keeps_ties_whole_and_agrees_with_sklearn(rows):
    member, rank = np.array([m for m, _ in rows]), np.array([r for _, r in rows])
    assume(member.any() and not member.all())
    roc = exact_roc(member, rank)
    assert (np.diff(roc.fpr) >= 0).all()
    assert (np.diff(roc.tpr) >= 0).all()
    assert (np.diff(roc.threshold) < 0).all()
    assert len(roc.threshold) == len(np.unique(rank)) + 1
    for fpr, tpr, threshold in zip(*roc, strict=True):
        assert (rank[member] >= threshold).mean() == pytest.approx(tpr, abs=1e-15)
        assert (rank[~member] >= threshold).mean() == pytest.approx(fpr, abs=1e-15)
    for ours, theirs in zip(roc, roc_curve(member, rank, drop_intermediate=False), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-15)
    assert auc(member, rank) == pytest.approx(roc_auc_score(member, rank), abs=1e-12)


@settings(deadline=None, max_examples=100)
@given(ranks, st.sampled_from([0.0, 0.01, 0.05, 0.1, 1 / 3, 0.5, 1.0]))
def test_operating_point_is_the_best_realisable_one(rows, target):
    member, rank = np.array([m for m, _ in rows]), np.array([r for _, r in rows])
    assume(member.any() and not member.all())
    best = max(
        (rank[member] >= t).mean()
        for t in [np.inf, *np.unique(rank)]
        if np.count_nonzero(rank[~member] >= t) / np.count_nonzero(~member) <= target
    )
    assert operating_point(exact_roc(member, rank), target).tpr == best


# --- what can be resolved ---


def test_needed_nonmembers():
    assert needed_nonmembers(0.01) == 718
    assert needed_nonmembers(0.001) == 7208
    assert resolvable(718, 0.01)
    assert not resolvable(717, 0.01)
    assert resolvable(7208, 0.001)
    assert not resolvable(7207, 0.001)
    assert not resolvable(800, 0.001)
    assert needed_nonmembers(1.0) == needed_nonmembers(0.5) == 1
    with pytest.raises(ValueError, match="above 0"):
        needed_nonmembers(0.0)


@pytest.mark.parametrize("f", [0.002, 0.01, 0.03, 0.05, 0.1, 0.2, 0.29, 0.4])
def test_needed_nonmembers_is_the_last_failure_plus_one(f):
    n = np.arange(1, int(30 / f))
    k = allowed_false_positives(n, f)
    upper = np.where(k < n, beta.ppf(0.975, k + 1, np.maximum(n - k, 1)), 1.0)
    assert needed_nonmembers(f) == n[upper > 2 * f].max() + 1


@given(st.integers(0, 5000), st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.29, 0.57, 1.0]))
def test_allowed_false_positives(n, f):
    k = int(allowed_false_positives(n, f))
    assert 0 <= k <= n
    assert n == 0 or k / n <= f
    assert k == n or (k + 1) / n > f


def test_exact_interval():
    assert exact_interval(0.0, 100, 0.025) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    low, high = exact_interval(0.5, 10, 0.025)
    assert (low, high) == (pytest.approx(0.18709, abs=1e-5), pytest.approx(0.81291, abs=1e-5))
    assert np.isnan(exact_interval(np.nan, 10, 0.025)).all()


def test_a_text_without_ground_to_judge_is_not_cleared():
    point = {"attack": "ez", "metric": "tpr", "target_fpr": 0.1, "value": 0.5, "threshold": 3.0, "resolvable": True}
    metrics = pd.DataFrame([point])
    row = {"attack": "ez", "rank_score": 0.0}
    assert classify({**row, "status": "insufficient"}, metrics, "ez", 0.1) == "no evidence"
    assert classify({**row, "status": "ok"}, metrics, "ez", 0.1) == "not a member"
