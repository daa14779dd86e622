"""What a label is read from, texts and vectors, in; one axis, a table of summaries' scores, marked summaries out."""

import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.findings.ceiling import NAME as CEILING
from auditcore.findings.outputs import READERS as READERS_OF
from auditcore.findings.outputs import ROUGES, points, share_with_interval, source_name
from auditcore.words import count, escape, interval, known, number, percent, percent_interval, shorten

HEAD, FOOT, ROW = 84, 56, 42  # pixels
# (kind, detail) of `one_axis` -> name, colour, sign, place in the line
READERS = {
    ("text", "words"): ("text, by its words", theme.VIOLET, "square", 0.17),
    ("text", "vectors of the text"): ("text, by its vectors", theme.ROSE, "diamond", -0.17),
    ("vector", ""): ("exported vector", theme.LOWERED, "circle", 0.0),
    # Fitted on all training rows: open, and said to be so in the legend.
    ("baseline", ""): ("text, by its words", theme.VIOLET, "square-open", 0.0),
    ("probe", ""): ("exported vector", theme.LOWERED, "circle-open", 0.0),
}
LEGEND = 20  # pixels of a line of the legend


def axis_figure(rows: pd.DataFrame, ceiling: float | None = None) -> go.Figure:
    """Draw accuracy with 95 % intervals of everything a label is read from, on one axis, against guessing.

    rows: `findings.outputs.one_axis`. One line per text or vector; its readers differ in colour and sign. ceiling: what
    nobody can beat on this data, where that is known.
    """
    chance = float(rows["chance"].iloc[0])
    lines = list(dict.fromkeys(rows["what"]))
    lift = 0 if ceiling is None else theme.CEILING_LIFT
    kinds = set(zip(rows["kind"], rows["detail"].where(rows["kind"] == "text", ""), strict=True))
    # A name that says how many rows were fitted takes a line of its own.
    head = 34 + LEGEND * len(kinds) if rows["n_fit"].notna().any() else HEAD
    fig = Canvas(head + FOOT + ROW * len(lines) + lift)
    places = {what: float(len(lines) - 1 - i) for i, what in enumerate(lines)}
    names = [_two_lines(what) for what in lines]
    fig.yaxis(
        range=[-0.6, len(lines) - 0.4], showgrid=False, tickvals=list(places.values()), ticktext=names,
        ticklabelstandoff=6,
    )  # fmt: skip
    fig.layout["margin"] = {"l": 8, "r": 8, "t": head + lift, "b": FOOT}
    fig.add_vline(x=chance, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    quiet = {"size": 12, "color": theme.QUIET}
    fig.note(f"guessing {percent(chance, 0)}", chance, 1.0, yref="paper", yanchor="bottom", yshift=2, font=quiet)
    for (kind, detail), (name, hue, sign, lane) in READERS.items():
        mine = (rows["kind"] == kind) & ((rows["detail"] == detail) if detail else True)
        some = rows[mine]
        if some.empty:
            continue
        if some["n_fit"].notna().any():
            name += f", fitted on {count(some['n_fit'].max())} rows: not comparable"
        y = np.array([places[what] + lane for what in some["what"]])
        xs: list[float | None] = []
        ys: list[float | None] = []
        for low, high, place in zip(some["accuracy_low"], some["accuracy_high"], y, strict=True):
            if known(low) and known(high):
                xs += [float(low), float(high), None]
                ys += [place, place, None]
        line = {"color": hue, "width": 2}
        fig.add("scatter", x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        spread = [percent_interval(a, b) for a, b in zip(some["accuracy_low"], some["accuracy_high"], strict=True)]
        who = [escape(f"{w}, {d}") for w, d in zip(some["what"], some["detail"], strict=True)]
        fig.add(
            "scatter",
            x=some["accuracy"],
            y=y,
            mode="markers",
            name=name,
            marker={"size": 10, "color": hue, "symbol": sign},
            customdata=np.column_stack([who, spread, [count(n) for n in some["n_subjects"]]]),
            hovertemplate="%{customdata[0]}<br>named correctly %{x:.1%}<br>95 % interval %{customdata[1]}<br>"
            "%{customdata[2]} subjects<extra></extra>",
        )
        for place, accuracy, high in zip(y, some["accuracy"], some["accuracy_high"], strict=True):
            if known(accuracy):
                end = high if known(high) else accuracy
                fig.note(percent(accuracy, 0), end, place, xshift=8, yanchor="middle", font={"size": 11})
    ends = rows[["accuracy", "accuracy_low", "accuracy_high"]].astype(float)
    low = float(np.nanmin([ends.min().min(), chance]))
    high = float(np.nanmax([ends.max().max(), chance, chance if ceiling is None else ceiling]))
    if ceiling is not None:
        theme.ceiling_line(fig, ceiling, f"{CEILING} {percent(ceiling)}")
    width = max(high - low, 0.05)
    fig.xaxis(
        title="named correctly, mean over classes", tickformat=".0%", range=[low - 0.06 * width, high + 0.2 * width]
    )
    above = 1 + (26 + lift) / (ROW * len(lines))
    legend = {"orientation": "h", "y": above, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    fig.layout.update(showlegend=True, legend=legend)
    return fig.figure()


def _two_lines(what: str) -> str:
    head, _, tail = what.partition(" behind ")
    return f"<b>{escape(shorten(head, 30))}</b>" + (f"<br>behind {escape(shorten(tail, 24))}" if tail else "")


def scores_table(scores: pd.DataFrame) -> str:
    """One line per directive: ROUGE with 95 % intervals, share of summaries with a meta-term and its paired change."""
    there = [name for name in ROUGES if name in scores]
    head = '<tr><th scope="col">prompt</th>' + "".join(f'<th scope="col" class="num">{ROUGES[n]}</th>' for n in there)
    head += '<th scope="col" class="num">with a meta-term</th><th scope="col" class="num">change, points</th>'
    head += '<th scope="col" class="num">empty</th><th scope="col" class="num">summaries</th></tr>'
    body = []
    for row in scores.to_dict("records"):
        name = "as it is" if row["defence"] == "none" else str(row["defence"])
        cells = [(number(row[n], 1), interval(row[f"{n}_low"], row[f"{n}_high"], 1)) for n in there]
        change = row["contaminated_change"]
        ends = f"{points(row['contaminated_change_low'])} to {points(row['contaminated_change_high'])}"
        cells += [share_with_interval(row), (points(change), ends if known(change) else "")]
        cells += [(count(row["n_empty"]), ""), (count(row["n_rows"]), f"{count(row['n_subjects'])} subjects")]
        inner = "".join(f'<td class="num">{value}<small>{under}</small></td>' for value, under in cells)
        body.append(f'<tr><th scope="row">{escape(name)}</th>{inner}</tr>')
    return table_html(head, "".join(body))


def changes_table(rows: pd.DataFrame) -> str:
    """One line per directive, thing read and reader: accuracy behind the directive and its paired change.

    rows: `findings.outputs.changes`.
    """
    head = '<tr><th scope="col">directive</th><th scope="col">read from</th><th scope="col">by</th>'
    head += '<th scope="col" class="num">named correctly<small>95 % interval</small></th>'
    head += '<th scope="col" class="num">change, points<small>95 % interval</small></th></tr>'
    body = []
    for row in rows.to_dict("records"):
        names = [source_name(row["source"], "none"), READERS_OF.get(row["attacker"], row["attacker"])]
        cells = [
            (percent(row["accuracy"]), percent_interval(row["accuracy_low"], row["accuracy_high"])),
            (points(row["change"]), f"{points(row['change_low'])} to {points(row['change_high'])}"),
        ]
        inner = "".join(f"<td>{escape(name)}</td>" for name in names)
        inner += "".join(f'<td class="num">{value}<small>{under}</small></td>' for value, under in cells)
        body.append(f'<tr><th scope="row">{escape(row["defence"])}</th>{inner}</tr>')
    return table_html(head, "".join(body))


def marked_html(text: str, terms: list[str], limit: int = 600) -> str:
    """A summary as escaped HTML, meta-terms marked; a long one is cut."""
    shown = text if len(text) <= limit else f"{text[:limit]} …"
    if not terms:
        return escape(shown)
    wanted = "|".join(r"\s+".join(map(re.escape, term.split())) for term in sorted(terms, key=len, reverse=True))
    pieces, last = [], 0
    for hit in re.finditer(rf"(?<!\w)(?:{wanted})(?!\w)", shown, re.IGNORECASE):
        pieces += [escape(shown[last : hit.start()]), f"<mark>{escape(hit.group())}</mark>"]
        last = hit.end()
    return "".join([*pieces, escape(shown[last:])])
