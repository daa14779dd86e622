"""Frames of `summary.compared` and `findings.leakiest` in; the two figures of the overview out."""

import pandas as pd
import plotly.graph_objects as go

from auditcore import findings, words
from auditcore.figures import theme
from auditcore.findings.ceiling import NAME as CEILING

_CHANCE = {"dash": "dot", "width": 1.5, "color": theme.QUIET}


def membership_comparison(frame: pd.DataFrame) -> go.Figure:
    """Bars of the TPR at 1 % FPR per run, with 95 % intervals; the label stands beyond the interval."""
    ordered = frame.sort_values("value", kind="stable")
    names = _unique([words.escape(words.shorten(n, 44)) for n in ordered["name"]])
    value, low, high = (ordered[c].astype(float) for c in ("value", "low", "high"))
    low, high = low.fillna(value), high.fillna(value)
    fig = theme.figure(height=84 + 62 * len(ordered), bargap=0.62, barmode="overlay")
    for name, row, at, lo, hi in zip(names, ordered.to_dict("records"), value, low, high, strict=True):
        hue = theme.RAISED if at == value.max() else theme.ACCENT
        fig.add_bar(
            x=[at],
            y=[name],
            orientation="h",
            # Paler than its interval, so that the interval stays readable on the bar and beside it.
            marker={"color": hue, "opacity": 0.5, "line": {"width": 0}},
            error_x={**_interval(pd.Series([at]), pd.Series([lo]), pd.Series([hi])), "color": hue, "thickness": 2.5},
            customdata=[[words.percent_interval(lo, hi), words.escape(findings.attack_name(str(row["attack"])))]],
            hovertemplate="%{y}<br>%{x:.1%} of training rows (%{customdata[1]})<br>95 % interval %{customdata[0]}"
            "<extra></extra>",
        )
    for name, end, share in zip(names, high, value, strict=True):
        theme.note(fig, words.percent(share), end, name, xshift=8)
    for place, name in enumerate(names):
        # Above the bar, not beside it: a narrow screen has no room at the side.
        theme.note(fig, name, 0, name, xref="paper", yshift=22, font={"size": 13})
        fig.add_shape(type="line", x0=0.01, x1=0.01, y0=place - 0.27, y1=place + 0.27, line=_CHANCE)
    theme.note(fig, "dotted: chance, 1 %", 1, 1.0, xref="paper", yref="paper", xanchor="right", yanchor="bottom")
    fig.update_yaxes(showgrid=False, showticklabels=False, type="category", range=[-0.5, len(names) - 0.3])
    _share_axis(fig, 0.0, max(0.2, float(high.max()) * 1.2), "training rows found (lower leaks less)")
    return fig


def artifact_comparison(
    best: pd.DataFrame, attribute: str, budget: float | None, ceiling: float | None = None
) -> go.Figure:
    """Points of the strongest probe's accuracy per artifact with 95 % intervals, against chance and the budget band.

    ceiling: what nobody can beat on this data, where that is known.
    """
    rows = best[best["attribute"] == attribute].sort_values("accuracy", kind="stable")
    names = [words.escape(words.shorten(a, 20)) for a in rows["artifact"]]
    value, low, high = (rows[c].astype(float) for c in ("accuracy", "accuracy_low", "accuracy_high"))
    low, high = low.fillna(value), high.fillna(value)
    chance = float(rows["chance"].iloc[0])
    lift = 0 if ceiling is None else theme.CEILING_LIFT
    fig = theme.figure(height=84 + 62 * len(rows) + lift)
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
    fig.add_vline(x=chance, line=_CHANCE, layer="below")
    theme.note(fig, f"chance {words.percent(chance, 0)}", chance, 1.0, yref="paper", yanchor="bottom", xshift=-2)
    fig.update_yaxes(showgrid=False, type="category", range=[-0.6, len(rows) - 0.4])
    left = max(0.0, min(chance - 0.06, float(low.min()) - 0.04))
    right = max(chance + 0.15, float(high.max()) + 0.12)
    if ceiling is not None:
        theme.ceiling_line(fig, ceiling, f"{CEILING} {words.percent(ceiling)}")
        right = max(right, ceiling + 0.02)
    _share_axis(fig, left, right, "cases told right (lower leaks less)", lift)
    return fig


def _share_axis(fig: go.Figure, left: float, right: float, title: str, lift: int = 0) -> None:
    """A percent axis that may reach beyond 100 % to make room for a label, but never says so."""
    step = next(s for s in (0.05, 0.1, 0.2, 0.25) if (min(right, 1.0) - left) / s <= 6)
    ticks = [round(i * step, 4) for i in range(round(1 / step) + 1) if left - 1e-9 <= i * step <= min(right, 1.0)]
    fig.update_xaxes(title_text=title, tickvals=ticks, tickformat=".0%", range=[left, right])
    fig.update_layout(margin_t=28 + lift, margin_l=0)


def _interval(value: pd.Series, low: pd.Series, high: pd.Series) -> dict:
    shape = {"color": theme.QUIET, "thickness": 1.5, "width": 5}
    return {"type": "data", "array": high - value, "arrayminus": value - low, **shape}


def _unique(names: list[str]) -> list[str]:
    """Two runs may share a name; two bars must not share a line."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
