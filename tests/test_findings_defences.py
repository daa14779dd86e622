"""Sentences and rows about defences, from tables made by hand."""

import pandas as pd
import pytest

from auditcore.findings import defences as told
from auditcore.findings import looks_sentence
from auditcore.leakage.gap import leakage_verdicts
from auditcore.verdict import interval_verdict
from auditcore.words import plain


def _rows(gaps: dict[tuple[str, str], float], half=0.02, artifact="lasttok") -> pd.DataFrame:
    lines = []
    for (defence, probe), gap in gaps.items():
        low, high = gap - half, gap + half
        lines.append(
            {"attribute": "sex", "artifact": artifact, "layer": 3, "defence": defence, "probe": probe, "seed": None,
             "split": "bal_test", "accuracy": 0.5 + gap, "chance": 0.5, "signed_gap": gap, "signed_low90": low,
             "signed_high90": high, "n_subjects": 900, "verdict": interval_verdict(low, high, 0.025),
             "p_over": 0.0005 if low > 0.025 else 0.5}
        )  # fmt: skip
    return pd.DataFrame(lines)


def _costs(**overlap: float) -> pd.DataFrame:
    where = {"attribute": "sex", "artifact": "lasttok", "layer": 3, "split": "bal_test"}
    sizes = {"n_fit": 100, "n_subjects_fit": 90, "removed": 1, "width": 576}
    return pd.DataFrame(
        [
            {**where, **sizes, "defence": d, "measure": m, "value": v, "low": v - 0.02, "high": v + 0.02}
            for d, v in overlap.items()
            for m in (told.OVERLAP, told.VARIANCE)
        ]
    )


BEFORE = {("none", "linear"): 0.3, ("none", "mlp"): 0.32}


def test_linear_only_needs_a_linear_probe_that_fell_and_another_that_reads_on():
    marked = told.summarise(_rows({**BEFORE, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.2}), None, "sex")
    assert marked.set_index("defence").loc["leace", "linear_only"] == ["mlp"]
    for linear, mlp in ((0.2, 0.3), (0.0, 0.0), (0.2, 0.0)):
        rows = _rows({**BEFORE, ("leace", "linear"): linear, ("leace", "mlp"): mlp})
        assert told.summarise(rows, None, "sex")["linear_only"].map(len).sum() == 0
    quiet = _rows({("none", "linear"): 0.0, ("none", "mlp"): 0.3, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.3})
    assert told.summarise(quiet, None, "sex")["linear_only"].map(len).sum() == 0  # nothing linear to fall


def test_of_defences_within_budget_the_cheapest_is_named_else_the_one_that_leaves_least():
    gaps = {**BEFORE, ("pca", "linear"): 0.0, ("pca", "mlp"): 0.001, ("leace", "linear"): 0.001, ("leace", "mlp"): 0.0}
    table = told.summarise(_rows(gaps), _costs(pca=0.6, leace=0.9), "sex")
    assert told.best_defence(table, "lasttok", 3, 0.025)["defence"] == "leace"
    text = plain(told.defences_finding(table, "sex", 0.025))
    assert text.startswith("Behind leace, an attacker holding lasttok names sex correctly for 50 of 100 subjects, 82")
    assert "keeps 90" in text
    assert "It was chosen among 2 defences on the very rows it is judged on, which flatters it: it is within" in text
    worse = {**BEFORE, ("pca", "linear"): 0.1, ("pca", "mlp"): 0.1, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.2}
    table = told.summarise(_rows(worse), None, "sex")
    text = plain(told.defences_finding(table, "sex", 0.025))
    assert text.startswith("Behind pca")
    assert "over the budget of 0.025; of 2 defended artifacts none is within it." in text
    assert "Linear falls, mlp does not: behind leace" in text


def test_a_wide_interval_is_not_resolved_and_nothing_is_claimed():
    rows = _rows({**BEFORE, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.0}, half=0.1)
    assert "not resolved at a budget of 0.025" in plain(
        told.defences_finding(told.summarise(rows, None, "sex"), "sex", 0.025)
    )


def test_empty_tables_have_words():
    assert "Nothing has been measured" in plain(told.defences_finding(None, "sex", 0.025))
    table = told.summarise(_rows(BEFORE), None, "sex")
    assert "no defence was asked for" in plain(told.defences_finding(table, "sex", 0.025))
    assert told.best_defence(table, "lasttok", 3, 0.025) is None
    assert told.fit_sentence(table) == ""
    assert (
        told.fit_sentence(pd.DataFrame({"n_fit": [0], "n_subjects_fit": [0]})) == ""
    )  # a directive is fitted on nothing


def test_costs_join_by_place_and_none_costs_nothing():
    rows = _rows({**BEFORE, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.0})
    table = told.summarise(rows, _costs(leace=0.8), "sex").set_index("defence")
    assert table.loc["none", "overlap"] == table.loc["none", "variance"] == 1
    assert table.loc["leace", "overlap"] == pytest.approx(0.8)
    assert "Fitted on 100 rows of 90 subjects that no probe sees; erasers remove 1 of 576 directions. Fewer rows" in (
        told.fit_sentence(table.reset_index())
    )
    assert told.summarise(rows, _costs(leace=0.8), "age")["overlap"].isna().sum() == 1  # another attribute's costs


