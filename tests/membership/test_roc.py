"""Operating points, their intervals, metrics tables, verdicts and classification."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from sklearn.metrics import roc_auc_score, roc_curve

from auditcore.errors import DatasetError, SpecError
from auditcore.membership.bootstrap import bootstrap_points, interval, paired_difference, subject_codes
from auditcore.membership.roc import attack_metrics, classify, exact_roc, membership_verdicts, needed_nonmembers
from auditcore.membership.thresholds import (
    allowed_false_positives,
    auc,
    exact_interval,
    operating_point,
    resolvable,
    why_unresolved,
)
from auditcore.spec import VERDICTS

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = {c["name"]: c for c in json.loads((GOLDEN / "tpr_at_fpr.json").read_text())["cases"]}
CASES = {
    name: c for name, c in CASES.items() if c["expected"]["derived_not_peer_exact_step_le"]
}  # not one class or inf


def table(member, **ranks):
    """Scores of some attacks on the same rows."""
    parts = []
    for attack, rank in ranks.items():
        rank = np.asarray(rank, dtype=float)
        parts.append(
            pd.DataFrame(
                {
                    "example_id": [f"r{i}" for i in range(len(rank))],
                    "member": pd.array(member, dtype="boolean"),
                    "attack": attack,
                    "score": rank,
                    "rank_score": rank,
                    "status": np.where(np.isnan(rank), "no_evidence", "ok"),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def normal(n_member=800, n_nonmember=800, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    member = np.arange(n_member + n_nonmember) < n_member
    return member, rng.normal(size=len(member)) + shift * member


def row(frame, **where):
    for key, value in where.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1
    return frame.iloc[0]


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


# --- resampling ---


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


# --- tables ---


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
    assert (tpr.value, tpr.realised_fpr) == (0.0, 0.0)
    assert tpr.resolvable
    assert pd.isna(tpr.threshold)
    assert len(roc) == 2
    assert classify({"rank_score": 0.0, "status": "ok"}, metrics, "loss", 0.01) == "not a member"
    assert membership_verdicts(scores, metrics, None, 0.025, 100, 0).verdict[0] == "within budget"


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


# --- verdicts ---


def test_verdicts_over_within_and_together():
    member, strong = normal(2000, 2000, shift=3.0, seed=1)
    weak = normal(2000, 2000, shift=0.0, seed=2)[1]
    scores = table(member, ez=strong, loss=weak)
    verdicts = membership_verdicts(scores, None, None, 0.025, 400, 0)
    assert list(verdicts.columns) == [
        *("kind", "attribute", "artifact", "layer", "defence", "attacker", "split", "budget"),
        *("value", "low", "high", "n_subjects", "verdict"),
    ]
    assert list(verdicts.attacker) == ["ez", "loss", "all"]
    assert list(verdicts.verdict) == ["over budget", "within budget", "over budget"]
    assert set(verdicts.verdict) <= set(VERDICTS)
    assert set(verdicts.kind) == {"membership"}
    assert set(verdicts.n_subjects) == {4000}
    point = operating_point(exact_roc(member, strong), 0.01)
    assert verdicts.value[0] == verdicts.value[2] == point.tpr - point.fpr
    assert verdicts.low[0] < verdicts.value[0] < verdicts.high[0]
    only_weak = membership_verdicts(table(member, loss=weak, reference=weak[::-1]), None, None, 0.025, 400, 0)
    assert list(only_weak.verdict) == ["within budget"] * 3


def test_one_unresolved_attack_keeps_the_run_from_being_within_budget():
    member, rank = normal(2000, 2000)
    broken = np.where(np.arange(4000) % 4000 < 3500, rank, np.nan)  # 500 non-members short
    broken[2000:3000] = np.nan
    verdicts = membership_verdicts(table(member, loss=rank, ez=broken), None, None, 0.025, 200, 0)
    assert list(verdicts.verdict) == ["within budget", "not resolved", "not resolved"]
    assert pd.isna(verdicts.value[1])


def test_few_members_cannot_show_that_nothing_leaks():
    for members, expected in ((20, "not resolved"), (400, "within budget")):
        member, rank = normal(members, 2000)
        rank = rank - 10.0 * member  # no member anywhere near the top: every resample says TPR = 0
        verdict = membership_verdicts(table(member, loss=rank), None, None, 0.025, 200, 0)
        assert verdict.verdict[0] == expected
        assert verdict.value[0] == -0.01


def test_verdicts_of_no_scores():
    empty = table([], loss=[])
    assert len(membership_verdicts(empty)) == 0


# --- differences and classification ---


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
        SpecError, match=r"0\.1 % is not resolved by 800 non-members: 7,208 are needed; choose 1 % or 10"
    ):
        classify({**ok, "rank_score": 1.0}, metrics, "ez", 0.001)
    with pytest.raises(SpecError, match=r"no threshold at a false-positive rate of 2 %: choose 1 % or 10 %"):
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
