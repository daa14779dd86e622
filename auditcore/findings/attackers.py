"""What attackers reach beside their accuracy. In: `probe_metrics`. Out: sentences on giveaways and code lengths."""

from typing import Any

import pandas as pd

from auditcore.findings.common import records
from auditcore.verdict import ALPHA, OVER, holm
from auditcore.words import Strong, count, known, listed, number, percent, percent_interval


def certain(metrics: pd.DataFrame, split: str = "bal_test") -> pd.DataFrame:
    """Rows of `probe_metrics` whose attacker names some subjects with near certainty, most subjects first.

    Every defence and directive is looked behind. Only what guessing cannot have done, after Holm's correction over
    every attacker of this split.
    """
    rows = metrics[(metrics["split"] == split) & metrics["seed"].isna()]
    if "confident_p" not in rows.columns or rows.empty:  # a run made before these were tested
        return rows.iloc[:0]
    adjusted = holm(rows["confident_p"].astype(float).tolist())
    found = rows[(adjusted <= ALPHA) & (rows["confident_share"] > 0)]
    return found.sort_values("confident_share", ascending=False, kind="stable")


def giveaways(metrics: pd.DataFrame, split: str = "bal_test") -> list[dict[str, Any]]:
    """What `certain` finds, as plain dicts."""
    return records(certain(metrics, split))


def giveaway_sentence(metrics: pd.DataFrame, split: str = "bal_test", attribute: str | None = None) -> list[str]:
    """Say who is given away where the average is not over the budget: nobody must have to look for it. [] if nobody.

    A defence that holds on average can hide them as well as the vector as it is: the one that does is named.
    """
    hidden = [row for row in giveaways(metrics, split) if row["verdict"] != OVER]
    hidden = [row for row in hidden if attribute is None or row["attribute"] == attribute]
    if not hidden:
        return []
    row, *others = hidden
    share, spread = percent(row["confident_share"]), percent_interval(row["confident_low"], row["confident_high"])
    right = percent(row["confident_precision"], 0)
    n = "" if not known(row.get("n_subjects")) else f", of {count(row['n_subjects'])}"
    return [
        "An average that is not over the budget hides certain giveaways: ",
        Strong(f"{share} of subjects"),
        f" ({spread}, 95 % interval{n}) have their {row['attribute']} named with near certainty from {row['artifact']}"
        f"{_behind(row)} by {row['probe']}, {right} of them rightly{_more(others)}.",
    ]


def _behind(row: dict[str, Any]) -> str:
    return "" if row["defence"] == "none" else f" behind {row['defence']}"


def _more(others: list[dict[str, Any]]) -> str:
    """How many more attackers, and behind what, where that is anything but the vector as exported."""
    if not others:
        return ""
    who = "one more attacker names" if len(others) == 1 else f"{count(len(others))} more attackers name"
    places = list(dict.fromkeys(_behind(row).strip() or "as exported" for row in others))
    where = "" if places == ["as exported"] else f" ({listed(places)})"
    return f"; {who} some too{where}"


def code_length_words(row: Any) -> str:
    """The online code length of the training labels: "1.93 bits a row, 2.32 uncoded (1.2 times shorter)"."""
    bits, compression = row.get("mdl_bits"), row.get("mdl_compression")
    if not (known(bits) and known(compression)):
        return "not measured"
    return f"{number(bits, 2)} bits a row, {number(float(bits) * float(compression), 2)} uncoded"
