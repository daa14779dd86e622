"""Tables of `datasets.portrait` in; pictures of class balance and lengths, the table of telling words, out."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.words import count, counted, escape, number, percent, shorten

BINS = 40


def balance_figure(balance: pd.DataFrame) -> go.Figure:
    """Draw the subjects of each class in each split as lines of shares; counts are written in.

    balance: rows of `Portrait.balance` of one attribute.
    """
    splits = list(dict.fromkeys(balance["split"]))
    classes = list(dict.fromkeys(balance["class"]))
    wide = balance.pivot_table(index="split", columns="class", values="subjects", aggfunc="sum").astype(float)
    wide = wide.reindex(index=splits, columns=classes).fillna(0.0)
    totals = wide.sum(axis=1).to_numpy(dtype=float)
    y = np.arange(len(splits))[::-1].astype(float)
    fig = Canvas(96 + 44 * len(splits), barmode="stack", bargap=0.35)
    names = [f"<b>{escape(s)}</b><br>{counted(int(n), 'subject')}" for s, n in zip(splits, totals, strict=True)]
    for place, name in enumerate(classes):
        held = wide[name].to_numpy(dtype=float)
        shares = np.divide(held, totals, out=np.zeros_like(held), where=totals > 0)
        fig.add(
            "bar",
            orientation="h",
            x=shares,
            y=y,
            name=escape(shorten(name, 24)),
            marker={"color": theme.SERIES[place % len(theme.SERIES)], "opacity": 0.85 if place < 6 else 0.45},
            customdata=np.column_stack([[escape(s) for s in splits], [count(h) for h in held]]),
            hovertemplate="%{customdata[0]}: %{customdata[1]} subjects, %{x:.0%}<extra>%{fullData.name}</extra>",
        )
    fig.yaxis(range=[-0.6, len(splits) - 0.4], showgrid=False, tickvals=y, ticktext=names, ticklabelstandoff=6)
    fig.xaxis(title="share of the split's subjects", tickformat=".0%", range=[0, 1], showgrid=False)
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    fig.layout.update(showlegend=True, legend=legend, margin={"l": 8, "r": 8, "t": 44, "b": 56})
    return fig.figure()


def length_figure(lengths: np.ndarray, unit: str, limit: int | None) -> go.Figure:
    """Draw how long the rows are, and where they are cut. lengths: int [sample]; limit: in the same unit, or None."""
    fig = Canvas(260, bargap=0.04)
    edges = np.histogram_bin_edges(lengths, bins=min(BINS, max(int(np.ptp(lengths)), 1)))
    rows, _ = np.histogram(lengths, edges)
    middle = (edges[:-1] + edges[1:]) / 2
    cut = limit is not None
    hue = [theme.RAISED if cut and left >= limit else theme.LOWERED for left in edges[:-1]]
    fig.add(
        "bar",
        x=middle,
        y=rows / max(len(lengths), 1),
        width=np.diff(edges) * 0.96,
        marker={"color": hue},
        customdata=np.column_stack([np.ceil(edges[:-1]), np.floor(edges[1:])]),
        hovertemplate="%{customdata[0]:.0f} to %{customdata[1]:.0f} " + escape(unit) + ": %{y:.1%}<extra></extra>",
    )
    if limit is not None and edges[0] < limit < edges[-1] * 1.5:
        fig.add_vline(x=limit, line={"dash": "dot", "width": 1.5, "color": theme.QUIET})
        fig.note(f"cut at {count(limit)}", limit, 1.0, yref="y domain", yanchor="top", xshift=4,
                 font={"size": 12, "color": theme.QUIET})  # fmt: skip
    fig.xaxis(title=f"{unit} in a row", showgrid=False)
    fig.yaxis(title="share of rows", tickformat=".0%")
    return fig.figure()


def words_table(words: pd.DataFrame) -> str:
    """One line per word: class, share of its subjects that use it, share elsewhere, z, subjects; marked beyond chance.

    words: rows of `Portrait.words` of one attribute.
    """
    head = (
        '<tr><th scope="col">class</th><th scope="col">word</th><th scope="col">subjects of the class that use it</th>'
    )
    head += '<th scope="col" class="num">elsewhere</th><th scope="col" class="num">z</th>'
    head += '<th scope="col" class="num">subjects</th><th scope="col"></th></tr>'
    body, last = [], None
    for row in words.to_dict("records"):
        name = escape(shorten(row["class"], 24)) if row["class"] != last else ""
        last = row["class"]
        width, other = 100 * row["share"], 100 * row["share_rest"]
        hue = theme.RAISED if row["marked"] else theme.QUIET
        drawn = (
            f'<span class="at-bar"><i style="width:{width:.2f}%;background:{hue}"></i>'
            f'<i class="at-i" style="left:{other:.2f}%;width:0.5%"></i></span>'
        )
        body.append(
            f'<tr><th scope="row">{name}</th><td><bdi>{escape(shorten(row["word"], 40))}</bdi></td>'
            f'<td class="at-found"><b>{percent(row["share"], 0)}</b> {drawn}</td>'
            f'<td class="num">{percent(row["share_rest"], 0)}</td><td class="num">{number(row["z"], 1)}</td>'
            f'<td class="num">{count(row["subjects"])}</td><td>{"▲ proxy" if row["marked"] else ""}</td></tr>'
        )
    return table_html(head, "".join(body))
