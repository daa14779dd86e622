"""What a membership audit says. In: `attack_metrics`, a line of `verdicts`, counts. Out: sentences."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from auditcore.findings.common import HEADLINE_FPR, alarms, attack_name, share, short
from auditcore.membership import ties
from auditcore.verdict import MEANINGS, NOT_RESOLVED, WITHIN, interval_verdict
from auditcore.words import Strong, count, counted, interval, known, listed, number, percent_interval, signed


def points(metrics: pd.DataFrame, target_fpr: float) -> pd.DataFrame:
    """Rows of `attack_metrics` at one target FPR, best attack first; unresolved ones last."""
    rows = metrics[(metrics["metric"] == "tpr") & ((metrics["target_fpr"] - target_fpr).abs() < 1e-12)]
    return rows.sort_values("value", ascending=False, na_position="last", kind="stable")


def strongest_attack(metrics: pd.DataFrame, target_fpr: float = HEADLINE_FPR) -> pd.Series | None:
    """The attack with the highest TPR, by default at the rate that judges; None when no attack was measured there."""
    ranked = points(metrics, target_fpr)
    return None if ranked.empty else ranked.iloc[0]


def finest_fpr(metrics: pd.DataFrame, wanted: float = HEADLINE_FPR) -> float | None:
    """Return the smallest target FPR >= `wanted` at which some attack has a value, or None."""
    usable = metrics[
        (metrics["metric"] == "tpr") & metrics["value"].notna() & (metrics["target_fpr"] >= wanted - 1e-12)
    ]
    return None if usable.empty else float(usable["target_fpr"].min())


def membership_finding(metrics: pd.DataFrame | None, target_fpr: float = HEADLINE_FPR) -> list[str]:
    """Say what the best attack finds at `target_fpr`, or at the finest rate that this many non-members resolve.

    metrics: table `attack_metrics`, or None while there is none.
    """
    if metrics is None or metrics.empty:
        return ["No rate has been measured yet: this run has no finished operating points."]
    members, others = int(metrics["n_member"].max()), int(metrics["n_nonmember"].max())
    if not members or not others:
        if int(metrics["n_no_evidence"].max()) and not members and not others:
            none = Strong("no row of known membership holds evidence")
            return ["In this run ", none, " for any of its attacks, so nothing can be said about it."]
        missing = "no rows known to be members" if not members else "no rows known not to be members"
        return [f"This run has {missing}, so ", Strong("nothing can be said about false accusations"), "."]
    fpr = finest_fpr(metrics, target_fpr)
    if fpr is None:
        return _auc_finding(metrics, others)
    start = f"At a threshold that falsely accuses {alarms(fpr)}, "
    if fpr > target_fpr + 1e-12:
        missing = f"{counted(others, 'non-member')} cannot show a false-accusation rate of {alarms(target_fpr)}"
        if _enough(points(metrics, target_fpr)):
            missing = f"Tied scores leave no threshold that falsely accuses {alarms(target_fpr)}"
        start = f"{missing}. At one that falsely accuses {alarms(fpr)}, "
    ranked = points(metrics, fpr).dropna(subset=["value"])
    best = ranked.iloc[0]
    name = attack_name(best["attack"])
    if not _above(best["low"], best["realised_fpr"], best["value"]):
        between = f" (95 % interval {percent_interval(best['low'], best['high'])})" if known(best["low"]) else ""
        none = Strong("no attack finds clearly more training rows than that")
        return [start, none, f": the best, {name}, finds {share(best['value'])}{between}."]
    found = Strong(f"{name} finds {share(best['value'])} training rows")
    if len(ranked) < 2:
        return [start, found, "."]
    second = ranked.iloc[1]
    return [start, found, f"; the next best attack, {attack_name(second['attack'])}, finds {short(second['value'])}."]


def _auc_finding(metrics: pd.DataFrame, others: int) -> list[str]:
    auc = metrics[(metrics["metric"] == "auc") & metrics["value"].notna()].sort_values("value", ascending=False)
    start = f"{counted(others, 'non-member')} resolve no false-accusation rate asked for. "
    if _enough(metrics[metrics["metric"] == "tpr"]):
        start = "Tied scores leave no threshold at any false-accusation rate that so many rows resolve. "
    if auc.empty:
        return [start.strip()]
    best = auc.iloc[0]
    told = Strong(f"{attack_name(best['attack'])} ranks the training row first in {share(best['value'])} pairs")
    return [start, "Over all thresholds, ", told, " of one training row and one other row (guessing: 50)."]


def _enough(rates: pd.DataFrame) -> bool:
    """Whether the rows would resolve one of these rates: what has no value there has tied scores."""
    return bool(rates["resolvable"].eq(True).any())


def _above(low: object, floor: object, value: object) -> bool:
    """Clearly above chance: by the interval where there is one, else by twice the floor."""
    if known(low) and known(floor):
        return float(low) > float(floor)
    return known(value) and float(value) > 2 * float(floor)  # type: ignore[arg-type]


def excess_sentence(line: Any, verdict: str, tied: Mapping[str, str] | None = None) -> list[str]:
    """The membership verdict in words. line: the row of `verdicts` for all attacks; verdict: its word.

    tied: attack -> why its tied scores give no verdict (`tie_reasons`).
    """
    budget = f"a budget of {line['budget']:g}"
    n = f" {counted(int(line['n_subjects']), 'subject')}." if known(line["n_subjects"]) else ""
    why = [f"{attack_name(attack)}: {reason}" for attack, reason in (tied or {}).items()]
    apart = f" Not judged, {'; '.join(why)}." if why else ""
    if not known(line["value"]):
        return [
            f"Found minus falsely accused at 1 % could not be measured, so it is not held against {budget}.{apart}{n}"
        ]
    spread = f"90 % interval {interval(line['low'], line['high'])}" if known(line["low"]) else "no interval"
    meaning = MEANINGS.get(verdict, "no verdict")
    if verdict == NOT_RESOLVED and interval_verdict(line["low"], line["high"], line["budget"]) == WITHIN:
        meaning = "within it, but not every declared attack is"
    return [f"Found minus falsely accused at 1 %: {signed(line['value'])}, {spread}, {budget}: {meaning}. "
            f"Over all declared attacks.{apart}{n}"]  # fmt: skip


def no_difference(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What is said in the place of an attack's numbers where target and reference turned out to be one model."""
    return dict.fromkeys(manifest.get("no_difference") or [], "no difference between target and reference")


