"""Sentences say what the numbers say, and no more."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore import findings
from auditcore.words import Strong, plain


def metrics(values: dict[str, float], n: int = 800, low=0.9, high=1.1, target=0.01, resolvable=True) -> pd.DataFrame:
    counts = {"n_member": n, "n_nonmember": n, "n_no_evidence": 0}
    rows = []
    for attack, value in values.items():
        rows.append({"attack": attack, "metric": "auc", "target_fpr": np.nan, "value": 0.9, **counts})
        tpr = {"low": value * low, "high": min(1.0, value * high)} if resolvable else {"low": np.nan, "high": np.nan}
        rows.append(
            {"attack": attack, "metric": "tpr", "target_fpr": target, "value": value if resolvable else np.nan, **tpr,
             "realised_fpr": target * 0.9, "threshold": 1.0, "resolvable": resolvable, **counts}
        )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.846, "85 of 100"), (0.014, "1 of 100"), (0.0019, "2 of 1,000"), (0.0001, "fewer than 1 of 1,000"),
        (0.0, "none"), (1.0, "all"), (0.996, "996 of 1,000"), (0.9999, "more than 999 of 1,000"),
        (None, "an unknown share"),
    ],
)  # fmt: skip
def test_a_share_in_words(rate, words):
    assert findings.share(rate) == words


@given(st.floats(0, 1))
def test_a_share_is_never_called_none_or_all_unless_it_is(rate):
    text = findings.share(rate)
    assert (text == "none") == (rate == 0.0)
    assert (text == "all") == (rate == 1.0)


@pytest.mark.parametrize(
    ("rate", "words"),
    [(0.01, "1 row in 100"), (0.05, "5 rows in 100"), (0.001, "1 row in 1,000"), (0.025, "25 rows in 1,000")],
)
def test_false_accusations_in_words(rate, words):
    assert findings.alarms(rate) == words


def test_the_finding_of_the_drawing():
    found = findings.membership_finding(metrics({"reference": 0.136, "ez": 0.846, "loss": 0.014}))
    assert plain(found) == (
        "At a threshold that falsely accuses 1 row in 100, EZ finds 85 of 100 training rows; "
        "the next best attack, reference, finds 14."
    )
    assert [p for p in found if isinstance(p, Strong)] == ["EZ finds 85 of 100 training rows"]


def test_near_chance_is_not_sold_as_a_find():
    text = plain(findings.membership_finding(metrics({"ez": 0.012}, low=0.2, high=1.8)))
    assert "no attack finds clearly more training rows than that" in text
    assert "95 % interval" in text


def test_an_unresolved_rate_moves_to_the_finest_that_is_and_says_so():
    frame = pd.concat([metrics({"ez": 0.5}, n=200, resolvable=False), metrics({"ez": 0.8}, n=200, target=0.1)])
    text = plain(findings.membership_finding(frame))
    assert text.startswith("200 non-members cannot show a false-accusation rate of 1 row in 100. ")
    assert "At one that falsely accuses 10 rows in 100, EZ finds 80 of 100 training rows" in text
    assert plain(findings.unresolved_notes(frame)[0]).endswith("with 200 non-members: 718 are needed.")


def test_ties_that_leave_no_threshold_are_named_and_never_a_lack_of_rows():
    tied = {"value": np.nan, "low": np.nan, "high": np.nan, "threshold": np.nan, "realised_fpr": 0.0}
    frame = metrics({"wbc": 0.0})
    frame.loc[frame["metric"] == "tpr", list(tied)] = list(tied.values())
    coarse = metrics({"wbc": 0.0}, target=0.05)
    coarse.loc[coarse["metric"] == "tpr", list(tied)] = list(tied.values())
    both = pd.concat([frame, coarse], ignore_index=True)
    (note,) = findings.unresolved_notes(both)
    assert plain(note) == (
        "WBC has no threshold at 1 % and 5 %: tied scores: more than 5 % of the non-members share the highest score, "
        "so no threshold accuses fewer. It is neither cleared nor found to leak there."
    )
    assert findings.finest_fpr(both) is None
    assert plain(findings.membership_finding(both)).startswith("Tied scores leave no threshold at any")
    loose = pd.concat([frame, metrics({"wbc": 0.4}, target=0.05)])
    assert plain(findings.membership_finding(loose)).startswith(
        "Tied scores leave no threshold that falsely accuses 1 row in 100. At one that falsely accuses 5 rows in 100, "
    )
    assert findings.threshold_at(both, "wbc", 0.01) is None
    why = "tied scores: more than 1 % of the non-members share the highest score, so no threshold accuses fewer"
    assert findings.tie_reasons(frame) == {"wbc": why}
    assert findings.tie_reasons(metrics({"ez": 0.5})) == {}
    line = {"value": np.nan, "low": np.nan, "high": np.nan, "budget": 0.025, "n_subjects": 1145}
    told = plain(findings.excess_sentence(line, "not resolved", {"wbc": why}))
    assert "could not be measured" in told
    assert f"Not judged, WBC: {why}." in told
    line |= {"value": 0.002, "low": -0.006, "high": 0.02}
    told = plain(findings.excess_sentence(line, "not resolved", {"wbc": why}))
    assert "within it, but not every declared attack is" in told
    assert "reaches across" not in told


def test_when_no_rate_is_resolved_the_auc_speaks():
    text = plain(findings.membership_finding(metrics({"ez": 0.5}, n=20, resolvable=False)))
    assert "EZ ranks the training row first in 90 of 100 pairs" in text


@pytest.mark.parametrize(("column", "words"), [("n_member", "to be members"), ("n_nonmember", "not to be members")])
def test_without_one_group_nothing_is_claimed(column, words):
    assert words in plain(findings.membership_finding(metrics({"ez": 0.5}).assign(**{column: 0})))


def test_before_there_are_metrics():
    assert "no finished operating points" in plain(findings.membership_finding(None))
    assert "no finished probe" in plain(findings.vectors_finding(None, "race", 0.025))


def probe(artifact, name, accuracy, verdict, layer=30, **more):
    base = {"attribute": "race", "artifact": artifact, "layer": layer, "defence": "none", "probe": name, "seed": None}
    sizes = {"split": "bal_test", "n_subjects": 875, "n_eval": 875, "chance": 0.2, "verdict": verdict}
    p_over = 0.0005 if verdict == "over budget" else 0.5
    return {**base, **sizes, "accuracy": accuracy, "signed_gap": accuracy - 0.2, "p_over": p_over, **more}


def test_vectors_finding_names_every_artifact_and_the_budget():
    rows = [probe("meanpool", "mlp", 0.62, "over budget"), probe("lasttok", "mlp", 0.41, "over budget"),
            probe("lasttok", "linear", 0.3, "over budget")]  # fmt: skip
    assert plain(findings.vectors_finding(pd.DataFrame(rows), "race", 0.025)) == (
        "An attacker holding meanpool names race correctly for 62 of 100 subjects, holding lasttok for 41; "
        "guessing gives 20. Both are over the budget of 0.025."
    )


def test_vectors_finding_does_not_call_not_resolved_safe():
    text = plain(findings.vectors_finding(pd.DataFrame([probe("lasttok", "mlp", 0.21, "not resolved")]), "race", 0.025))
    assert "Not resolved: 875 test subjects cannot tell on which side of 0.025 that lies." in text


def test_mixed_verdicts_are_told_apart():
    rows = [probe("meanpool", "mlp", 0.62, "over budget"), probe("lasttok", "mlp", 0.2, "within budget")]
    text = plain(findings.vectors_finding(pd.DataFrame(rows), "race", 0.025))
    assert "Over budget (0.025): meanpool. Within budget (0.025): lasttok." in text


def test_an_artifact_is_within_budget_only_if_every_attacker_is():
    rows = [probe("lasttok", "mlp", 0.21, "within budget"), probe("lasttok", "linear", 0.20, "not resolved")]
    text = plain(findings.vectors_finding(pd.DataFrame(rows), "race", 0.025))
    assert "Not resolved" in text
    assert "within the budget" not in text


def test_of_several_layers_the_one_that_tells_most_is_named():
    rows = [probe("meanpool", "mlp", 0.3, "over budget", 0), probe("meanpool", "mlp", 0.5, "over budget", 12)]
    assert "holding meanpool at layer 12 names" in plain(findings.vectors_finding(pd.DataFrame(rows), "race", 0.025))


def test_the_confusion_sentence_names_classes_as_written():
    counts = pd.DataFrame([[60.0, 40.0], [10.0, 90.0]], index=["<b>", "M"], columns=["<b>", "M"])
    text = plain(findings.confusion_sentence(counts))
    assert "M is named most often when it is true" in text
    assert "takes <b> for M" in text
    assert plain(findings.confusion_sentence(counts * 0)) == "No predictions to show."


def row(**changes):
    return {"status": "ok", "member": True, "score": 4.31, "rank_score": 4.31, **changes}


@pytest.mark.parametrize(
    ("changes", "threshold", "words"),
    [
        ({}, 1.87, "Called a training row, rightly: it was trained on."),
        ({"member": False}, 1.87, "Called a training row, wrongly: it was not trained on."),
        ({}, 9.0, "Not called a training row, wrongly: it was trained on."),
        ({"member": pd.NA}, 1.87, "whether it is one is unknown"),
        ({}, None, "Not judged: this run has no threshold at the chosen rate"),
        ({"status": "no_evidence", "rank_score": np.nan}, 1.87, "No evidence"),
        ({"status": "no_evidence", "rank_score": np.nan, "n_scored": 0}, 1.87, "too short to score"),
        ({"status": "no_evidence", "rank_score": np.nan, "n_scored": 9}, 1.87, "nothing to go by in the numbers"),
        ({"status": "no_errors", "rank_score": 1e300}, 1.87, "placed at the top"),
        ({"status": "n_zero", "rank_score": 0.0}, 1.87, "No token lowered (N = 0): counts as 0."),
    ],
)
def test_a_row_in_words(changes, threshold, words):
    assert words in plain(findings.row_sentence(row(**changes), threshold, "ez"))


@pytest.mark.parametrize(
    ("threshold", "forced", "called", "beyond", "words"),
    [
        (None, 98, 0, True, "EZ scores of training rows and of other rows"),
        (1.87, 0, 0, False, "EZ scores: every row right of the line is called a training row"),
        (1.87, 98, 98, False, "right of the line is called a training row, and so are all 98 rows without a ratio"),
        (1.87, 1, 1, False, "right of the line is called a training row, and so is the 1 row without a ratio"),
        (1.87, 98, 0, False, "called a training row; none of the 98 rows without a ratio"),
        (
            1e202,
            98,
            22,
            True,
            "EZ scores: at this rate only 22 rows are called training, among the 98 without a ratio",
        ),
        (9e9, 0, 0, True, "EZ scores: at this rate no row is called a training row"),
    ],
)
def test_the_title_of_the_scores_says_who_is_called(threshold, forced, called, beyond, words):
    assert findings.scores_title("ez", threshold, forced, called, beyond).endswith(words)


def test_the_caption_of_the_scores_says_where_rows_without_a_ratio_stand():
    counts = {"member": 3, "nonmember": 4, "forced": 2, "forced_low": 0}
    assert "2 rows without a ratio" in plain(findings.scores_sentence(counts, "ez"))
    assert "are placed above every score" in plain(findings.scores_sentence(counts, "ez"))
    assert "count as 0" in plain(findings.scores_sentence({**counts, "forced_low": 2}, "ez"))
    assert "No row is without a ratio." in plain(findings.scores_sentence({**counts, "forced": 0}, "ez"))
    assert "ratio" not in plain(findings.scores_sentence({**counts, "forced": 0}, "loss"))
    left = plain(findings.scores_sentence({**counts, "unknown": 50, "left_out": 5}, "ez"))
    assert "Not drawn: 50 of unknown membership and 5 of known membership that the run leaves out" in left


def test_no_evidence_is_never_called_a_member():
    assert findings.called(np.nan, 1.0) is None
    assert findings.called(1.0, None) is None
    assert findings.called(1.0, 1.0) is True


@pytest.mark.parametrize(
    ("value", "words"),
    [(4.314, "4.31"), (33057.39, "33,057"), (0.0123, "0.0123"), (-12345.6, "−12,346"), (123.45, "123.5")],
)
def test_scores_have_the_digits_they_deserve(value, words):
    assert findings.score_number(value) == words


def test_a_threshold_among_forced_rows_is_not_written_out():
    assert findings.score_words(row(), "ez", 1e300) == "EZ 4.31 (threshold above every row with a ratio)"


def test_confident_inferences_by_class_survive_broken_json():
    assert findings.confident_by_class({"confident_by_class": '{"a": 0.1, "b": 0.3}'}) == [("b", 0.3), ("a", 0.1)]
    assert findings.confident_by_class({"confident_by_class": "{"}) == []
    assert findings.confident_by_class({}) == []


def test_overall_takes_the_combined_line_and_never_over_claims():
    lines = pd.DataFrame({"attacker": ["ez", "loss"], "verdict": ["over budget", "within budget"]})
    assert findings.overall(lines) == "not resolved"
    combined = pd.concat([lines, pd.DataFrame({"attacker": ["all"], "verdict": ["over budget"]})])
    assert findings.overall(combined) == "over budget"
    assert findings.overall(lines.head(1)) == "over budget"
    assert findings.overall(lines.head(0)) == "not resolved"


def test_the_roc_is_captioned_by_attacks_that_hold_evidence():
    silent = {"attack": "ez", "n_member": 0, "n_nonmember": 0, "n_no_evidence": 90}
    loss = {"attack": "loss", "n_member": 40, "n_nonmember": 48, "n_no_evidence": 2}
    text = plain(findings.roc_sentence(pd.DataFrame([silent, loss]), 5, 5))
    assert text.startswith("40 members, 48 non-members.")
    assert "2 rows without evidence left out" in text


def test_a_rate_at_which_ties_leave_no_threshold_judges_no_row():
    point = {"attack": "ez", "metric": "tpr", "target_fpr": 0.01, "value": 0.0, "threshold": np.nan}
    assert findings.threshold_at(pd.DataFrame([point]), "ez", 0.01) is None
    row = {"status": "no_errors", "member": True, "rank_score": 1e300, "score": np.nan, "n_scored": 5}
    assert plain(findings.row_sentence(row, None, "ez")).startswith("Not judged: this run has no threshold")
    assert findings.threshold_at(pd.DataFrame([{**point, "value": np.nan}]), "ez", 0.01) is None
    assert findings.threshold_at(pd.DataFrame([{**point, "threshold": 2.5}]), "ez", 0.01) == 2.5


def test_words_alone_are_told_with_their_interval_or_as_not_measured():
    line = {"metric": "auc", "value": 0.512, "low": 0.47, "high": 0.55}
    told = plain(findings.blind_sentence(pd.DataFrame([line])))
    assert "AUC 0.512 (95 % interval 0.470 to 0.550)" in told
    assert "not measured" in plain(findings.blind_sentence(pd.DataFrame([{**line, "value": np.nan}])))
