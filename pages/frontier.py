"""Which checkpoint should we ship? In: the chosen run of checkpoints, others beside it. Out: the page."""

import itertools

import pandas as pd
import streamlit as st

from auditcore import decisions, findings, summary, words
from auditcore.decisions import Frontier
from auditcore.figures import frontier as figures
from auditcore.figures import stack
from auditcore.figures import tokens as token_figures
from auditcore.findings import frontier as say
from auditcore.frontier import Declaration, Rebound
from auditcore.frontier import judged as judge
from auditcore.store import Run
from auditcore.words import Strong
from pages import _frontier_checkpoint, _frontier_lock, _live, _notes
from pages import _frontier_choice as choice
from pages import _ui as ui

TABLES = ("checkpoints", "predictions", "generations", "training_log", "verdicts")
TITLE = "Checkpoint frontier"


def main() -> None:
    """Draw the page for the run chosen in the sidebar."""
    run = ui.current_run()
    if run is None or run.kind not in decisions.KINDS:
        _other(run)
        return
    if not decisions.has_checkpoints(run):
        ui.head(TITLE)
        ui.run_warnings(run)
        ui.empty("No checkpoint has been measured yet.", "The page fills as the run works; see New audit for progress.")
        _skipped(run)
        _live.watch(run, TABLES)
        return
    with ui.guard():
        _draw(run)
    _live.watch(run, TABLES)


def _other(run: Run | None) -> None:
    ui.head(TITLE)
    ui.other_question(run, choice.WANTED, choice.STARTS)


def _draw(run: Run) -> None:
    st.html(token_figures.style())
    head = st.container()
    others, attribute = choice.runs_and_label(run)
    seen = choice.view([run, *others], decisions.declared(run))
    names = choice.names([run, *others])
    with head:
        _head(run, seen, attribute, names)
    focus = _tradeoffs(seen, attribute, names)
    _trajectory(run, seen, attribute)
    _frontier_checkpoint.draw(seen, attribute, focus, names)
    _frontier_lock.draw(run, seen, others)
    _table(seen, attribute, names)
    _skipped(run)
    _notes.draw(run)


# --- the finding ---


def _head(run: Run, seen: Frontier, attribute: str, names: dict[str, str]) -> None:
    at, record = seen.at, decisions.revealed(run)
    finding = summary.checkpoint_finding(run, seen, attribute, ui.read, names)
    ui.head(TITLE, finding)
    ui.run_warnings(run)
    choice.changed_records(run)
    if record is not None and run.has("verdicts"):
        word = findings.overall(ui.read(run, "verdicts"))
        body = f"{ui.pill_html(word)} &ensp;bal_test, read once on {words.when(record['time'])}."
        ui.html(f'<p class="ac-quiet" style="margin-top:.75rem">{body}</p>')
    else:
        n = words.count(at["n_subjects"]) if at is not None else words.NONE
        ui.quiet(f"Every number here comes from bal_val ({n} subjects), which chooses. {say.SEALED}")


def _plain(seen: Frontier) -> dict | None:
    rows = seen.anchors[seen.anchors["anchor"] == figures.PLAIN] if len(seen.anchors) else seen.anchors
    return rows.iloc[0].to_dict() if len(rows) else None


# --- pictures ---


def _tradeoffs(seen: Frontier, attribute: str, names: dict[str, str]) -> tuple[str, int] | None:
    """Small multiples, one per artifact, on the same axes. Returns the checkpoint a reader looks at."""
    rows = seen.points[(seen.points["attribute"] == attribute)]
    trained = rows[rows["step"] > 0]
    missing = int((~trained[["signed_gap", "rougeL"]].astype(float).notna().all(axis=1)).sum())
    ui.section(
        "What is kept against what is given away",
        "One point per checkpoint; bars are 95 % intervals over subjects and summaries, conditional on the probes. "
        f"Click a point to look at that checkpoint below. {say.budget_words(seen.declaration)}",
    )
    _legend(seen, names)
    behind = decisions.defended(seen, ui.read)
    behind = behind[(behind["attribute"] == attribute)]
    axes = figures.ranges(pd.concat([rows, behind]) if len(behind) else rows, seen.declaration.budget)
    artifacts = seen.artifacts()
    focus = _frontier_checkpoint.focus(seen)
    columns = st.columns(min(len(artifacts), 3), gap="medium")
    for place, artifact in enumerate(artifacts):
        with columns[place % len(columns)]:
            cell = trained[trained["artifact"] == artifact]
            mine = behind[behind["artifact"] == artifact]
            _tradeoff(seen, cell, attribute, artifact, axes, focus, names, mine)
    if missing == len(trained) and trained["signed_gap"].notna().any():
        said = "No summaries were measured (rouge_rows: 0): there is nothing to hold the leak against, and the rule "
        ui.notice("warning", said + "chooses nothing. The gaps stand in the table below.")
    elif missing:
        ui.notice("warning", f"{words.counted(missing, 'point')} without a finite gap or ROUGE-L not drawn.")
    return focus


