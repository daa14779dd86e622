"""Tables `roc` and `attack_metrics` in; the ROC of the page Remembered rows out, and the colour of every attack."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from auditcore.findings import attack_name
from auditcore.words import escape, percent

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
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot", "2px 4px", "10px 3px 2px 3px 2px 3px", "12px 6px")
MAX_POINTS = 400  # of one curve; more cannot be told apart on a screen


def colours(attacks: list[str], best: str | None = None) -> dict[str, str]:
    """The colour of each attack; grey for those without one of their own, but the best takes the one left over."""
    spare = theme.ROSE if "lira" not in attacks else theme.QUIET
    return {a: COLOURS.get(a, spare if a == best else theme.QUIET) for a in attacks}


def named(attacks: list[str], *told: str | None) -> list[str]:
    """Attacks whose curve carries its name: all of a few, else those with a colour of their own and those told of."""
    return attacks if len(attacks) <= FEW else [a for a in attacks if a in COLOURS or a in told]


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


def roc_figure(
    drawn: Curves,
    target_fpr: float | None = None,
    height: int = 420,
    best: str | None = None,
    chosen: str | None = None,
) -> go.Figure:
    """Draw true against false positive rate, both on log axes, steps as they are.

    Curves carry their names in the left margin, where they lie furthest apart; the scale of the y-axis stands at the
    right, so that neither covers a line. Of a long list the grey ones, and those that begin far from that margin, are
    told apart by their dashes, in a legend below. best: the attack that words beside the picture speak of; chosen: the
    one that the rest of the page shows; both carry their names.
    """
    attacks = list(dict.fromkeys(drawn.points["attack"]))
    hues, direct = colours(attacks, best), named(attacks, best, chosen)
    if len(attacks) > FEW:  # a curve that begins further right would have its name where it is not
        begins = drawn.points.groupby("attack")["fpr"].min()
        direct = [a for a in direct if begins[a] <= 10 * drawn.floor]
    quiet_ones = [a for a in attacks if a not in direct]
    dashes = {a: DASHES[i % len(DASHES)] for i, a in enumerate(quiet_ones)}
    below = 0 if not quiet_ones else 18 + 22 * -(-len(quiet_ones) // 2)
    bottom = min(drawn.floor, float(drawn.points["tpr"].min())) if attacks else drawn.floor
    low = np.floor(np.log10(bottom))
    left = np.log10(drawn.floor)
    fig = Canvas(height + below)
    fig.add(
"scatter",
        x=[drawn.floor, 1], y=[drawn.floor, 1], mode="lines", hoverinfo="skip", name="guessing", showlegend=False,
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
            line={
                "color": hues[attack],
                "width": 3 if attack in (best or attacks[0], chosen) else 2 if attack in direct else 1.5,
                "shape": "hv",
                "dash": dashes.get(attack, "solid"),
            },
            showlegend=attack in dashes,
            hovertemplate=f"<b>{escape(attack_name(attack))}</b><br>falsely accused %{{x:.3%}}<br>"
            "found %{y:.2%}<extra></extra>",
        )
    starts = {a: y for a, y in starts.items() if a in direct}
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
    longest = max([len(attack_name(a)) for a in direct] + [4])
    fig.layout["margin"] = {"l": 8 + 8 * longest, "r": 8, "t": 26, "b": 8 if not below else 52 + below}
    if quiet_ones:
        fig.layout |= {
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "x": 0,
                "xref": "container",
                "y": 0,
                "yref": "container",
                "yanchor": "bottom",
                "font": {"size": 12, "color": theme.INK},
                "itemclick": False,
                "itemdoubleclick": False,
                "entrywidth": 130,
                "traceorder": "reversed",
            },
        }
    return fig.figure()


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
