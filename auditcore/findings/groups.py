"""What a run says about subjects instead of rows. In: scores with subjects, a threshold. Out: counts and sentences."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from auditcore.findings.common import alarms, attack_name
from auditcore.words import NONE, Strong, count, counted, known, percent, percent_interval


@dataclass(frozen=True)
class Subjects:
    """rates: two lines, subjects in training and not; table: one line per subject with several training rows."""

    rates: pd.DataFrame
    table: pd.DataFrame


def shared_subjects(data: dict[str, Any], groups: pd.Series) -> bool:
    """Whether rows of this run share subjects. data: the spec's; groups: the subject of every row."""
    named = "group" in (data.get("roles") or {}) or bool(data.get("corpus"))
    return named and bool(groups.duplicated().any())


def subjects(scores: pd.DataFrame, threshold: object) -> Subjects | None:
    """Count subjects at a threshold; None without one. scores: group, member and rank_score of one attack's rows."""
    from auditcore.membership import groups  # here: scipy is slow to import

    if not known(threshold):
        return None
    rank = scores["rank_score"].astype("float64")
    flagged = (rank >= float(threshold)).astype("boolean").mask(rank.isna(), pd.NA)
    asked = (scores["group"], scores["member"].astype("boolean"), flagged)
    return Subjects(groups.subject_rates(*asked), groups.by_subject(*asked))


def subjects_finding(found: Subjects, attack: str, target_fpr: float, fewest: int = 1) -> list[str]:
    """Say how many subjects have a row found, and how many others are falsely accused by one.

    fewest: counts of fewer subjects than this are not told (reports).
    """
    inside, outside = found.rates.to_dict("records")
    told: list[str] = []
    for line, where, says in (
        (inside, "with rows in training", f"{attack_name(attack)} finds at least one row of "),
        (outside, "without", "falsely accused by at least one row: "),
    ):
        n = int(line["n_subjects"])
        if n >= max(fewest, 1):
            hits = Strong(f"{_count(int(line['n_found']), fewest)} of {counted(n, 'subject')} {where}")
            told += ["; " if told else "", says, hits, _spread(line, fewest)]
        elif n:
            told += ["; " if told else "", f"fewer than {fewest} subjects are {where}: nothing is told of them"]
    if told:
        told.append(f", at a threshold that accuses {alarms(target_fpr)}.")
    if len(found.table) >= max(fewest, 1):
        standing = _count(int(found.table["stands_out"].sum()), fewest)
        several = count(len(found.table))
        told.append(
            f" Of {several} subjects with two or more rows in training, {standing} have clearly more of them found "
            "than the others (exact test, corrected for looking at all)."
        )
    return told


def _count(n: int, fewest: int) -> str:
    return f"fewer than {fewest}" if 0 < n < fewest else count(n) if n else "none"


def _spread(line: Any, fewest: int) -> str:
    if 0 < int(line["n_found"]) < fewest:
        return ""
    between = percent_interval(line["low"], line["high"], 0)
    return f" ({percent(line['share'], 0)}{f', 95 % interval {between}' if between != NONE else ''})"
