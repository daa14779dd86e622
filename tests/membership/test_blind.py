"""The blind baseline: chance where rows are alike, loud where they are not."""

import numpy as np
import pandas as pd
import pytest

from auditcore.membership.blind import blind_metrics, blind_scores, warning

WORDS = [f"word{i}" for i in range(60)]


def texts(rng, n, words=WORDS, length=12):
    return [" ".join(rng.choice(words, length)) for _ in range(n)]


def auc(metrics):
    row = metrics[metrics["metric"] == "auc"].iloc[0]
    return row["value"], row["low"], row["high"]


def measure(rows, member, groups=None):
    scores = blind_scores(rows, member, groups)
    ids = [f"r{i}" for i in range(len(rows))]
    return scores, blind_metrics(scores, ids, member, groups, n_boot=300)


def test_rows_of_one_kind_are_at_chance():
    rng = np.random.default_rng(3)
    _, metrics = measure(texts(rng, 400), [True, False] * 200)
    _, low, high = auc(metrics)
    assert low < 0.5 < high
    assert warning(metrics) is None


def test_rows_of_two_kinds_are_told_apart_and_said_so():
    rng = np.random.default_rng(4)
    rows = texts(rng, 100, WORDS[:40]) + texts(rng, 100, WORDS[20:])
    scores, metrics = measure(rows, [True] * 100 + [False] * 100)
    assert auc(metrics)[0] > 0.95
    assert np.isfinite(scores).all()
    assert "differ by themselves" in warning(metrics)


def test_a_subject_never_trains_the_model_that_scores_it():
    # Texts of a subject are equal and otherwise random: across subjects nothing can be learnt.
    rng = np.random.default_rng(5)
    rows = [text for text in texts(rng, 60, [f"w{i}" for i in range(5000)]) for _ in range(5)]
    groups = [f"s{i // 5}" for i in range(300)]
    member = [i // 5 % 2 == 0 for i in range(300)]
    apart, _ = measure(rows, member, groups)
    together, _ = measure(rows, member)
    truth = np.array(member)
    assert (together[truth].mean() - together[~truth].mean()) > 0.3
    assert abs(apart[truth].mean() - apart[~truth].mean()) < 0.1


def test_equal_texts_on_both_sides_are_said():
    rng = np.random.default_rng(6)
    rows = texts(rng, 150, [f"w{i}" for i in range(3000)], 20)
    _, metrics = measure(rows + rows, [True] * 150 + [False] * 150)
    assert "tied to each other" in warning(metrics)


@pytest.mark.parametrize(("value", "high", "tied"), [(0.42, 0.49, False), (0.35, 0.44, True), (0.1, 0.2, True)])
def test_a_little_below_chance_is_what_cross_validation_gives(value, high, tied):
    frame = pd.DataFrame([{"metric": "auc", "value": value, "low": 2 * value - high, "high": high}])
    assert bool(warning(frame)) == tied


@pytest.mark.parametrize("n", [1, 9])
def test_too_few_rows_are_not_measured(n):
    scores, metrics = measure(["a b c"] * 2 * n, [True] * n + [False] * n)
    assert np.isnan(scores).all()
    assert warning(metrics) is None


def test_unknown_rows_and_texts_without_words():
    member = [True, False, None] * 20
    scores, metrics = measure(["" for _ in member], member)
    assert np.isnan(scores[2::3]).all()
    assert set(scores[0::3]) == {0.5}
    assert auc(metrics)[0] == 0.5
    assert warning(metrics) is None
