"""Words for a terminal. In: a text, or a table. Out: printed lines, none of which a terminal obeys."""

from typing import TextIO

import pandas as pd

from auditcore.words import harmless

MOST_LINES = 40  # of verdicts


def say(text: str, to: TextIO | None = None) -> None:
    """Print at once. Names and classes come from a file: a terminal must not obey what they hold."""
    print(harmless(text), file=to, flush=True)


def short_verdicts(verdicts: pd.DataFrame, most: int = MOST_LINES) -> pd.DataFrame:
    """Lines for a terminal: all, or where they are many the strongest of each place and those over all attackers."""
    if len(verdicts) <= most:
        return verdicts
    ranked = verdicts.sort_values("value", ascending=False, kind="stable", na_position="last")
    keep = ranked.drop_duplicates(["attribute", "artifact", "defence"]).index
    return verdicts[verdicts.index.isin(keep) | (verdicts["attacker"] == "all")]


def verdict_table(verdicts: pd.DataFrame) -> str:
    """Lay out the verdicts table for a terminal."""

    def signed(value: float) -> str:
        return f"{value:+.3f}" if value == value else "-"

    together = verdicts["kind"].map({"vectors": "all artifacts"}).fillna("training rows")
    shown = pd.DataFrame(
        {
            "attribute": verdicts["attribute"].fillna(""),
            "measured": verdicts["artifact"].fillna(together),
            "layer": [None if pd.isna(v) else str(int(v)) for v in verdicts["layer"]],  # None where lines differ
            "defence": verdicts["defence"] if (verdicts["defence"].fillna("none") != "none").any() else None,
            "attacker": verdicts["attacker"],
            "split": verdicts["split"],
            "above chance": [signed(v) for v in verdicts["value"].astype(float)],
            "90 % interval": [
                f"{signed(low)} to {signed(high)}" if low == low else "-"
                for low, high in zip(verdicts["low"].astype(float), verdicts["high"].astype(float), strict=True)
            ],
            "budget": verdicts["budget"],
            "subjects": verdicts["n_subjects"].astype(object),
            "verdict": verdicts["verdict"],
        }
    )
    empty = [c for c in shown.columns if shown[c].isna().all() or (shown[c] == "").all()]
    return shown.drop(columns=empty).fillna("").to_string(index=False)
