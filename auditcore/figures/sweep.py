"""Table `sweep` in; leakage over training steps, and against validation loss, out."""

import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.tables import table_html
from auditcore.words import NONE, count, escape, known, number, percent, percent_interval

_METHODS = {"full": (theme.RAISED, "circle"), "lora": (theme.LOWERED, "diamond")}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def steps_figure(rows: pd.DataFrame, target_fpr: float | None, height: int = 340) -> go.Figure:
    """Leakage of every checkpoint over training steps, one line per variant with 95 % intervals.

    rows: `findings.sweep.at_rate`, one row per checkpoint. Full fine-tuning and LoRA differ in colour and mark,
    variants of one method in their dashes.
    """
    return _figure(rows, "step", "training step", target_fpr, height)


def loss_figure(rows: pd.DataFrame, matched: pd.DataFrame, target_fpr: float | None, height: int = 340) -> go.Figure:
    """Leakage against validation loss: a method is safer only where it leaks less at the same loss.

    matched: table `matched`; its pair is marked by a vertical line each (one line where the losses are equal).
    """
    fig = _figure(rows[rows["validation_loss"].notna()], "validation_loss", "validation loss, nats per token",
                  target_fpr, height)  # fmt: skip
    if len(matched):
        for column in ("loss_a", "loss_b"):
            fig.add_vline(x=float(matched[column].iloc[0]), line={"dash": "dot", "width": 1, "color": theme.QUIET})
        theme.note(fig, "compared here", float(matched["loss_a"].iloc[0]), 1.0, yref="paper", yanchor="bottom",
                   xanchor="center")  # fmt: skip
    return fig.update_layout(margin={"t": 28})


def _figure(rows: pd.DataFrame, x: str, title: str, target_fpr: float | None, height: int) -> go.Figure:
    fig = theme.figure(height=height)
    rate = target_fpr is not None
    seen: dict[str, int] = {}
    for variant, one in rows.groupby("variant", sort=False):
        one = one.sort_values("step")
        method = str(one["method"].iloc[0])
        colour, symbol = _METHODS.get(method, (theme.QUIET, "square"))
        place = seen[method] = seen.get(method, -1) + 1
        value = one["value"].astype(float)
        up, down = one["high"].astype(float) - value, value - one["low"].astype(float)
        spread = [percent_interval(a, b) if rate else f"{number(a)} to {number(b)}" for a, b in
                  zip(one["low"], one["high"], strict=True)]  # fmt: skip
        hover = [
            f"<b>{escape(variant)}</b>, step {count(r['step'])}<br>"
            f"{percent(r['value']) if rate else number(r['value'])} "
            f"({s if known(r['low']) else 'too few rows for an interval'})<br>"
            f"validation loss {number(r['validation_loss'])}"
            for r, s in zip(one.to_dict("records"), spread, strict=True)
        ]
        fig.add_scatter(
            x=one[x], y=value, mode="lines+markers", name=escape(variant), text=hover, hoverinfo="text",
            line={"color": colour, "width": 2, "dash": _DASHES[place % len(_DASHES)]},
            marker={"size": 9, "symbol": symbol, "color": colour},
            error_y={"type": "data", "array": up, "arrayminus": down, "thickness": 1.2, "width": 3},
        )  # fmt: skip
    fig.update_xaxes(title_text=title, showgrid=False)
    top = "training rows found" if rate else "AUC"
    fig.update_yaxes(title_text=top, tickformat=".0%" if rate else ".2f", rangemode="tozero" if rate else "normal")
    legend = {"orientation": "h", "y": -0.25, "x": 0, "title": {"text": ""}}
    return fig.update_layout(showlegend=True, legend=legend)


def sweep_table(rows: pd.DataFrame, target_fpr: float | None) -> str:
    """One line per checkpoint: what it is, its losses, what the attack finds, as HTML with every name escaped."""
    what = "AUC" if target_fpr is None else f"rows found at {percent(target_fpr, 0)}"
    heads = ("checkpoint", "epoch", "training loss", "validation loss", what, "members / others")
    head = "".join(f'<th scope="col" class="{"num" if i else ""}">{escape(h)}</th>' for i, h in enumerate(heads))
    body = ""
    for row in rows.to_dict("records"):
        rate = target_fpr is not None
        value = NONE if not known(row["value"]) else percent(row["value"]) if rate else number(row["value"])
        spread = percent_interval(row["low"], row["high"]) if rate else _between(row)
        cells = [number(row["epoch"], 1), number(row["train_loss"]), number(row["validation_loss"])]
        inner = "".join(f'<td class="num">{c}</td>' for c in cells)
        size = f"{count(row['n_member'])} / {count(row['n_nonmember'])}"
        body += (
            f'<tr><th scope="row">{escape(row["variant"])}<small>step {int(row["step"])}</small></th>{inner}'
            f'<td class="num">{value}<small>{spread if known(row["low"]) else ""}</small></td>'
            f'<td class="num">{size}</td></tr>'
        )
    return table_html(f"<tr>{head}</tr>", body)


def _between(row: dict) -> str:
    return f"{number(row['low'])} to {number(row['high'])}"
