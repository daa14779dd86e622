"""Intervals of operating points by resampling subjects, and paired differences."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.errors import SpecError
from auditcore.membership.bootstrap import bootstrap_points, interval, paired_difference, subject_codes
from auditcore.membership.roc import attack_metrics, exact_roc
from auditcore.membership.thresholds import (
    auc,
    operating_point,
)
from tests.score_tables import normal, row, table


def slow_resample(member, rank, counts, target):
    """One resample spelled out: every row as often as drawn."""
    m, r = np.repeat(member, counts), np.repeat(rank, counts)
    roc = exact_roc(m, r)
    point = operating_point(roc, target)
    return auc(m, r), point.tpr, point.fpr


@pytest.mark.parametrize("clustered", [False, True])
def test_resampling_equals_the_roc_of_repeated_rows(clustered, monkeypatch):
    from auditcore.membership import bootstrap

    rng = np.random.default_rng(1)
    member, rank = rng.random(60) < 0.5, rng.integers(0, 12, 60).astype(float)
    subjects = subject_codes([f"s{i // 3}" for i in range(60)], 60) if clustered else None
    seen = []
    original = bootstrap._resamples

    def record(*arguments):
        for counts in original(*arguments):
            seen.append(counts.copy())
            yield counts

    monkeypatch.setattr(bootstrap, "_resamples", record)
    monkeypatch.setattr(bootstrap, "CHUNK", 60 * 7)  # several chunks, the last one short
    targets = (0.05, 0.1, 0.5)
    (draws,) = bootstrap_points(member, [rank], subjects, targets, 40, 0)
    counts = np.concatenate(seen)
    assert counts.shape == (40, 60)
    if clustered:
        assert (counts.reshape(40, 20, 3) == counts[:, ::3, None]).all()  # whole subjects
    else:
        assert (counts[:, member].sum(axis=1) == member.sum()).all()  # stratified by membership
    for b in range(40):
        for j, f in enumerate(targets):
            whole, tpr, fpr = slow_resample(member, rank, counts[b], f)
            assert draws.auc[b] == pytest.approx(whole, abs=1e-12)
            assert draws.tpr[b, j] == pytest.approx(tpr, abs=1e-12)
            assert draws.fpr[b, j] == pytest.approx(fpr, abs=1e-12)


def test_intervals_have_their_coverage():
    truth, inside = 0.638, 0  # AUC of two normals half a deviation apart
    for seed in range(60):
        member, rank = normal(150, 150, shift=0.5, seed=seed)
        low, high = interval(bootstrap_points(member, [rank], None, (0.1,), 300, seed)[0].auc)
        inside += low <= truth <= high
    assert inside >= 52  # 95 % of 60 is 57


def test_clusters_widen_the_interval():
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(80), 10)
    member = subject < 40
    rank = np.repeat(rng.normal(size=80), 10) + 0.1 * rng.normal(size=800) + 0.3 * member
    scores = table(member, loss=rank)
    rows, _ = attack_metrics(scores, None, (0.1,), 400, 0)
    clusters, _ = attack_metrics(scores, [f"s{s}" for s in subject], (0.1,), 400, 0)
    width = [row(m, metric="auc").high - row(m, metric="auc").low for m in (rows, clusters)]
    assert width[1] > 2 * width[0]
    assert row(rows, metric="auc").value == row(clusters, metric="auc").value


def test_subject_codes():
    assert subject_codes(None, 3) is None
    assert subject_codes(["a", "b", "c"], 3) is None
    assert subject_codes([None, None, "c"], 3) is None
    np.testing.assert_array_equal(subject_codes(["b", "a", None, "b", None], 5), [1, 0, 2, 1, 3])
    np.testing.assert_array_equal(subject_codes([1, 2, 1], 3), [0, 1, 0])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.floats(0, 2), st.booleans())
def test_intervals_contain_the_point_estimate(seed, shift, ties):
    member, rank = normal(300, 300, shift, seed)
    metrics, _ = attack_metrics(table(member, loss=np.round(rank, 1) if ties else rank), None, (0.05, 0.1), 200, seed)
    shown = metrics.dropna(subset=["low"])
    assert len(shown) == 3
    assert (shown.low <= shown.value).all()
    assert (shown.value <= shown.high).all()


def test_paired_difference():
    member, strong = normal(400, 400, shift=1.5)
    noise = np.random.default_rng(5).normal(size=800)
    result = paired_difference(member, strong, noise, None, (0.05,), 300, 0)
    assert list(result.metric) == ["auc", "tpr"]
    assert (result.low > 0).all()
    assert (result.difference == result.value_a - result.value_b).all()
    same = paired_difference(member, strong, strong * 2, None, (0.05,), 100, 0)
    assert (same[["difference", "low", "high"]] == 0).all().all()  # pairing: an attack never differs from itself
    # Paired by row, close attacks differ by less than their own intervals suggest.
    close = paired_difference(member, strong, strong + 0.1 * noise, None, (0.05,), 300, 0).iloc[0]
    own = attack_metrics(table(member, a=strong), None, (0.05,), 300, 0)[0].iloc[0]
    assert close.high - close.low < (own.high - own.low) / 2
    tiny = paired_difference(member[390:410], strong[390:410], noise[390:410], None, (0.05,), 100, 0)
    assert tiny.low.notna().tolist() == [True, False]
    with pytest.raises(SpecError, match="share no members"):
        paired_difference(member, np.where(member, np.nan, strong), noise)


def test_paired_difference_by_subject_and_with_missing_evidence():
    member, rank = normal(100, 100, 1.0)
    other = np.where(np.arange(200) % 10 == 0, np.nan, -rank)
    groups = [f"s{i // 2}" for i in range(200)]
    result = paired_difference(pd.array(member, dtype="boolean"), rank, other, groups, (0.1,), 100, 0)
    assert (result.n_member == 90).all()
    assert (result.difference > 0).all()
