"""What a set of checkpoints says. In: rows of `frontier.points`, a selection, a rebound. Out: sentences.

All numbers are those of the selection split unless a sentence says otherwise: bal_val chooses, bal_test decides.
"""

import re
from typing import Any

import pandas as pd

from auditcore.findings.common import records, share, short
from auditcore.frontier import Declaration, Rebound, Selection
from auditcore.verdict import MEANINGS, SYMBOLS
from auditcore.words import Strong, count, counted, interval, known, listed, number, percent, percent_interval, signed

RULES = {
    "point": "the estimate lies within the budget (the paper's rule)",
    "upper": "the whole 90 % interval lies within the budget",
}
_OWN_FOLDER = re.compile(r"step-\d+|base")  # of a run that trains: its number says as much
SEALED = "The test rows (bal_test) stay sealed until the choice is locked."


def budget_words(declaration: Declaration) -> str:
    """Which budget a page of checkpoints judges by: not that of the other audits."""
    return (
        f"Budget {declaration.budget:g} above guessing: the one declared for this choice. Every run declares its own "
        "(0.025 unless it says otherwise), so pages of other runs may judge by another."
    )


def checkpoint_name(row: Any, with_run: str = "") -> str:
    """Name a checkpoint: its own name where it has one, else its step; with its run where several are compared."""
    own, step = row.get("checkpoint"), int(row["step"])
    named = isinstance(own, str) and own and not _OWN_FOLDER.fullmatch(own)
    name = "base model" if step == 0 else str(own) if named else f"step {step}"
    return f"{name} of {with_run}" if with_run else name


def strength(value: object) -> str:
    """Name a lambda: "λ 2"; "λ not known" for checkpoints made elsewhere."""
    return f"λ {float(value):.3g}" if known(value) else "λ not known"


def frontier_finding(
    at: dict[str, Any] | None,
    selection: Selection,
    declaration: Declaration,
    cells: list[dict[str, Any]],
    plain: dict[Any, Any] | None,
    with_run: str = "",
) -> list[str]:
    """Say which checkpoint the rule chooses, what it keeps, and what it still gives away.

    at: the chosen (else nearest) row of `judged`; cells: its rows of `points`, declared artifacts first; plain: the
    utility-only anchor, if any; with_run: named when several runs are compared.
    """
    if at is None:
        return ["No checkpoint can be judged yet: no declared attacker was measured on any of them."]
    name = checkpoint_name(at, with_run)
    parts: list[str] = []
    if selection.chosen is None:
        parts = [Strong("No checkpoint meets the budget"), f" of {declaration.budget:g}. The nearest, {name}, "]
    else:
        parts = [Strong(name[:1].upper() + name[1:]), " "]
    parts += [_utility(at, plain), " and leaves the strongest attacker "]
    mine = [c for c in cells if c["artifact"] in declaration.artifacts]
    others = [c for c in cells if c["artifact"] not in declaration.artifacts]
    told = [f"{share(c['accuracy'])} to name {c['attribute']} from {c['artifact']}" for c in mine[:2]]
    parts += [Strong(listed(told)), f" (guessing gives {short(mine[0]['chance'])})" if mine else "", ". "]
    if others:
        rest = [f"{c['artifact']} {short(c['accuracy'])}" for c in others]
        verb = "was not targeted, still gives" if len(others) == 1 else "were not targeted, still give"
        parts.append(f"{listed([c['artifact'] for c in others])}, which {verb} ")
        parts.append(listed([short(c["accuracy"]) for c in others]) if len(rest) > 1 else short(others[0]["accuracy"]))
        parts.append(". ")
    return [*parts[:-1], parts[-1].rstrip()]


def _utility(at: dict[str, Any], plain: dict[Any, Any] | None) -> str:
    if not known(at["rougeL"]):
        return "has no measured ROUGE-L"
    if plain is None or not known(plain["rougeL"]):
        return f"reaches ROUGE-L {number(at['rougeL'], 1)}"
    lost = float(plain["rougeL"]) - float(at["rougeL"])
    if lost <= 0:
        return f"keeps ROUGE-L at {number(at['rougeL'], 1)}, no less than utility-only LoRA,"
    return f"keeps ROUGE-L at {number(at['rougeL'], 1)}, {number(lost, 1)} below utility-only LoRA,"


