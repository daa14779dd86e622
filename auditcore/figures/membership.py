"""Tables `roc`, `attack_metrics` and `membership_scores` in; the figures of the page Remembered rows out."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.findings import attack_name, score_number
from auditcore.words import escape, known, percent

# The same attack has the same colour in every run; more hues than these cannot be told apart.
COLOURS = {
    "ez": theme.RAISED,
    "reference": theme.LOWERED,
    "loss": theme.OCHRE,
    "wbc": theme.VIOLET,
    "min_k_pp": theme.ACCENT,
    "lira": theme.ROSE,
}
FEW = 5  # up to so many curves all carry their names
MAX_POINTS = 400  # of one curve; more cannot be told apart on a screen
FORCED = ("no_errors", "n_zero")


def colours(attacks: list[str]) -> dict[str, str]:
    """The colour of each attack; grey for those without one of their own."""
    return {a: COLOURS.get(a, theme.QUIET) for a in attacks}


def named(attacks: list[str]) -> list[str]:
    """Attacks whose curve carries its name: all of a few, else those with a colour of their own."""
    return attacks if len(attacks) <= FEW else [a for a in attacks if a in COLOURS]


# --- ROC ---


@dataclass(frozen=True)
class Curves:
    """What a log-log picture of `roc` can show: curves to draw, and counts of what it cannot."""

    points: pd.DataFrame  # attack, fpr, tpr: corners of the steps, thinned
    floor: float  # left and lower end of both axes; an FPR of 0 is drawn there
    realisable: int  # thresholds in the table
    no_hits: int  # of them with a TPR of 0, which no log axis shows
    not_finite: int
    flat: list[str] = field(default_factory=list)  # attacks with no curve at all


def curves(roc: pd.DataFrame, n_nonmember: int) -> Curves:
    """Reduce `roc` to the corners a reader can see: the highest TPR of each FPR, thinned on the log axis.

    The picture keeps the exact steps at its ends and at every target rate up to its resolution; nothing is
    interpolated. Rows that are not finite are counted, not hidden.
    """
    finite = np.isfinite(roc["fpr"].astype(float)) & np.isfinite(roc["tpr"].astype(float))
    usable = roc[finite]
    floor = 10.0 ** np.floor(np.log10(1 / max(n_nonmember, 10)))
    kept, flat = [], []
    for attack, rows in usable.groupby("attack", sort=False):
        corners = rows.groupby("fpr", as_index=False)["tpr"].max()
        corners = corners[corners["tpr"] > 0]
        if corners.empty:
            flat.append(str(attack))
            continue
        corners["fpr"] = corners["fpr"].clip(lower=floor)
        corners = corners.groupby("fpr", as_index=False)["tpr"].max()
        kept.append(_thin(corners).assign(attack=attack))
    points = pd.concat(kept, ignore_index=True) if kept else pd.DataFrame(columns=["attack", "fpr", "tpr"])
    no_hits = int((usable["tpr"] <= 0).sum())
    return Curves(points[["attack", "fpr", "tpr"]], floor, len(roc), no_hits, int((~finite).sum()), flat)


def _thin(corners: pd.DataFrame) -> pd.DataFrame:
    if len(corners) <= MAX_POINTS:
        return corners
    place = np.log(corners["fpr"].to_numpy())
    cell = np.floor((place - place[0]) / (place[-1] - place[0]) * (MAX_POINTS - 2)).astype(int)
    last = np.append(np.diff(cell) != 0, True)  # the last corner of each cell: a true point of the curve
    last[0] = True
    return corners[last]


def roc_figure(drawn: Curves, target_fpr: float | None = None, height: int = 420) -> go.Figure:
    """Draw true against false positive rate, both on log axes, steps as they are.

    Each curve carries its name in the left margin, where the curves lie furthest apart; the scale of the y-axis stands
    at the right, so that neither covers a line.
    """
    attacks = list(dict.fromkeys(drawn.points["attack"]))
    hues = colours(attacks)
    bottom = min(drawn.floor, float(drawn.points["tpr"].min())) if attacks else drawn.floor
    low = np.floor(np.log10(bottom))
    left = np.log10(drawn.floor)
    fig = Canvas(height)
    fig.add(
"scatter",
        x=[drawn.floor, 1], y=[drawn.floor, 1], mode="lines", hoverinfo="skip", name="guessing",
        line={"color": theme.QUIET, "width": 1.5, "dash": "dot"},
    )  # fmt: skip
    starts = {}
    for attack in reversed(attacks):  # the first declared attack is drawn on top
        rows = drawn.points[drawn.points["attack"] == attack]
        starts[attack] = float(np.log10(rows["tpr"].iloc[0]))
        fig.add(
            "scatter",
            x=rows["fpr"],
            y=rows["tpr"],
            mode="lines",
            name=escape(attack_name(attack)),
            line={"color": hues[attack], "width": _width(attack, attacks), "shape": "hv"},
            hovertemplate=f"<b>{escape(attack_name(attack))}</b><br>falsely accused %{{x:.3%}}<br>"
            "found %{y:.2%}<extra></extra>",
        )
    starts = {a: y for a, y in starts.items() if a in named(attacks)}
    for attack, y in spread(starts, low, 0.0, gap=16 / (height - 90) * -low).items():
        text = f"<b>{escape(attack_name(attack))}</b>"
        fig.note(text, left, y, xanchor="right", xshift=-7, yanchor="middle", font={"size": 13, "color": hues[attack]})
    # Below the line of guessing nothing else is drawn.
    fig.note("guessing", -0.42, -0.62, font={"size": 12, "color": theme.QUIET}, xanchor="left", yanchor="top")
    if target_fpr is not None and np.log10(target_fpr) >= left:
        fig.add_vline(x=target_fpr, line={"width": 1, "color": theme.QUIET}, layer="below")
        label = percent(target_fpr, 0 if target_fpr >= 0.01 else 1)
        quiet = {"size": 12, "color": theme.QUIET}
        fig.note(label, np.log10(target_fpr), 1.0, yref="paper", yanchor="bottom", xanchor="center", font=quiet)
    fig.xaxis(type="log", range=[left, 0], title="other rows falsely accused", **_decades(left))
    fig.yaxis(type="log", range=[low, 0.03], title="training rows found", side="right", **_decades(low))
    longest = max([len(attack_name(a)) for a in named(attacks)] + [4])
    fig.layout["margin"] = {"l": 8 + 8 * longest, "r": 8, "t": 26, "b": 8}
    return fig.figure()


def _width(attack: str, attacks: list[str]) -> float:
    return 3 if attack == attacks[0] else 2 if attack in named(attacks) else 1.25


def _decades(low: float) -> dict:
    ticks = [10.0**k for k in range(int(low), 1)]
    return {"tickvals": ticks, "ticktext": [f"{100 * t:g} %" for t in ticks]}


def spread(places: dict[str, float], low: float, high: float, gap: float) -> dict[str, float]:
    """Move labels apart so that neighbours stand at least `gap` from each other inside [low, high]; order is kept."""
    names = sorted(places, key=lambda n: (places[n], n))
    spots = [min(max(places[n], low), high) for n in names]
    for i in range(1, len(spots)):
        spots[i] = max(spots[i], spots[i - 1] + gap)
    for i in reversed(range(len(spots))):
        ceiling = high if i == len(spots) - 1 else spots[i + 1] - gap
        spots[i] = min(spots[i], ceiling)
    return dict(zip(names, spots, strict=True))


# --- distributions ---


@dataclass(frozen=True)
class Histogram:
    """Shares per bin of one attack's scores: members and non-members apart, forced rows beside them."""

    table: pd.DataFrame  # left, right, members, nonmembers (numbers of rows); scores, not logs
    log: bool  # bins are equal on the log axis; scores of 0 stand in the first bin
    forced: tuple[int, int]  # rows placed at the top without a ratio: members, non-members
    counts: dict[str, int]  # member, nonmember, forced, no_evidence, unknown, insufficient


