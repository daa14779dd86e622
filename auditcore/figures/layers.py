"""Attackers at many layers in; a heat map of accuracy by layer and artifact, and its numbers as a table, out."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.findings.ceiling import NAME
from auditcore.verdict import SYMBOLS
from auditcore.words import NONE, count, escape, known, number, percent, percent_interval, shorten

ROW, HEAD, FOOT = 24, 34, 100  # pixels: one layer, above, below
BELOW = 50  # from the cells to the names of the scale's ends
# One hue from pale to dark, for eyes that tell no red from green too. It is a surface of its own, on light paper and on
# dark, and each number takes the colour that stands out more on its cell.
PALE, DARK = (230, 241, 248), (0, 84, 138)
SCALE = [[0, f"rgb{PALE}"], [1, f"rgb{DARK}"]]
MOST_NUMBERS = 400  # cells up to which each has its number written in


def height(cells: pd.DataFrame) -> int:
    """Pixels of the figure."""
    return HEAD + FOOT + ROW * max(int(cells["layer"].nunique()), 2)


def layers_figure(
    cells: pd.DataFrame, ceiling: float | None = None, chosen: tuple[str, int] | None = None
) -> go.Figure:
    """Draw accuracy by layer (down) and artifact (across), from guessing to the ceiling or the highest cell.

    cells: `findings.layers.by_layer`; ceiling: what nobody can beat on this data; chosen: artifact and layer to mark.
    Each cell is a point with customdata [artifact, layer] that can be clicked; interval, n and verdict on hover.
    """
    artifacts = [str(a) for a in dict.fromkeys(cells["artifact"])]
    layers = sorted({int(v) for v in cells["layer"]})
    chance = float(cells["chance"].iloc[0])
    table = cells.assign(place=[layers.index(int(v)) for v in cells["layer"]])
    shares = np.full((len(layers), len(artifacts)), np.nan)
    for row in table.to_dict("records"):
        shares[int(row["place"]), artifacts.index(str(row["artifact"]))] = float(row["accuracy"])
    highest = float(np.nanmax(shares)) if np.isfinite(shares).any() else chance
    top = ceiling if ceiling is not None and ceiling > chance else max(highest, chance + 0.05)
    fig = Canvas(height(cells))
    fig.add(
        "heatmap", z=shares, x=list(range(len(artifacts))), y=list(range(len(layers))), zmin=chance, zmax=top,
        colorscale=SCALE, xgap=2, ygap=2, hoverinfo="skip",
        colorbar={"orientation": "h", "thickness": 10, "len": 1.0, "x": 0.5, "y": 0, "yanchor": "top", "ypad": 34,
                  "outlinewidth": 0, "showticklabels": False, "ticks": ""},
    )  # fmt: skip
    _points(fig, table, artifacts)
    if shares.size <= MOST_NUMBERS:
        for i, j in zip(*np.nonzero(np.isfinite(shares)), strict=True):
            font = {"size": 12, "color": text_colour((shares[i, j] - chance) / (top - chance))}
            fig.note(number(100 * shares[i, j], 1), int(j), int(i), xanchor="center", yanchor="middle", font=font)
    if chosen is not None and chosen[0] in artifacts and chosen[1] in layers:
        x, y = artifacts.index(chosen[0]), layers.index(chosen[1])
        line = {"color": theme.RAISED, "width": 2.5}
        fig.add_shape(type="rect", x0=x - 0.49, x1=x + 0.49, y0=y - 0.47, y1=y + 0.47, line=line)
    quiet: dict[str, Any] = {"yref": "paper", "yanchor": "top", "font": {"size": 12, "color": theme.QUIET}}
    end = f"{NAME} {percent(top)}" if ceiling is not None and top == ceiling else f"highest {percent(top)}"
    fig.note(f"guessing {percent(chance, 0)}", 0, 0, xref="paper", yshift=-BELOW, **quiet)
    fig.note(end, 1, 0, xref="paper", xanchor="right", yshift=-BELOW - 16, **quiet)  # narrow figures hold one a line
    names = [f"<b>{escape(shorten(a, 16))}</b>" for a in artifacts]
    across: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": names, "side": "top", "tickangle": 0}
    fig.xaxis(showgrid=False, fixedrange=True, range=[-0.5, len(names) - 0.5], **across)
    down: dict[str, Any] = {"tickvals": list(range(len(layers))), "ticktext": [str(v) for v in layers]}
    fig.yaxis("layer (0 = embeddings)", showgrid=False, fixedrange=True, range=[len(layers) - 0.5, -0.5], **down)
    fig.layout["margin"] = {"l": 8, "r": 8, "t": HEAD, "b": FOOT}
    return fig.figure()


def text_colour(place: float) -> str:
    """Black or white, whichever has the higher contrast (WCAG) on the scale's colour at `place`, 0 to 1."""
    at = min(max(place, 0.0), 1.0)
    mixed = [(a + at * (b - a)) / 255 for a, b in zip(PALE, DARK, strict=True)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mixed]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#FFFFFF" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000000"


