"""Two runs on the same rows: paired, on what they share, counted."""

import numpy as np
import pandas as pd
import pytest

from auditcore.membership.compare import compare


def scores(rank, member, ids=None, attack="ez"):
    ids = ids or [f"r{i}" for i in range(len(rank))]
    return pd.DataFrame(
        {"example_id": ids, "attack": attack, "member": pd.array(member, dtype="boolean"), "rank_score": rank}
    )


def many(seed, shift, n=800):
    rng = np.random.default_rng(seed)
    member = [True, False] * n
    noise = rng.normal(size=2 * n)
    return member, noise, noise + shift * np.array(member)


def test_a_run_against_itself_differs_by_nothing():
    member, _, rank = many(0, 1.0)
    found = compare(scores(rank, member), scores(rank, member), n_boot=200)
    assert found.shared == 1600
    assert found.left_out == 0
    assert (found.differences[["difference", "low", "high"]].to_numpy() == 0).all()


def test_the_order_of_the_rows_changes_nothing_and_swapping_changes_the_sign():
    member, weak, strong = many(1, 1.5)
    a, b = scores(strong, member), scores(weak, member)
    one = compare(a, b, n_boot=200).differences
    shuffled = compare(a.sample(frac=1, random_state=0), b, n_boot=200).differences
    pd.testing.assert_frame_equal(one, shuffled)
    back = compare(b, a, n_boot=200).differences
    np.testing.assert_allclose(one["difference"], -back["difference"])
    assert (one["low"] > 0).all()


def test_two_runs_that_find_every_member_are_not_equal_beyond_doubt():
    member, noise, _ = many(4, 0.0, n=800)
    sure = 100.0 * np.array(member)
    found = compare(scores(sure + noise, member), scores(sure - noise, member), n_boot=200).differences
    tpr = found.set_index("metric").loc["tpr"]
    assert tpr["difference"] == 0
    assert tpr["high"] == pytest.approx(1 - 0.025 ** (1 / 800))  # none of 800 members seen to differ
    assert tpr["low"] == -tpr["high"]
    assert tpr["p_value"] == 1
    far = compare(scores(sure + noise, member), scores(noise - sure, member), n_boot=200).differences
    tpr = far.set_index("metric").loc["tpr"]
    assert tpr["difference"] == 1 == tpr["high"]
    assert 0.99 < tpr["low"] < 1


def test_the_p_value_goes_with_the_interval():
    rng = np.random.default_rng(6)
    for shift in (0.0, 0.1, 0.3):
        member, a, _ = many(int(100 * shift), 0.0, n=300)
        b = a + 0.5 * rng.normal(size=600) + shift * np.array(member)
        line = compare(scores(b, member), scores(a, member), n_boot=400).differences.set_index("metric").loc["auc"]
        assert 0 < line["p_value"] <= 1
        if line["p_value"] < 0.045:
            assert line["low"] > 0 or line["high"] < 0
        if line["p_value"] > 0.055:
            assert line["low"] <= 0 <= line["high"]


def test_pairing_narrows_the_interval():
    member, _, rank = many(2, 1.0)
    better = rank + 0.2 * np.array(member)
    found = compare(scores(better, member), scores(rank, member), n_boot=400).differences.set_index("metric").loc["auc"]
    alone = (
        compare(scores(better, member), scores(np.random.default_rng(9).permutation(rank), member), n_boot=400)
        .differences.set_index("metric")
        .loc["auc"]
    )
    assert found["high"] - found["low"] < 0.5 * (alone["high"] - alone["low"])


def test_rows_of_one_run_only_or_in_dispute_are_counted():
    member, _, rank = many(3, 1.0, n=50)
    other = list(member)
    other[0] = False
    other[1] = None
    b = scores(rank, other).iloc[:-2]
    found = compare(scores(rank, member), b, n_boot=100)
    assert found.shared == 96
    assert found.left_out == 4


def test_rates_that_cannot_be_resolved_are_null_and_the_area_is_not():
    member, _, rank = many(4, 1.0, n=50)
    table = compare(scores(rank, member), scores(rank, member), n_boot=100).differences.set_index("metric")
    assert np.isnan(table.loc["tpr", "value_a"])
    assert table.loc["auc", "value_a"] == pytest.approx(table.loc["auc", "value_b"])


def test_an_attack_without_evidence_in_one_run_is_left_out():
    member, _, rank = many(6, 1.0, n=10)
    nothing = scores(np.full(20, np.nan), member, attack="lira")
    a = pd.concat([scores(rank, member), nothing])
    b = pd.concat([scores(rank, member), scores(rank, member, attack="lira")])
    assert compare(a, b, n_boot=100).differences["attack"].unique().tolist() == ["ez"]


def test_nothing_shared_is_an_empty_table():
    member, _, rank = many(5, 1.0, n=10)
    apart = scores(rank, member, [f"x{i}" for i in range(20)])
    assert compare(scores(rank, member), apart, n_boot=100).differences.empty
    assert compare(scores(rank, member), scores(rank, member, attack="loss"), n_boot=100).differences.empty
