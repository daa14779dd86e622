"""Score distributions: every row is counted exactly once, and marks stand where rows are."""

import numpy as np
import pandas as pd
import pytest

from auditcore.figures import scores as figures


def trace(fig, name):
    return next(t for t in fig.data if t.name == name)


SCORES = pd.DataFrame(
    {
        "attack": "ez",
        "member": pd.array([True, True, True, False, False, False, None, True, False], dtype="boolean"),
        "score": [4.0, 2.0, np.nan, 0.5, 0.0, np.nan, 1.0, np.nan, np.nan],
        "rank_score": [4.0, 2.0, 1e200, 0.5, 0.0, 0.0, 1.0, np.nan, 1e201],
        "status": ["ok", "ok", "n_zero", "ok", "p_zero", "insufficient", "ok", "no_evidence", "no_errors"],
    }
)


def test_histogram_counts_every_row_exactly_once():
    bins = figures.histogram(SCORES, "ez")
    counts = bins.counts
    assert counts == {
        "member": 2, "nonmember": 3, "forced": 2, "forced_low": 0, "no_evidence": 1, "unknown": 1, "insufficient": 1,
    }  # fmt: skip
    assert bins.table["members"].sum() == 2
    assert bins.table["nonmembers"].sum() == 3
    assert bins.table["nonmembers"].iloc[0] == 3 - int((bins.table["nonmembers"].iloc[1:]).sum())
    assert bins.forced == (1, 1)
    total = counts["member"] + counts["nonmember"] + counts["forced"] + counts["no_evidence"] + counts["unknown"]
    assert total == len(SCORES)


def test_score_figure_bars_are_the_shares_of_each_group():
    bins = figures.histogram(SCORES, "ez")
    fig = figures.scores_figure(bins, "ez", 1.5)
    members, others = trace(fig, "members"), trace(fig, "non-members")
    np.testing.assert_allclose(np.array(members.y, float)[:-1], bins.table["members"] / 3)
    np.testing.assert_allclose(-np.array(others.y, float)[:-1], bins.table["nonmembers"] / 4)
    assert members.y[-1] == pytest.approx(1 / 3)
    assert any("called training rows from 1.50" in a.text for a in fig.layout.annotations)
    assert fig.layout.xaxis.ticktext[-1] == "no<br>ratio"  # named below the axis: no line crosses it
    assert fig.layout.xaxis.tickvals[-1] == pytest.approx(members.x[-1])


def test_rows_without_a_ratio_that_count_as_0_are_told_apart():
    low = SCORES.assign(rank_score=SCORES["rank_score"].where(SCORES["rank_score"] < 1e100, 0.0))
    assert figures.histogram(low, "ez").counts["forced_low"] == 2


def test_scores_of_a_plain_attack_have_linear_bins():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"attack": "loss", "member": rng.random(500) < 0.5, "score": rng.normal(size=500), "status": "ok"}
    ).assign(rank_score=0.5)
    bins = figures.histogram(frame, "loss")
    widths = (bins.table["right"] - bins.table["left"]).to_numpy()
    np.testing.assert_allclose(widths, widths[0])
    assert bins.table[["members", "nonmembers"]].to_numpy().sum() == 500
    assert not bins.log
    figures.scores_figure(bins, "loss", None)


def test_rows_are_marks_at_their_score_and_a_click_names_them():
    rows = pd.DataFrame({"example_id": ["<b>1</b>", "2", "3"], "member": [True, False, True], "score": [2.0, 0.6, 1e9]})
    bins = figures.histogram(SCORES, "ez")
    fig = figures.scores_figure(bins, "ez", 1.5, rows=rows, chosen="2")
    marks, chosen = (t for t in fig.data if t.type == "scatter")
    assert list(marks.customdata) == ["<b>1</b>", "3"]
    assert list(chosen.customdata) == ["2"]
    assert chosen.marker.symbol == "diamond"
    np.testing.assert_allclose(marks.x, np.log10([2.0, bins.table["right"].iloc[-1]]))  # beyond the scale: at its edge
    assert marks.y[0] > 0 > chosen.y[0]  # members above the line, others below
    assert "&lt;b&gt;1&lt;/b&gt;" in marks.text[0]
    assert "<b>1</b>" not in marks.text[0]
    bars = trace(fig, "members").customdata
    assert [list(bar[3:]) for bar in bars[:2]] == [
        ["members", *bins.table.loc[k, ["left", "right"]].tolist()] for k in range(2)
    ]
    assert np.isnan(float(bars[-1][4]))  # placed at the top: no score
    for one in fig.data:
        assert one.unselected.marker.opacity == 1  # a click pales nothing


@pytest.mark.parametrize("score", [[np.nan, np.nan], [2.0, 2.0], [0.0, 0.0]])
def test_degenerate_scores_still_draw(score):
    frame = pd.DataFrame({"attack": "ez", "member": [True, False], "score": score, "rank_score": score, "status": "ok"})
    figures.scores_figure(figures.histogram(frame, "ez"), "ez", 1e300)
