"""Vectors against what their recipient holds. In: `baseline_metrics`, `baseline_differences`. Out: sentences."""

import pandas as pd

from auditcore.findings.common import records, share, short
from auditcore.findings.outputs import points
from auditcore.words import Strong, known, listed, percent, percent_interval

NAMES = {"text": "the prompt's own words", "metadata": "the metadata alone"}
RULE = (
    "Probe minus baseline on the same test rows, 95 % intervals over subjects, paired by row, conditional on what was "
    "fitted, each for itself. It says which of the two tells more alone, not what both together would tell; no verdict "
    "counts a baseline."
)


def baseline_name(baseline: str) -> str:
    """Name a baseline within a sentence: "the prompt's own words"."""
    return NAMES.get(baseline, baseline)


def chosen(frame: pd.DataFrame, attribute: str, split: str, defence: str | None = None) -> pd.DataFrame:
    """Rows of a table of baselines of one attribute, split and (for differences) defence."""
    mine = (frame["attribute"] == attribute) & (frame["split"] == split)
    return frame[mine] if defence is None else frame[mine & (frame["defence"] == defence)]


def leading(rows: pd.DataFrame) -> pd.DataFrame:
    """Differences of the probe and layer that tell most of each artifact, the artifact that tells most first.

    rows: `chosen` differences. One row per artifact and baseline.
    """
    ordered = rows.sort_values("accuracy", ascending=False, kind="stable")
    best = ordered.drop_duplicates("artifact")[["artifact", "layer", "probe"]]
    return best.merge(rows, on=["artifact", "layer", "probe"], how="left")


def baselines_finding(metrics: pd.DataFrame, differences: pd.DataFrame | None, attribute: str) -> list[str]:
    """Say what each baseline names correctly, and how much more or less the vector that tells most does.

    metrics, differences: `chosen` rows of one attribute and split; differences None while probes are at work.
    """
    if metrics.empty:
        return []
    told: list[str] = ["Without any vector "]
    for place, row in enumerate(records(metrics)):
        amount = f"{share(row['accuracy'])} subjects" if place == 0 else short(row["accuracy"])
        verb = "name" if row["baseline"] == "text" else "names"
        told += [", " if place else "", baseline_name(row["baseline"])]
        told += [" for " if place else f" {verb} {attribute} correctly for ", Strong(amount)]
    told.append(f"; guessing gives {short(metrics['chance'].iloc[0])}.")
    if differences is None or differences.empty:
        return told
    best = records(leading(differences))
    first = best[0]
    mine = [row for row in best if row["artifact"] == first["artifact"]]
    behind = "" if first["defence"] == "none" else f" behind {first['defence']}"
    told.append(f" Of the vectors{behind} {first['artifact']} ({first['probe']}, layer {int(first['layer'])}) tells ")
    told.append("most: ")
    for place, row in enumerate(mine):
        told += [", " if place else "", *_against(row)]
    return [*told, "."]


def _against(row: dict) -> list[str]:
    ends = f"(95 % interval {spread(row)})"
    than = baseline_name(row["baseline"])
    if not (known(row["low"]) and known(row["high"])):
        return [f"not comparable with {than}"]
    if row["low"] > 0:
        return [Strong(f"{points(row['change'])} points"), f" {ends} more than {than}"]
    if row["high"] < 0:
        return [Strong(f"{points(row['change'])} points"), f" {ends}, less than {than}"]
    return ["not told apart from ", f"{than}, ", Strong(f"{points(row['change'])} points"), f" {ends}"]


def missing_sentence(asked: list[str], there: list[str]) -> str:
    """What would have been compared with, had the data a column for it; "" when nothing is missing."""
    lacking = [name for name in asked if name not in there]
    roles = {
        "text": "“Text the model reads” (in a spec, roles: {prompt: COLUMN})",
        "metadata": "“What the recipient holds anyway” (in a spec, roles: {metadata: [COLUMN, ...]})",
    }
    if not lacking:
        return ""
    return f"Not compared with {listed([baseline_name(n) for n in lacking])}: no column was named for it. " + (
        f"New audit asks for it under {' and '.join(roles.get(n, n) for n in lacking)}."
    )


def spread(row: dict) -> str:
    """The interval of a difference in points."""
    return f"{points(row['low'])} to {points(row['high'])}"


def accuracy_words(row: dict) -> tuple[str, str]:
    """Accuracy of a baseline, and its 95 % interval."""
    return percent(row["accuracy"]), percent_interval(row["accuracy_low"], row["accuracy_high"])
