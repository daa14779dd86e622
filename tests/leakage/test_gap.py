"""LeakageGap end to end: tables, verdicts, the null, what must not change a result, notes, progress, cancel."""

import json

import numpy as np
import pandas as pd
import pytest

from auditcore.errors import Cancelled, DatasetError, SpecError
from auditcore.leakage.gap import METRIC_COLUMNS, PREDICTION_COLUMNS, VERDICT_COLUMNS, evaluate, leakage_verdicts
from auditcore.leakage.power import power
from auditcore.verdict import interval_verdict

CLASSES = np.array(["north", "south", "east"], dtype=object)


def _data(seed: int, n: int, signal: float, width: int = 5, notes: int = 1, n_classes: int = 3):
    """Vectors, labels, subjects and rows (half train, a sixth val, a third test) with planted class means."""
    rng = np.random.default_rng(seed)
    subject = np.arange(n) // notes
    codes = subject % n_classes
    means = np.random.default_rng(7).normal(size=(n_classes, width)) * signal
    vectors = (rng.normal(size=(n, width)) + means[codes]).astype(np.float32)
    cut = [n // (2 * notes) * notes, n * 2 // (3 * notes) * notes]
    rows = dict(zip(("bal_train", "bal_val", "bal_test"), np.split(np.arange(n), cut), strict=True))
    return vectors, CLASSES[codes], np.array([f"s{i:05d}" for i in subject]), rows


def _run(data, probe="linear", **options):
    settings = {"seeds": [0, 1], "n_boot": 300, "permutations": 19, "n_jobs": 1, "attribute": "where"}
    return evaluate(*data, probe, **{**settings, "artifact": "lasttok", "layer": 3, **options})


def test_tables_have_their_columns_and_agree_with_each_other():
    data = _data(0, 360, 1.0)
    ids = [f"id-{i}" for i in range(360)]
    result = _run(data, example_ids=ids)
    metrics, predictions = result.metrics, result.predictions
    assert list(metrics.columns) == METRIC_COLUMNS
    assert list(predictions.columns) == PREDICTION_COLUMNS
    assert len(metrics) == 2 * (1 + 2)  # two splits: seeds averaged, and each seed
    assert len(predictions) == 2 * (60 + 120)
    assert predictions["example_id"].iloc[0] == "id-180"
    assert predictions["probability"].between(1 / 3 - 1e-6, 1).all()
    averaged = metrics[metrics["seed"].isna()].set_index("split")
    for split, row in averaged.iterrows():
        part = predictions[predictions["split"] == split]
        hit = (part["actual"] == part["predicted"]).groupby(part["actual"]).mean()
        assert row["accuracy"] == pytest.approx(hit.mean())
        assert row["signed_gap"] == pytest.approx(row["accuracy"] - 1 / 3)
        assert row["gap"] == abs(row["signed_gap"])
        assert row["accuracy_low"] <= row["signed_low90"] + 1 / 3 < row["accuracy"] < row["signed_high90"] + 1 / 3
        assert row["p_value"] == 1 / 20
        assert set(json.loads(row["confident_by_class"])) == set(CLASSES)
    assert (averaged["n_subjects"] == [60, 120]).all()
    assert averaged.loc["bal_test", "verdict"] == "over budget"
    assert pd.isna(averaged.loc["bal_val", "verdict"])  # only bal_test gives a verdict
    assert metrics.loc[metrics["seed"].notna(), ["verdict", "null_mean", "p_value"]].isna().all(axis=None)


def test_verdict_rows_and_the_one_for_all():
    data = _data(0, 360, 1.0)
    frames = [_run(data, probe, artifact=a).metrics for probe in ("linear", "mlp") for a in ("lasttok", "meanpool")]
    verdicts = leakage_verdicts(pd.concat(frames, ignore_index=True), 0.025)
    assert list(verdicts.columns) == VERDICT_COLUMNS
    assert list(verdicts["attacker"]) == ["linear", "linear", "mlp", "mlp", "all"]
    assert set(verdicts["kind"]) == {"vectors"}
    for row in verdicts.to_dict("records")[:-1]:
        assert row["verdict"] == interval_verdict(row["low"], row["high"], 0.025)
    together = verdicts.iloc[-1]
    assert together["verdict"] == "over budget"
    assert pd.isna(together["artifact"])
    assert together["attribute"] == "where"
    assert together["p_over"] == pytest.approx(4 * verdicts["p_over"][:4].min())  # Holm over four
    assert leakage_verdicts(frames[0].iloc[:0], 0.025).empty


def test_leak_free_vectors_are_not_over_budget():
    verdicts, p_values = [], []
    for draw in range(16):
        row = _run(_data(draw, 180, 0.0), seeds=[0]).metrics.query("split == 'bal_test'").iloc[0]
        verdicts.append(row["verdict"])
        p_values.append(row["p_value"])
    assert verdicts.count("over budget") <= 3  # 5 % of 16, with room for chance
    # Permutation p-values are about uniform: their mean is 0.5 +- 3 standard errors, and few are small.
    assert np.mean(p_values) == pytest.approx(0.525, abs=3 * np.sqrt(1 / 12 / 16))
    assert np.mean(np.array(p_values) <= 0.05) <= 0.2


def test_small_tests_resolve_nothing_and_power_said_so():
    result = _run(_data(3, 240, 0.0))
    row = result.metrics.query("split == 'bal_test'").iloc[0]
    assert power(80, 3, 0.025).p_within_if_leak_free == 0
    assert row["verdict"] in ("not resolved", "below chance")
    assert row["null_mean"] == pytest.approx(1 / 3, abs=0.05)
    assert row["null_p95"] > row["null_mean"]


@pytest.mark.parametrize("probe", ["linear", "mlp", "gbt", "knn"])
def test_names_of_classes_and_order_of_rows_change_nothing(probe):
    vectors, labels, groups, rows = _data(4, 300, 0.5)
    few = {"seeds": [0], "permutations": 3}
    plain = _run((vectors, labels, groups, rows), probe, **few).metrics
    other_names = {"north": "zz", "south": "aa", "east": "<b>"}
    renamed = _run((vectors, np.array([other_names[x] for x in labels]), groups, rows), probe, **few).metrics
    order = np.random.default_rng(0).permutation(300)
    place = np.argsort(order)
    moved_rows = {split: place[at] for split, at in rows.items()}
    moved = _run((vectors[order], labels[order], groups[order], moved_rows), probe, **few).metrics
    numbers = [c for c in METRIC_COLUMNS if c not in ("settings", "confident_by_class")]
    pd.testing.assert_frame_equal(plain[numbers], renamed[numbers])
    pd.testing.assert_frame_equal(plain[numbers], moved[numbers])


def test_same_seed_same_tables():
    data = _data(5, 240, 0.5)
    one, two = (_run(data, "mlp", n_jobs=n) for n in (1, 2))
    pd.testing.assert_frame_equal(one.metrics, two.metrics)
    pd.testing.assert_frame_equal(one.predictions, two.predictions)


def test_several_notes_a_subject_widen_the_interval():
    vectors, labels, groups, rows = _data(6, 960, 0.3, notes=4)
    by_subject = _run((vectors, labels, groups, rows), permutations=0).metrics.query("split == 'bal_test'").iloc[0]
    assert by_subject["n_eval"] == 4 * by_subject["n_subjects"]
    assert pd.isna(by_subject["p_value"])


def test_a_subject_on_both_sides_is_refused():
    vectors, labels, groups, rows = _data(0, 90, 0.0)
    groups[80] = groups[0]
    with pytest.raises(DatasetError, match="both bal_train and bal_test"):
        _run((vectors, labels, groups, rows))


def test_left_out_rows_are_told():
    vectors, labels, groups, rows = _data(0, 180, 1.0)
    vectors[100] = np.nan
    result = _run((vectors, labels, groups, rows), permutations=0)
    assert any("bal_val rows left out" in text for text in result.warnings)
    assert result.metrics["n_eval"].iloc[0] == 29


def test_unknown_probe_names_the_nearest():
    with pytest.raises(SpecError, match="Did you mean 'linear'"):
        _run(_data(0, 90, 0.0), "lineer")


def test_progress_counts_every_fit_and_can_cancel():
    data, seen = _data(0, 120, 0.0), []
    _run(data, on_step=lambda done, total: seen.append((done, total)), n_jobs=2)
    assert seen == [(k, 21) for k in range(1, 22)]

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        _run(data, on_step=stop, n_jobs=2)


@pytest.mark.parametrize("probe", ["linear", "knn"])
def test_many_tests_have_a_finer_null_band_from_as_many_refits(probe):
    few, many = (_run(_data(8, 360, 3.0), probe, permutations=n, seeds=[0], most_refits=19) for n in (19, 28 * 40))
    few, many = (found.metrics.query("split == 'bal_test' and seed.isna()").iloc[0] for found in (few, many))
    assert few["p_value"] == 1 / 20  # what no correction over two tests survives
    assert many["p_value"] < 0.05 / 28
    assert (few["null_refits"], many["null_refits"]) == (19, 19)
    assert many["permutations"] == 28 * 40
    assert many["null_mean"] == pytest.approx(1 / 3, abs=0.02)
    assert many["null_p95"] == pytest.approx(few["null_p95"], abs=0.08)


@pytest.mark.parametrize(("probe", "permutations"), [("gbt", 60), ("knn", 60)])
def test_shared_refits_give_every_permutation_and_a_band_around_chance(probe, permutations):
    data, seen = _data(9, 360, 0.0), []
    result = _run(data, probe, permutations=permutations, seeds=[0], on_step=lambda done, total: seen.append(done))
    row = result.metrics.query("split == 'bal_test'").iloc[0]
    assert seen == list(range(1, permutations + 2))
    assert row["null_mean"] == pytest.approx(1 / 3, abs=3 * np.sqrt(2 / 9 / 120 / 20))
    # The spread of an accuracy of 120 rows in three classes: 1.64 deviations above chance, give or take a half.
    assert 1 / 3 + 1.0 * np.sqrt(2 / 9 / 120) < row["null_p95"] < 1 / 3 + 2.4 * np.sqrt(2 / 9 / 120)
    assert 1 / (permutations + 1) <= row["p_value"] <= 1


def _giveaways(n: int, share: float):
    """Five classes that nothing tells apart, but for a share of the subjects, whose vectors name theirs for sure."""
    rng = np.random.default_rng(1)
    codes = np.arange(n) % 5
    vectors = rng.normal(size=(n, 12)).astype(np.float32)
    given = rng.random(n) < share
    vectors[given] += 8 * np.eye(12, dtype=np.float32)[codes[given]]
    cut = [n // 2, n * 13 // 20]
    rows = dict(zip(("bal_train", "bal_val", "bal_test"), np.split(np.arange(n), cut), strict=True))
    return vectors, np.array(list("abcde"))[codes], np.array([f"s{i:06d}" for i in range(n)]), rows


def test_giveaways_in_two_percent_of_the_rows_are_found_although_the_average_is_within_budget():
    result = _run(_giveaways(40_000, 0.02), seeds=[0], permutations=0)
    row = result.metrics.query("split == 'bal_test' and seed.isna()").iloc[0]
    assert row["verdict"] == "within budget"
    assert row["confident_share"] == pytest.approx(0.02, abs=0.005)
    assert 0.015 < row["confident_low"] < row["confident_share"] < row["confident_high"] < 0.03
    assert row["confident_precision"] > 0.85
    assert row["confident_p"] < 1e-9
    assert min(json.loads(row["confident_by_class"]).values()) > 0.01


@pytest.mark.parametrize("probe", ["linear", "mlp", "gbt", "knn"])
def test_every_attacker_finds_giveaways_that_its_most_accurate_setting_may_pass_over(probe):
    result = _run(_giveaways(8000, 0.02), probe, seeds=[0], permutations=0)
    row = result.metrics.query("split == 'bal_test' and seed.isna()").iloc[0]
    assert row["confident_share"] == pytest.approx(0.02, abs=0.01)
    assert row["confident_precision"] > 0.8
    assert row["confident_p"] < 1e-6


def test_code_length_stands_beside_the_accuracy():
    found = [_run(_data(0, 720, signal), permutations=0).metrics for signal in (0.0, 2.0)]
    free, leaky = (m.query("split == 'bal_test' and seed.isna()").iloc[0] for m in found)
    assert free["mdl_bits"] == pytest.approx(np.log2(3), abs=0.1)
    assert leaky["mdl_bits"] < 0.8 * free["mdl_bits"]
    assert leaky["mdl_compression"] == pytest.approx(np.log2(3) / leaky["mdl_bits"])
    assert found[0].loc[found[0]["seed"].notna(), "mdl_bits"].isna().all()


@pytest.mark.parametrize(("probe", "refits", "rows"), [("linear", 60, 300), ("gbt", 16, 300), ("knn", 60, 540)])
def test_how_the_null_band_was_made_stands_beside_it(probe, refits, rows, monkeypatch):
    from auditcore.leakage import permutation

    monkeypatch.setattr(permutation, "ROWS", 300)
    metrics = _run(_data(9, 1080, 0.0), probe, permutations=60, seeds=[0]).metrics
    pooled = metrics[metrics["seed"].isna()]
    assert set(pooled["permutations"]) == {60}
    assert set(pooled["null_refits"]) == {refits}
    assert pooled["null_rows"].between(rows, rows + 2).all()  # of every class at least one subject
    assert metrics.loc[metrics["seed"].notna(), ["permutations", "null_refits", "null_rows"]].isna().all(axis=None)