def selection_sentence(selection: Selection, declaration: Declaration, with_run: str = "") -> list[str]:
    """Say how the rule came to its choice, and what was left out."""
    what = f"{listed(list(declaration.attributes))} from {listed(list(declaration.artifacts))}"
    rule = "gap at most" if declaration.select_on == "point" else "90 % interval within ±"
    head = (
        f"Rule: of {counted(selection.candidates, 'checkpoint')}, those with {rule} {declaration.budget:g} for {what} "
    )
    head = head.replace("± ", "±")
    head += f"under every attacker ({listed(list(declaration.attackers))}); of these the highest ROUGE-L. "
    parts: list[str] = [head]
    if selection.chosen is not None:
        row = selection.chosen
        parts += [f"{count(selection.qualified)} qualify; ", Strong(checkpoint_name(row, with_run)), " is chosen"]
        parts.append(f" (gap {number(row['gap'])}, bound {number(row['upper'])}, ROUGE-L {number(row['rougeL'], 1)}).")
    elif selection.nearest is not None:
        row = selection.nearest
        parts += [Strong("None qualifies"), f"; {checkpoint_name(row, with_run)} comes nearest"]
        parts.append(f" (gap {number(row['gap'])}, bound {number(row['upper'])}, ROUGE-L {number(row['rougeL'], 1)}).")
    else:
        parts.append("None could be measured.")
    if selection.unmeasured:
        parts.append(f" {counted(selection.unmeasured, 'checkpoint')} left out: a gap or ROUGE-L is missing.")
    return parts


def tradeoff_sentence(rows: pd.DataFrame, focus: dict[str, Any] | None, budget: float) -> list[str]:
    """Caption of one artifact's picture. rows: trained points of one cell; focus: the marked one, a row of them."""
    within = int((rows["gap"].astype(float) <= budget).sum())
    best = int(rows["pareto"].sum())
    tail = (
        f"{within} of {counted(len(rows), 'checkpoint')} within the budget by the estimate; filled: the "
        f"{counted(best, 'checkpoint')} that no other beats on both axes."
    )
    if focus is None:
        return [tail]
    spread = percent_interval(focus["accuracy_low"], focus["accuracy_high"])
    head = f"{checkpoint_name(focus)}: {percent(focus['accuracy'])} named by {focus['probe']}, 95 % interval {spread}, "
    head += f"{counted(int(focus['n_subjects']), 'subject')}; guessing {percent(focus['chance'], 0)}. "
    return [head[:1].upper() + head[1:], tail]


def defence_name(name: object) -> str:
    """A defence as a line of the picture is called."""
    return str(name).upper() if name in ("leace", "inlp", "pca") else str(name)


def defended_sentence(rows: pd.DataFrame, focus: dict[str, Any] | None) -> list[str]:
    """What a defence on the exported vector adds to training. rows: `decisions.defended` of one cell; focus: a point.

    Says it of the marked checkpoint, with the same defence on the model before training beside it.
    """
    parts: list[str] = []
    if focus is None:
        return parts
    for defence, mine in rows.groupby("defence", sort=False):
        at = mine[(mine["run_id"] == focus["run_id"]) & (mine["step"] == focus["step"])]
        if at.empty or not known(at["signed_gap"].iloc[0]):
            continue
        row = at.iloc[0]
        spread = percent_interval(row["accuracy_low"], row["accuracy_high"])
        base = mine[mine["step"] == 0]
        alone = f"; {defence_name(defence)} alone, on the base model, {percent(base['accuracy'].iloc[0])}"
        parts.append(
            f"With {defence_name(defence)} on its exported vectors too: {percent(row['accuracy'])} named by "
            f"{row['probe']}, 95 % interval {spread}, {counted(int(row['n_subjects']), 'subject')}"
            f"{alone if len(base) and row['step'] else ''}. "
        )
    if parts:
        parts.append("Fitted on the subjects of defence_fit alone; no candidate of the rule.")
    return parts


