"""Rows of `frontier.points` in; the figures of the page Checkpoint frontier out: trade-off, leak, utility by step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.findings.frontier import checkpoint_name, defence_name
from auditcore.frontier import Rebound
from auditcore.words import escape, known, number, shorten, signed

# From weak to strong, told apart by colour-blind eyes; plain LoRA is grey.
STRENGTHS = (theme.OCHRE, theme.LOWERED, theme.VIOLET, theme.RAISED, theme.ROSE)
SIGNS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
ARTIFACT_HUES = (theme.RAISED, theme.LOWERED, theme.VIOLET, theme.OCHRE, theme.ROSE)
BASE, PLAIN = "base model", "utility-only LoRA"
Range = tuple[float, float]


def strength_hues(values: Sequence[float]) -> dict[float | None, str]:
    """One colour per lambda, weakest first; 0 and "not known" (None) are grey."""
    known_ones = sorted({float(v) for v in values if known(v) and float(v) > 0})
    hues: dict[float | None, str] = {v: STRENGTHS[min(i, len(STRENGTHS) - 1)] for i, v in enumerate(known_ones)}
    return {None: theme.LOWERED, 0.0: theme.QUIET, **hues}


def hue_of(value: object, hues: dict[float | None, str]) -> str:
    """Colour of one lambda."""
    return hues[float(value)] if known(value) else hues[None]


def ranges(points: pd.DataFrame, budget: float) -> tuple[Range, Range]:
    """Axes that every artifact's picture shares: gap (with the budget band) and ROUGE-L, of trained checkpoints."""
    rows = points[points["step"] > 0]
    gaps = np.concatenate([_ends(rows)[0], _ends(rows)[1], [-budget, budget, 0.0]])
    uses = rows[["rougeL", "rougeL_low", "rougeL_high"]].astype(float).to_numpy().ravel()
    gaps, uses = gaps[np.isfinite(gaps)], uses[np.isfinite(uses)]
    if not len(uses):
        uses = np.array([0.0, 1.0])
    return _padded(float(gaps.min()), float(gaps.max()), 0.05), _padded(float(uses.min()), float(uses.max()), 0.09, 5.0)


def _padded(low: float, high: float, share: float, least: float = 0.02) -> Range:
    width = max(high - low, least)
    return low - share * width, high + share * width