def _points(fig: Canvas, table: pd.DataFrame, artifacts: list[str]) -> None:
    """One invisible point per cell: heat maps cannot be clicked, points can."""
    drawn = table[table["accuracy"].map(known)]
    fig.add(
        "scatter", x=[artifacts.index(str(a)) for a in drawn["artifact"]], y=drawn["place"].tolist(), mode="markers",
        marker={"size": 22, "opacity": 0, "symbol": "square"}, selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}}, showlegend=False,
        customdata=[
            [str(r["artifact"]), int(r["layer"]), f"{escape(shorten(r['artifact'], 40))}, layer {int(r['layer'])}",
             percent(r["accuracy"]), percent_interval(r["accuracy_low"], r["accuracy_high"]), escape(r["probe"]),
             count(r["n_subjects"]), escape(_word(r))]
            for r in drawn.to_dict("records")
        ],
        hovertemplate="%{customdata[2]}<br>named correctly %{customdata[3]} (%{customdata[5]})<br>95 % interval "
        "%{customdata[4]}<br>%{customdata[6]} subjects: %{customdata[7]}<extra></extra>",
    )  # fmt: skip


def _word(row: dict[Any, Any]) -> str:
    word = row["verdict"]
    return f"{SYMBOLS[word]} {word}" if isinstance(word, str) and word in SYMBOLS else "no verdict"


def layers_table(cells: pd.DataFrame, chosen: tuple[str, int] | None = None) -> str:
    """The heat map's numbers: a line per layer, a column per artifact; accuracy, 95 % interval, verdict, probe."""
    artifacts = [str(a) for a in dict.fromkeys(cells["artifact"])]
    at = {(str(r["artifact"]), int(r["layer"])): r for r in cells.to_dict("records")}
    several = cells["n_subjects"].nunique() > 1
    head = '<tr><th scope="col" class="df-narrow">layer</th>'
    head += "".join(f'<th scope="col">{escape(shorten(a, 24))}</th>' for a in artifacts) + "</tr>"
    body = []
    for layer in sorted({int(v) for v in cells["layer"]}):
        inner = "".join(_cell(at.get((a, layer)), several, chosen == (a, layer)) for a in artifacts)
        body.append(f'<tr><th scope="row" class="df-narrow">{layer}</th>{inner}</tr>')
    return table_html(head, "".join(body))


def _cell(row: dict[Any, Any] | None, with_n: bool, chosen: bool) -> str:
    if row is None or not known(row["accuracy"]):
        return f"<td>{NONE}</td>"
    hue = theme.VERDICT_COLOURS.get(str(row["verdict"]), theme.QUIET)
    n = f", {count(row['n_subjects'])} subjects" if with_n else ""
    mark = ' aria-current="true"' if chosen else ""
    spread = percent_interval(row["accuracy_low"], row["accuracy_high"])
    return (
        f'<td class="df-cell" style="--hue:{hue}"{mark}><b>{percent(row["accuracy"])}</b>'
        f"<small>{spread}{n}</small><small>{escape(_word(row))}, {escape(row['probe'])}</small></td>"
    )
