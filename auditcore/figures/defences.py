"""Rows of `probe_metrics` behind defences in; the figures and the table of the page Defences out."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.findings.ceiling import NAME as CEILING
from auditcore.findings.defences import mark
from auditcore.verdict import SYMBOLS
from auditcore.words import NONE, count, escape, interval, known, number, percent, percent_interval, shorten, signed

HEAD, FOOT, LANE = 76, 56, 15  # pixels: above, below, from one probe to the next in a line
SIGNS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def gaps_figure(rows: pd.DataFrame, budget: float, marks: dict[str, str], ceiling: float | None = None) -> go.Figure:
    """Draw the LeakageGap of every probe behind every defence of one artifact, with 90 % intervals, and the budget.

    rows: seed-averaged rows of one attribute, artifact, layer and split; marks: `findings.defences.marks`; ceiling:
    the accuracy nobody can beat on this data, where that is known, drawn as the gap it leaves.
    """
    top = None if ceiling is None else ceiling - float(rows["chance"].iloc[0])
    lift = 0 if top is None else theme.CEILING_LIFT
    defences = [str(d) for d in dict.fromkeys(rows["defence"])]
    probes = [str(p) for p in dict.fromkeys(rows["probe"])]
    step = LANE * len(probes) + 14
    fig = Canvas(HEAD + FOOT + step * len(defences) + lift)
    height = np.arange(len(defences))[::-1].astype(float)
    names = [f"<b>{escape('as exported' if d == 'none' else d)}</b>" for d in defences]
    fig.yaxis(range=[-0.6, len(defences) - 0.4], showgrid=False, tickvals=height, ticktext=names, ticklabelstandoff=6)
    fig.layout["margin"] = {"l": 8, "r": 8, "t": HEAD + lift, "b": FOOT}
    fig.add_vrect(x0=-budget, x1=budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    fig.add_vline(x=0, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    quiet = {"size": 12, "color": theme.QUIET}
    fig.note(f"budget ±{budget:g}", 0, 1.0, yref="paper", yanchor="bottom", xshift=-4, yshift=2, font=quiet)
    for place, probe in enumerate(probes):
        mine = rows[rows["probe"] == probe].set_index("defence").reindex(defences)
        y = height + (LANE / step) * ((len(probes) - 1) / 2 - place)
        hue = theme.SERIES[place % len(theme.SERIES)]
        _whiskers(fig, mine["signed_low90"], mine["signed_high90"], y, hue)
        fig.add(
            "scatter",
            x=mine["signed_gap"],
            y=y,
            mode="markers",
            name=escape(probe),
            marker={"size": 10, "color": hue, "symbol": SIGNS[place % len(SIGNS)]},
            customdata=np.column_stack(
                [
                    [f"{escape(probe)}, {escape(d)}" for d in defences],
                    [interval(a, b) for a, b in zip(mine["signed_low90"], mine["signed_high90"], strict=True)],
                    [count(n) for n in mine["n_subjects"]],
                    mine["verdict"].fillna("no verdict"),
                ]
            ),
            hovertemplate="%{customdata[0]}<br>LeakageGap %{x:.3f}<br>90 % interval %{customdata[1]}<br>"
            "%{customdata[2]} subjects: %{customdata[3]}<extra></extra>",
        )
    ends = rows[["signed_gap", "signed_low90", "signed_high90"]].astype(float)
    low, high = float(np.nanmin([*ends.min(), -budget])), float(np.nanmax([*ends.max(), budget, top or 0.0]))
    for defence, place in zip(defences, height, strict=True):
        if marks.get(defence):
            right = ends.loc[(rows["defence"] == defence).to_numpy()].max().max()
            text = escape(f"▲ {marks[defence]}")
            colour = theme.VERDICT_COLOURS["over budget"]
            fig.note(text, right, place, xshift=10, yanchor="middle", font={"size": 12, "color": colour})
    if top is not None:
        theme.ceiling_line(fig, top, f"{CEILING} {number(top)}")
    room = 0.42 if any(marks.values()) else 0.08
    fig.xaxis(
        title="LeakageGap: named correctly minus guessing",
        tickformat=".2~f",
        range=[low - 0.06 * (high - low), high + room * (high - low)],
    )
    above = 1 + (26 + lift) / (step * len(defences))  # over the budget's own label
    legend = {"orientation": "h", "y": above, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    fig.layout.update(showlegend=True, legend=legend)
    return fig.figure()


def _whiskers(fig: Canvas, low: pd.Series, high: pd.Series, y: np.ndarray, hue: str) -> None:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for a, b, place in zip(low, high, y, strict=True):
        if known(a) and known(b):
            xs += [float(a), float(b), None]
            ys += [place, place, None]
    if xs:
        line = {"color": hue, "width": 3}
        fig.add("scatter", x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)


def cost_figure(table: pd.DataFrame, budget: float) -> go.Figure:
    """Draw what the strongest attacker still reads against the neighbours kept, one point per defence.

    table: rows of `findings.defences.summarise` of one artifact and layer. Left and low: safe but useless; right and
    low is wanted.
    """
    drawn = table[table["overlap"].map(known)]
    fig = Canvas(400)
    fig.add_shape(
        type="rect", x0=0, x1=1, xref="x domain", y0=-budget, y1=budget, yref="y", fillcolor=theme.BUDGET_BAND,
        line_width=0, layer="below",
    )  # fmt: skip
    hues = [theme.VERDICT_COLOURS.get(str(v), theme.QUIET) for v in drawn["verdict"]]
    for row, hue in zip(drawn.to_dict("records"), hues, strict=True):
        x, y = float(row["overlap"]), float(row["signed_gap"])
        line = {"color": hue, "width": 2}
        for a, b, c, d in (
            (row["overlap_low"], row["overlap_high"], y, y),
            (x, x, row["signed_low90"], row["signed_high90"]),
        ):
            if all(known(v) for v in (a, b, c, d)):
                fig.add("scatter", x=[a, b], y=[c, d], mode="lines", line=line, hoverinfo="skip")
    fig.add(
        "scatter",
        x=drawn["overlap"],
        y=drawn["signed_gap"],
        mode="markers+text",
        marker={"size": 11, "color": hues},
        text=[escape("as exported" if d == "none" else d) for d in drawn["defence"]],
        textposition=_around(drawn),
        cliponaxis=False,
        customdata=np.column_stack(
            [
                [escape(f"{d}, {p}") for d, p in zip(drawn["defence"], drawn["probe"], strict=True)],
                drawn["verdict"].fillna("no verdict"),
            ]
        ),
        hovertemplate="%{customdata[0]}<br>neighbours kept %{x:.0%}<br>LeakageGap %{y:.3f}: %{customdata[1]}"
        "<extra></extra>",
    )
    low = min(float(drawn["overlap"].min()) if len(drawn) else 0.0, 0.9)
    fig.xaxis(title="nearest neighbours kept (right is better)", tickformat=".0%", range=[max(0, low - 0.12), 1.09])
    fig.yaxis(title="LeakageGap (low is better)", tickformat=".2~f")
    return fig.figure()


def _around(drawn: pd.DataFrame) -> list[str]:
    """Labels above and below in turn, by place on the axis, so that neighbours do not cover each other."""
    order = np.argsort(np.argsort(drawn["overlap"].to_numpy(dtype=float), kind="stable"))
    places = ("top center", "bottom center")
    crowded = float(drawn["overlap"].median()) if len(drawn) else 1.0
    side = ["left" if x > max(crowded, 0.9) else "center" for x in drawn["overlap"]]
    return [places[i % 2].replace("center", s) for i, s in zip(order, side, strict=True)]


def defence_table(rows: pd.DataFrame, table: pd.DataFrame, effects: pd.DataFrame | None) -> str:
    """Artifact × defence × attacker: gap, 90 % interval, change against the vector as it is, verdict; costs beside.

    rows: seed-averaged rows of one attribute and split; table: `summarise` of them; effects: rows of `defence_effects`.
    """
    probes = [str(p) for p in dict.fromkeys(rows["probe"])]
    several = table["layer"].nunique() > 1
    head = '<tr><th scope="col">artifact and defence</th><th scope="col">all attackers</th>'
    head += "".join(f'<th scope="col">{escape(p)}<small>LeakageGap, 90 % interval</small></th>' for p in probes)
    head += '<th scope="col" class="num">neighbours<small>of 10 kept</small></th>'
    head += '<th scope="col" class="num">variance<small>kept</small></th>'
    head += '<th scope="col" class="num">removed</th></tr>'
    cells = {(r["artifact"], int(r["layer"]), r["defence"], r["probe"]): r for r in rows.to_dict("records")}
    changes = {} if effects is None else {
        (r["artifact"], int(r["layer"]), r["defence"], r["probe"]): r for r in effects.to_dict("records")
    }  # fmt: skip
    body = []
    for line in table.to_dict("records"):
        place = (line["artifact"], int(line["layer"]), line["defence"])
        layer = f"<small>layer {int(line['layer'])}</small>" if several else ""
        name = "as exported" if line["defence"] == "none" else str(line["defence"])
        tag = f'<span class="df-tag">▲ {escape(mark(line))}</span>' if mark(line) else ""
        title = f"{escape(shorten(line['artifact'], 40))} · {escape(name)}"
        inner = "".join(_gap_cell(cells.get((*place, p)), changes.get((*place, p))) for p in probes)
        verdict = str(line["verdict"])
        word = f"{SYMBOLS.get(verdict, '')} {escape(verdict)}{_named(line)}"
        body.append(
            f'<tr><th scope="row">{title}{layer}{tag}</th><td>{word}</td>{inner}'
            f'<td class="num">{percent(line["overlap"], 0)}<small>{_spread(line)}</small></td>'
            f'<td class="num">{percent(line["variance"], 0)}</td><td class="num">{_removed(line)}</td></tr>'
        )
    return table_html(head, "".join(body))


def _gap_cell(row: dict[Any, Any] | None, change: dict[Any, Any] | None) -> str:
    if row is None:
        return f"<td>{NONE}</td>"
    verdict = str(row["verdict"]) if isinstance(row["verdict"], str) else "no verdict"
    hue = theme.VERDICT_COLOURS.get(verdict, theme.QUIET)
    spread = interval(row["signed_low90"], row["signed_high90"])
    moved = ""
    if change is not None and known(change["change"]):
        ends = f"{signed(100 * change['low'], 1)} to {signed(100 * change['high'], 1)}"
        moved = f"<small>{signed(100 * change['change'], 1)} points</small><small>({ends})</small>"
    return (
        f'<td class="df-cell" style="--hue:{hue}"><b>{SYMBOLS.get(verdict, "")} {number(row["signed_gap"])}</b>'
        f"<small>{spread}</small>{moved}</td>"
    )


def _named(line: dict[Any, Any]) -> str:
    """The most subjects that one attacker names with near certainty, where that is not guessing."""
    share = line.get("named")
    if not known(share) or share <= 0:
        return ""
    return f'<small style="white-space:normal">{percent(share)} named with near certainty</small>'


def _spread(line: dict[Any, Any]) -> str:
    return percent_interval(line["overlap_low"], line["overlap_high"], 0) if known(line["overlap_low"]) else ""


def _removed(line: dict[Any, Any]) -> str:
    if line["defence"] == "none" or not known(line["width"]):
        return NONE
    return f"{count(line['removed'])}<small>of {count(line['width'])}</small>"
