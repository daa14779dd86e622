"""Tables `probe_metrics` and `predictions` in; the figures of the page Exported vectors out."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.projection import Projection
from auditcore.findings.ceiling import NAME as CEILING
from auditcore.verdict import SYMBOLS, wilson
from auditcore.words import count, escape, interval, known, number, percent, percent_interval, shorten

ROW = 44  # pixels from one attacker to the next
HEAD, FOOT = 30, 56

# Shares of a true class. Weak cells leave the text in the page's own colour, strong ones are dark enough for white.
STRONG_CELL = 0.4
CELLS = [[0, "rgba(0,114,178,0.03)"], [STRONG_CELL - 0.001, "rgba(0,114,178,0.26)"],
         [STRONG_CELL, "rgba(0,114,178,0.92)"], [1, "rgb(0,98,155)"]]  # fmt: skip


def row_names(rows: pd.DataFrame) -> list[str]:
    """Names of attackers as HTML of two lines: artifact; probe, with its layer where there are several."""
    several = rows["layer"].nunique() > 1
    layers = [f", layer {int(v)}" if several and known(v) else "" for v in rows["layer"]]
    pairs = zip(rows["artifact"], layers, rows["probe"], strict=True)
    return [f"<b>{escape(shorten(a, 18))}</b><br>{escape(shorten(p, 16))}{layer}" for a, layer, p in pairs]


def _lines(names: list[str], row: int = ROW, more: int = 0) -> tuple[Canvas, np.ndarray]:
    """An empty figure with one named line per entry, the first on top; and the heights of the lines. more: pixels."""
    y = np.arange(len(names))[::-1].astype(float)
    fig = Canvas(HEAD + FOOT + row * len(names) + more)
    fig.yaxis(range=[-0.6, len(names) - 0.4], showgrid=False, tickvals=y, ticktext=names, ticklabelstandoff=6)
    fig.layout["margin"] = {"l": 8, "r": 8, "t": HEAD + more, "b": FOOT}
    return fig, y


def accuracy_figure(rows: pd.DataFrame, selected: str | None = None, ceiling: float | None = None) -> go.Figure:
    """Draw accuracy with its 95 % interval per attacker, against guessing and what permuted labels reach.

    rows: seed-averaged rows of `probe_metrics` of one attribute and split, in the order to draw them. The grey block
    of a line runs from guessing to the 95th percentile of the null band, its tick is the null mean. ceiling: what
    nobody can beat on this data, where that is known.
    """
    values = rows[["accuracy", "accuracy_low", "accuracy_high", "chance", "null_mean", "null_p95"]].astype(float)
    chance = float(values["chance"].iloc[0])
    highest = chance if ceiling is None else max(chance, ceiling)
    ends = np.nanmax(values[["accuracy", "accuracy_high"]].to_numpy(), initial=highest)
    low = np.nanmin(values[["accuracy", "accuracy_low"]].to_numpy(), initial=chance)
    fig, y = _lines(row_names(rows), more=0 if ceiling is None else theme.CEILING_LIFT)
    for place, mean, p95 in zip(y, values["null_mean"], values["null_p95"], strict=True):
        if known(p95):
            fig.add_shape(type="rect", x0=min(chance, p95), x1=max(chance, p95), y0=place - 0.17, y1=place + 0.17,
                          fillcolor=theme.NULL_BAND, line_width=0, layer="below")  # fmt: skip
        if known(mean):
            fig.add_shape(type="line", x0=mean, x1=mean, y0=place - 0.17, y1=place + 0.17,
                          line={"color": theme.QUIET, "width": 1})  # fmt: skip
    _guessing(fig, chance, f"guessing {percent(chance, 0)}")
    if ceiling is not None:
        theme.ceiling_line(fig, ceiling, f"{CEILING} {percent(ceiling)}")
    chosen = (rows["artifact"] == selected).to_numpy()
    hue = [theme.ACCENT if s or selected is None else theme.QUIET for s in chosen]
    _segments(fig, values["accuracy_low"], values["accuracy_high"], y, hue, 2)
    spread = [percent_interval(a, b) for a, b in _pairs(values, "accuracy_low", "accuracy_high")]
    null = [
        f"{percent(m)} and {percent(p)}" if known(m) and known(p) else "none"
        for m, p in _pairs(values, "null_mean", "null_p95")
    ]
    fig.add(
"scatter",
        x=values["accuracy"], y=y, mode="markers", marker={"size": 11, "color": hue},
        customdata=np.column_stack([_hover_names(rows), spread, null]),
        hovertemplate="%{customdata[0]}<br>named correctly %{x:.1%}<br>95 % interval %{customdata[1]}<br>"
        "permuted labels: mean and 95th percentile %{customdata[2]}<extra></extra>",
    )  # fmt: skip
    for place, share, high in zip(y, values["accuracy"], values["accuracy_high"], strict=True):
        if known(share):
            fig.note(percent(share), high if known(high) else share, place, xshift=9, yanchor="middle")
    fig.xaxis(title="named correctly, mean over classes", tickformat=".0%", range=_padded(low, float(ends), 0.0, 1.0))
    return fig.figure()


def gap_figure(rows: pd.DataFrame, budget: float, ceiling: float | None = None) -> go.Figure:
    """Draw the signed LeakageGap with its 90 % interval (thick) and 95 % interval (thin) against the budget band.

    ceiling: accuracy that nobody can beat on this data, where that is known; drawn as the gap it leaves.
    """
    values = rows[["signed_gap", "signed_low90", "signed_high90", "accuracy_low", "accuracy_high", "chance"]]
    values = values.astype(float)
    outer_low, outer_high = values["accuracy_low"] - values["chance"], values["accuracy_high"] - values["chance"]
    everything = np.concatenate([values[["signed_gap", "signed_low90", "signed_high90"]].to_numpy().ravel(),
                                 outer_low, outer_high, [-budget, budget]])  # fmt: skip
    top = None if ceiling is None else ceiling - float(values["chance"].iloc[0])
    low, high = float(np.nanmin(everything)), float(np.nanmax(everything))
    high = high if top is None else max(high, top)
    fig, y = _lines(row_names(rows), more=0 if top is None else theme.CEILING_LIFT)
    fig.add_vrect(x0=-budget, x1=budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    _guessing(fig, 0.0, f"budget ±{budget:g}")
    if top is not None:
        theme.ceiling_line(fig, top, f"{CEILING} {number(top)}")
    hue = [theme.VERDICT_COLOURS.get(str(v), theme.QUIET) for v in rows["verdict"]]
    _segments(fig, outer_low, outer_high, y, hue, 1)
    _segments(fig, values["signed_low90"], values["signed_high90"], y, hue, 5)
    fig.add(
"scatter",
        x=values["signed_gap"], y=y, mode="markers",
        marker={"size": 11, "color": hue, "line": {"width": 2, "color": "rgba(252,252,250,0.9)"}},
        customdata=np.column_stack([_hover_names(rows),
                                    [interval(a, b) for a, b in _pairs(values, "signed_low90", "signed_high90")],
                                    [count(n) for n in rows["n_subjects"]], rows["verdict"].fillna("no verdict")]),
        hovertemplate="%{customdata[0]}<br>LeakageGap %{x:.3f}<br>90 % interval %{customdata[1]}<br>"
        "%{customdata[2]} subjects: %{customdata[3]}<extra></extra>",
    )  # fmt: skip
    ends = np.fmax(outer_high, np.fmax(values["signed_high90"], values["signed_gap"]))
    for place, end, verdict, colour in zip(y, ends, rows["verdict"], hue, strict=True):
        if isinstance(verdict, str) and known(end):
            text = f"{SYMBOLS.get(verdict, '')} {escape(verdict)}"
            fig.note(text, end, place, xshift=9, yanchor="middle", font={"size": 12, "color": colour})
    width = high - low
    fig.xaxis(
        title="LeakageGap: named correctly minus guessing",
        tickformat=".2g",
        range=[low - 0.06 * width, high + 0.42 * width],
    )
    return fig.figure()


def confusion_figure(counts: pd.DataFrame) -> go.Figure:
    """Draw the confusion matrix as shares of each true class, shares written in the cells.

    counts: actual × predicted, numbers of rows averaged over seeds (float), classes in the order to draw them.
    """
    totals = counts.sum(axis=1).to_numpy(dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = counts.to_numpy(dtype=float) / totals[:, None]
    names = [escape(shorten(c, 18)) for c in counts.columns]
    actual = [f"{escape(shorten(c, 18))} ({count(round(n))})" for c, n in zip(counts.index, totals, strict=True)]
    size = max(len(names), 2)
    fig = Canvas(110 + min(64, max(30, 340 // size)) * size)
    fig.add(
"heatmap",
        z=shares, x=list(range(len(names))), y=list(range(len(actual))), zmin=0, zmax=1, showscale=False,
        colorscale=CELLS, xgap=2, ygap=2,
        customdata=np.dstack([counts.to_numpy(dtype=float),
                              np.tile(np.array(names, dtype=object), (len(actual), 1)),
                              np.tile(np.array(actual, dtype=object)[:, None], (1, len(names)))]),
        hovertemplate="true: %{customdata[2]}<br>named: %{customdata[1]}<br>%{z:.1%}, %{customdata[0]:.1f} rows"
        "<extra></extra>",
    )  # fmt: skip
    if size <= 12:
        for i in range(len(actual)):
            for j in range(len(names)):
                if np.isfinite(shares[i, j]):
                    told = number(100 * shares[i, j], 0)
                    bold = f"<b>{told}</b>" if i == j else told
                    font = {"size": 13, "color": "#FFFFFF"} if shares[i, j] >= STRONG_CELL else {"size": 13}
                    fig.note(bold, j, i, xanchor="center", yanchor="middle", font=font)
    columns = {"tickvals": list(range(len(names))), "ticktext": names, "side": "top"}
    lines = {"tickvals": list(range(len(actual))), "ticktext": actual, "autorange": "reversed"}
    fig.xaxis(title="named, % of the true class", showgrid=False, **columns)
    fig.yaxis(title="true class (rows)", showgrid=False, **lines)
    return fig.figure()


def recall_figure(recalls: pd.DataFrame, chance: float) -> go.Figure:
    """Draw per-class recall with 95 % intervals against guessing. recalls: what `class_recalls` returns."""
    names = [f"{escape(shorten(n, 18))} ({count(k)})" for n, k in zip(recalls["name"], recalls["n"], strict=True)]
    fig, y = _lines(names, 36)
    _guessing(fig, chance, f"guessing {percent(chance, 0)}")
    hue = [theme.LOWERED] * len(recalls)
    _segments(fig, recalls["low"], recalls["high"], y, hue, 2)
    fig.add(
"scatter",
        x=recalls["recall"], y=y, mode="markers", marker={"size": 10, "color": hue},
        customdata=np.column_stack([[escape(n) for n in recalls["name"]],
                                    [percent_interval(a, b) for a, b in _pairs(recalls, "low", "high")],
                                    [count(n) for n in recalls["n"]]]),
        hovertemplate="%{customdata[0]}: %{x:.1%}<br>95 % interval %{customdata[1]}<br>%{customdata[2]} subjects"
        "<extra></extra>",
    )  # fmt: skip
    for place, high, share in zip(y, recalls["high"], recalls["recall"], strict=True):
        if known(share):
            fig.note(percent(share, 0), high if known(high) else share, place, xshift=8, yanchor="middle")
    fig.xaxis(title="of each class, named correctly", tickformat=".0%", range=[-0.01, 1.12], dtick=0.25)
    return fig.figure()


def class_recalls(cells: pd.DataFrame) -> pd.DataFrame:
    """Per-class recall with Wilson's 95 % interval. cells: name, recall (seeds averaged), n (subjects) per class."""
    ends = [wilson(share, n) for share, n in zip(cells["recall"], cells["n"], strict=True)]
    return cells.assign(low=[low for low, _ in ends], high=[high for _, high in ends])