def test_a_change_is_told_in_points_with_its_interval():
    effect = {"artifact": "lasttok", "probe": "mlp", "defence": "leace", "change": -0.123, "low": -0.2, "high": -0.05,
              "n_subjects": 90}  # fmt: skip
    assert plain(told.change_sentence(effect)) == (
        "lasttok, mlp behind leace: −12.3 points of accuracy (95 % interval −20.0 to −5.0, 90 subjects, paired by row)."
    )


def test_the_selection_rows_choose_and_the_test_rows_judge():
    gaps = {**BEFORE, ("pca", "linear"): 0.03, ("pca", "mlp"): 0.03, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.0}
    other = {**BEFORE, ("pca", "linear"): -0.02, ("pca", "mlp"): 0.0, ("leace", "linear"): -0.04, ("leace", "mlp"): 0.0}
    val = _rows(other).assign(split="bal_val", verdict=None, p_over=None)
    metrics = pd.concat([_rows(gaps, half=0.001), val], ignore_index=True)
    table = told.table_of(metrics, None, "sex", "bal_test")
    assert table["gap_chosen"].tolist() == [0.32, 0.02, 0.04]
    assert told.best_defence(table, "lasttok", 3, 0.025)["defence"] == "pca"  # though leace is the luckier on bal_test
    text = plain(told.defences_finding(table, "sex", 0.025))
    assert "It was chosen among 2 defences on the selection rows; on the test rows it is over the budget" in text
    assert "1 is within it" in text
    caption = plain(told.cost_sentence(told.best_defence(table, "lasttok", 3, 0.025), 0.025))
    assert caption.startswith("pca, chosen among 2 defences on the selection rows, leaves 0.030")
    unread = told.table_of(val, None, "sex", "bal_val")  # while bal_test is not read
    assert "on the very rows it is judged on" in told.best_defence(unread, "lasttok", 3, 0.025)["choice"]
    one = _rows({**BEFORE, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.0})
    assert "That is within" in plain(told.defences_finding(told.table_of(one, None, "sex", "bal_test"), "sex", 0.025))


def test_the_word_over_all_attackers_is_corrected_over_every_test_of_the_defence():
    gaps = {**BEFORE, ("leace", "linear"): 0.05, ("leace", "mlp"): 0.0}
    weak = _rows(gaps)
    weak["p_over"] = [0.0005, 0.0005, 0.03, 0.5]  # over budget by itself, not among two
    said = told.table_of(weak, None, "sex", "bal_test").set_index("defence")["verdict"]
    assert said.to_dict() == {"none": "over budget", "leace": "not resolved"}
    both = leakage_verdicts(weak, 0.025).query("attacker == 'all'").set_index("defence")["verdict"]
    assert said.to_dict() == both.to_dict()  # one run, one word


def test_a_defence_within_budget_on_average_shows_whom_it_gives_away():
    rows = _rows({**BEFORE, ("leace", "linear"): 0.0, ("leace", "mlp"): 0.0})
    sure = rows.assign(confident_share=[0.1, 0.1, 0.0, 0.02], confident_p=[0.0, 0.0, 1.0, 1e-6])
    table = told.table_of(sure, None, "sex", "bal_test").set_index("defence")
    assert table.loc["leace", ["verdict", "named"]].tolist() == ["within budget", 0.02]
    luck = told.table_of(sure.assign(confident_p=0.02), None, "sex", "bal_test")
    assert luck["named"].tolist() == [0, 0]
    assert told.table_of(rows, None, "sex", "bal_test")["named"].tolist() == [0, 0]  # an older run


def test_where_linear_falls_more_it_is_marked_and_said():
    table = told.summarise(_rows({**BEFORE, ("pca", "linear"): 0.1, ("pca", "mlp"): 0.3}), None, "sex")
    more = {"probe": "mlp", "change": 0.18, "low": 0.15, "high": 0.21, "n_subjects": 900}
    marked = table.assign(falls_more=pd.Series([None, more], dtype=object))
    assert told.marks(table) == {"none": "", "pca": ""}
    assert told.marks(marked) == {"none": "", "pca": "linear falls more"}
    assert plain(told.linear_only_sentence(marked)) == (
        " Linear falls more than mlp: behind pca on lasttok it loses 18.0 points more (95 % interval 15.0 to 21.0, 900 "
        "subjects, paired by row), and mlp reads most."
    )


def test_earlier_looks_at_the_test_rows_are_said_where_there_were_any():
    assert "5 other runs had read these test rows" in looks_sentence({"test_split": {"earlier_looks": 5}})
    assert looks_sentence({"test_split": {"earlier_looks": 0}}) == looks_sentence({}) == ""
