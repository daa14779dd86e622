"""Rows of `frontier.points` of two or three candidates in; the figures of the page Review meeting out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.frontier import Range
from auditcore.words import escape, known, percent_interval, shorten, signed

HUES = (theme.RAISED, theme.LOWERED, theme.VIOLET)  # one per candidate
SIGNS = ("circle", "square", "diamond")


def position_figure(
    points: pd.DataFrame, candidates: Sequence[dict[str, Any]], names: Sequence[str], budget: float,
    axes: tuple[Range, Range],
) -> go.Figure:  # fmt: skip
    """Draw where the candidates stand among all checkpoints: ROUGE-L against the gap, with 95 % intervals.

    points: trained checkpoints of one attribute, artifact and layer; candidates: rows of them, in the order of names.
    """
    fig = Canvas(340)
    (x0, x1), (y0, y1) = axes
    fig.add_vrect(x0=-budget, x1=budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    fig.note(f"budget ±{budget:g}", budget, 1, yref="paper", yanchor="bottom", xshift=-12,
             font={"size": 12, "color": theme.ACCENT})  # fmt: skip
    fig.add(
        "scatter", x=points["signed_gap"].astype(float), y=points["rougeL"].astype(float), mode="markers",
        marker={"size": 6, "color": theme.QUIET, "opacity": 0.6}, hoverinfo="skip",
    )  # fmt: skip
    for place, (row, name) in enumerate(zip(candidates, names, strict=True)):
        x, y = float(row["signed_gap"]), float(row["rougeL"])
        if not (known(x) and known(y)):
            continue
        low, high = float(row["accuracy_low"] - row["chance"]), float(row["accuracy_high"] - row["chance"])
        spread = {"type": "data", "color": HUES[place], "thickness": 1.5, "width": 0}
        fig.add(
            "scatter", x=[x], y=[y], mode="markers",
            marker={"size": 12, "symbol": SIGNS[place], "color": HUES[place]},
            error_x={**spread, "array": [high - x], "arrayminus": [x - low]},
            error_y={**spread, "array": [row["rougeL_high"] - y], "arrayminus": [y - row["rougeL_low"]]},
            hovertemplate=f"{escape(name)}<br>LeakageGap %{{x:+.3f}}<br>ROUGE-L %{{y:.1f}}<extra></extra>",
        )  # fmt: skip
    fig.xaxis("LeakageGap (left leaks less)", range=[x0, x1], tickformat=".2~f", nticks=7)
    fig.yaxis("ROUGE-L (up is better)", range=[y0, y1], nticks=6)
    fig.layout["margin"] = {"l": 8, "r": 12, "t": 24, "b": 52}
    return fig.figure()


def leaks_figure(
    points: pd.DataFrame, candidates: Sequence[tuple[str, int]], names: Sequence[str], artifacts: Sequence[str],
    budget: float,
) -> go.Figure:  # fmt: skip
    """Draw the gap of each candidate on each artifact with its 95 % interval against the budget band.

    points: rows of one attribute; candidates: (run id, step), in the order of names.
    """
    fig = Canvas(90 + 76 * len(artifacts))
    fig.add_vrect(x0=-budget, x1=budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    fig.note(f"budget ±{budget:g}", budget, 1, yref="paper", yanchor="bottom", xshift=-12,
             font={"size": 12, "color": theme.ACCENT})  # fmt: skip
    ends = [0.0, budget, -budget]
    for place, ((run_id, step), name) in enumerate(zip(candidates, names, strict=True)):
        here = points[(points["run_id"] == run_id) & (points["step"] == step)].to_dict("records")
        mine = {str(r["artifact"]): r for r in here}
        x, y, low, high, texts = [], [], [], [], []
        for line, artifact in enumerate(artifacts):
            row = mine.get(artifact)
            if row is None or not known(row["signed_gap"]):
                continue
            x.append(float(row["signed_gap"]))
            y.append(len(artifacts) - 1 - line + 0.24 * ((len(candidates) - 1) / 2 - place))
            low.append(x[-1] - float(row["accuracy_low"] - row["chance"]))
            high.append(float(row["accuracy_high"] - row["chance"]) - x[-1])
            texts.append([escape(f"{name}, {artifact}: {row['probe']}"), signed(row["signed_gap"]),
                          percent_interval(row["accuracy_low"], row["accuracy_high"])])  # fmt: skip
        ends += [a + b for a, b in zip(x, high, strict=True)] + [a - b for a, b in zip(x, low, strict=True)]
        fig.add(
            "scatter", x=x, y=y, mode="markers", marker={"size": 10, "symbol": SIGNS[place], "color": HUES[place]},
            error_x={"type": "data", "array": high, "arrayminus": low, "color": HUES[place], "thickness": 2},
            customdata=texts,
            hovertemplate="%{customdata[0]}<br>LeakageGap %{customdata[1]}<br>accuracy %{customdata[2]}<extra></extra>",
        )  # fmt: skip
    places = list(range(len(artifacts)))[::-1]
    ticks: dict[str, Any] = {"tickvals": places, "ticktext": [f"<b>{escape(shorten(a, 16))}</b>" for a in artifacts]}
    fig.yaxis(range=[-0.6, len(artifacts) - 0.4], showgrid=False, **ticks)
    width = float(np.nanmax(ends) - np.nanmin(ends))
    fig.xaxis(
        "LeakageGap (left leaks less)", tickformat=".2~f",
        range=[float(np.nanmin(ends)) - 0.04 * width, float(np.nanmax(ends)) + 0.06 * width],
    )  # fmt: skip
    fig.layout["margin"] = {"l": 8, "r": 12, "t": 24, "b": 52}
    return fig.figure()
