"""The tables attack_metrics and roc, and what a threshold says of one row."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from auditcore.errors import DatasetError, SpecError
from auditcore.membership.roc import attack_metrics, classify, membership_verdicts
from auditcore.membership.thresholds import (
    why_unresolved,
)
from tests.score_tables import normal, row, table


def test_metrics_of_800_against_800():
    member, rank = normal(shift=2.0)
    metrics, roc = attack_metrics(table(member, ez=rank, loss=-rank), None, (0.001, 0.01, 0.05), 300, 0)
    assert list(metrics.columns) == [
        *("attack", "metric", "target_fpr", "value", "low", "high", "realised_fpr", "threshold", "resolvable"),
        *("n_member", "n_nonmember", "n_no_evidence"),
    ]
    assert list(metrics.attack) == ["ez"] * 4 + ["loss"] * 4
    auc = row(metrics, attack="ez", metric="auc")
    assert auc.value == pytest.approx(roc_auc_score(member, rank), abs=1e-12)
    assert auc.low < auc.value < auc.high
    assert pd.isna(auc.target_fpr)
    assert pd.isna(auc.resolvable)

    fine = row(metrics, attack="ez", target_fpr=0.001)
    assert not fine.resolvable
    assert fine[["value", "low", "high", "threshold"]].isna().all()
    assert fine.realised_fpr == 0
    assert why_unresolved(fine).endswith("is not resolved by 800 non-members: 7,208 are needed")

    one = row(metrics, attack="ez", target_fpr=0.01)
    assert one.resolvable
    assert one.realised_fpr == 0.01
    assert one.value == (rank[member] >= one.threshold).mean()
    assert (rank[~member] >= one.threshold).mean() == 0.01
    assert one.low < one.value < one.high
    assert why_unresolved(one) == ""

    ez = roc[roc.attack == "ez"]
    assert len(ez) == 1601  # every vertex
    assert pd.isna(ez.threshold.iloc[0])
    assert not ez.threshold.iloc[1:].isna().any()
    assert tuple(ez[["fpr", "tpr"]].iloc[-1]) == (1, 1)


def test_717_nonmembers_do_not_resolve_one_per_cent():
    for n, expected in ((717, False), (718, True)):
        member, rank = normal(50, n)
        scores = table(member, loss=rank)
        metrics, _ = attack_metrics(scores, None, (0.01,), 100, 0)
        assert row(metrics, metric="tpr").resolvable == expected
        assert pd.isna(row(metrics, metric="tpr").value) != expected
        verdict = membership_verdicts(scores, metrics, None, 0.025, 100, 0)
        assert verdict.value.notna().all() == expected
        if not expected:
            assert list(verdict.verdict) == ["not resolved"] * 2


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ([True] * 6, "no non-members"),
        ([False] * 6, "no members"),
        ([None] * 6, "no row of known membership"),
    ],
)
def test_one_class_only(member, words):
    scores = table(member, ez=np.arange(6.0), loss=np.arange(6.0))
    metrics, roc = attack_metrics(scores, None, (0.01, 0.1), 100, 0)
    assert len(metrics) == 6
    assert metrics[["value", "low", "high", "threshold"]].isna().all().all()
    assert not metrics.resolvable.fillna(False).any()
    assert all(why_unresolved(m).startswith(words) for _, m in metrics.iterrows())
    assert set(roc.attack) == {"ez", "loss"}
    verdicts = membership_verdicts(scores, metrics, None, 0.025, 100, 0)
    assert list(verdicts.attacker) == ["ez", "loss", "all"]
    assert set(verdicts.verdict) == {"not resolved"}


def test_one_member():
    member = np.arange(1000) == 0
    metrics, _ = attack_metrics(
        table(member, loss=np.where(member, 9.0, np.arange(1000) / 1000)), None, (0.01,), 100, 0
    )
    auc, tpr = row(metrics, metric="auc"), row(metrics, metric="tpr")
    assert auc.value == 1.0
    assert pd.isna(auc.low)
    assert (tpr.value, tpr.low, tpr.high) == (1.0, pytest.approx(0.025), 1.0)
    verdict = membership_verdicts(table(member, loss=np.zeros(1000)), None, None, 0.025, 100, 0)
    assert list(verdict.verdict) == ["not resolved"] * 2  # one member cannot show that nothing leaks


def test_all_tied():
    member = np.arange(2000) < 1000
    scores = table(member, loss=np.zeros(2000))
    metrics, roc = attack_metrics(scores, None, (0.01,), 100, 0)
    auc, tpr = row(metrics, metric="auc"), row(metrics, metric="tpr")
    assert (auc.value, auc.low, auc.high) == (0.5, 0.5, 0.5)
    assert tpr[["value", "low", "high", "threshold"]].isna().all()
    assert (tpr.realised_fpr, tpr.resolvable) == (0.0, True)
    assert len(roc) == 2
    why = "tied scores: more than 1 % of the non-members share the highest score, so no threshold accuses fewer"
    assert why_unresolved(tpr) == why
    with pytest.raises(SpecError, match=f"attack 'loss': {why}; this attack has no threshold at any rate here"):
        classify({"rank_score": 0.0, "status": "ok"}, metrics, "loss", 0.01)
    assert list(membership_verdicts(scores, metrics, None, 0.025, 100, 0).verdict) == ["not resolved"] * 2


def test_unknown_and_no_evidence_rows_are_counted_and_left_out():
    member, rank = normal(20, 30)
    more = [*member, None, None, True, False, False]
    longer = np.concatenate([rank, [99.0, -99.0, np.nan, np.nan, np.nan]])
    metrics, _ = attack_metrics(table(more, loss=longer), None, (0.1,), 100, 0)
    assert set(metrics.n_member) == {20}
    assert set(metrics.n_nonmember) == {30}
    assert set(metrics.n_no_evidence) == {3}
    assert row(metrics, metric="auc").value == pytest.approx(roc_auc_score(member, rank))


@settings(deadline=None, max_examples=10)
@given(st.permutations(list(range(60))), st.booleans())
def test_the_order_of_rows_changes_nothing(order, grouped):
    member, rank = normal(30, 30, 0.5)
    scores = table([*member[:-2], None, False], ez=rank, loss=np.round(rank))
    groups = {f"r{i}": f"s{i // 2}" for i in range(60)} if grouped else None
    shuffled = pd.concat([scores.iloc[:60].iloc[order], scores.iloc[60:].iloc[order[::-1]]])
    for a, b in zip(
        attack_metrics(scores, groups, (0.1, 0.5), 100, 3),
        attack_metrics(shuffled, groups, (0.1, 0.5), 100, 3),
        strict=True,
    ):
        pd.testing.assert_frame_equal(a, b)
    pd.testing.assert_frame_equal(
        membership_verdicts(scores, None, groups, 0.025, 100, 3),
        membership_verdicts(shuffled, None, groups, 0.025, 100, 3),
    )


def test_groups_come_as_mapping_series_or_values():
    member, rank = normal(40, 40)
    scores = table(member, loss=rank, ez=rank)
    names = [f"s{i // 4}" for i in range(80)]
    by_id = dict(zip([f"r{i}" for i in range(80)], names, strict=True))
    series = pd.Series(by_id).sample(frac=1, random_state=0)
    expected, _ = attack_metrics(scores, names, (0.1,), 100, 0)
    for groups in (by_id, series, pd.Series(names), np.array(names)):
        pd.testing.assert_frame_equal(attack_metrics(scores, groups, (0.1,), 100, 0)[0], expected)
    with pytest.raises(DatasetError, match="3 subjects for 80 examples"):
        attack_metrics(scores, ["a", "b", "c"], (0.1,), 100, 0)
    with pytest.raises(DatasetError, match="'r0' is scored twice"):
        attack_metrics(pd.concat([scores, scores.iloc[[0]]]), None, (0.1,), 100, 0)


def test_tables_survive_parquet(tmp_path):
    member, rank = normal(100, 100)
    metrics, roc = attack_metrics(table(member, loss=rank), None, (0.01, 0.1), 100, 0)
    verdicts = membership_verdicts(table(member, loss=rank), metrics, None, 0.025, 100, 0)
    for name, frame in (("metrics", metrics), ("roc", roc), ("verdicts", verdicts)):
        frame.to_parquet(tmp_path / name)
        back = pd.read_parquet(tmp_path / name)
        assert list(back.columns) == list(frame.columns)
        assert len(back) == len(frame)
    back = pd.read_parquet(tmp_path / "metrics")
    assert classify({"rank_score": 99.0, "status": "ok"}, back, "loss", 0.1) == "member"


def test_classify():
    member, rank = normal(shift=2.0)
    metrics, _ = attack_metrics(table(member, ez=rank), None, (0.001, 0.01, 0.1), 100, 0)
    threshold = row(metrics, target_fpr=0.01).threshold
    ok = {"attack": "ez", "status": "ok"}
    assert classify({**ok, "rank_score": threshold}, metrics, "ez", 0.01) == "member"
    assert classify(pd.Series({**ok, "rank_score": threshold - 1e-9}), metrics, "ez", 0.01) == "not a member"
    assert classify({**ok, "rank_score": 1e300, "status": "no_errors"}, metrics, "ez", 0.01) == "member"
    for missing in (np.nan, None, pd.NA, np.inf):
        assert classify({**ok, "rank_score": missing}, metrics, "ez", 0.01) == "no evidence"
    assert classify({"rank_score": np.nan, "status": "no_evidence"}, metrics, "ez", 0.01) == "no evidence"
    with pytest.raises(
        SpecError,
        match=r"0\.1 % is not resolved by 800 non-members: 7,208 are needed; choose --fpr 0\.01 \(1 %\) or 0\.1",
    ):
        classify({**ok, "rank_score": 1.0}, metrics, "ez", 0.001)
    with pytest.raises(
        SpecError, match=r"at --fpr 10, .* of 1000 %\. It is a fraction, not a percentage: 0\.1 for 10 %"
    ):
        classify({"rank_score": 1.0, "status": "ok"}, metrics, "ez", 10)
    with pytest.raises(SpecError, match=r"at --fpr 0\.02, .* of 2 %\. Choose --fpr 0\.01 \(1 %\) or 0\.1 \(10 %\)"):
        classify({**ok, "rank_score": 1.0}, metrics, "ez", 0.02)
    with pytest.raises(SpecError, match="not part of this run: it has ez"):
        classify({"rank_score": 1.0, "status": "ok"}, metrics, "loss", 0.01)
    with pytest.raises(SpecError, match="scored by attack 'loss'"):
        classify({**ok, "attack": "loss", "rank_score": 1.0}, metrics, "ez", 0.01)


def test_forced_rows_take_part_in_thresholds():
    member = np.arange(2000) < 1000
    rank = np.where(member, 1e300, np.random.default_rng(0).random(2000))
    metrics, _ = attack_metrics(table(member, ez=rank), None, (0.01,), 100, 0)
    point = row(metrics, metric="tpr")
    assert (point.value, point.realised_fpr) == (1.0, 0.01)
    assert np.isfinite(point.threshold)
    assert row(metrics, metric="auc").value == 1.0
