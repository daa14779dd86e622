"""Findings and comparisons of runs."""

from pathlib import Path

import pandas as pd
import pytest

from auditcore import cards, findings, summary, words
from tests.fake_runs import membership_run, vectors_run


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
    assert cards.of_run(run) == []
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
    best = findings.strongest_attack(run.read("attack_metrics"))
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
