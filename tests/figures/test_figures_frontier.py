"""Figures of the page Checkpoint frontier: every checkpoint with its intervals, and the marked one marked."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from auditcore import findings, frontier
from auditcore.figures import frontier as figures
from auditcore.findings import frontier as say
from auditcore.frontier import Rebound, Selection
from tests.fake_checkpoints import checkpoints_table

GAPS = {("lasttok", "linear"): [0.4, 0.2, 0.02], ("meanpool", "linear"): [0.41, 0.4, 0.42]}


@pytest.fixture
def points() -> pd.DataFrame:
    plain = checkpoints_table(GAPS, [15, 40, 52], run_id="plain", strength=0.0)
    found = frontier.points(pd.concat([checkpoints_table(GAPS, [15, 40, 50], run_id="two"), plain]))
    return found.assign(pareto=[i % 2 == 0 for i in range(len(found))])


def drawn(points: pd.DataFrame, **options):
    cell = points[(points["artifact"] == "lasttok") & (points["step"] > 0)]
    anchors = frontier.anchors(points)
    anchors = anchors[anchors["artifact"] == "lasttok"]
    return figures.tradeoff_figure(cell, anchors, 0.025, figures.ranges(points, 0.025), **options)


def test_whoever_holds_both_vectors_reads_at_least_the_better_one() -> None:
    def row(artifact: str, accuracy: float) -> dict:
        return {"artifact": artifact, "accuracy": accuracy, "accuracy_low": accuracy - 0.03, "accuracy_high": 0.5}

    said = "".join(findings.both_sentence([row("lasttok", 0.23), row("meanpool", 0.392), row("concat", 0.365)]))
    assert "at least 39.2\u202f% (meanpool, 95 % interval 36.2 to 50.0\u202f%)" in said
    assert "36.5\u202f%, is their weakness" in said
    assert findings.both_sentence([row("lasttok", 0.23), row("concat", 0.365)]) == []
    assert findings.both_sentence([row("lasttok", 0.5), row("meanpool", 0.6)]) == []


def test_one_point_per_checkpoint_with_both_intervals_and_its_address(points) -> None:
    fig = drawn(points, marked=points.iloc[0].to_dict(), label="selected, <b>", focus=("two", 50))
    marked = [t for t in fig.data if t.customdata is not None and t.error_x.array is not None]
    pairs = [(row[0], int(row[1])) for t in marked for row in t.customdata]
    assert sorted(pairs) == [("plain", 50), ("plain", 100), ("two", 50), ("two", 100)]
    for trace in marked:
        assert len(trace.error_y.array) == len(trace.x) == len(trace.error_x.arrayminus)
    text = json.dumps(fig.to_plotly_json(), default=str)
    assert "selected, &lt;b&gt;" in text
    assert "base model, ROUGE-L 15" in text  # outside the axes of trained checkpoints, at its edge
    assert "utility-only LoRA" in text
    assert "budget" in text


def test_checkpoints_behind_a_defence_are_a_dashed_line_with_its_name(points) -> None:
    behind = points[points["artifact"] == "lasttok"].assign(defence="leace", signed_gap=0.01)
    fig = drawn(points, defended=behind[behind["step"] > 0])
    lines = [t for t in fig.data if t.name == "with LEACE"]
    assert [t.line.dash for t in lines] == ["dash", "dash"]
    assert sorted((row[0], int(row[1])) for t in lines for row in t.customdata) == [
        ("plain", 50), ("plain", 100), ("two", 50), ("two", 100),
    ]  # fmt: skip
    assert sum("with LEACE" in (a.text or "") for a in fig.layout.annotations) == 1  # named once
    focus = points[(points["run_id"] == "two") & (points["step"] == 100)].iloc[0].to_dict()
    told = "".join(say.defended_sentence(behind, focus))
    assert "With LEACE on its exported vectors too" in told
    assert "LEACE alone, on the base model" in told
    assert say.defended_sentence(behind, None) == []


def test_artifacts_share_their_axes_and_missing_values_do_not_stop_a_picture(points) -> None:
    broken = points.assign(rougeL=np.where(points["step"] == 50, np.nan, points["rougeL"]))
    (x0, x1), (y0, y1) = figures.ranges(broken, 0.025)
    assert x0 < -0.025 < 0.42 < x1
    assert y0 < 50 < y1
    assert drawn(broken, focus=("two", 50)) is not None
    assert figures.ranges(points.assign(rougeL=np.nan, rougeL_low=np.nan, rougeL_high=np.nan), 0.0)[1][1] > 0


def test_colours_follow_lambda_and_repeat_for_none() -> None:
    hues = figures.strength_hues([0.0, 4.0, 0.5, float("nan")])
    assert hues[0.0] == figures.theme.QUIET
    assert hues[0.5] != hues[4.0]
    assert figures.hue_of(float("nan"), hues) == hues[None]


def test_a_flagged_rebound_is_drawn_and_others_are_not(points) -> None:
    mine = points[points["run_id"] == "two"]
    back = Rebound(50, 100, 0.06, 0.02, 0.1, 500, ((50, 100), (50, 100)))
    flat = Rebound(50, 100, 0.01, -0.02, 0.04, 500, ((50, 100), (50, 100)))
    order = ["lasttok", "meanpool"]
    assert "comes back" in str(figures.leak_figure(mine, order, 0.025, {"lasttok": back}, 50).to_plotly_json())
    assert "comes back" not in str(figures.leak_figure(mine, order, 0.025, {"lasttok": flat}).to_plotly_json())
    assert "utility-only" in str(figures.utility_figure(mine, 51.0, 50).to_plotly_json())


def test_sentences_name_the_choice_the_interval_and_what_is_missing() -> None:
    frame = pd.DataFrame(
        {"run_id": "r", "step": [50, 100], "gap": [0.01, 0.3], "upper": [0.03, 0.33], "rougeL": [50.0, 51.0]}
    )
    declaration = frontier.Declaration(0.025, ("race",), ("lasttok",), ("linear",))
    found = frontier.select(frame, 0.025)
    assert "1 qualify; step 50 is chosen (gap 0.010, bound 0.030, ROUGE-L 50.0)" in "".join(
        say.selection_sentence(found, declaration)
    )
    none = frontier.select(frame, 0.001)
    assert "None qualifies; step 50 comes nearest" in "".join(say.selection_sentence(none, declaration))
    nothing = Selection(None, None, 2, 0, 2)
    assert "2 checkpoints left out" in "".join(say.selection_sentence(nothing, declaration))
    assert "too few" in "".join(say.rebound_sentence(None, "lasttok"))
    last = Rebound(100, 100, 0.0, 0.0, 0.0, 500, ((100, 100), (100, 100)), 100)
    assert "".join(say.rebound_sentence(last, "lasttok")) == (
        "lasttok: lowest at the last step, 100: nothing comes after it in which the leak could come back."
    )
    halves = replace(last, rise=0.003, low=-0.01, high=0.02)
    assert "(between steps chosen on the other half +0.003, 95 % interval" in "".join(
        say.rebound_sentence(halves, "lasttok")
    )
    assert "nothing came back after it" in "".join(say.rebound_sentence(replace(last, last_step=150), "lasttok"))
    assert "no rebound shown after step 50" in "".join(
        say.rebound_sentence(replace(halves, best_step=50, peak_step=100), "lasttok")
    )
    torn = "".join(say.rebound_sentence(replace(halves, low=0.001), "lasttok"))
    assert "between steps chosen on one half" in torn
    assert "after step" not in torn
    at = {"run_id": "r", "step": 50, "gap": 0.01, "upper": 0.03, "rougeL": 50.0}
    cell = {"artifact": "lasttok", "attribute": "race", "accuracy": 0.21, "chance": 0.2}
    assert "1.0 below utility-only LoRA" in "".join(
        say.frontier_finding(at, found, declaration, [cell], {"rougeL": 51.0})
    )
    assert "no less than utility-only" in "".join(
        say.frontier_finding(at, found, declaration, [cell], {"rougeL": 49.0})
    )
    assert "No checkpoint can be judged" in "".join(say.frontier_finding(None, nothing, declaration, [], None))
