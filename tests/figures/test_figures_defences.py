"""Figures and table of defences: traces equal the rows, linear-only protection is marked, nothing is unescaped."""

import numpy as np
import pandas as pd
import pytest

from auditcore.figures import defences as figures
from auditcore.findings import defences as told

GAPS = {"none": (0.30, 0.33), "<i>": (0.01, 0.2), "noise": (0.25, np.nan)}


def rows() -> pd.DataFrame:
    lines = []
    for defence, gaps in GAPS.items():
        for probe, gap in zip(("linear", "mlp"), gaps, strict=True):
            verdict = None if np.isnan(gap) else "over budget" if gap > 0.045 else "not resolved"
            lines.append(
                {"attribute": "race", "artifact": "meanpool", "layer": 30, "defence": defence, "probe": probe,
                 "accuracy": 0.2 + gap, "chance": 0.2, "signed_gap": gap, "signed_low90": gap - 0.02,
                 "signed_high90": gap + 0.02, "n_subjects": 900, "verdict": verdict,
                 "p_over": 0.0005 if verdict == "over budget" else 0.5}
            )  # fmt: skip
    return pd.DataFrame(lines)


@pytest.fixture
def table() -> pd.DataFrame:
    return told.summarise(rows(), None, "race").assign(overlap=[1.0, 0.6, np.nan], overlap_low=0.5, overlap_high=0.7)


def test_every_probe_is_a_trace_with_the_gaps_of_the_rows(table):
    fig = figures.gaps_figure(rows(), 0.025, told.marks(table))
    drawn = {t.name: list(t.x) for t in fig.data if t.mode == "markers"}
    assert drawn["linear"] == [0.30, 0.01, 0.25]
    assert drawn["mlp"][:2] == [0.33, 0.2]
    symbols = {t.marker.symbol for t in fig.data if t.mode == "markers"}
    assert len(symbols) == 2  # not told apart by colour alone
    notes = [a.text for a in fig.layout.annotations]
    assert sum("only linear falls" in n for n in notes) == 1
    assert list(fig.layout.yaxis.ticktext) == ["<b>as exported</b>", "<b>&lt;i&gt;</b>", "<b>noise</b>"]


def test_costs_draw_what_was_measured_and_leave_out_the_rest(table):
    fig = figures.cost_figure(table, 0.025)
    points = next(t for t in fig.data if t.mode == "markers+text")
    assert list(points.x) == [1.0, 0.6]
    assert list(points.text) == ["as exported", "&lt;i&gt;"]
    assert len(figures.cost_figure(table.assign(overlap=np.nan), 0.025).data[-1].x) == 0


def test_the_table_holds_every_gap_interval_change_and_mark_escaped(table):
    effects = pd.DataFrame(
        [{"artifact": "meanpool", "layer": 30, "defence": "<i>", "probe": "mlp", "change": -0.13, "low": -0.2,
          "high": -0.06, "n_subjects": 900}]
    )  # fmt: skip
    html = figures.defence_table(rows(), table, effects)
    for part in (
        "0.300",
        "0.280 to 0.320",
        "−13.0 points",
        "(−20.0 to −6.0)",
        "only linear falls",
        "60",
        "▲ over budget",
    ):
        assert part in html
    assert "<i>" not in html
    assert "–" in html  # the attacker without a number


def test_what_nobody_can_beat_is_a_line_at_its_gap(table):
    plain, topped = (figures.gaps_figure(rows(), 0.025, told.marks(table), top) for top in (None, 0.75))
    lines = [s.x0 for s in topped.layout.shapes if s.line.dash == "dash"]
    assert lines == [pytest.approx(0.55)]  # 0.75 named correctly, 0.2 by guessing
    assert any("ceiling" in a.text and "0.550" in a.text for a in topped.layout.annotations)
    assert topped.layout.xaxis.range[1] > 0.55
    assert not any("ceiling" in a.text for a in plain.layout.annotations)


def test_near_certainty_and_the_milder_mark_stand_in_cells_that_are_there_anyway(table):
    more = [None, None, {"probe": "<b>", "change": 0.1, "low": 0.05, "high": 0.15, "n_subjects": 900}]
    shown = table.assign(named=[0.0, 0.021, 0.0], falls_more=pd.Series(more, dtype=object))
    html = figures.defence_table(rows(), shown, None)
    assert html.count("named with near certainty") == 1
    assert "2.1\u202f% named with near certainty" in html
    assert "▲ only linear falls" in html
    assert "▲ linear falls more" in html
    assert html.count('<th scope="col"') == figures.defence_table(rows(), table, None).count('<th scope="col"')
