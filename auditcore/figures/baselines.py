"""Tables `baseline_metrics` and `baseline_differences` in; how vectors compare with what is held anyway, out."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.figures.tables import table_html
from auditcore.findings.baselines import accuracy_words, baseline_name
from auditcore.findings.outputs import points
from auditcore.words import NONE, count, escape, known, percent, shorten

HEAD, FOOT, LANE = 48, 56, 16  # pixels: above, below, from one baseline to the next in a line
LOOKS = {"text": (theme.VIOLET, "square"), "metadata": (theme.OCHRE, "diamond")}


def differences_figure(rows: pd.DataFrame) -> go.Figure:
    """Draw probe minus baseline in points of accuracy with 95 % intervals; right of 0 the vector tells more.

    rows: `baseline_differences` of one attribute, split and defence, one line per artifact, layer and probe.
    """
    lines = rows.drop_duplicates(["artifact", "layer", "probe"]).reset_index(drop=True)
    baselines = [str(b) for b in dict.fromkeys(rows["baseline"])]
    step = LANE * len(baselines) + 22
    fig = Canvas(HEAD + FOOT + step * len(lines))
    height = np.arange(len(lines))[::-1].astype(float)
    names = [f"<b>{escape(shorten(r['artifact'], 26))}</b><br>{escape(r['probe'])}" for r in lines.to_dict("records")]
    fig.yaxis(range=[-0.6, len(lines) - 0.4], showgrid=False, tickvals=height, ticktext=names, ticklabelstandoff=6)
    fig.layout["margin"] = {"l": 8, "r": 8, "t": HEAD, "b": FOOT}
    fig.add_vline(x=0, line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
    for place, baseline in enumerate(baselines):
        hue, sign = LOOKS.get(baseline, (theme.ACCENT, "circle"))
        mine = lines[["artifact", "layer", "probe"]].merge(
            rows[rows["baseline"] == baseline], on=["artifact", "layer", "probe"], how="left"
        )
        y = height + (LANE / step) * ((len(baselines) - 1) / 2 - place)
        xs: list[float | None] = []
        ys: list[float | None] = []
        for low, high, at in zip(mine["low"], mine["high"], y, strict=True):
            if known(low) and known(high):
                xs += [100 * float(low), 100 * float(high), None]
                ys += [at, at, None]
        line = {"color": hue, "width": 3}
        fig.add("scatter", x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        who = [
            escape(f"{a}, {p}, layer {int(k)}")
            for a, p, k in zip(mine["artifact"], mine["probe"], mine["layer"], strict=True)
        ]
        spread = [f"{points(a)} to {points(b)}" for a, b in zip(mine["low"], mine["high"], strict=True)]
        fig.add(
            "scatter",
            x=100 * mine["change"].astype(float),
            y=y,
            mode="markers",
            name=f"over {escape(baseline_name(baseline))}",
            marker={"size": 10, "color": hue, "symbol": sign},
            customdata=np.column_stack([who, spread, [count(n) for n in mine["n_subjects"]]]),
            hovertemplate="%{customdata[0]}<br>%{x:+.1f} points<br>95 % interval %{customdata[1]}<br>"
            "%{customdata[2]} subjects<extra></extra>",
        )
    fig.xaxis(title="points of accuracy over the baseline")
    above = 1 + 8 / (step * len(lines))
    legend = {"orientation": "h", "y": above, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    fig.layout.update(showlegend=True, legend=legend)
    return fig.figure()


def baselines_table(metrics: pd.DataFrame, rows: pd.DataFrame) -> str:
    """One line per baseline (accuracy), then one per probe (accuracy, and its difference from each baseline).

    metrics, rows: of one attribute and split; rows of one defence.
    """
    baselines = [str(b) for b in metrics["baseline"]]
    head = '<tr><th scope="col">read from</th><th scope="col" class="num">accuracy<small>95 % interval</small></th>'
    head += "".join(
        f'<th scope="col" class="num">over {escape(baseline_name(b))}, points<small>95 % interval</small></th>'
        for b in baselines
    )
    head += '<th scope="col" class="num">test rows</th><th scope="col" class="num">subjects</th></tr>'
    body = []
    for row in metrics.to_dict("records"):
        value, under = accuracy_words(row)
        inner = f'<td class="num">{value}<small>{under}</small></td>' + f'<td class="num">{NONE}</td>' * len(baselines)
        inner += f'<td class="num">{count(row["n_eval"])}</td><td class="num">{count(row["n_subjects"])}</td>'
        name = baseline_name(row["baseline"])
        body.append(f'<tr><th scope="row">{escape(name)}<small>baseline</small></th>{inner}</tr>')
    for (artifact, layer, probe), part in rows.groupby(["artifact", "layer", "probe"], sort=False):
        mine = part.set_index("baseline")
        one = part.iloc[0]
        inner = f'<td class="num">{percent(one["accuracy"])}</td>'
        for baseline in baselines:
            there = mine.loc[baseline] if baseline in mine.index else None
            value = NONE if there is None else points(there["change"])
            under = "" if there is None else f"{points(there['low'])} to {points(there['high'])}"
            inner += f'<td class="num">{value}<small>{under}</small></td>'
        inner += f'<td class="num">{count(one["n_rows"])}</td><td class="num">{count(one["n_subjects"])}</td>'
        name = f"{escape(shorten(artifact, 40))} · {escape(probe)}"
        body.append(f'<tr><th scope="row">{name}<small>layer {layer}</small></th>{inner}</tr>')
    return table_html(head, "".join(body))
