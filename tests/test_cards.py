"""Verdict cards of runs."""

from pathlib import Path

import pytest

from auditcore import cards, findings, words
from auditcore.membership.thresholds import needed_nonmembers
from tests.fake_runs import membership_run, vectors_run


def test_membership_card_tells_value_interval_rows_and_budget(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "m", rows=1600, tokens=8, lift=2.5)
    (card,) = cards.of_run(run)
    best = run.read("attack_metrics").query("metric == 'tpr' and target_fpr == 0.01")["value"].max()
    assert card.number == words.percent(best)
    assert card.verdict == "over budget"
    text = words.plain([words.plain(d) for d in card.details])
    assert "95 % interval" in text
    assert "members" in text
    assert "budget 2.5" in text


def test_a_rate_that_cannot_be_shown_has_no_number(tmp_path: Path) -> None:
    (card,) = cards.of_run(membership_run(tmp_path / "m", rows=100, tokens=8))
    assert card.number == words.NONE
    assert card.verdict == "not resolved"
    assert "718" in card.details[0]
    assert needed_nonmembers(findings.HEADLINE_FPR) == cards.NEEDED


def test_vector_cards_take_the_strongest_probe_of_each_artifact_on_the_test_split(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=900, attributes=("recorded_race", "recorded_sex"))
    drawn = cards.of_run(run)
    assert len(drawn) == 4
    metrics = run.read("probe_metrics")
    tested = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")]
    assert drawn[0].number == words.percent(tested.sort_values("signed_gap")["accuracy"].iloc[-1])


def test_a_card_names_the_layer_where_several_were_audited(tmp_path: Path) -> None:
    one, two = (vectors_run(tmp_path / str(n), rows=300, layers=layers) for n, layers in enumerate([(30,), (0, 30)]))
    assert not any(" at layer " in words.plain(c.what) for c in cards.of_run(one))
    assert all(" at layer " in words.plain(c.what) for c in cards.of_run(two))


@pytest.mark.parametrize("weaker", ["not resolved", "below chance", "over budget"])
def test_an_artifact_is_within_budget_only_if_every_probe_is(weaker: str, tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=900)
    metrics = run.read("probe_metrics")
    tested = metrics["seed"].isna() & (metrics["split"] == "bal_test")
    metrics.loc[tested, ["verdict", "p_over"]] = ["within budget", 0.9]
    assert {c.verdict for c in cards.vector_cards(metrics, run.read("verdicts"))} == {"within budget"}
    last = metrics[tested & (metrics["artifact"] == "lasttok")].sort_values("signed_gap").index[0]
    metrics.loc[last, ["verdict", "p_over"]] = [weaker, 0.001]
    found = cards.vector_cards(metrics, run.read("verdicts"))
    assert sorted(c.verdict for c in found) == sorted(["within budget", weaker])


def test_no_label_is_cut_off_the_cards(tmp_path: Path) -> None:
    artifacts = ("lasttok", "meanpool", "concat", "maxpool", "firsttok", "weighted_mean")
    run = vectors_run(tmp_path / "v", rows=200, attributes=("a", "b", "c"), artifacts=artifacts, seeds=(0,))
    drawn = cards.of_run(run)
    assert len(drawn) == 6
    assert {card.what[0] for card in drawn[:3]} == {"a", "b", "c"}


def test_what_only_the_correction_takes_back_is_on_no_card_and_in_no_headline(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=900)
    metrics = run.read("probe_metrics")
    tested = metrics["seed"].isna() & (metrics["split"] == "bal_test")
    metrics.loc[tested, ["verdict", "p_over"]] = ["over budget", 0.02]  # four times: 0.08 after the correction
    assert {c.verdict for c in cards.vector_cards(metrics, run.read("verdicts"))} == {"not resolved"}
    told = words.plain(findings.vectors_finding(metrics, "recorded_race", 0.025))
    assert "over the budget" not in told
    assert "Not resolved" in told
