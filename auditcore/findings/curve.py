"""An attacker with fewer rows, and with more. In: `sample_curve` and `sample_extrapolation`. Out: sentences."""

import pandas as pd

from auditcore.findings.common import records
from auditcore.words import Strong, count, known, number, percent, percent_interval

RULE = (
    "Each size: the probe fitted and tuned anew on whole subjects of bal_train, several draws, each inside the next; "
    "judged on the same test rows. 95 % intervals over test subjects and draws, conditional on these training rows. "
    "Dashed: a saturating power law, a - b n^-c, through the sizes. What lies beyond the last measured size is an "
    "extrapolation: its band holds if the curve goes on as such a law, which no row here can show."
)


def of_attribute(frame: pd.DataFrame, attribute: str) -> pd.DataFrame:
    """Rows of one attribute."""
    return frame[frame["attribute"] == attribute]


def leading(points: pd.DataFrame) -> str:
    """The artifact that is read best from all rows. points: rows of `sample_curve` of one attribute."""
    whole = points[points["share"] == 1.0].sort_values("accuracy", ascending=False, kind="stable")
    return str(whole["artifact"].iloc[0])


def curve_finding(points: pd.DataFrame, more: pd.DataFrame, artifact: str, budget: float) -> list[str]:
    """How accuracy grew with the rows for the artifact's strongest probe, and what more rows are extrapolated to give.

    points, more: rows of one attribute.
    """
    whole = points[(points["artifact"] == artifact) & (points["share"] == 1.0)]
    top = records(whole.sort_values("accuracy", ascending=False, kind="stable"))[0]
    mine = points[(points["artifact"] == artifact) & (points["probe"] == top["probe"])].sort_values("n_train")
    first = records(mine)[0]
    parts: list[str] = [f"{artifact} read by {top['probe']}: {percent(top['accuracy'])} with all "]
    parts.append(f"{count(top['n_train'])} training rows")
    if first["share"] < 1:
        parts.append(f", {percent(first['accuracy'])} with {count(first['n_train'])} of them")
    parts.append(f"; guessing gives {percent(top['chance'], 0)}. ")
    beyond = more[(more["artifact"] == artifact) & (more["probe"] == top["probe"])].sort_values("times")
    if beyond.empty:
        return parts
    last = records(beyond)[-1]
    times = f"{number(last['times'], 0 if float(last['times']).is_integer() else 1)} times the rows"
    if last["refused"]:
        return [*parts, Strong(f"Not extrapolated to {times}"), f": {last['refused']}."]
    spread = percent_interval(last["low"], last["high"])
    parts += ["With ", Strong(times), f" ({count(last['n_train'])}) the curve is extrapolated to "]
    parts += [Strong(percent(last["accuracy"])), f" (95 % band {spread}), {_against(last, budget)}: an extrapolation, "]
    return [*parts, f"not a measurement.{_check(last)}"]


def _against(row: dict, budget: float) -> str:
    low, high = row["low"] - row["chance"], row["high"] - row["chance"]
    if low > budget:
        return f"over the budget of {budget:g}"
    return f"within the budget of {budget:g}" if high <= budget else f"on both sides of the budget of {budget:g}"


def _check(row: dict) -> str:
    """How well the law without the largest size foretold it."""
    if not (known(row["predicted"]) and known(row["measured"])):
        return ""
    told, found = percent(row["predicted"]), percent(row["measured"])
    return f" Fitted without all rows the law foretold {told} for them; {found} was measured."
