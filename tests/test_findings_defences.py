"""Sentences and rows about defences, from tables made by hand."""

import pandas as pd
import pytest

from auditcore.findings import defences as told
from auditcore.verdict import interval_verdict
from auditcore.words import plain


def _rows(gaps: dict[tuple[str, str], float], half=0.02, artifact="lasttok") -> pd.DataFrame:
    lines = []
    for (defence, probe), gap in gaps.items():
        low, high = gap - half, gap + half
        lines.append(
            {"attribute": "sex", "artifact": artifact, "layer": 3, "defence": defence, "probe": probe, "seed": None,
             "split": "bal_test", "accuracy": 0.5 + gap, "chance": 0.5, "signed_gap": gap, "signed_low90": low,
             "signed_high90": high, "n_subjects": 900, "verdict": interval_verdict(low, high, 0.025)}
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
    assert told.best_defence(table, "lasttok", 3)["defence"] == "leace"
    text = plain(told.defences_finding(table, "sex", 0.025))
    assert text.startswith("Behind leace, an attacker holding lasttok names sex correctly for 50 of 100 subjects, 82")
    assert "keeps 90" in text
    assert "That is within the budget of 0.025." in text
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
    assert told.best_defence(table, "lasttok", 3) is None
    assert told.fit_sentence(table) == ""


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
