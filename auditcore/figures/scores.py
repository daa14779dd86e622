"""Table `membership_scores` in; the distribution of scores out, members against non-members, single rows marked."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.findings import FORCED, attack_name, score_number
from auditcore.words import escape, known, shorten


@dataclass(frozen=True)
class Histogram:
    """Shares per bin of one attack's scores: members and non-members apart, forced rows beside them."""

    table: pd.DataFrame  # left, right, members, nonmembers (numbers of rows); scores, not logs
    log: bool  # bins are equal on the log axis; scores of 0 stand in the first bin
    forced: tuple[int, int]  # rows without a ratio, which no scale holds: members, non-members
    counts: dict[str, int]  # member, nonmember, forced, forced_low (ranked as 0), no_evidence, unknown, insufficient


def histogram(scores: pd.DataFrame, attack: str, bins: int = 40) -> Histogram:
    """Count the scores of one attack in bins. Rows without a finite score are counted by reason.

    EZ is a quotient: its bins are equal on a log axis, a score of 0 (no token raised, or too little evidence) stands
    in the first bin. The outermost bins hold everything beyond the 0.5 % and 99.5 % quantiles.
    """
    rows = scores[scores["attack"] == attack]
    low = rows["rank_score"].astype(float) <= 0
    member = rows["member"].astype("boolean")
    status = rows["status"].astype(str)
    value = rows["score"].astype(float).where(status != "insufficient", 0.0)
    drawn = member.notna() & np.isfinite(value)
    forced = member.notna() & status.isin(FORCED)
    is_member = member.fillna(False).astype(bool)
    counts = {
        "member": int((drawn & is_member).sum()),
        "nonmember": int((drawn & ~is_member).sum()),
        "forced": int(forced.sum()),
        "forced_low": int((forced & low).sum()),
        "no_evidence": int((status == "no_evidence").sum()),
        "unknown": int((member.isna() & (status != "no_evidence")).sum()),
        "insufficient": int((drawn & (status == "insufficient")).sum()),
    }
    log = attack == "ez"
    x = value[drawn].to_numpy()
    edges = _edges(x, log, bins)
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    of_members = is_member[drawn].to_numpy()
    table = pd.DataFrame(
        {
            "left": edges[:-1],
            "right": edges[1:],
            "members": np.bincount(place[of_members], minlength=len(edges) - 1),
            "nonmembers": np.bincount(place[~of_members], minlength=len(edges) - 1),
        }
    )
    pair = (int((forced & is_member).sum()), int((forced & ~is_member).sum()))
    return Histogram(table, log, pair, counts)


def _edges(x: np.ndarray, log: bool, bins: int) -> np.ndarray:
    inside = x[x > 0] if log else x
    if len(inside) == 0:
        return np.array([0.1, 1.0, 10.0]) if log else np.array([-1.0, 0.0, 1.0])
    low, high = np.quantile(inside, [0.005, 0.995])
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    return np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)


def scores_figure(
    bins: Histogram,
    attack: str,
    threshold: float | None = None,
    height: int = 320,
    rows: pd.DataFrame | None = None,
    chosen: str | None = None,
) -> go.Figure:
    """Draw members upwards and non-members downwards over the score, each as shares of their own group.

    rows: example_id, member, score of some rows, each a mark at the edge (members above) that can be clicked; the one
    called `chosen` is drawn larger. customdata of a bar ends in its side, lower and upper score; that of a mark
    is the row's name alone.
    """
    table = bins.table
    place = np.log10 if bins.log else np.asarray
    left, right = place(table["left"].to_numpy()), place(table["right"].to_numpy())
    centre, width = (left + right) / 2, float(right[0] - left[0])
    n = [max(bins.counts["member"] + bins.forced[0], 1), max(bins.counts["nonmember"] + bins.forced[1], 1)]
    fig = Canvas(height, barmode="overlay", bargap=0)
    spare = float(right[-1]) + 3.5 * width  # forced rows stand apart from the scale
    ends = [f"{score_number(a)} to {score_number(b)}" for a, b in zip(table["left"], table["right"], strict=True)]
    for side, (column, words, hue) in enumerate(
        (("members", "members", theme.RAISED), ("nonmembers", "non-members", theme.QUIET))
    ):
        sign = 1 if side == 0 else -1
        x = np.append(centre, spare) if any(bins.forced) else centre
        count = np.append(table[column], bins.forced[side]) if any(bins.forced) else table[column].to_numpy()
        label = [*ends, "no ratio"][: len(x)]
        fig.add(
            "bar",
            x=x,
            y=sign * count / n[side],
            width=[width * 0.92] * len(centre) + [3 * width] * (len(x) - len(centre)),
            name=words,
            marker={"color": hue, "line": {"width": 0}},
            customdata=_of_bars(count, count / n[side], label, column, table),
            **_STAY_AS_THEY_ARE,
            hovertemplate=f"{attack_name(escape(attack))} %{{customdata[2]}}<br>%{{customdata[0]}} {words} "
            "(%{customdata[1]:.1%} of them)<extra></extra>",
        )
        fig.note(
 f"<b>{words}</b>", 0, 1.0 if side == 0 else 0.0, xref="paper", yref="paper",
            yanchor="top" if side == 0 else "bottom", yshift=-15 * sign, font={"size": 13, "color": hue},
        )  # fmt: skip
    if known(threshold):
        _threshold_line(fig, float(threshold), bins, left[0], right[-1], place)
    top = max(float(np.abs(trace["y"]).max()) for trace in fig.traces) or 1.0
    if rows is not None and len(rows):
        _marks(fig, rows, chosen, attack, bins, place, 1.17 * top)
    ticks = _nice(top)
    both = sorted({s * t for t in ticks for s in (1, -1)})
    fig.yaxis(
        title="share of the group", range=[-1.25 * top, 1.25 * top], tickvals=both,
        ticktext=[f"{100 * abs(t):g} %" for t in both], zeroline=True, zerolinecolor=theme.HAIRLINE, zerolinewidth=1,
    )  # fmt: skip
    ticks_x = _score_ticks(bins, float(left[0]), float(right[-1]))
    if any(bins.forced):  # below the axis, where no line crosses it
        ticks_x = {"tickvals": [*ticks_x["tickvals"], spare], "ticktext": [*ticks_x["ticktext"], "no<br>ratio"]}
    fig.xaxis(title=_score_title(attack), showgrid=False, **ticks_x)
    return fig.figure()


