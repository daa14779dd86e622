"""Cards, findings and comparisons of runs."""

from pathlib import Path

import pandas as pd
import pytest

from auditcore import summary, words
from auditcore.membership.thresholds import needed_nonmembers
from tests.fake_runs import membership_run, vectors_run


def test_membership_card_tells_value_interval_rows_and_budget(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "m", rows=1600, tokens=8, lift=2.5)
    (card,) = summary.cards(run)
    best = run.read("attack_metrics").query("metric == 'tpr' and target_fpr == 0.01")["value"].max()
    assert card.number == words.percent(best)
    assert card.verdict == "over budget"
    text = words.plain([words.plain(d) for d in card.details])
    assert "95 % interval" in text
    assert "members" in text
    assert "budget 2.5" in text


def test_a_rate_that_cannot_be_shown_has_no_number(tmp_path: Path) -> None:
    (card,) = summary.cards(membership_run(tmp_path / "m", rows=100, tokens=8))
    assert card.number == words.NONE
    assert card.verdict == "not resolved"
    assert "718" in card.details[0]
    assert needed_nonmembers(summary.OPERATING_POINT) == summary.NEEDED


def test_vector_cards_take_the_strongest_probe_of_each_artifact_on_the_test_split(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=900, attributes=("recorded_race", "recorded_sex"))
    cards = summary.cards(run)
    assert len(cards) == 4
    metrics = run.read("probe_metrics")
    tested = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")]
    assert cards[0].number == words.percent(tested.sort_values("signed_gap")["accuracy"].iloc[-1])


@pytest.mark.parametrize("weaker", ["not resolved", "below chance", "over budget"])
def test_an_artifact_is_within_budget_only_if_every_probe_is(weaker: str, tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=900)
    metrics = run.read("probe_metrics")
    tested = metrics["seed"].isna() & (metrics["split"] == "bal_test")
    metrics.loc[tested, "verdict"] = "within budget"
    assert {c.verdict for c in summary.vector_cards(metrics, run.read("verdicts"))} == {"within budget"}
    last = metrics[tested & (metrics["artifact"] == "lasttok")].sort_values("signed_gap").index[0]
    metrics.loc[last, "verdict"] = weaker
    found = summary.vector_cards(metrics, run.read("verdicts"))
    assert sorted(c.verdict for c in found) == sorted(["within budget", weaker])


def test_no_label_is_cut_off_the_cards(tmp_path: Path) -> None:
    artifacts = ("lasttok", "meanpool", "concat", "maxpool", "firsttok", "weighted_mean")
    run = vectors_run(tmp_path / "v", rows=200, attributes=("a", "b", "c"), artifacts=artifacts, seeds=(0,))
    cards = summary.cards(run)
    assert len(cards) == 6
    assert {card.what[0] for card in cards[:3]} == {"a", "b", "c"}


def test_a_terminal_hears_of_labels_layers_and_ceiling(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=200, attributes=("a", "b"), layers=(0, 1, 2), ceiling=0.8, seeds=(0,))
    said = [words.plain(s) for s in summary.vector_sentences(run)]
    assert said[0].startswith("a: ")
    assert said[1].startswith("24 tests (2 labels × 2 vectors × 3 layers × 2 attackers)")
    assert [s[:30] for s in said[2:]] == [f"{a}: {s}" [:30] for a in "ab" for s in
            ("Bayes ceiling of this data: 80", "lasttok tells most at layer")]  # fmt: skip
    assert summary.vector_sentences(vectors_run(tmp_path / "w", rows=60, stages=1)) == []


def test_a_run_without_results_has_no_card_and_no_finding(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "m", rows=60, tokens=8, stages=2, status="failed")
    assert summary.cards(run) == []
    assert summary.run_verdict(run) == ""
    assert words.plain(summary.finding(run)) == ""


def frame(*rows: tuple) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["name", "value", "low", "high"])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [("full", 0.846, 0.798, 0.881), ("LoRA", 0.0188, 0.01, 0.03)],
            "LoRA gives away about 45 times fewer rows than full",
        ),
        ([("a", 0.5, 0.4, 0.6), ("b", 0.45, 0.35, 0.55)], "The intervals of b and a overlap"),
        ([("a", 0.5, 0.4, 0.6), ("b", 0.0, 0.0, 0.01)], "b gives away no row at this threshold, a 50 of 100"),
        ([("a", 0.5, None, None), ("b", 0.1, None, None)], "The intervals of b and a overlap"),
    ],
)
def test_comparison_is_careful(rows: list, said: str) -> None:
    assert words.plain(summary.comparison_sentence(frame(*rows))) == said


def test_subjects_of_a_run_are_those_of_its_strongest_attack(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "run", rows=1600, tokens=12, per_subject=4)
    counted = summary.subjects(run)
    assert counted is not None
    found, attack, fpr = counted
    best = summary.strongest_attack(run.read("attack_metrics"))
    assert (attack, fpr) == (best["attack"], 0.01)
    scores = run.read("membership_scores", where="attack = ? and member", params=[attack])
    hits = scores["rank_score"] >= best["threshold"]
    assert found.rates["n_flagged"].iloc[0] == hits.sum()
    assert found.rates["n_rows"].sum() == scores["rank_score"].notna().sum() + found.rates["n_rows"].iloc[1]
    assert summary.subjects(membership_run(tmp_path / "alone", rows=1600, tokens=12)) is None
    assert summary.subjects(membership_run(tmp_path / "few", rows=60, tokens=12, per_subject=4)) is None
    assert summary.subjects(vectors_run(tmp_path / "vectors", rows=60)) is None


def test_the_warning_of_the_blind_baseline_comes_first(tmp_path):
    from auditcore.membership.blind import warning

    line = {"metric": "auc", "value": 0.9, "low": 0.8, "high": 0.95}
    blind = [warning(pd.DataFrame([{**line, **more}])) for more in ({}, {"value": 0.2, "low": 0.1, "high": 0.3})]
    run = membership_run(tmp_path / "m", rows=60, tokens=8)
    for said in blind:
        run.update(warnings=["3 rows are twice there.", said, "More."])
        assert summary.warnings(run) == [said, "3 rows are twice there.", "More."]
