"""A run of checkpoints in; its sections of the report out: trade-off per artifact, rebounds, every checkpoint."""

import pandas as pd

from auditcore import decisions, findings, words
from auditcore.decisions import Frontier
from auditcore.findings import frontier as say
from auditcore.report.parts import number_cell, plot, section, table
from auditcore.store import Run
from auditcore.words import escape, isolated


def sections(run: Run) -> list[tuple[str, bool]]:
    """Sections and whether they need plotly, label by label."""
    seen = decisions.view([run])
    made = []
    for number, attribute in enumerate(seen.declaration.attributes):
        made += [_tradeoffs(seen, attribute, number), _steps(run, seen, attribute, number)]
    made.append((_table(seen), False))
    made.append((_skipped(run), False))
    return [m for m in made if m[0]]


def _tradeoffs(seen: Frontier, attribute: str, number: int) -> tuple[str, bool]:
    from auditcore.figures.frontier import ranges, tradeoff_figure

    rows = seen.points[seen.points["attribute"] == attribute]
    budget, at, behind = seen.declaration.budget, seen.at, decisions.defended(seen)
    behind = behind[behind["attribute"] == attribute]
    axes = ranges(pd.concat([rows, behind]) if len(behind) else rows, budget)
    parts = []
    for place, artifact in enumerate(seen.artifacts()):
        cell = rows[(rows["artifact"] == artifact) & (rows["step"] > 0)]
        marked = seen.point(at["run_id"], int(at["step"]), attribute, artifact) if at is not None else None
        anchors = seen.anchors
        if len(anchors):
            anchors = anchors[(anchors["attribute"] == attribute) & (anchors["artifact"] == artifact)]
        word = "selected" if seen.selection.chosen is not None else "nearest"
        named = at is not None and artifact in seen.declaration.artifacts
        label = f"{word}, {say.checkpoint_name(at)}" if named else ""
        mine = behind[behind["artifact"] == artifact]
        trained = mine[mine["step"] > 0]
        fig = tradeoff_figure(cell, anchors, budget, axes, marked=marked, label=label, defended=trained, height=380)
        told = say.defended_sentence(mine, marked)
        both = findings.both_sentence(seen.beside(at, attribute)) if artifact == "concat" else []
        note = " ".join(words.plain(s) for s in (say.tradeoff_sentence(cell, marked, budget), told, both) if s)
        declared = "declared" if artifact in seen.declaration.artifacts else "not declared"
        parts.append(
            f"<h3>{escape(words.shorten(artifact, 40))}, {declared}</h3>{plot(fig, f'trade-{number}-{place}')}"
        )
        parts.append(f'<p class="quiet">{escape(note)}</p>')
    title = f"What is kept against what is given away of {words.shorten(attribute, 60)}"
    rule = words.plain(say.selection_sentence(seen.selection, seen.declaration))
    note = f"{rule} All numbers of the pictures are of bal_val; bars are 95 % intervals over subjects and summaries."
    note += f" {say.budget_words(seen.declaration)}"
    return section(title, "".join(parts), note), True


def _steps(run: Run, seen: Frontier, attribute: str, number: int) -> tuple[str, bool]:
    from auditcore.figures.frontier import leak_figure

    rows = seen.points[seen.points["attribute"] == attribute]
    if run.kind == "frontier" or rows["step"].nunique() < 2:
        return "", False
    found = {b: r for (a, b), r in decisions.rebounds(run, seen.declaration).items() if a == attribute}
    chosen = seen.selection.chosen
    step = int(chosen["step"]) if chosen is not None else None
    fig = leak_figure(rows, seen.artifacts(), seen.declaration.budget, found, step)
    told = " ".join(words.plain(say.rebound_sentence(found.get(a), a)) for a in seen.artifacts())
    return section("The leak while it was trained", plot(fig, f"steps-{number}"), f"{told} {say.REBOUND_RULE}"), True


def _table(seen: Frontier) -> str:
    """One line per checkpoint: lambda, ROUGE-L, the declared gap and its bound, the gap on each artifact."""
    judged = {(r["run_id"], r["step"]): r for r in seen.candidates.to_dict("records")}
    first = seen.points.drop_duplicates(["run_id", "step"]).to_dict("records")
    attribute = seen.declaration.attributes[0]
    lines = []
    for row in first:
        mine = judged.get((row["run_id"], row["step"]), {})
        found = [seen.point(row["run_id"], int(row["step"]), attribute, a) for a in seen.artifacts()]
        use = words.number(row["rougeL"], 1)
        if words.known(row["rougeL_low"]):
            use += f" ({words.interval(row['rougeL_low'], row['rougeL_high'], 1)})"
        cells = [words.number(row["lambda"], 2), use, words.number(mine.get("gap")), words.number(mine.get("upper"))]
        cells += [words.signed(f["signed_gap"]) if f else words.NONE for f in found]
        numbers = "".join(number_cell(c) for c in cells)
        lines.append(f"<tr><td>{isolated(words.shorten(say.checkpoint_name(row), 60))}</td>{numbers}</tr>")
    names = ("checkpoint", "lambda", "ROUGE-L (95 % interval)", "declared gap", "bound", *seen.artifacts())
    body = table(names, "".join(lines))
    note = f"Gaps on bal_val of {attribute}, strongest declared attacker; bound: far end of the 90 % interval."
    return section("Every checkpoint", body, note)


def _skipped(run: Run) -> str:
    frame = decisions.skipped(run)
    if frame.empty:
        return ""
    items = "".join(
        f"<li>{isolated(words.shorten(r['checkpoint'], 80))}: {isolated(r['reason'])}</li>"
        for r in frame.to_dict("records")
    )
    return section(f"{words.counted(len(frame), 'checkpoint')} left out", f"<ul>{items}</ul>")


__all__ = ["sections"]
