"""Frames of `summary.compared` and `summary.strongest_probes` in; the two figures of the overview out."""

import pandas as pd
import plotly.graph_objects as go

from auditcore import summary, words
from auditcore.figures import theme


def membership_comparison(frame: pd.DataFrame) -> go.Figure:
    """Bars of the TPR at 1 % FPR per run, with 95 % intervals; the label stands beyond the interval."""
    ordered = frame.sort_values("value", kind="stable")
    names = _unique([words.escape(words.shorten(n, 30)) for n in ordered["name"]])
    value, low, high = (ordered[c].astype(float) for c in ("value", "low", "high"))
    low, high = low.fillna(value), high.fillna(value)
    fig = theme.figure(height=90 + 64 * len(ordered))
    strongest = value == value.max()
    fig.add_bar(
        x=value,
        y=names,
        orientation="h",
        marker_color=[theme.RAISED if s else theme.ACCENT for s in strongest],
        error_x=_interval(value, low, high),
        customdata=[[words.percent_interval(a, b), summary.attack_name(str(c))] for a, b, c in _rows(ordered)],
        hovertemplate="%{y}<br>%{x:.1%} of training rows (%{customdata[1]})<br>95 % interval %{customdata[0]}"
        "<extra></extra>",
    )
    for name, end, share in zip(names, high, value, strict=True):
        theme.note(fig, words.percent(share), end, name, xshift=8)
    _reference_line(fig, 0.01, "chance 1 %")
    top = min(1.0, max(0.2, float(high.max()) * 1.18))
    fig.update_xaxes(
        title="training rows found at 1 % false alarms (lower leaks less)", tickformat=".0%", range=[0, top]
    )
    fig.update_yaxes(showgrid=False)
    return fig.update_layout(margin_t=28)


def artifact_comparison(best: pd.DataFrame, attribute: str, budget: float | None) -> go.Figure:
    """Points of the strongest probe's accuracy per artifact with 95 % intervals, against chance and the budget band."""
    rows = best[best["attribute"] == attribute].sort_values("accuracy", kind="stable")
    names = [words.escape(words.shorten(a, 30)) for a in rows["artifact"]]
    value, low, high = (rows[c].astype(float) for c in ("accuracy", "accuracy_low", "accuracy_high"))
    low, high = low.fillna(value), high.fillna(value)
    chance = float(rows["chance"].iloc[0])
    fig = theme.figure(height=90 + 64 * len(rows))
    if budget is not None:
        fig.add_vrect(x0=chance - budget, x1=chance + budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    fig.add_scatter(
        x=value,
        y=names,
        mode="markers",
        marker={"size": 12, "color": [theme.VERDICT_COLOURS.get(v, theme.QUIET) for v in rows["verdict"]]},
        error_x=_interval(value, low, high),
        customdata=[
            [words.percent_interval(a, b), words.escape(p)] for a, b, p in zip(low, high, rows["probe"], strict=True)
        ],
        hovertemplate="%{y}<br>accuracy %{x:.1%} (%{customdata[1]})<br>95 % interval %{customdata[0]}<extra></extra>",
    )
    for name, end, share in zip(names, high, value, strict=True):
        theme.note(fig, words.percent(share), end, name, xshift=10)
    _reference_line(fig, chance, f"chance {words.percent(chance, 0)}")
    left = max(0.0, min(chance - 0.06, float(low.min()) - 0.04))
    right = min(1.0, max(chance + 0.15, float(high.max()) + 0.12))
    fig.update_xaxes(title="mean per-class recall of the strongest probe (lower leaks less)", tickformat=".0%")
    fig.update_xaxes(range=[left, right])
    fig.update_yaxes(showgrid=False, type="category", range=[-0.6, len(rows) - 0.4])
    return fig.update_layout(margin_t=28)


def _interval(value: pd.Series, low: pd.Series, high: pd.Series) -> dict:
    shape = {"color": theme.QUIET, "thickness": 1.5, "width": 5}
    return {"type": "data", "array": high - value, "arrayminus": value - low, **shape}


def _reference_line(fig: go.Figure, x: float, label: str) -> None:
    fig.add_vline(x=x, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    theme.note(fig, label, x, 1.0, yref="paper", yanchor="bottom", xanchor="left", xshift=-2)


def _rows(frame: pd.DataFrame):
    return zip(frame["low"], frame["high"], frame["attack"], strict=True)


def _unique(names: list[str]) -> list[str]:
    """Two runs may share a name; two bars must not share a line."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
