"""What the numbers say. In: tables of a run. Out: sentences in plain words, for pages, reports and the command line.

A sentence is a list of strings, some of them `words.Strong`; `words.plain` joins it, `words.sentence_html` escapes it.
Names that come from the user (attributes, classes, columns) stand in it as written: escape when drawing.
"""

from typing import Any

import pandas as pd

from auditcore.claims import claim
from auditcore.verdict import MEANINGS, OVER, SYMBOLS, WITHIN, combine
from auditcore.words import Sentence, Strong, count, counted, interval, known, listed, number, percent, percent_interval

__all__ = ["claim", "membership_finding", "vectors_finding"]

ATTACK_NAMES = {"ez": "EZ"}
HEADLINE_FPR = 0.01
STATUS_WORDS = {
    "ok": "scored",
    "p_zero": "no token raised (P = 0)",
    "n_zero": "no token lowered (N = 0): placed at the top",
    "no_errors": "the model makes no error here: placed at the top",
    "insufficient": "one error, or no shift at all: counts as 0",
    "no_evidence": "no evidence: too short to score, left out of every rate",
}


def attack_name(attack: str) -> str:
    """Return the name a reader knows: "ez" -> "EZ"."""
    return ATTACK_NAMES.get(attack, attack)


def share(rate: object) -> str:
    """Say a share as a count: 0.846 -> "85 of 100", 0.0019 -> "2 of 1,000"; never a false 0 or 100."""
    if not known(rate):
        return "an unknown share"
    value = float(rate)  # type: ignore[arg-type]
    if value in (0.0, 1.0):
        return "all" if value else "none"
    for base in (100, 1000):
        if value * base >= 0.5 and round(value * base) < base:
            return f"{round(value * base)} of {base:,}"
    return "more than 999 of 1,000" if value > 0.5 else "fewer than 1 of 1,000"


def alarms(target_fpr: float) -> str:
    """Say a false-positive rate in words: 0.01 -> "1 row in 100"."""
    for base in (100, 1000, 10_000, 100_000):
        rows = target_fpr * base
        if abs(rows - round(rows)) < 1e-9 and round(rows) >= 1:
            return f"{counted(round(rows), 'row')} in {base:,}"
    return f"{100 * target_fpr:.3g} rows in 100"


# --- membership ---


def points(metrics: pd.DataFrame, target_fpr: float) -> pd.DataFrame:
    """Rows of `attack_metrics` at one target FPR, best attack first; unresolved ones last."""
    rows = metrics[(metrics["metric"] == "tpr") & ((metrics["target_fpr"] - target_fpr).abs() < 1e-12)]
    return rows.sort_values("value", ascending=False, na_position="last", kind="stable")


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
        missing = "no rows known to be members" if not members else "no rows known not to be members"
        return [f"This run has {missing}, so ", Strong("nothing can be said about false accusations"), "."]
    fpr = finest_fpr(metrics, target_fpr)
    if fpr is None:
        return _auc_finding(metrics, others)
    start = f"At a threshold that falsely accuses {alarms(fpr)}, "
    if fpr > target_fpr + 1e-12:
        start = (
            f"{counted(others, 'non-member')} cannot show a false-accusation rate of {alarms(target_fpr)}. "
            f"At one that falsely accuses {alarms(fpr)}, "
        )
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
    return [start, found, f"; the next best attack, {attack_name(second['attack'])}, finds {_short(second['value'])}."]


def _auc_finding(metrics: pd.DataFrame, others: int) -> list[str]:
    auc = metrics[(metrics["metric"] == "auc") & metrics["value"].notna()].sort_values("value", ascending=False)
    start = f"{counted(others, 'non-member')} resolve no false-accusation rate asked for. "
    if auc.empty:
        return [start.strip()]
    best = auc.iloc[0]
    told = Strong(f"{attack_name(best['attack'])} ranks the training row first in {share(best['value'])} pairs")
    return [start, "Over all thresholds, ", told, " of one training row and one other row (guessing: 50)."]


def _above(low: object, floor: object, value: object) -> bool:
    """Clearly above chance: by the interval where there is one, else by twice the floor."""
    if known(low) and known(floor):
        return float(low) > float(floor)  # type: ignore[arg-type]
    return known(value) and float(value) > 2 * float(floor)  # type: ignore[arg-type]


def _short(rate: object) -> str:
    text = share(rate)
    return text.removesuffix(" of 100")


