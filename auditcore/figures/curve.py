"""Tables `sample_curve` and `sample_extrapolation` in; accuracy against training rows, measured and beyond, out."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.findings.ceiling import NAME as CEILING
from auditcore.words import NONE, count, escape, known, number, percent, percent_interval

SIGNS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def curve_figure(
    points: pd.DataFrame, more: pd.DataFrame, height: int = 380, ceiling: float | None = None
) -> go.Figure:
    """Draw accuracy with 95 % intervals over training rows (log axis) per probe, and dashed what is extrapolated.

    points, more: rows of one attribute and artifact; ceiling: what nobody can beat on this data, where that is known.
    """
    fig = Canvas(height)
    chance, last = float(points["chance"].iloc[0]), float(points["n_train"].max())
    fig.add_hline(y=chance, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    if ceiling is not None:
        fig.add_hline(y=ceiling, line={"dash": "dash", "width": 1.5, "color": theme.VIOLET}, layer="below")
        look = {"size": 12, "color": theme.VIOLET}
        fig.note(f"{CEILING} {percent(ceiling)}", 0, ceiling, xref="x domain", yanchor="bottom", font=look)
    drawn = more[more["accuracy"].map(known)]
    for place, (probe, mine) in enumerate(points.groupby("probe", sort=False)):
        mine, hue = mine.sort_values("n_train"), theme.SERIES[place % len(theme.SERIES)]
        sign, value = SIGNS[place % len(SIGNS)], mine["accuracy"].astype(float)
        up, down = mine["accuracy_high"].astype(float) - value, value - mine["accuracy_low"].astype(float)
        hover = [
            f"<b>{escape(probe)}</b>, {count(r['n_train'])} training rows<br>{percent(r['accuracy'])} "
            f"({percent_interval(r['accuracy_low'], r['accuracy_high'])})<br>"
            f"{count(r['n_subjects_train'])} subjects to fit on, {count(r['draws'])} draws"
            for r in mine.to_dict("records")
        ]
        fig.add(
            "scatter", x=mine["n_train"], y=value, mode="lines+markers", name=escape(probe), text=hover,
            hoverinfo="text", line={"color": hue, "width": 2}, marker={"size": 9, "symbol": sign, "color": hue},
            error_y={"type": "data", "array": up, "arrayminus": down, "thickness": 1.2, "width": 3},
        )  # fmt: skip
        beyond = drawn[drawn["probe"] == probe].sort_values("times")
        if beyond.empty:
            continue
        x = beyond["n_train"].astype(float).tolist()
        band = [*beyond["high"].astype(float), *beyond["low"].astype(float)[::-1]]
        fig.add(
            "scatter", x=[*x, *x[::-1]], y=band, fill="toself", fillcolor=_faint(hue), line={"width": 0},
            mode="lines", hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        told = [
            f"<b>{escape(probe)}</b>, {count(r['n_train'])} rows: extrapolated<br>{percent(r['accuracy'])} "
            f"(band {percent_interval(r['low'], r['high'])})"
            for r in beyond.to_dict("records")
        ]
        modes = [0] * (len(beyond) - 1) + [10]
        fig.add(
            "scatter", x=x, y=beyond["accuracy"], mode="lines+markers", text=told, hoverinfo="text", showlegend=False,
            line={"color": hue, "width": 2, "dash": "dash"},
            marker={"size": modes, "symbol": f"{sign}-open" if sign != "x" else "x-open", "color": hue},
        )  # fmt: skip
    if len(drawn):
        far = float(drawn["n_train"].max())
        fig.add_shape(
            type="rect", x0=last, x1=far, xref="x", y0=0, y1=1, yref="y domain", fillcolor=theme.NULL_BAND,
            line_width=0, layer="below",
        )  # fmt: skip
        middle = float(np.log10(last * far) / 2)
        quiet = {"size": 12, "color": theme.QUIET}
        fig.note("extrapolated", middle, 1.0, yref="paper", yanchor="bottom", xanchor="center", font=quiet)
    fig.xaxis(title="training rows (logarithmic)", type="log", showgrid=False, tickformat="~s", dtick="D2")
    fig.yaxis(title="named correctly", tickformat=".0%")
    legend = {"orientation": "h", "y": 1.08, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    fig.layout.update(showlegend=True, legend=legend, margin={"l": 8, "r": 16, "t": 52, "b": 8})
    return fig.figure()


def _faint(hue: str) -> str:
    red, green, blue = (int(hue[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.16)"


def curve_table(points: pd.DataFrame, more: pd.DataFrame) -> str:
    """One line per probe: accuracy at every size, then what is extrapolated, or why it is not.

    points, more: rows of one attribute and artifact.
    """
    sizes = sorted(points["n_train"].unique())
    times = float(more["times"].max())
    ahead = f"{number(times, 0 if times.is_integer() else 1)} times the rows"
    head = '<tr><th scope="col">probe</th>' + "".join(
        f'<th scope="col" class="num">{count(n)} rows</th>' for n in sizes
    )
    head += f'<th scope="col" class="num">{ahead}<small>extrapolated</small></th></tr>'
    body = []
    for probe, mine in points.groupby("probe", sort=False):
        at = {r["n_train"]: r for r in mine.to_dict("records")}
        cells = [
            (percent(at[n]["accuracy"]), percent_interval(at[n]["accuracy_low"], at[n]["accuracy_high"]))
            if n in at
            else (NONE, "")
            for n in sizes
        ]
        inner = "".join(f'<td class="num">{value}<small>{under}</small></td>' for value, under in cells)
        last = more[more["probe"] == probe].sort_values("times").iloc[-1]
        if known(last["accuracy"]):
            spread = percent_interval(last["low"], last["high"])
            inner += f'<td class="num">{percent(last["accuracy"])}<small>band {spread}</small></td>'
        else:
            inner += f'<td><small class="at-why">not extrapolated: {escape(last["refused"])}</small></td>'
        body.append(f'<tr><th scope="row">{escape(probe)}</th>{inner}</tr>')
    return table_html(head, "".join(body))
