"""Figures of the overview: what is drawn, and that names are escaped."""

import pandas as pd
import pytest

from auditcore.figures import overview, theme


def test_bars_carry_value_and_interval_and_labels_stand_beyond_it() -> None:
    frame = pd.DataFrame(
        {
            "name": ["<b>full</b>", "LoRA", "LoRA"],
            "attack": ["ez", "ez", "reference"],
            "value": [0.85, 0.02, 0.05],
            "low": [0.8, 0.01, None],
            "high": [0.88, 0.03, None],
        }
    )
    fig = overview.membership_comparison(frame)
    assert [bar.x[0] for bar in fig.data] == [0.02, 0.05, 0.85]
    assert len({bar.y[0] for bar in fig.data}) == 3  # runs of one name stay apart
    assert [bar.error_x.array[0] for bar in fig.data] == pytest.approx([0.01, 0, 0.03])
    labels = {a.text: a.x for a in fig.layout.annotations if "%" in a.text and "chance" not in a.text}
    assert labels["85.0\u202f%"] == 0.88
    assert fig.data[-1].y[0] == "&lt;b&gt;full&lt;/b&gt;"


def test_artifacts_are_drawn_against_chance_and_budget() -> None:
    best = pd.DataFrame(
        {
            "attribute": ["race", "race", "sex"],
            "artifact": ["lasttok", "meanpool", "lasttok"],
            "probe": ["mlp", "linear", "mlp"],
            "accuracy": [0.3, 0.6, 0.7],
            "accuracy_low": [0.28, 0.58, 0.6],
            "accuracy_high": [0.32, 0.62, 0.8],
            "chance": [0.2, 0.2, 0.5],
            "verdict": ["over budget", "over budget", "not resolved"],
        }
    )
    fig = overview.artifact_comparison(best, "race", 0.025)
    assert list(fig.data[0].x) == [0.3, 0.6]
    band = next(s for s in fig.layout.shapes if s.type == "rect")
    assert (band.x0, band.x1) == pytest.approx((0.175, 0.225))
    left, right = fig.layout.xaxis.range
    assert left <= 0.175
    assert right >= 0.62


def test_paper_copy_leaves_the_figure_alone() -> None:
    fig = theme.figure()
    before = fig.to_json()
    theme.for_paper(fig)
    assert fig.to_json() == before
    assert theme.CONFIG["showSendToCloud"] is False