def _tradeoff(
    seen: Frontier, cell: pd.DataFrame, attribute: str, artifact: str, axes, focus, names: dict[str, str],
    defended: pd.DataFrame,
) -> None:  # fmt: skip
    role = "declared" if artifact in seen.declaration.artifacts else "not declared"
    at = seen.at
    marked = seen.point(at["run_id"], int(at["step"]), attribute, artifact) if at is not None else None
    caption = say.tradeoff_sentence(cell, marked, seen.declaration.budget)
    ui.chart_title([Strong(words.shorten(artifact, 30)), f", {role}"])
    which = f"{names[at['run_id']]}, " if at is not None and len(seen.runs) > 1 else ""
    what = "selected" if seen.selection.chosen is not None else "nearest"
    anchors = seen.anchors
    if len(anchors):
        anchors = anchors[(anchors["attribute"] == attribute) & (anchors["artifact"] == artifact)]
    behind = defended[defended["step"] > 0]
    fig = figures.tradeoff_figure(
        cell, anchors, seen.declaration.budget, axes, marked=marked, focus=focus, defended=behind,
        # Named once, on the artifact that the choice is about: in the others the label would run over band and lines.
        label=f"{what}, {which}{say.checkpoint_name(at)}" if at is not None and role == "declared" else "",
    )  # fmt: skip
    alt = (
        f"ROUGE-L against LeakageGap of {words.counted(len(cell), 'checkpoint')} on {artifact}. {words.plain(caption)}"
    )
    key = f"tradeoff_{artifact}"
    event = ui.chart(fig, key, alt, on_select="rerun", selection_mode="points")
    _frontier_checkpoint.clicked(key, event)
    ui.quiet(caption)
    if told := say.defended_sentence(defended, marked):
        ui.quiet(told)
    if artifact == "concat" and (told := findings.both_sentence(seen.beside(at, attribute))):
        ui.quiet(told)


def _legend(seen: Frontier, names: dict[str, str]) -> None:
    """What colours and signs stand for: one entry per run and lambda; none where there is one."""
    trained = seen.points[seen.points["step"] > 0]
    pairs = trained[["run_id", "lambda"]].drop_duplicates().to_dict("records")
    if len(pairs) < 2:
        return
    hues = figures.strength_hues(trained["lambda"].tolist())
    marks = dict(zip(trained["run_id"].unique(), itertools.cycle("●■◆▲★⬢"), strict=False))
    parts = []
    for pair in pairs:
        name, strength = names[pair["run_id"]], say.strength(pair["lambda"])
        label = name if len(seen.runs) > 1 and (strength in name or not words.known(pair["lambda"])) else strength
        label = f"{strength} · {name}" if len(seen.runs) > 1 and label == strength and strength != name else label
        hue = figures.hue_of(pair["lambda"], hues)
        parts.append(
            f'<span style="white-space:nowrap;margin-right:1.25rem"><i class="ac-mark" style="color:{hue}">'
            f"{marks[pair['run_id']]}</i> {words.escape(label)}</span>"
        )
    ui.html(f'<p class="ac-quiet" style="max-width:none">{"".join(parts)}</p>')


def _trajectory(run: Run, seen: Frontier, attribute: str) -> None:
    """Leak and utility of the chosen run over its steps, rebounds marked."""
    rows = seen.points[(seen.points["run_id"] == run.id) & (seen.points["attribute"] == attribute)]
    if rows["step"].nunique() < 2 or run.kind == "frontier":
        return
    found = _rebounds(str(run.path), run.version("predictions"), seen.declaration.record())
    mine = {artifact: r for (a, artifact), r in found.items() if a == attribute}
    at = seen.selection.chosen
    step = int(at["step"]) if at is not None and at["run_id"] == run.id else None
    back = [a for a, r in mine.items() if r.flagged]
    title = f"The leak of {words.listed(back)} comes back" if back else "While it was trained"
    ui.section(title, say.REBOUND_RULE)
    left, right = st.columns([3, 2], gap="large")
    artifacts = seen.artifacts()
    with left:
        ui.chart_title("What the strongest attacker reads, above guessing")
        fig = figures.leak_figure(rows, artifacts, seen.declaration.budget, mine, step)
        told = [say.rebound_sentence(mine.get(a), a) for a in artifacts]
        ui.chart(fig, "leak_steps", f"LeakageGap over steps. {' '.join(words.plain(t) for t in told)}")
        for sentence in told:
            ui.quiet(sentence)
    with right:
        cell = rows[rows["artifact"] == artifacts[0]]
        plain = _plain(seen)
        value = float(plain["rougeL"]) if plain is not None and plain["run_id"] != run.id else None
        ui.chart_title("ROUGE-L of its summaries")
        caption = _utility_words(cell)
        ui.chart(figures.utility_figure(cell, value, step), "utility_steps", f"ROUGE-L over steps. {caption}")
        ui.quiet(caption)


