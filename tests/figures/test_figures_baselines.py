"""Figures of baselines and of sample-size curves: what is drawn is what the tables say; names are escaped."""

import numpy as np
import pandas as pd
import pytest

from auditcore.figures.baselines import baselines_table, differences_figure
from auditcore.figures.curve import curve_figure, curve_table
from auditcore.findings.baselines import baselines_finding, leading, missing_sentence
from auditcore.findings.curve import curve_finding
from auditcore.words import plain

BAD = "<img src=x>"


def moved(**changes) -> pd.DataFrame:
    row = {"attribute": "sex", "artifact": "v", "layer": 3, "defence": "none", "probe": "mlp", "baseline": "text"}
    row |= {"split": "bal_test", "accuracy_baseline": 0.6, "accuracy": 0.8, "change": 0.2, "low": 0.15, "high": 0.25}
    return pd.DataFrame([{**row, "n_rows": 500, "n_subjects": 400, **changes}])


def read(baseline="text", accuracy=0.6) -> pd.DataFrame:
    ends = {"accuracy": accuracy, "accuracy_low": accuracy - 0.02, "accuracy_high": accuracy + 0.02, "chance": 0.5}
    return pd.DataFrame([{"attribute": "sex", "baseline": baseline, "n_eval": 500, "n_subjects": 400, **ends}])


def test_differences_are_drawn_in_points_and_names_escaped() -> None:
    rows = pd.concat([moved(artifact=BAD), moved(artifact=BAD, baseline="metadata", change=-0.1, low=-0.2, high=0.0)])
    fig = differences_figure(rows)
    marks = [trace for trace in fig.data if trace.mode == "markers"]
    assert [list(trace.x) for trace in marks] == [[pytest.approx(20.0)], [pytest.approx(-10.0)]]
    assert "<img" not in fig.to_json()
    table = baselines_table(pd.concat([read(), read("metadata")]), rows)
    assert "<img" not in table
    assert "+20.0" in table
    assert "−20.0 to +0.0" in table


def test_a_difference_is_more_less_or_not_told_apart() -> None:
    say = lambda rows: plain(baselines_finding(read(), rows, "sex"))  # noqa: E731
    assert "+20.0 points (95 % interval +15.0 to +25.0) more than the prompt's own words" in say(moved())
    assert "less than the prompt's own words" in say(moved(change=-0.1, low=-0.2, high=-0.05))
    assert "not told apart from the prompt's own words" in say(moved(change=0.01, low=-0.02, high=0.04))
    assert plain(baselines_finding(read(), None, "sex")).endswith("for 60 of 100 subjects; guessing gives 50.")
    assert "Of the vectors behind leace v (mlp, layer 3) tells most" in say(moved(defence="leace"))
    assert missing_sentence(["text"], ["text"]) == ""


def test_the_leading_probe_of_each_artifact_keeps_every_baseline() -> None:
    rows = pd.concat([moved(), moved(probe="linear", accuracy=0.7), moved(baseline="metadata"), moved(artifact="w")])
    best = leading(rows)
    assert best[["artifact", "probe", "baseline"]].to_numpy().tolist() == [
        ["v", "mlp", "text"],
        ["v", "mlp", "metadata"],
        ["w", "mlp", "text"],
    ]


def curves(refused: str = "") -> tuple[pd.DataFrame, pd.DataFrame]:
    names = {"attribute": "sex", "artifact": "v", "layer": 3, "probe": BAD, "split": "bal_test", "chance": 0.5}
    sizes = {"n_subjects": 400, "draws": 5}
    points = pd.DataFrame([{**names, **sizes, "share": s, "n_train": 800 * s} for s in (0.25, 0.5, 1.0)])
    points["n_subjects_train"], points["accuracy"] = points["n_train"], 0.9 - 0.025 / points["share"]
    points = points.assign(accuracy_low=0.5, accuracy_high=0.95)
    value = np.nan if refused else 0.92
    told = {"predicted": 0.88, "measured": 0.875, "refused": refused}
    more = pd.DataFrame([{**names, "times": 10.0, "n_train": 8000, "accuracy": value, "low": value - 0.03,
                          "high": value + 0.03, **told}])  # fmt: skip
    return points, more


def test_a_curve_is_dashed_beyond_what_was_measured() -> None:
    points, more = curves()
    assert any(s.y0 == s.y1 == 0.73 for s in curve_figure(points, more, ceiling=0.73).layout.shapes)
    fig = curve_figure(points, more)
    dashed = [trace for trace in fig.data if trace.line.dash == "dash"]
    assert [list(trace.x) for trace in dashed] == [[8000.0]]
    assert any(note.text == "extrapolated" for note in fig.layout.annotations)
    assert "<img" not in fig.to_json()
    assert "<img" not in curve_table(points, more)
    assert "band 89.0 to 95.0" in curve_table(points, more)
    told = plain(curve_finding(points, more, "v", 0.025))
    assert "over the budget of 0.025: an extrapolation, not a measurement" in told
    assert "within the budget" in plain(curve_finding(points, more, "v", 0.5))
    assert "on both sides of the budget" in plain(curve_finding(points, more, "v", 0.42))


def test_nothing_is_drawn_beyond_where_it_is_refused() -> None:
    points, more = curves(f"because of {BAD}")
    fig = curve_figure(points, more)
    assert not any(trace.line.dash == "dash" for trace in fig.data)
    assert not fig.layout.annotations
    assert "not extrapolated: because of &lt;img" in curve_table(points, more)
    assert "Not extrapolated to 10 times the rows" in plain(curve_finding(points, more, "v", 0.025))