def projection_figure(drawn: Projection, labels: pd.Series, classes: list[str]) -> go.Figure:
    """Draw the sampled vectors on two principal components, one colour and one sign per class.

    labels: class of each point, in the order of `drawn.points`, missing for unknown.
    """
    fig = Canvas(420)
    signs = ("circle", "square", "diamond", "triangle-up", "cross", "x")
    for place, name in enumerate(classes):
        mine = (labels == name).to_numpy()
        some = drawn.points[mine]
        fig.add(
"scatter",
            x=some["x"], y=some["y"], mode="markers", name=f"{escape(shorten(name, 24))} ({count(len(some))})",
            marker={"size": 6, "opacity": 0.65, "color": theme.SERIES[place % len(theme.SERIES)],
                    "symbol": signs[place % len(signs)]},
            text=escape(shorten(name, 40)), hovertemplate="%{text}<extra></extra>",  # a name may hold %{x}
        )  # fmt: skip
    for place, axis, share in zip((1, 2), (fig.xaxis, fig.yaxis), drawn.explained, strict=True):
        axis(f"component {place}, {percent(share)} of the variance", showticklabels=False, showgrid=False)
    legend: dict[str, Any] = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemsizing": "constant"}
    fig.layout.update(showlegend=True, legend=legend, margin={"l": 8, "r": 8, "t": 8, "b": 48})
    return fig.figure()


