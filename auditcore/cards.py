"""A run in; its verdict cards out: what was measured, on how many, with what interval, and the verdict. No streamlit.

The words on a card hold after Holm's correction over every attacker that the run declared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from auditcore import decisions, findings, subject, words
from auditcore import verdict as rule
from auditcore.findings import corrected
from auditcore.findings import defences as told
from auditcore.findings import frontier as say
from auditcore.store import Run
from auditcore.summary import Read, read_table
from auditcore.words import Sentence, Strong

NEEDED = 718  # non-members that resolve 1 % (membership.thresholds, which imports scipy: too slow for a first page)


@dataclass(frozen=True)
class Card:
    """One verdict card: verdict words, what was measured, one number as text, lines of detail."""

    verdict: str
    what: str | Sentence
    number: str
    details: Sequence[str | Sentence] = field(default_factory=tuple)


def of_run(run: Run, read: Read = read_table, limit: int = 6) -> list[Card]:
    """Verdict cards of a run, each with the model and the data it speaks of; empty when it has no result yet."""
    made: list[Card] = []
    if run.kind == "membership" and run.has("attack_metrics") and run.has("verdicts"):
        card = membership_card(read(run, "attack_metrics"), read(run, "verdicts"))
        made = [card] if card else []
    elif run.kind == "vectors" and run.has("probe_metrics") and run.has("verdicts"):
        costs = read(run, "defence_costs") if run.has("defence_costs") else None
        made = vector_cards(read(run, "probe_metrics"), read(run, "verdicts"), costs)
    elif decisions.has_checkpoints(run):
        made = checkpoint_cards(run, read)
    about = subject.of(run).line
    return [replace(card, details=(*card.details, about)) for card in made[:limit]]


def membership_card(metrics: pd.DataFrame, verdicts: pd.DataFrame) -> Card | None:
    """Card of a membership audit: rows found at 1 % false alarms by the strongest attack."""
    best = findings.strongest_attack(metrics)
    if best is None:
        return None
    name = findings.attack_name(str(best["attack"]))
    groups = f"{words.count(best['n_member'])} members, {words.count(best['n_nonmember'])} others"
    budget = f"budget {words.percent(_budget(verdicts))} above chance"
    if not words.known(best["value"]):
        what = "Training rows found at 1 % false alarms"
        nothing = not best["n_member"] and not best["n_nonmember"] and best["n_no_evidence"]
        why = f"so few rows cannot show it: {NEEDED} others are needed"
        why = "no row holds evidence for it" if nothing else findings.tie_reason(best) or why
        return Card(rule.NOT_RESOLVED, what, words.NONE, (why, groups))
    spread = words.percent_interval(best["low"], best["high"])
    first = f"95 % interval {spread}" if spread != words.NONE else "too few rows for an interval"
    n_attacks = metrics["attack"].nunique()
    measured = ("Rows found at 1 % false alarms by ", Strong(name))
    second = f"strongest of {n_attacks} attacks · {budget}" if n_attacks > 1 else budget
    word = _declared(verdicts, verdicts["attacker"] == best["attack"])
    return Card(word, measured, words.percent(best["value"]), (first, groups, second))


def vector_cards(metrics: pd.DataFrame, verdicts: pd.DataFrame, costs: pd.DataFrame | None = None) -> list[Card]:
    """Cards of a vectors audit, one per attribute and artifact; verdicts over all its probes. costs: `defence_costs`.

    First of every label its leakiest artifact, then the others, so that no label is cut off; strongest leak first.
    """
    best = findings.leakiest(metrics).sort_values("signed_gap", ascending=False, kind="stable")
    first = ~best.duplicated("attribute")
    best = pd.concat([best[first], best[~first]])
    found = corrected.every_test(metrics, findings.judging_split(metrics))
    said = {label: corrected.verdicts(rows, "artifact") for label, rows in found.groupby("attribute", sort=False)}
    tables = {
        (str(a), str(s)): told.table_of(metrics, costs, str(a), str(s))
        for a, s in best[["attribute", "split"]].drop_duplicates().itertuples(index=False)
    }
    made, layers = [], metrics["layer"].nunique()
    for row in best.to_dict("records"):
        mine = verdicts[(verdicts["attribute"] == row["attribute"]) & (verdicts["artifact"] == row["artifact"])]
        word = said.get(row["attribute"], {}).get(row["artifact"], rule.NOT_RESOLVED)
        probes = metrics.loc[metrics["artifact"] == row["artifact"], "probe"].nunique()
        attackers = f"strongest of {probes} probes" if probes > 1 else f"{row['probe']} probe"
        size = f"{attackers} · budget {points(_budget(mine))} points"
        what = [Strong(row["attribute"]), " read from ", Strong(findings.artifact_words(row, layers > 1))]
        what += [f", chance {words.percent(row['chance'], 0)}"]
        behind = _behind(tables[row["attribute"], row["split"]], row, _budget(mine))
        made.append(Card(word, what, words.percent(row["accuracy"]), (*spread(row), size, *behind)))
    return made


def checkpoint_cards(run: Run, read: Read = read_table) -> list[Card]:
    """Cards of a run of checkpoints, one per artifact at the checkpoint chosen; a verdict only on the test rows."""
    seen = decisions.view([run], read=read)
    record = decisions.revealed(run)
    at = record["content"]["chosen"] if record is not None else seen.at
    if at is None:
        return []
    table, split = seen.table[seen.table["step"] == at["step"]], "bal_test" if record is not None else "bal_val"
    rows = findings.strongest(table, seen.declaration.attributes[0], split)
    rows = rows.sort_values("artifact", key=lambda a: ~a.isin(seen.declaration.artifacts), kind="stable")
    said = {}
    if record is not None and run.has("verdicts"):
        judged = read(run, "verdicts")
        judged = judged[(judged["attacker"] != "all") & (judged["defence"] == findings.baseline(judged))]
        mine = corrected.adjusted(judged)
        said = corrected.verdicts(mine[mine["attribute"] == seen.declaration.attributes[0]], "artifact")
    made = []
    for row in rows.to_dict("records"):
        declared = row["artifact"] in seen.declaration.artifacts
        word = "not declared" if not declared else "judged on bal_val only"
        if declared and record is not None:
            word = said.get(row["artifact"], rule.NOT_RESOLVED)
        size = f"{split} · budget {points(seen.declaration.budget)} points"
        name = say.checkpoint_name(at)
        what = [Strong(row["attribute"]), " read from ", Strong(row["artifact"]), f", {name}"]
        what += [f", chance {words.percent(row['chance'], 0)}"]
        made.append(Card(word, what, words.percent(row["accuracy"]), (*spread(row), size)))
    return made


def spread(row: dict) -> tuple[str, str]:
    """The interval of the share that stands large on the card, and the gap that is judged, in points of that share."""
    ends = words.percent_interval(row["accuracy_low"], row["accuracy_high"])
    told = f"95 % interval {ends}" if ends != words.NONE else "too few subjects for an interval"
    around = words.interval(100 * row["signed_low90"], 100 * row["signed_high90"], 1)
    gap = f"LeakageGap (beyond guessing) {points(row['signed_gap'])} points, 90 % interval {around}"
    return f"{told}, {words.counted(int(row['n_subjects']), 'subject')}", gap


def points(share: object) -> str:
    """A share in points of a hundred, with one digit."""
    return words.number(100 * float(share), 1) if words.known(share) else words.NONE


def _behind(table: pd.DataFrame, row: dict, budget: float | None) -> list[str]:
    """What the best defence of a card's artifact leaves to the strongest attacker, as one line; [] without any."""
    best = told.best_defence(table, row["artifact"], int(row["layer"]), budget or 0.0)
    if best is None or best["defence"] == row["defence"]:
        return []
    chosen = f" ({best['choice']})" if best["choice"] else ""
    return [f"behind {best['defence']}{chosen}: {words.percent(best['accuracy'])}, {best['verdict']}"]


def _declared(verdicts: pd.DataFrame, own: "pd.Series[bool]") -> str:
    """The combined line of the run where there is one, else the attacker's own."""
    combined = verdicts[verdicts["attacker"] == "all"]
    lines = combined if len(combined) else verdicts[own]
    return str(lines["verdict"].iloc[0]) if len(lines) else rule.NOT_RESOLVED


def _budget(verdicts: pd.DataFrame) -> float | None:
    known = verdicts["budget"].dropna()
    return float(known.iloc[0]) if len(known) else None
