"""ROC and score distributions: traces equal the table, nothing disappears without being counted."""

from itertools import pairwise

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from auditcore.figures import membership as figures
from auditcore.figures import theme
from auditcore.figures.tables import attack_table, cost_table

ROC = pd.DataFrame(
    {
        "attack": ["ez"] * 5 + ["loss"] * 4,
        "fpr": [0.0, 0.0, 0.01, 0.01, 1.0, 0.0, 0.1, 0.5, 1.0],
        "tpr": [0.0, 0.4, 0.4, 0.8, 1.0, 0.0, 0.0, 0.3, 1.0],
        "threshold": [np.nan, 9.0, 8.0, 7.0, 0.0, np.nan, 3.0, 2.0, 1.0],
    }
)


def trace(fig, name):
    return next(t for t in fig.data if t.name == name)


def test_roc_keeps_the_highest_tpr_of_each_fpr_and_draws_an_fpr_of_0_at_the_edge():
    drawn = figures.curves(ROC, n_nonmember=100)
    assert drawn.floor == 0.01
    ez = drawn.points[drawn.points["attack"] == "ez"]
    assert list(zip(ez["fpr"], ez["tpr"], strict=True)) == [(0.01, 0.8), (1.0, 1.0)]
    loss = drawn.points[drawn.points["attack"] == "loss"]
    assert list(zip(loss["fpr"], loss["tpr"], strict=True)) == [(0.5, 0.3), (1.0, 1.0)]
    assert (drawn.no_hits, drawn.not_finite, drawn.realisable) == (3, 0, 9)


def test_roc_counts_what_is_not_finite():
    broken = ROC.assign(tpr=ROC["tpr"].where(ROC.index != 3))
    drawn = figures.curves(broken, 100)
    assert drawn.not_finite == 1
    assert np.isfinite(drawn.points[["fpr", "tpr"]].to_numpy()).all()


def test_roc_figure_draws_exactly_the_points_and_labels_every_curve():
    drawn = figures.curves(ROC, 1000)
    fig = figures.roc_figure(drawn, 0.01)
    for attack, name in (("ez", "EZ"), ("loss", "loss")):
        points = drawn.points[drawn.points["attack"] == attack]
        np.testing.assert_array_equal(trace(fig, name).x, points["fpr"])
        np.testing.assert_array_equal(trace(fig, name).y, points["tpr"])
        assert trace(fig, name).line.shape == "hv"
    assert {"<b>EZ</b>", "<b>loss</b>", "guessing"} <= {a.text for a in fig.layout.annotations}
    assert fig.layout.xaxis.type == fig.layout.yaxis.type == "log"
    assert fig == figures.roc_figure(drawn, 0.01)
    assert theme.CONFIG["showSendToCloud"] is False


def test_of_many_attacks_the_grey_ones_stand_in_the_legend_and_the_best_is_named_on_its_curve():
    attacks = ["ez", "loss", "reference", "zlib", "lowercase", "min_k", "recall"]
    many = pd.concat([ROC[ROC["attack"] == "ez"].assign(attack=a) for a in attacks], ignore_index=True)
    drawn = figures.curves(many, 1000)
    fig = figures.roc_figure(drawn, 0.01, best="recall")
    on_curves = {a.text for a in fig.layout.annotations}
    assert {"<b>EZ</b>", "<b>loss</b>", "<b>reference</b>", "<b>ReCaLL</b>"} <= on_curves
    in_legend = {t.name: t.line.dash for t in fig.data if t.showlegend}
    assert set(in_legend) == {"zlib", "lowercase", "Min-K%"}
    assert len(set(in_legend.values())) == 3  # told apart by their dashes
    assert fig.layout.showlegend
    assert not figures.roc_figure(figures.curves(ROC, 1000), 0.01).layout.showlegend


def test_the_best_is_in_colour_and_a_curve_that_begins_far_from_its_name_stands_in_the_legend():
    attacks = ["ez", "loss", "reference", "zlib", "lowercase", "min_k", "recall"]
    many = pd.concat([ROC[ROC["attack"] == "ez"].assign(attack=a) for a in attacks], ignore_index=True)
    late = pd.DataFrame({"attack": "wbc", "fpr": [0.0, 0.2, 1.0], "tpr": [0.0, 0.54, 1.0], "threshold": [np.nan, 1, 0]})
    fig = figures.roc_figure(figures.curves(pd.concat([many, late]), 1000), 0.01, best="recall", chosen="zlib")
    lines = {t.name: t for t in fig.data}
    assert lines["ReCaLL"].line.color not in (
        theme.QUIET,
        *(figures.COLOURS[a] for a in attacks if a in figures.COLOURS),
    )
    assert lines["ReCaLL"].line.width == lines["zlib"].line.width == 3
    on_curves = {a.text for a in fig.layout.annotations}
    assert "<b>zlib</b>" in on_curves
    assert "<b>WBC</b>" not in on_curves
    assert lines["WBC"].showlegend
    assert lines["WBC"].line.color == figures.COLOURS["wbc"]