def not_finite(rows: pd.DataFrame, columns: list[str]) -> int:
    """Number of attackers whose value in any of `columns` is missing or infinite: said beside a chart, never hidden."""
    return int((~np.isfinite(rows[columns].astype(float).to_numpy())).any(axis=1).sum())


def _segments(fig: Canvas, low: Any, high: Any, y: np.ndarray, hue: list[str], width: int) -> None:
    """Intervals as one line per colour, so that thick and thin ones keep their width at every zoom."""
    for colour in dict.fromkeys(hue):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for a, b, place, mine in zip(low, high, y, hue, strict=True):
            if mine == colour and known(a) and known(b):
                xs += [float(a), float(b), None]
                ys += [place, place, None]
        if xs:
            fig.add("scatter", x=xs, y=ys, mode="lines", line={"color": colour, "width": width}, hoverinfo="skip")


def _guessing(fig: Canvas, x: float, label: str) -> None:
    fig.add_vline(x=x, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    quiet = {"size": 12, "color": theme.QUIET}
    fig.note(label, x, 1.0, yref="paper", yanchor="bottom", xanchor="left", xshift=-4, yshift=4, font=quiet)


def _padded(low: float, high: float, least: float, most: float) -> list[float]:
    width = max(high - low, 0.05)
    return [max(least, low - 0.08 * width), min(most + 0.12, high + 0.3 * width)]


def _pairs(frame: pd.DataFrame, a: str, b: str):
    return zip(frame[a], frame[b], strict=True)


def _hover_names(rows: pd.DataFrame) -> list[str]:
    return [f"{escape(a)}, layer {number(layer, 0)}, {escape(p)}"
            for a, layer, p in zip(rows["artifact"], rows["layer"], rows["probe"], strict=True)]  # fmt: skip