def histogram(scores: pd.DataFrame, attack: str, bins: int = 40) -> Histogram:
    """Count the scores of one attack in bins. Rows without a finite score are counted by reason.

    EZ is a quotient: its bins are equal on a log axis, a score of 0 (no token raised, or too little evidence) stands
    in the first bin. The outermost bins hold everything beyond the 0.5 % and 99.5 % quantiles.
    """
    rows = scores[scores["attack"] == attack]
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


def scores_figure(bins: Histogram, attack: str, threshold: float | None = None, height: int = 320) -> go.Figure:
    """Draw members upwards and non-members downwards over the score, each as shares of their own group."""
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
        rows = np.append(table[column], bins.forced[side]) if any(bins.forced) else table[column].to_numpy()
        label = [*ends, "no ratio: placed at the top"][: len(x)]
        fig.add(
            "bar",
            x=x,
            y=sign * rows / n[side],
            width=[width * 0.92] * len(centre) + [3 * width] * (len(x) - len(centre)),
            name=words,
            marker={"color": hue, "line": {"width": 0}},
            customdata=np.column_stack([rows, rows / n[side], label]),
            hovertemplate=f"{attack_name(escape(attack))} %{{customdata[2]}}<br>%{{customdata[0]}} {words} "
            "(%{customdata[1]:.1%} of them)<extra></extra>",
        )
        fig.note(
 f"<b>{words}</b>", 0, 1.0 if side == 0 else 0.0, xref="paper", yref="paper",
            yanchor="top" if side == 0 else "bottom", font={"size": 13, "color": hue},
        )  # fmt: skip
    if any(bins.forced):
        fig.note("no ratio,<br>placed at<br>the top", spare, 0, yref="paper", yanchor="bottom",
                   xanchor="center", font={"size": 11, "color": theme.QUIET})  # fmt: skip
    if known(threshold):
        _threshold_line(fig, float(threshold), bins, left[0], right[-1], place)  # type: ignore[arg-type]
    top = max(float(np.abs(trace["y"]).max()) for trace in fig.traces) or 1.0
    ticks = _nice(top)
    both = sorted({s * t for t in ticks for s in (1, -1)})
    fig.yaxis(
        title="share of the group", range=[-1.12 * top, 1.12 * top], tickvals=both,
        ticktext=[f"{100 * abs(t):g} %" for t in both], zeroline=True, zerolinecolor=theme.HAIRLINE, zerolinewidth=1,
    )  # fmt: skip
    fig.xaxis(title=_score_title(attack), showgrid=False, **_score_ticks(bins, float(left[0]), float(right[-1])))
    return fig.figure()


def _threshold_line(fig: Canvas, threshold: float, bins: Histogram, low: float, high: float, place) -> None:
    if bins.log and threshold <= 0:
        return
    x = float(place(threshold))
    beyond = x > high
    x = min(max(x, low), high + 1.2 * (high - low) / max(len(bins.table), 1))
    fig.add_vline(x=x, line={"width": 1.5, "color": theme.ACCENT})
    text = "threshold beyond the scale" if beyond else f"called training rows from {score_number(threshold)}"
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