def test_an_attack_without_any_hit_has_no_curve_and_is_named():
    flat = pd.DataFrame({"attack": "loss", "fpr": [0.0, 0.5], "tpr": [0.0, 0.0], "threshold": [1.0, 0.0]})
    drawn = figures.curves(flat, 100)
    assert drawn.flat == ["loss"]
    assert len(drawn.points) == 0
    figures.roc_figure(drawn)


def test_a_long_roc_is_thinned_to_true_points_with_its_ends():
    rng = np.random.default_rng(0)
    n = 20_000
    fpr, tpr = np.sort(rng.random(n)), np.sort(rng.random(n))
    roc = pd.DataFrame({"attack": "ez", "fpr": fpr, "tpr": tpr, "threshold": 0.0})
    drawn = figures.curves(roc, n)
    assert len(drawn.points) <= figures.MAX_POINTS
    real = set(zip(fpr.clip(drawn.floor), tpr, strict=True))
    assert set(zip(drawn.points["fpr"], drawn.points["tpr"], strict=True)) <= real
    assert drawn.points["fpr"].iloc[-1] == fpr[-1]


@given(st.lists(st.floats(-3, 0), min_size=1, max_size=8), st.floats(0.01, 0.3))
def test_labels_never_overlap_and_keep_their_order(places, gap):
    named = {f"a{i}": p for i, p in enumerate(places)}
    spots = figures.spread(named, -3.0, 0.0, gap)
    values = [spots[n] for n in sorted(named, key=lambda n: (named[n], n))]
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(values))
    assert max(values) <= 0.0


def metrics(**changes):
    counts = {"n_member": 800, "n_nonmember": 800, "n_no_evidence": 0}
    tpr = {"metric": "tpr", "target_fpr": 0.01, "low": 0.80, "high": 0.88, "realised_fpr": 0.00875, "threshold": 1.87}
    rows = [
        {"attack": "ez", "metric": "auc", "value": 0.992, "low": 0.98, "high": 1.0, **counts},
        {"attack": "ez", "value": 0.846, "resolvable": True, **tpr, **counts, **changes},
        {"attack": "<b>x", "metric": "auc", "value": 0.6, "low": np.nan, "high": np.nan, **counts},
        {"attack": "<b>x", "value": np.nan, "resolvable": False, **tpr, **counts},
    ]
    return pd.DataFrame(rows)


def test_attack_table_shows_values_intervals_and_what_is_missing():
    html = attack_table(metrics(), 0.01, {"ez": 2}, 718)
    assert "84.6\u202f%" in html
    assert "80.0 to 88.0\u202f%" in html
    assert "0.992" in html
    assert "0.88\u202f%" in html
    assert "not resolved by 800 non-members (718 needed)" in html
    assert "&lt;b&gt;x" in html
    assert "<b>x" not in html


def test_cost_table_says_what_is_read_and_trained():
    costs = [
        {"attack": "ez", "paper": "arXiv 1", "access": "logits of <both>", "passes": 2, "training": ""},
        {"attack": "lira", "paper": "C", "access": "the target", "passes": 9, "training": "8 shadow models (lora)"},
        {"attack": "bow", "paper": "none", "access": "the texts", "passes": 0, "training": ""},
    ]
    html = cost_table(costs)
    assert html.count("<tr>") == 4
    assert "logits of &lt;both&gt;" in html
    assert '<td data-th="passes" class="num">9</td><td data-th="trains">8 shadow models (lora)</td>' in html
    assert '<td data-th="passes" class="num">none</td><td data-th="trains">nothing</td>' in html


def test_attack_table_says_why_an_attack_has_no_numbers():
    table = metrics().assign(value=float("nan"))
    html = attack_table(table, 0.01, {"ez": 2}, None, {"ez": "no difference between <both>"})
    assert "no difference between &lt;both&gt;" in html


def test_attack_table_does_not_blame_the_number_of_rows_where_none_holds_evidence():
    none = metrics().assign(value=np.nan, n_member=0, n_nonmember=0, n_no_evidence=40)
    html = attack_table(none, 0.01, {"ez": 2}, None)
    assert html.count("no row of known membership holds evidence") == 2
    assert "not resolved by" not in html