def _utility_words(cell: pd.DataFrame) -> str:
    known = cell[cell["rougeL"].notna() & (cell["step"] > 0)].sort_values("step")
    if known.empty:
        return "No summaries were measured."
    best = known.sort_values(["rougeL", "step"], ascending=[False, True]).iloc[0]
    spread = words.interval(best["rougeL_low"], best["rougeL_high"], 1)
    return (
        f"Highest at step {int(best['step'])}: {words.number(best['rougeL'], 1)}, 95 % interval {spread} over "
        f"summaries; {words.number(known['rougeL'].iloc[-1], 1)} at the end."
    )


@st.cache_data(show_spinner="Looking for rebounds", max_entries=30)
def _rebounds(path: str, version: str, declaration: dict) -> dict[tuple[str, str], Rebound]:
    from pathlib import Path

    return decisions.rebounds(Run(Path(path)), Declaration.read(declaration))


# --- everything as numbers ---


def _table(seen: Frontier, attribute: str, names: dict[str, str]) -> None:
    rows = seen.points[seen.points["attribute"] == attribute]
    wide = rows.pivot_table(
        index=["run_id", "step"], columns="artifact", values="signed_gap", aggfunc="first", sort=False
    )
    first = rows.drop_duplicates(["run_id", "step"]).set_index(["run_id", "step"])
    judged = judge(seen.table, seen.declaration).set_index(["run_id", "step"])  # the model before training too
    ends = zip(first["rougeL_low"], first["rougeL_high"], strict=True)
    shown = pd.DataFrame(
        {
            "run": [names[i] for i, _ in first.index],
            "checkpoint": [say.checkpoint_name(r) for r in first.reset_index().to_dict("records")],
            "λ": [f"{v:.3g}" if words.known(v) else words.NONE for v in first["lambda"]],
            "ROUGE-L": first["rougeL"].to_numpy(dtype=float),
            "95 % interval": [words.interval(low, high, 1) for low, high in ends],
            **{f"gap {a}": wide[a].reindex(first.index).to_numpy(dtype=float) for a in seen.artifacts()},
            "declared gap": judged["gap"].reindex(first.index).to_numpy(dtype=float),
            "its bound": judged["upper"].reindex(first.index).to_numpy(dtype=float),
        }
    )
    if len(seen.runs) == 1:
        shown = shown.drop(columns=["run", "λ"])
    if first["ez_tpr_at_1pct"].notna().any():
        shown["rows found at 1 %"] = first["ez_tpr_at_1pct"].to_numpy(dtype=float)
    strength = f" {say.strength(seen.runs[0].manifest['spec'].get('lambda'))}." if len(seen.runs) == 1 else ""
    ui.section(
        "Every checkpoint",
        "Gaps of the strongest declared attacker on bal_val; declared gap: the largest over what was declared; bound: "
        f"end of its 90 % interval.{strength}",
    )
    texts = ("run", "checkpoint", "λ", "95 % interval")
    numbers = {
        c: st.column_config.NumberColumn(format="%.1f" if "ROUGE" in c else "%.3f")
        for c in shown.columns
        if c not in texts
    }
    ui.table(shown, "checkpoint_table", "every checkpoint with its gaps and ROUGE-L", column_config=numbers)
    more = first[["rougeL_low", "rougeL_high"]].to_numpy(dtype=float)
    ui.download_csv(shown.assign(rougeL_low=more[:, 0], rougeL_high=more[:, 1]), "checkpoints.csv", "checkpoints_csv")


def _skipped(run: Run) -> None:
    """Checkpoints that were found but could not be measured, with the reason."""
    skipped = decisions.skipped(run, ui.read)
    if skipped.empty:
        return
    ui.section(
        f"{words.counted(len(skipped), 'checkpoint')} left out",
        "They stand in the folder but could not be measured; nothing of them is in the pictures above.",
    )
    head = '<tr><th scope="col">checkpoint</th><th scope="col">why</th></tr>'
    body = "".join(
        f'<tr><th scope="row">{words.isolated(words.shorten(r["checkpoint"], 60))}</th>'
        f"<td>{words.isolated(r['reason'])}</td></tr>"
        for r in skipped.to_dict("records")
    )
    ui.html(stack.table(head, body))


main()