def tie_reasons(metrics: pd.DataFrame | None) -> dict[str, str]:
    """Attack -> why tied scores leave it without a verdict at the rate that judges. metrics: `attack_metrics`."""
    return {} if metrics is None or metrics.empty else ties.reasons(metrics, HEADLINE_FPR)


def _tie_notes(metrics: pd.DataFrame) -> list[list[str]]:
    """One sentence per attack and kind of tie; the reason is that of the largest rate."""
    found: dict[tuple[str, bool, bool], list[Any]] = {}
    for row in metrics.to_dict("records"):
        if ties.reason(row):
            kind = (str(row["attack"]), known(row["value"]), float(row["realised_fpr"]) > 0)
            found.setdefault(kind, []).append(row)
    notes = []
    for (attack, *_), rows in found.items():
        rows = sorted(rows, key=lambda row: row["target_fpr"])
        rates = listed([ties.percent(row["target_fpr"]) for row in rows])
        none = Strong(f"{attack_name(attack)} has no threshold at {rates}")
        notes.append([none, f": {ties.reason(rows[-1])}. It is neither cleared nor found to leak there."])
    return notes


def unresolved_notes(metrics: pd.DataFrame) -> list[list[str]]:
    """What has no value at a target FPR: rates that so few non-members cannot resolve, with how many are needed; then
    attacks whose tied scores leave no threshold."""
    from auditcore.membership.thresholds import needed_nonmembers  # here: scipy is slow to import

    rows = metrics[(metrics["metric"] == "tpr") & metrics["value"].isna() & ~metrics["resolvable"].eq(True)]
    notes: list[list[str]] = []
    for fpr, some in rows.groupby("target_fpr"):
        others = int(some["n_nonmember"].max())
        if others and int(some["n_member"].max()):
            needed = Strong(f"{needed_nonmembers(float(fpr)):,} are needed")  # type: ignore[arg-type]
            rate = f"A false-accusation rate of {alarms(float(fpr))} cannot be shown "  # type: ignore[arg-type]
            notes.append([rate, f"with {counted(others, 'non-member')}: ", needed, "."])
    return notes + _tie_notes(metrics)


def blind_sentence(blind: pd.DataFrame) -> list[str]:
    """What the words alone tell of membership. blind: table `blind`."""
    auc = blind[(blind["metric"] == "auc") & blind["value"].notna()].to_dict("records")
    if not auc:
        return ["Whether the words alone tell members from others was not measured: so few subjects cannot show it."]
    between = f" (95 % interval {interval(auc[0]['low'], auc[0]['high'])})" if known(auc[0]["low"]) else ""
    told = Strong(f"AUC {number(auc[0]['value'])}")
    return ["Words alone, without asking a model, tell members from others with ", told, f"{between}; guessing is 0.5."]


def roc_sentence(metrics: pd.DataFrame, drawn: int, realisable: int) -> list[str]:
    """Caption of the ROC: which rows stand behind it and what was thinned."""
    rows = metrics[metrics["n_member"] + metrics["n_nonmember"] > 0]
    metrics = rows if len(rows) else metrics  # an attack that compares nothing would say 0 members
    row = metrics.iloc[0]
    thin = "" if drawn == realisable else f" Drawn with {count(drawn)} of {count(realisable)} thresholds."
    left = int(metrics["n_no_evidence"].max())
    out = f" {counted(left, 'row')} without evidence left out." if left else ""
    n = f"{counted(int(row['n_member']), 'member')}, {counted(int(row['n_nonmember']), 'non-member')}"
    return [f"{n}. Above the dotted line: better than guessing. Rates over rows, not per person.{out}{thin}"]


def scores_sentence(counts: dict[str, int], attack: str) -> list[str]:
    """Caption of the score distributions.

    counts: numbers of rows: member, nonmember, forced, forced_low (of them, ranked as 0), no_evidence, unknown,
    left_out (known, but part of no metric).
    """
    groups = f"{counted(counts['member'], 'member')} and {counted(counts['nonmember'], 'non-member')} drawn"
    parts = [f"{groups}; the outermost bars hold everything beyond the scale."]
    if counts.get("forced"):
        forced = f"{counted(counts['forced'], 'row')} without a ratio"
        why = "(the model makes no error there, or lowers no token)"
        placed = "count as 0" if counts.get("forced_low") else "are placed above every score, ranked by P"
        parts += [" ", Strong(forced), f" {why} {placed} and stand apart at the right."]
    elif attack == "ez":
        parts.append(" No row is without a ratio.")
    left = [
        f"{count(counts[key])} {words}"
        for key, words in (
            ("no_evidence", "without evidence"),
            ("unknown", "of unknown membership"),
            ("left_out", "of known membership that the run leaves out of every metric (see its notes)"),
        )
        if counts.get(key)
    ]
    if left:
        parts.append(f" Not drawn: {listed(left)}.")
    return parts