def rebound_sentence(found: Rebound | None, artifact: str) -> list[str]:
    """Say whether a leak came back after its lowest point."""
    if found is None:
        return [f"{artifact}: too few checkpoints or subjects to tell a rebound."]
    spread = f"95 % interval {signed(found.low)} to {signed(found.high)}, {counted(found.n_subjects, 'subject')}"
    moved = f"{signed(found.rise)}, {spread}"
    zero = found.rise == found.low == found.high == 0
    if found.flagged and found.best_step < found.peak_step:
        return [
            f"{artifact}: after step {found.best_step} the leak ",
            Strong("comes back"),
            f" by {signed(found.rise)} ({spread}), highest at step {found.peak_step}.",
        ]
    if found.flagged:
        return [
            f"{artifact}: lowest at step {found.best_step} over all subjects, but between steps chosen on one half the "
            "leak of the other half ",
            Strong("comes back"),
            f" ({moved}).",
        ]
    if found.best_step == found.last_step:
        return [
            f"{artifact}: lowest at the last step, {found.best_step}: nothing comes after it in which the leak could "
            f"come back{'' if zero else f' (between steps chosen on the other half {moved})'}."
        ]
    if zero:
        return [f"{artifact}: lowest at step {found.best_step}; nothing came back after it."]
    return [f"{artifact}: no rebound shown after step {found.best_step} ({moved})."]


REBOUND_RULE = (
    "A rebound is measured on the half of the subjects that did not choose its steps, and the other way round: reading "
    "both from the same rows would flag many flat curves."
)


def reveal_finding(verdicts: pd.DataFrame, name: str) -> list[str]:
    """Say what the test rows said of the chosen checkpoint. verdicts: the run's table."""
    if verdicts.empty:
        return [f"The test rows gave no verdict on {name}."]
    combined = verdicts[verdicts["attacker"] == "all"]
    line = records(combined if len(combined) else verdicts)[0]
    worst = records(verdicts[verdicts["attacker"] != "all"].sort_values("value", ascending=False, kind="stable"))[0]
    word = str(line["verdict"])
    where = f"{worst['attribute']} from {worst['artifact']}, {worst['attacker']}"
    return [
        f"On the sealed test rows, {name} is ",
        Strong(f"{SYMBOLS.get(word, '')} {word}"),
        f": {MEANINGS.get(word, '')}. Strongest attacker ({where}): {signed(worst['value'])} above guessing, 90 % "
        f"interval {interval(worst['low'], worst['high'])}, {counted(int(worst['n_subjects']), 'subject')}, budget "
        f"{number(worst['budget'])}.",
    ]


def declaration_words(content: dict[str, Any]) -> str:
    """A declaration in one line."""
    d = Declaration.read(content)
    seeds = f", seeds {listed([str(s) for s in d.seeds])}" if d.seeds else ""
    layers = f", layer {listed([str(v) for v in d.layers])}" if d.layers else ""
    return (
        f"budget {d.budget:g}; {listed(list(d.attributes))} from {listed(list(d.artifacts))}{layers}; attackers "
        f"{listed(list(d.attackers))}{seeds}; rule: {RULES[d.select_on]}"
    )


def record_words(record: dict[str, Any]) -> list[str]:
    """One record of a run, for a list: who did what."""
    content, kind = record["content"], record["kind"]
    who = Strong(record["by"])
    chosen = content.get("chosen")
    if kind == "declaration":
        late = " after the lock, without effect" if content.get("after_lock") else ""
        what = f"; it would choose {checkpoint_name(chosen)}" if chosen else "; no checkpoint met it"
        return [who, f" declared{late}: {declaration_words(content['declaration'])}{'' if late else what}."]
    if kind == "lock":
        beside = content.get("with") or []
        where = f" among {counted(len(beside) + 1, 'run')}" if beside else ""
        return [who, f" locked {checkpoint_name(chosen)} of run {chosen['run_id']}{where}."]
    if kind == "reveal":
        looks = (content.get("test_split") or {}).get("earlier_looks") or 0
        before = f"; {counted(looks, 'other run')} had looked at these rows before" if looks else ""
        return ["The test rows were read once for ", who, f": {content.get('verdict') or 'no verdict'}{before}."]
    if kind == "decision":
        reason = f" Reason: {content['reason']}" if content.get("reason") else ""
        return [who, " decided: ", Strong(f"{content.get('choice')} {content.get('name', '')}".strip()), f".{reason}"]
    return [who, f" {kind}."]