def _ends(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of the gap: that of the accuracy, less guessing."""
    values = rows[["accuracy_low", "accuracy_high", "chance"]].astype(float).to_numpy()
    return values[:, 0] - values[:, 2], values[:, 1] - values[:, 2]


def tradeoff_figure(
    points: pd.DataFrame,
    anchors: pd.DataFrame,
    budget: float,
    axes: tuple[Range, Range],
    *,
    marked: dict[str, Any] | None = None,
    label: str = "",
    focus: tuple[str, int] | None = None,
    defended: pd.DataFrame | None = None,
    height: int = 420,
) -> go.Figure:
    """Draw ROUGE-L against the gap of the strongest attacker, one point per checkpoint, for one artifact.

    points: trained checkpoints of one attribute, artifact and layer (with `pareto`), of one run or several; anchors:
    the same cell's `frontier.anchors`; marked: the chosen or nearest row, ringed and labelled `label`; focus: (run,
    step) the reader looks at; defended: the same cell's trained rows of `decisions.defended`, a dashed line each. Bars
    are 95 % intervals. customdata holds run and step: a click selects them.
    """
    fig = Canvas(height)
    (x0, x1), (y0, y1) = axes
    fig.add_vrect(x0=-budget, x1=budget, fillcolor=theme.BUDGET_BAND, line_width=0, layer="below")
    fig.add_vline(x=0.0, line={"dash": "dot", "width": 1, "color": theme.QUIET}, layer="below")
    accent = {"size": 12, "color": theme.ACCENT}
    fig.note(f"budget ±{budget:g}", budget, 1, yref="paper", yanchor="bottom", xshift=-12, font=accent)
    hues = strength_hues(points["lambda"].tolist())
    signs = {run_id: SIGNS[place % len(SIGNS)] for place, run_id in enumerate(points["run_id"].unique())}
    for (run_id, strength), rows in points.groupby(["run_id", "lambda"], sort=False, dropna=False):
        # Checkpoints of one training follow each other; adapters from elsewhere need not.
        _path(fig, rows.sort_values("step"), hue_of(strength, hues), signs[run_id], known(strength))
    if defended is not None:
        for (run_id, defence), rows in defended.groupby(["run_id", "defence"], sort=False):
            _defended(fig, rows.sort_values("step"), str(defence), signs.get(run_id, SIGNS[0]), hues)
        _defence_names(fig, defended)
    _pareto_line(fig, points)
    for place, anchor in enumerate(anchors.to_dict("records")):
        named = anchor["anchor"] not in set(anchors["anchor"].iloc[:place])
        _anchor(fig, anchor, axes, named)
    if focus is not None:
        _ring(fig, points, focus, theme.QUIET, 22, "dot")
    if marked is not None:
        _ring(fig, points, (str(marked["run_id"]), int(marked["step"])), theme.ACCENT, 20, "solid")
        _label(fig, marked, label, (x0 + x1) / 2)
    fig.xaxis("LeakageGap (left leaks less)", range=[x0, x1], tickformat=".2~f", nticks=7)
    fig.yaxis("ROUGE-L (up is better)", range=[y0, y1], nticks=7)
    fig.layout["margin"] = {"l": 8, "r": 12, "t": 24, "b": 52}
    fig.layout["hovermode"] = "closest"
    return fig.figure()


def _path(fig: Canvas, rows: pd.DataFrame, hue: str, sign: str, joined: bool) -> None:
    low, high = _ends(rows)
    gap, use = rows["signed_gap"].astype(float), rows["rougeL"].astype(float)
    if joined:
        fig.add(
            "scatter", x=gap, y=use, mode="lines", line={"color": hue, "width": 1.2}, opacity=0.55, hoverinfo="skip"
        )
    filled = [hue if p else "rgba(0,0,0,0)" for p in rows["pareto"]]
    spread = {"type": "data", "color": hue, "thickness": 1, "width": 0}
    fig.add(
        "scatter",
        x=gap,
        y=use,
        mode="markers",
        marker={"size": 9, "symbol": sign, "color": filled, "line": {"width": 1.8, "color": hue}},
        error_x={**spread, "array": high - gap, "arrayminus": gap - low},
        error_y={
            **spread,
            "array": rows["rougeL_high"].astype(float) - use,
            "arrayminus": use - rows["rougeL_low"].astype(float),
        },
        customdata=_custom(rows),
        hovertemplate="%{customdata[2]}<br>LeakageGap %{customdata[3]}<br>ROUGE-L %{customdata[4]}<extra></extra>",
        # A click must not grey out the rest: the page marks what is selected.
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
    )


def _defended(fig: Canvas, rows: pd.DataFrame, defence: str, sign: str, hues: dict[float | None, str]) -> None:
    """The same checkpoints once their exported vectors pass a defence: a dashed line with its name."""
    rows = rows[np.isfinite(rows[["signed_gap", "rougeL"]].astype(float).to_numpy()).all(axis=1)]
    if rows.empty:
        return
    low, high = _ends(rows)
    gap, use = rows["signed_gap"].astype(float), rows["rougeL"].astype(float)
    values = [float(v) if known(v) else None for v in rows["lambda"]]
    hue = hues.get(values[-1], theme.QUIET)
    spread = {"type": "data", "array": high - gap, "arrayminus": gap - low, "color": hue, "thickness": 1, "width": 0}
    fig.add(
        "scatter", x=gap, y=use, mode="lines+markers", line={"color": hue, "width": 1.4, "dash": "dash"},
        marker={"size": 7, "symbol": f"{sign}-open-dot", "color": hue},
        error_x=spread, customdata=_custom(rows), name=f"with {defence_name(defence)}",
        hovertemplate=f"%{{customdata[2]}}, with {escape(defence_name(defence))} on its vectors<br>"
        "LeakageGap %{customdata[3]}<br>ROUGE-L %{customdata[4]}<extra></extra>",
        selected={"marker": {"opacity": 1}}, unselected={"marker": {"opacity": 1}},
    )  # fmt: skip


def _defence_names(fig: Canvas, defended: pd.DataFrame) -> None:
    """The name of each defence once, below the least useful of its points, where the fewest others stand."""
    rows = defended[np.isfinite(defended[["signed_gap", "rougeL"]].astype(float).to_numpy()).all(axis=1)]
    for defence, mine in rows.groupby("defence", sort=False):
        low = mine.sort_values("rougeL", kind="stable").iloc[0]
        fig.note(
            f"with {escape(defence_name(defence))}", float(low["signed_gap"]), float(low["rougeL"]), yanchor="top",
            yshift=-4, xanchor="left", xshift=-8, font={"size": 12, "color": theme.QUIET},
        )  # fmt: skip


def _custom(rows: pd.DataFrame) -> list[list[Any]]:
    low, high = _ends(rows)
    made = []
    wanted = ["run_id", "step", "checkpoint", "lambda", "probe", "signed_gap", "rougeL", "rougeL_low", "rougeL_high"]
    few = rows[[c for c in wanted if c in rows]]
    for row, a, b in zip(few.to_dict("records"), low, high, strict=True):
        name = escape(shorten(checkpoint_name(row), 40))
        strength = f"λ {float(row['lambda']):.3g}, " if known(row["lambda"]) else ""
        gap = f"{signed(row['signed_gap'])} (95 % {signed(a)} to {signed(b)}), {escape(row['probe'])}"
        use = f"{number(row['rougeL'], 1)} ({number(row['rougeL_low'], 1)} to {number(row['rougeL_high'], 1)})"
        made.append([str(row["run_id"]), int(row["step"]), strength + name, gap, use])
    return made


def _pareto_line(fig: Canvas, points: pd.DataFrame) -> None:
    """What can be had: from each point of the set straight to the next, as a step."""
    best = points[points["pareto"]].assign(_x=points["signed_gap"].astype(float)).sort_values(["gap", "rougeL"])
    if len(best) < 2:
        return
    line = {"color": theme.QUIET, "width": 1, "dash": "dot", "shape": "hv"}
    fig.add("scatter", x=best["_x"], y=best["rougeL"], mode="lines", line=line, hoverinfo="skip")


def _anchor(fig: Canvas, row: dict[Any, Any], axes: tuple[Range, Range], named: bool) -> None:
    """Base model or plain LoRA as a cross; one outside the picture stands at its edge and says its numbers."""
    gap, use = float(row["signed_gap"]), float(row["rougeL"])
    if not (known(gap) and known(use)):
        return
    (x0, x1), (y0, y1) = axes
    x, y = min(max(gap, x0), x1), min(max(use, y0), y1)
    outside = (x, y) != (gap, use)
    name = str(row["anchor"])
    where = f"gap {signed(gap, 2)}, ROUGE-L {number(use, 1)}"
    sign = "x-thin" if name == BASE else "cross-thin"
    fig.add(
        "scatter", x=[x], y=[y], mode="markers", cliponaxis=False,
        marker={"symbol": sign, "size": 11, "line": {"width": 2.5, "color": theme.QUIET}},
        customdata=[[str(row["run_id"]), int(row["step"])]],
        hovertemplate=f"{name}<br>{where}<extra></extra>",
    )  # fmt: skip
    if not named:
        return
    right = x > (x0 + x1) / 2
    text = f"{name}, ROUGE-L {number(use, 0)} {'↓' if y > use else '→'}" if outside else name
    fig.note(
        text, x, y, xanchor="right" if right else "left", xshift=-11 if right else 11, yanchor="bottom",
        yshift=0 if outside else 6, font={"size": 12, "color": theme.QUIET},
    )  # fmt: skip


def _ring(fig: Canvas, points: pd.DataFrame, where: tuple[str, int], hue: str, size: int, dash: str) -> None:
    rows = points[(points["run_id"] == where[0]) & (points["step"] == where[1])]
    rows = rows[np.isfinite(rows[["signed_gap", "rougeL"]].astype(float).to_numpy()).all(axis=1)]
    width = 2.5 if dash == "solid" else 1.2
    fig.add(
        "scatter", x=rows["signed_gap"].astype(float), y=rows["rougeL"].astype(float), mode="markers", hoverinfo="skip",
        marker={"symbol": "circle-open", "size": size, "line": {"width": width, "color": hue}, "color": hue},
    )  # fmt: skip


def _label(fig: Canvas, row: dict[str, Any], label: str, middle: float) -> None:
    """Name the marked checkpoint, below it and towards the middle: nothing better than it stands there."""
    x, y = float(row["signed_gap"]), float(row["rougeL"])
    if not (label and known(x) and known(y)):
        return
    right = x > middle
    fig.add_annotation(
        x=x, y=y, text=f"<b>{escape(label)}</b>", showarrow=True, arrowhead=0, arrowwidth=1, standoff=11,
        ax=-30 if right else 30, ay=46, xanchor="right" if right else "left",
        font={"size": 13, "color": theme.TEXT[theme.ACCENT][0]},
        arrowcolor=theme.ACCENT,
    )  # fmt: skip


# --- over steps ---


def leak_figure(
    points: pd.DataFrame, order: Sequence[str], budget: float, rebounds: dict[str, Rebound], at: int | None = None
) -> go.Figure:
    """Draw the gap of the strongest attacker over steps, one line per artifact, with 95 % intervals and rebounds.

    points: rows of one run and attribute, step 0 included; rebounds: artifact -> what was found, drawn when flagged.
    """
    fig = Canvas(360)
    fig.add_shape(type="rect", x0=0, x1=1, xref="x domain", y0=-budget, y1=budget, fillcolor=theme.BUDGET_BAND,
                  line_width=0, layer="below")  # fmt: skip
    fig.note(
        f"budget ±{budget:g}", 0, -budget, xref="x domain", yanchor="top", font={"size": 12, "color": theme.ACCENT}
    )
    ends: list[tuple[float, float, str, str]] = []
    for place, artifact in enumerate(order):
        rows = points[points["artifact"] == artifact].sort_values("step")
        rows = rows[np.isfinite(rows["signed_gap"].astype(float))]
        if rows.empty:
            continue
        hue = ARTIFACT_HUES[place % len(ARTIFACT_HUES)]
        low, high = _ends(rows)
        gap = rows["signed_gap"].astype(float)
        fig.add(
            "scatter", x=rows["step"], y=gap, mode="lines+markers", line={"color": hue, "width": 2}, marker={"size": 7},
            error_y={"type": "data", "array": high - gap, "arrayminus": gap - low, "thickness": 1, "width": 0,
                     "color": hue},
            customdata=[[escape(artifact), escape(p)] for p in rows["probe"]],
            hovertemplate="%{customdata[0]}, step %{x}<br>LeakageGap %{y:+.3f} (%{customdata[1]})<extra></extra>",
        )  # fmt: skip
        ends.append((float(rows["step"].iloc[-1]), float(gap.iloc[-1]), artifact, hue))
        if artifact in rebounds and rebounds[artifact].flagged:
            _rebound(fig, rows, rebounds[artifact])
    _line_names(fig, ends)
    if at is not None:
        _mark_step(fig, at)
    fig.xaxis("step", showgrid=False, range=_padded(0.0, float(points["step"].max()), 0.04))
    fig.yaxis("LeakageGap (lower leaks less)", tickformat=".2~f")
    fig.layout["margin"] = {"l": 8, "r": 84, "t": 26, "b": 48}
    return fig.figure()


def utility_figure(points: pd.DataFrame, plain: float | None, at: int | None = None) -> go.Figure:
    """Draw ROUGE-L over steps with its 95 % interval. points: one run, one cell; plain: utility-only LoRA's value."""
    rows = points.sort_values("step")
    rows = rows[np.isfinite(rows["rougeL"].astype(float))]
    fig = Canvas(360)
    use = rows["rougeL"].astype(float)
    spread = {"type": "data", "array": rows["rougeL_high"].astype(float) - use,
              "arrayminus": use - rows["rougeL_low"].astype(float), "thickness": 1, "width": 0,
              "color": theme.ACCENT}  # fmt: skip
    fig.add(
        "scatter", x=rows["step"], y=use, mode="lines+markers", line={"color": theme.ACCENT, "width": 2},
        error_y=spread, marker={"size": 7}, hovertemplate="step %{x}<br>ROUGE-L %{y:.1f}<extra></extra>",
    )  # fmt: skip
    if known(plain):
        fig.add_hline(y=float(plain), line={"dash": "dot", "width": 1.5, "color": theme.QUIET}, layer="below")
        fig.note(f"{PLAIN} {number(plain, 1)}", 0, plain, xref="x domain", yanchor="bottom", font={"size": 12})
    if at is not None:
        _mark_step(fig, at)
    fig.xaxis("step", showgrid=False, range=_padded(0.0, float(points["step"].max()), 0.04))
    fig.yaxis("ROUGE-L (higher is better)", nticks=7)
    fig.layout["margin"] = {"l": 8, "r": 12, "t": 26, "b": 48}
    return fig.figure()


