"""What two membership runs say together. In: paired differences. Out: one sentence."""

import pandas as pd

from auditcore.findings.common import HEADLINE_FPR, attack_name, share
from auditcore.words import Sentence, Strong, counted, known, number, signed


def comparison_finding(differences: pd.DataFrame, name_a: str, name_b: str, shared: int, left_out: int) -> Sentence:
    """The largest difference at 1 % false accusations (else in AUC), with its paired interval, and the rows behind it.

    differences: `membership.compare.Comparison.differences`; names as they are, escaped by whoever draws them.
    """
    rows = f" {counted(shared, 'row')} shared" + (f", {counted(left_out, 'row')} left out." if left_out else ".")
    if differences.empty:
        return [f"The two runs share no attack with members and non-members on the same rows.{rows}"]
    lines = differences[differences["difference"].notna()].to_dict("records")
    rates = [r for r in lines if r["metric"] == "tpr" and abs(r["target_fpr"] - HEADLINE_FPR) < 1e-9]
    by_rate = len(rates) > 0
    best = max(rates or [r for r in lines if r["metric"] == "auc"], key=lambda r: abs(r["difference"]))
    attack = attack_name(str(best["attack"]))
    if by_rate:
        what = f"finds {share(best['value_a'])} training rows in {name_a} and {share(best['value_b'])} in {name_b}"
    else:
        what = f"has AUC {number(best['value_a'])} in {name_a} and {number(best['value_b'])} in {name_b}"
    spread = f"{signed(best['difference'])} (95 % interval {signed(best['low'])} to {signed(best['high'])})"
    if not known(best["low"]):
        sure = "; so few rows give the difference no interval"
    elif best["low"] > 0 or best["high"] < 0:
        sure = f"; the difference, {spread}, is not chance"
    else:
        sure = f"; the difference, {spread}, may be chance"
    return [Strong(f"{attack} {what}"), f"{sure}.{rows}"]