def unresolved_notes(metrics: pd.DataFrame) -> list[list[str]]:
    """One sentence per target FPR that so few non-members cannot resolve, with how many are needed."""
    from auditcore.membership.thresholds import needed_nonmembers  # here: scipy is slow to import

    rows = metrics[(metrics["metric"] == "tpr") & metrics["value"].isna()]
    notes: list[list[str]] = []
    for fpr, some in rows.groupby("target_fpr"):
        others = int(some["n_nonmember"].max())
        if others and int(some["n_member"].max()):
            needed = Strong(f"{needed_nonmembers(float(fpr)):,} are needed")  # type: ignore[arg-type]
            rate = f"A false-accusation rate of {alarms(float(fpr))} cannot be shown "  # type: ignore[arg-type]
            notes.append([rate, f"with {counted(others, 'non-member')}: ", needed, "."])
    return notes


def roc_sentence(metrics: pd.DataFrame, drawn: int, realisable: int) -> list[str]:
    """Caption of the ROC: which rows stand behind it and what was thinned."""
    row = metrics.iloc[0]
    thin = "" if drawn == realisable else f" Drawn with {count(drawn)} of {count(realisable)} thresholds."
    left = int(metrics["n_no_evidence"].max())
    out = f" {counted(left, 'row')} without evidence left out." if left else ""
    n = f"{counted(int(row['n_member']), 'member')}, {counted(int(row['n_nonmember']), 'non-member')}"
    return [f"{n}. Above the dotted line: better than guessing. Rates over rows, not per person.{out}{thin}"]


def scores_sentence(counts: dict[str, int], attack: str) -> list[str]:
    """Caption of the score distributions. counts: member, nonmember, forced, no_evidence, unknown (numbers of rows)."""
    parts = [f"{counted(counts['member'], 'member')} and {counted(counts['nonmember'], 'non-member')} drawn."]
    if counts.get("forced"):
        forced = f"{counted(counts['forced'], 'row')} placed at the top without a ratio"
        parts += [
            " ",
            Strong(forced),
            " (the model makes no error there, or lowers no token) stand apart at the right.",
        ]
    left = [
        f"{count(counts[key])} {words}"
        for key, words in (("no_evidence", "without evidence"), ("unknown", "of unknown membership"))
        if counts.get(key)
    ]
    if left:
        parts.append(f" Not drawn: {listed(left)}.")
    return parts


# --- vectors ---


def strongest(metrics: pd.DataFrame, attribute: str, split: str = "bal_test", defence: str = "none") -> pd.DataFrame:
    """Seed-averaged rows of `probe_metrics`: the probe with the highest gap per artifact and layer, strongest first."""
    rows = pooled(metrics, attribute, split, defence).sort_values("signed_gap", ascending=False, kind="stable")
    return rows.drop_duplicates(["artifact", "layer"])


def pooled(metrics: pd.DataFrame, attribute: str, split: str = "bal_test", defence: str = "none") -> pd.DataFrame:
    """Rows of `probe_metrics` in which seeds are averaged, of one attribute, split and defence."""
    chosen = (metrics["attribute"] == attribute) & (metrics["split"] == split) & (metrics["defence"] == defence)
    return metrics[chosen & metrics["seed"].isna()]


def vectors_finding(metrics: pd.DataFrame | None, attribute: str, budget: float, split: str = "bal_test") -> list[str]:
    """Say how often an attacker holding each artifact names the attribute, beside guessing, and what that means.

    metrics: table `probe_metrics`, or None while there is none.
    """
    rows = None if metrics is None else strongest(metrics, attribute, split)
    if rows is None or rows.empty:
        return ["Nothing has been measured yet: this run has no finished probe."]
    several = rows["layer"].nunique() > 1
    rows = rows.drop_duplicates("artifact")  # of each artifact the layer that tells most
    best = rows.iloc[0]
    told = Strong(f"{share(best['accuracy'])} subjects")
    parts: list[str] = ["An attacker holding ", Strong(artifact_words(best, several)), f" names {attribute} correctly "]
    parts += ["for ", told]
    others = [f"holding {artifact_words(row, several)} for {_short(row['accuracy'])}" for row in _records(rows[1:3])]
    parts.append("".join(f", {other}" for other in others))
    more = len(rows) - 3
    parts.append(f" ({counted(more, 'weaker artifact')} below)" if more > 0 else "")
    parts.append(f"; guessing gives {_short(best['chance'])}. ")
    return [*parts, *_verdict_words(rows, budget, several)]