def _rebound(fig: Canvas, rows: pd.DataFrame, found: Rebound) -> None:
    at = rows.set_index("step")["signed_gap"].astype(float)
    if found.best_step not in at.index or found.peak_step not in at.index:
        return
    low, high = float(at[found.best_step]), float(at[found.peak_step])
    fig.add_shape(type="rect", x0=found.best_step, x1=found.peak_step, y0=low, y1=high, fillcolor="rgba(213,94,0,0.13)",
                  line_width=0, layer="below")  # fmt: skip
    fig.note(f"comes back {signed(found.rise, 2)}", found.best_step, high, yanchor="bottom", yshift=3,
             font={"size": 12, "color": theme.RAISED})  # fmt: skip


def _mark_step(fig: Canvas, step: int) -> None:
    fig.add_vline(x=step, line={"dash": "dot", "width": 1.5, "color": theme.ACCENT}, layer="below")
    fig.note(f"step {step}", step, 1.0, yref="paper", yanchor="bottom", xanchor="center",
             font={"size": 12, "color": theme.ACCENT})  # fmt: skip


def _line_names(fig: Canvas, ends: list[tuple[float, float, str, str]]) -> None:
    """Names beside the ends of lines, pushed apart where the ends meet."""
    if not ends:
        return
    values = sorted(ends, key=lambda e: -e[1])
    span = max(e[1] for e in ends) - min(min(e[1] for e in ends), 0.0) or 1.0
    place = None
    for x, y, name, hue in values:
        place = y if place is None else min(y, place - 0.07 * span)
        text = f"<b>{escape(shorten(name, 14))}</b>"
        fig.note(text, x, place, xshift=9, yanchor="middle", font={"size": 13, "color": hue})
