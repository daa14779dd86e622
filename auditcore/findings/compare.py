"""What two membership runs say together. In: paired differences, both specs. Out: sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from auditcore.findings.common import HEADLINE_FPR, alarms, attack_name, share
from auditcore.verdict import ALPHA, holm
from auditcore.words import Sentence, Strong, count, counted, known, listed, number, signed

# What decides a score beside the model: fields of a membership spec, and the attacks that read them (none: all).
SETTINGS: dict[str, tuple[str, ...]] = {
    "template": (),
    "max_length": (),
    "score": (),
    "on_duplicates": (),
    "model.dtype": (),
    "model.precision": (),
    "reference.kind": ("ez", "reference", "wbc", "min_k_pp_ref"),
    "ez_policy": ("ez",),
    "skip_first": ("ez",),
    "recall_shots": ("recall",),
    "shadows": ("lira",),
    "neighbours": ("neighbourhood", "spv"),
    "spv": ("spv",),
    "self_prompt": ("spv",),
}


def comparison_finding(differences: pd.DataFrame, name_a: str, name_b: str, shared: int, left_out: int) -> Sentence:
    """The largest difference at 1 % false accusations (else at another rate, else in AUC), and the rows behind it.

    differences: `membership.compare.Comparison.differences`; names as they are, escaped by whoever draws them. The
    largest of several is picked with hindsight: what is called more than chance is so after Holm's correction.
    """
    rows = f" {counted(shared, 'row')} shared" + (f", {counted(left_out, 'row')} left out." if left_out else ".")
    if differences.empty:
        return [f"The two runs share no attack with members and non-members on the same rows.{rows}"]
    told = differences[differences["difference"].notna()].to_dict("records")
    rates = [r for r in told if r["metric"] == "tpr"]
    headline = [r for r in rates if abs(r["target_fpr"] - HEADLINE_FPR) < 1e-9]
    lines: list[dict[Any, Any]] = headline or rates or [r for r in told if r["metric"] == "auc"]
    adjusted = holm([r["p_value"] for r in lines])
    place = max(range(len(lines)), key=lambda i: abs(lines[i]["difference"]))
    best, attack = lines[place], attack_name(str(lines[place]["attack"]))
    if best["metric"] == "tpr":
        what = f"finds {share(best['value_a'])} training rows in {name_a} and {share(best['value_b'])} in {name_b}"
        at = f", accusing {alarms(best['target_fpr'])} falsely"
    else:
        what = f"has AUC {number(best['value_a'])} in {name_a} and {number(best['value_b'])} in {name_b}"
        at = ""
    spread = f"{signed(best['difference'])} (95 % interval {signed(best['low'])} to {signed(best['high'])})"
    several = f", the largest of {len(lines)} attacks and corrected for that" if len(lines) > 1 else ""
    if not known(best["low"]):
        sure = "; so few rows give the difference no interval"
    elif adjusted[place] <= ALPHA:
        sure = f"; the difference, {spread}, is not chance{several}"
    else:
        sure = f"; the difference, {spread}, may be chance{several}"
    silent = shared - int(best["n_member"]) - int(best["n_nonmember"])
    rows += f" {count(silent)} of these hold no evidence in one of the runs." if silent > 0 else ""
    return [Strong(f"{attack} {what}"), f"{at}{sure}.{rows}"]


def settings_finding(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Settings beside the model in which two membership specs differ, in one sentence; "" when there are none."""
    found = listed(list(_differing(a, b)))
    return (
        f"The runs differ in more than their models: {found}. Part of any difference may be due to that."
        if found
        else ""
    )


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    shared = set(a.get("attacks") or ()) & set(b.get("attacks") or ())
    for name, attacks in SETTINGS.items():
        mine, theirs = _value(a, name), _value(b, name)
        if mine != theirs and (not attacks or shared & set(attacks)):
            plain = not isinstance(mine, dict) and not isinstance(theirs, dict)
            yield f"{name} ({_said(mine)} and {_said(theirs)})" if plain else name


def _value(spec: Mapping[str, Any], name: str) -> Any:
    first, _, rest = name.partition(".")
    found = spec.get(first)
    return (found or {}).get(rest) if rest else found


def _said(value: object) -> str:
    return "default" if value is None else f"'{value}'" if isinstance(value, str) and " " in value else str(value)