def artifact_words(row: Any, with_layer: bool) -> str:
    """Name an artifact, with its layer when the run has several."""
    return f"{row['artifact']} at layer {int(row['layer'])}" if with_layer else str(row["artifact"])


def _verdict_words(rows: pd.DataFrame, budget: float, several: bool) -> list[str]:
    found = list(dict.fromkeys(rows["verdict"].dropna()))
    which = {1: "It is", 2: "Both are"}.get(len(rows), "All are")
    if len(found) == 1 and found[0] in (OVER, WITHIN):
        return [f"{which} ", Strong(f"{found[0].replace('budget', 'the budget')} of {budget:g}"), "."]
    if found == ["not resolved"]:
        n = count(rows["n_subjects"].min())
        return [Strong("Not resolved"), f": {n} test subjects cannot tell on which side of {budget:g} that lies."]
    parts: list[str] = []
    for verdict in found:
        names = listed([artifact_words(r, several) for r in _records(rows[rows["verdict"] == verdict])])
        head = verdict[0].upper() + verdict[1:]
        parts += [Strong(head), f" ({budget:g}): {names}. " if "budget" in verdict else f": {names}. "]
    return [*parts[:-1], parts[-1].strip()] if parts else ["No verdict yet."]


def accuracy_sentence(rows: pd.DataFrame) -> list[str]:
    """Caption of the accuracy picture. rows: attackers, strongest first."""
    best = rows.iloc[0]
    spread = percent_interval(best["accuracy_low"], best["accuracy_high"])
    text = f"{best['artifact']}, {best['probe']}: {percent(best['accuracy'])}, 95 % interval {spread}, "
    text += f"{counted(int(best['n_subjects']), 'subject')}; guessing gives {percent(best['chance'], 0)}. "
    return [text, "Grey: what the same probe reaches on permuted labels, up to its 95th percentile."]


def projection_sentence(drawn: int, total: int, broken: int, width: int, explained: tuple[float, float]) -> list[str]:
    """Honest caption of the projection: how much is shown, and that it proves nothing."""
    part = f"A sample of {count(drawn)} of {count(total)}" if drawn + broken < total else f"All {count(drawn)}"
    left = f" {counted(broken, 'vector')} with a value that is not finite left out." if broken else ""
    return [
        f"{part} test vectors. Two of {count(width)} directions hold {percent(sum(explained), 0)} of the variance: ",
        Strong("classes that mix here may still be told apart"),
        f", and the probes above decide.{left}",
    ]


def gap_sentence(row: Any) -> list[str]:
    """One attacker's LeakageGap in words: value, interval, n, verdict and what the verdict means."""
    symbol = f"{SYMBOLS[row['verdict']]} {row['verdict']}" if row["verdict"] in SYMBOLS else "no verdict"
    n = counted(int(row["n_subjects"]), "subject")
    ends = interval(row["signed_low90"], row["signed_high90"])
    head = f"{row['artifact']}, {row['probe']}: {number(row['signed_gap'])}, 90 % interval {ends} (thick), {n}: "
    return [head, Strong(symbol), f", {MEANINGS.get(row['verdict'], 'no interval')}."]


POINT_RULE = (
    "Point rule: the estimate alone lies within the budget. It is shown because it is in use; "
    "it ignores how many subjects stand behind the number, and decides nothing here."
)


def power_sentence(p_within: float, smallest: float, needed: int | None, subjects: int, budget: float) -> list[str]:
    """What a test of this size could have shown, and how many subjects would do."""
    parts = [
        f"With {counted(subjects, 'test subject')}, a vector that leaks nothing is called within {budget:g} ",
        Strong(f"with probability {number(p_within, 2)}"),
        f"; the smallest gap this test can tell from 0 is about {number(smallest)}.",
    ]
    if needed is not None and needed > subjects:
        parts += [
            " ",
            Strong(f"About {count(needed)} test subjects"),
            " would let a leak-free vector pass 4 times in 5.",
        ]
    return parts


def confident_sentence(row: Any) -> list[str]:
    """How many subjects are named with near certainty, which an average can hide."""
    if not known(row["confident_share"]):
        return ["Confident inferences were not measured."]
    named = Strong(f"{percent(row['confident_share'])} of subjects")
    return [named, " are named with a calibrated precision of at least 0.9: an average can hide such giveaways."]