# A click chooses a row; it must not pale all others.
_STAY_AS_THEY_ARE = {"selected": {"marker": {"opacity": 1}}, "unselected": {"marker": {"opacity": 1}}}


def _of_bars(count: np.ndarray, share: np.ndarray, label: list[str], side: str, table: pd.DataFrame) -> np.ndarray:
    ends = np.full((len(count), 2), np.nan)  # rows without a ratio have no score
    ends[: len(table)] = table[["left", "right"]].to_numpy()
    cells = [*zip(count.tolist(), share.tolist(), label, [side] * len(count), *ends.T.tolist(), strict=True)]
    return np.array(cells, dtype=object)


def _marks(
    fig: Canvas, rows: pd.DataFrame, chosen: str | None, attack: str, bins: Histogram, place, edge: float
) -> None:
    """Rows as thin marks at their score; what lies beyond the outermost bins stands at their edge."""
    low, high = float(bins.table["left"].iloc[0]), float(bins.table["right"].iloc[-1])
    x = place(np.clip(rows["score"].to_numpy(dtype=np.float64), low, high))
    member = rows["member"].to_numpy(dtype=bool)
    mine = rows["example_id"].to_numpy(dtype=object) == chosen
    names = [f"row {escape(shorten(i, 40))}" for i in rows["example_id"]]
    told = [
        f"<b>{n}</b><br>{attack_name(escape(attack))} {score_number(s)}"
        for n, s in zip(names, rows["score"], strict=True)
    ]
    line, diamond = {"symbol": "line-ns-open", "size": 11}, {"symbol": "diamond", "size": 13}
    # One colour to a trace: plotly checks a list of colours one by one, which costs more than all the rest.
    for some, mark, hue, edge_hue in (
        (~mine & member, line, theme.RAISED, theme.RAISED),
        (~mine & ~member, line, theme.QUIET, theme.QUIET),
        (mine, diamond, theme.ACCENT, theme.INK),
    ):
        if some.any():
            fig.add(
                "scatter",
                x=x[some],
                y=np.where(member, edge, -edge)[some],
                mode="markers",
                name="one row",
                marker={**mark, "color": hue, "line": {"width": 1, "color": edge_hue}},
                customdata=rows["example_id"].to_numpy(dtype=object)[some],
                text=np.array(told, dtype=object)[some],
                hovertemplate="%{text}<extra></extra>",
                **_STAY_AS_THEY_ARE,
            )  # fmt: skip


def _threshold_line(fig: Canvas, threshold: float, bins: Histogram, low: float, high: float, place) -> None:
    if bins.log and threshold <= 0:
        return
    x = float(place(threshold))
    beyond = x > high
    x = min(max(x, low), high + 1.2 * (high - low) / max(len(bins.table), 1))
    fig.add_vline(x=x, line={"width": 1.5, "color": theme.ACCENT})
    far = "threshold: among the rows without a ratio" if any(bins.forced) else "threshold: above nearly every row"
    text = far if beyond else f"called training rows from {score_number(threshold)}"
    near_right = x > low + 0.6 * (high - low)
    fig.note(text, x, 1.0, yref="paper", yanchor="bottom", xanchor="right" if near_right else "left",
               font={"size": 12, "color": theme.ACCENT})  # fmt: skip


def _nice(top: float) -> list[float]:
    """Two or three ticks from 0 up to `top`."""
    power = 10.0 ** np.floor(np.log10(top))
    step = next(m * power for m in (0.1, 0.2, 0.5, 1, 2, 5) if top / (m * power) < 4)
    return [round(step * i, 10) for i in range(int(top / step) + 1)]


def _score_title(attack: str) -> str:
    units = {"ez": "EZ score P/N, log axis", "loss": "mean log-probability, nats per token"}
    return units.get(
        attack, f"{escape(attack_name(attack))} score" + (", nats per token" if attack == "reference" else "")
    )


def _score_ticks(bins: Histogram, low: float, high: float) -> dict:
    if not bins.log:
        return {"range": None}
    decades = [(10.0**k) * m for k in range(int(np.floor(low)) - 1, int(np.ceil(high)) + 1) for m in (1, 2, 5)]
    inside = [d for d in decades if low <= np.log10(d) <= high]
    if len(inside) > 7:
        inside = [d for d in inside if f"{d:e}"[0] == "1"]
    return {"tickvals": [np.log10(d) for d in inside], "ticktext": [f"{d:g}" for d in inside]}
