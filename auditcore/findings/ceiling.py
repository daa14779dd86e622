"""What nobody can beat on this data. In: table `ceilings`, attackers. Out: one number for charts, one sentence."""

from typing import Any

import pandas as pd

from auditcore.findings.common import records
from auditcore.words import Strong, counted, known, percent

NAME = "Bayes ceiling of this data"


def ceiling_of(table: pd.DataFrame | None, attribute: str, split: str = "bal_test") -> float | None:
    """Return the ceiling of one attribute and split, or None where the data has none that is known."""
    row = ceiling_row(table, attribute, split)
    return None if row is None or not known(row["ceiling"]) else float(row["ceiling"])


def ceiling_row(table: pd.DataFrame | None, attribute: str, split: str = "bal_test") -> dict[str, Any] | None:
    """Return the line of `ceilings` for one attribute and split, or None."""
    if table is None or table.empty:
        return None
    found = records(table[(table["attribute"] == attribute) & (table["split"] == split)])
    return found[0] if found else None


def ceiling_sentence(row: dict[str, Any] | None, best: Any) -> list[str]:
    """Say how far the strongest attacker is from the ceiling; [] where none is known. best: row of `probe_metrics`."""
    if row is None or not known(row["ceiling"]):
        return []
    top, chance, error = float(row["ceiling"]), float(best["chance"]), float(row["standard_error"])
    parts = [f"{NAME}: ", Strong(percent(top)), ": whoever reads the same notes and knows how they were made is right "]
    parts.append(f"as often on average ({counted(int(row['n_eval']), 'row')}). ")
    if not known(best["accuracy"]) or top <= chance:
        return parts
    accuracy = float(best["accuracy"])
    who = f"{best['artifact']}, {best['probe']}"
    if accuracy <= top:
        way = percent((accuracy - chance) / (top - chance), 0)
        return [*parts, f"{who} goes {way} of the way from guessing to it."]
    if accuracy <= top + 3 * error:
        return [*parts, f"{who} lies above it by no more than chance allows (standard error {percent(error)})."]
    above = f"{who} lies {percent(accuracy - top)} above it, more than chance allows: "
    return [*parts, Strong(above + "more than the notes went into these vectors, or a split is broken.")]