def confusion_sentence(counts: pd.DataFrame) -> list[str]:
    """Name the class most often given away and the commonest mix-up. counts: actual × predicted, numbers."""
    cells = {(str(a), str(p)): float(n) for a, row in counts.iterrows() for p, n in row.items()}
    totals = {str(a): float(n) for a, n in counts.sum(axis=1).items() if n > 0}
    recalls = {a: cells.get((a, a), 0.0) / n for a, n in totals.items()}
    if not recalls:
        return ["No predictions to show."]
    top = max(recalls, key=lambda a: recalls[a])
    parts = [Strong(top), f" is named most often when it is true ({percent(recalls[top], 0)})"]
    mixed = {(a, p): n / totals[a] for (a, p), n in cells.items() if a != p and a in totals and n > 0}
    if mixed:
        actual, predicted = max(mixed, key=lambda pair: mixed[pair])
        parts.append(f"; the commonest mix-up takes {actual} for {predicted} ({percent(mixed[actual, predicted], 0)})")
    return [*parts, ". Each row of the picture adds up to 100 %."]


# --- the run as a whole ---


def overall(verdicts: pd.DataFrame) -> str:
    """Return the run's verdict from the table `verdicts`: its own combined line, else the rule without over-claiming.

    The combined line is the one whose attacker is `all`. Without it nothing is called over budget that Holm's
    correction might take back, unless there is one attacker only.
    """
    if verdicts.empty:
        return "not resolved"
    combined = verdicts[verdicts["attacker"] == "all"]
    if len(combined):
        return combine(combined["verdict"].tolist(), [0.0] * len(combined))
    each = verdicts["verdict"].tolist()
    return combine(each) if len(each) == 1 else combine(each, [None] * len(each))


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.to_dict("records")  # type: ignore[return-value]


def plain_lines(sentences: list[Sentence]) -> list[str]:
    """Join sentences into plain lines, for the command line."""
    return ["".join(s) for s in sentences]


# --- one row ---


def called(rank_score: object, threshold: object) -> bool | None:
    """Whether a row is called a member at a threshold; None where either is missing (no evidence, not resolved)."""
    return float(rank_score) >= float(threshold) if known(rank_score) and known(threshold) else None  # type: ignore[arg-type]


def row_sentence(row: Any, threshold: object, attack: str) -> list[str]:
    """What the attack says about one row of `membership_scores`, and whether that is right."""
    if row["status"] == "no_evidence":
        return [Strong("No evidence"), ": the row is too short to score, so nothing is said about it."]
    member = _truth(row["member"])
    truth = "" if member is None else "it was trained on" if member else "it was not trained on"
    says = called(row["rank_score"], threshold)
    why = (
        f" {STATUS_WORDS[row['status']][0].upper()}{STATUS_WORDS[row['status']][1:]}." if row["status"] != "ok" else ""
    )
    if says is None:
        known_truth = f"; {truth}" if truth else "; its membership is unknown"
        return [Strong("Not judged"), f": this run has no threshold at the chosen rate{known_truth}.{why}"]
    told = Strong("Called a training row" if says else "Not called a training row")
    if not truth:
        return [told, f"; whether it is one is unknown.{why}"]
    right = says == member
    tail = f", rightly: {truth}." if right else f", wrongly: {truth}."
    return [told, tail + why]


def score_words(row: Any, attack: str, threshold: object = None) -> str:
    """The score of one row as a reader sees it: "EZ 4.31 (threshold 1.87)"."""
    name = attack_name(attack)
    value = f"{name} {score_number(row['score'])}" if known(row["score"]) else f"no {name} score"
    limit = float(threshold) if known(threshold) else None  # type: ignore[arg-type]
    # Beyond any real score: the threshold lies among rows placed at the top.
    return (
        value
        if limit is None
        else f"{value} (threshold {'beyond every score' if limit > 1e100 else score_number(limit)})"
    )


def score_number(value: object) -> str:
    """A score or a threshold with the digits it deserves: "4.31", "0.012", "33,057"."""
    if not known(value):
        return number(value)
    size = abs(float(value))  # type: ignore[arg-type]
    if size >= 1000:
        return f"{float(value):,.0f}".replace("-", "\u2212")  # type: ignore[arg-type]
    return number(value, 1 if size >= 100 else 2 if size >= 0.1 or size == 0 else 4)


def _truth(member: object) -> bool | None:
    return None if member is None or pd.isna(member) else bool(member)  # type: ignore[call-overload]
