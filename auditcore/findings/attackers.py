"""What attackers reach beside their accuracy. In: `probe_metrics`. Out: sentences on giveaways and code lengths."""

from typing import Any

import pandas as pd

from auditcore.findings.common import records
from auditcore.verdict import ALPHA, OVER, holm
from auditcore.words import Strong, count, known, number, percent, percent_interval


def giveaways(metrics: pd.DataFrame, split: str = "bal_test", defence: str = "none") -> list[dict[str, Any]]:
    """Attackers that name some subjects with near certainty, most subjects first: rows of `probe_metrics`.

    Only what guessing cannot have done, after Holm's correction over every attacker of this split and defence.
    """
    rows = metrics[(metrics["split"] == split) & (metrics["defence"] == defence) & metrics["seed"].isna()]
    if "confident_p" not in rows.columns or rows.empty:  # a run made before these were tested
        return []
    adjusted = holm(rows["confident_p"].astype(float).tolist())
    found = rows[(adjusted <= ALPHA) & (rows["confident_share"] > 0)]
    return records(found.sort_values("confident_share", ascending=False, kind="stable"))


def giveaway_sentence(metrics: pd.DataFrame, split: str = "bal_test", attribute: str | None = None) -> list[str]:
    """Say who is given away where the average is not over the budget: nobody must have to look for it. [] if nobody."""
    hidden = [row for row in giveaways(metrics, split) if row["verdict"] != OVER]
    hidden = [row for row in hidden if attribute is None or row["attribute"] == attribute]
    if not hidden:
        return []
    row = hidden[0]
    share, spread = percent(row["confident_share"]), percent_interval(row["confident_low"], row["confident_high"])
    right = percent(row["confident_precision"], 0)
    more = f"; {count(len(hidden) - 1)} more attackers name some too" if len(hidden) > 2 else ""
    more = "; one more attacker names some too" if len(hidden) == 2 else more
    return [
        "An average that is not over the budget hides certain giveaways: ",
        Strong(f"{share} of subjects"),
        f" ({spread}, 95 % interval) have their {row['attribute']} named with near certainty from {row['artifact']} by "
        f"{row['probe']}, {right} of them rightly{more}.",
    ]


def code_length_words(row: Any) -> str:
    """The online code length of the training labels: "1.93 bits a row, 2.32 uncoded (1.2 times shorter)"."""
    bits, compression = row.get("mdl_bits"), row.get("mdl_compression")
    if not (known(bits) and known(compression)):
        return "not measured"
    return f"{number(bits, 2)} bits a row, {number(float(bits) * float(compression), 2)} uncoded"
