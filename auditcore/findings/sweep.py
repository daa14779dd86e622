"""What a sweep over fine-tunings says. In: tables `sweep` and `matched`. Out: sentences."""

import pandas as pd

from auditcore.findings.common import HEADLINE_FPR, attack_name, records, share
from auditcore.words import Sentence, Strong, counted, known, number, percent, signed


def at_rate(sweep: pd.DataFrame, attack: str, target_fpr: float | None) -> pd.DataFrame:
    """One row per checkpoint: this attack's TPR at the rate, or its AUC (target_fpr None), in the order trained."""
    rows = sweep[sweep["attack"] == attack]
    if target_fpr is None:
        return rows[rows["metric"] == "auc"].reset_index(drop=True)
    return rows[(rows["metric"] == "tpr") & (rows["target_fpr"] - target_fpr).abs().lt(1e-12)].reset_index(drop=True)


def finest_rate(sweep: pd.DataFrame) -> float | None:
    """1 % where the non-members resolve it, else the next rate that they do; None leaves the AUC."""
    rates = sorted(sweep.loc[(sweep["metric"] == "tpr") & sweep["value"].notna(), "target_fpr"].unique())
    at_least = [float(f) for f in rates if f >= HEADLINE_FPR - 1e-12]
    return at_least[0] if at_least else None


def matched_finding(matched: pd.DataFrame, attack: str, target_fpr: float | None) -> Sentence:
    """Full fine-tuning against LoRA at the lowest validation loss that both reach, with the paired interval."""
    if matched.empty:
        return ["No fair comparison of the methods: it takes full and LoRA variants, and validation rows."]
    rows = matched[matched["attack"] == attack]
    if target_fpr is None or rows.loc[rows["metric"] == "tpr", "value_a"].isna().all():
        rows, by_rate = rows[rows["metric"] == "auc"], False
    else:
        rows, by_rate = rows[(rows["target_fpr"] - target_fpr).abs().lt(1e-12)], True
    if rows.empty or not known(rows["difference"].iloc[0]):
        return [f"{attack_name(attack)} cannot be compared between the two methods there: few rows, or tied scores."]
    row = records(rows)[0]
    losses = f"{number(row['loss_a'], 3)} and {number(row['loss_b'], 3)} nats per token"
    if row["matched"]:
        where = f"At equal validation loss ({losses})"
    else:
        where = f"The methods were never equally well trained; where they come nearest ({losses})"
    values = (
        (share(row["value_a"]), share(row["value_b"])) if by_rate else (number(row["value_a"]), number(row["value_b"]))
    )
    unit = f" of the training rows at {percent(target_fpr, 0)} false accusations" if by_rate else ""
    spread = f"difference {signed(row['difference'])}, 95 % interval {signed(row['low'])} to {signed(row['high'])}"
    if not known(row["low"]):
        sure = "too few rows for an interval"
    elif row["low"] > 0:
        sure = f"{spread}: full fine-tuning gives more away"
    elif row["high"] < 0:
        sure = f"{spread}: LoRA gives more away"
    else:
        sure = f"{spread}: no difference can be shown"
    name = attack_name(attack)
    verb = "finds" if by_rate else "has AUC"
    first = f"{name} {verb} {values[0]} under full fine-tuning and {values[1]} under LoRA{unit}"
    return [f"{where}, ", Strong(first), f" ({sure})."]


def checkpoints_finding(rows: pd.DataFrame, attack: str, target_fpr: float | None) -> Sentence:
    """How leakage moved over training. rows: `at_rate`."""
    told = rows[rows["value"].notna()]
    if told.empty:
        return ["No checkpoint has a rate yet that these rows can resolve."]
    write = number if target_fpr is None else share
    first = told.sort_values(["variant", "step"], kind="stable").groupby("variant", sort=False)
    parts = []
    for name, one in first:
        start, end = one.iloc[0], one.iloc[-1]
        if len(one) == 1:
            parts.append(f"{name} stands at {write(end['value'])} after step {int(end['step'])}")
        else:
            steps = f"from step {int(start['step'])} to {int(end['step'])}"
            parts.append(f"{name} goes from {write(start['value'])} to {write(end['value'])} {steps}")
    shown, rest = parts[:4], len(parts) - 4
    more = f"; {counted(rest, 'more variant')}" if rest > 0 else ""
    what = "AUC" if target_fpr is None else f"rows found at {percent(target_fpr, 0)} false accusations"
    return [f"{attack_name(attack)}, {what}: ", "; ".join(shown) + more + "."]
