"""What was audited so far? In: all runs. Out: their history; the chosen run's verdicts, claim, exports; delete."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import streamlit as st

from auditcore import decisions, store, summary, verdict, words
from auditcore.errors import AuditError
from auditcore.figures import stack
from auditcore.report import FORMATS
from auditcore.store import Run
from auditcore.words import Strong
from pages import _progress as progress
from pages import _ui as ui
from pages._uploads import in_user_names

EXPORTS = {
    "html": ("Report (HTML)", "text/html", "one file to read, print or send; aggregates only, no row of the data"),
    "csv": ("Tables (CSV)", "application/zip", "every table; formulas are neutralised"),
    "parquet": ("Tables (Parquet)", "application/zip", "every table, exact types"),
    "duckdb": ("Database (DuckDB)", "application/octet-stream", "every table in one file for SQL"),
}
WIDTHS = {"Run": 128, "Verdict": 96, "Kind": 84, "Status": 72, "Model": 144, "Data": 140, "Finished": 122}
ROW = 65  # pixels: Streamlit wraps text in rows above four lines of 16 pixels; a cut name would tell nothing
LOOK_AGAIN = 15  # seconds between looks at the training of a run that works
RESUMABLE = ("interrupted", "failed", "cancelled")


def main() -> None:
    """Draw the page."""
    runs = store.list_runs()
    if runs.empty:
        ui.head("Runs and reports", "There are no runs yet.")
        ui.page_link("setup.py", "Start an audit")
        return
    verdicts = {str(r.run_id): _verdict(str(r.path)) for r in runs.itertuples() if r.status != "broken"}
    ui.head("Runs and reports", _sentence(list(verdicts.values()), runs))
    progress.panel()
    _history(runs, verdicts)
    run = ui.current_run()
    if run is not None:
        with ui.guard():
            _chosen(run, verdicts.get(run.id, ""))


def _verdict(path: str) -> str:
    run = Run(Path(path))
    try:
        return summary.run_verdict(run, ui.read) if run.has("verdicts") else ""
    except AuditError:
        return ""


def _sentence(found: list[str], runs: pd.DataFrame) -> tuple[str, ...]:
    judged = [v for v in found if v]
    if not judged:
        return (f"{words.counted(len(runs), 'run')}, none with a verdict yet.",)
    counts = {name: judged.count(name) for name in (verdict.OVER, verdict.BELOW, verdict.NOT_RESOLVED, verdict.WITHIN)}
    said = [f"{n} {name}" for name, n in counts.items() if n]
    return (f"Of {words.counted(len(judged), 'audit')} with a verdict, ", Strong(words.listed(said)), ".")


# --- history ---


def _history(runs: pd.DataFrame, verdicts: dict[str, str]) -> None:
    shown = pd.DataFrame(
        {
            "Run": [words.shorten(n, 80) for n in runs["name"]],
            "Verdict": [_in_words(verdicts.get(i, "")) for i in runs["run_id"]],
            "Kind": [ui.KIND_NAMES.get(k, k) for k in runs["kind"]],
            "Status": runs["status"],
            "Model": [_end(m) for m in runs["model"]],
            "Data": [_end(d, 1) for d in runs["data"]],
            "Finished": [words.when(f) for f in runs["finished"]],
        }
    )
    chosen = st.session_state.get(ui.CHOSEN_KEY)
    places = [i for i, run_id in enumerate(runs["run_id"]) if run_id == chosen]
    event = ui.table(
        shown,
        f"history_{len(runs)}_{places}",  # another choice in the sidebar is another table: its selection starts there
        "all runs, newest first; select one to see it below",
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": places, "columns": [], "cells": []}},
        # Together as wide as the page on a screen of 1280 pixels: no column is cut there.
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
        row_height=ROW,
        height=min(38 + ROW * len(runs), 500),
    )
    picked = event["selection"]["rows"]
    if picked and picked != places:
        row = runs.iloc[picked[0]]
        if row["status"] == "broken":
            ui.notice("error", str(row["message"]), "This run cannot be opened.")
        else:
            ui.open_run(str(row["run_id"]))
            st.rerun()
    ui.quiet("Select a row: the run is shown below and on every other page.")


def _end(path: object, parts: int = 2) -> str:
    """The last parts of a path, which tell runs apart (of an upload its own name); all of it is in the spec below."""
    return words.shorten("/".join(Path(in_user_names(path)).parts[-parts:]), 60) if isinstance(path, str) else ""


def _in_words(name: str) -> str:
    return f"{verdict.SYMBOLS[name]} {name}" if name in verdict.SYMBOLS else name


# --- the chosen run ---


def _chosen(run: Run, judged: str) -> None:
    name, kind = ui.names(run)
    pills = (ui.pill_html(judged) + " ") if judged else ""
    ui.html(f"<h2>{words.isolated(words.shorten(name, 100))}</h2><p>{pills}{ui.status_html(run.status)}</p>")
    ui.run_warnings(run)
    finding = summary.finding(run, ui.read) if run.has("verdicts") else ()
    if finding:
        ui.text(finding)
    with st.container(horizontal=True, gap="medium"):
        page = {"vectors": "vectors.py", "membership": "membership.py", "sweep": "membership.py"}.get(run.kind)
        if page:
            ui.page_link(page, f"Open as {kind.lower()}", run.id)
        if run.kind in decisions.KINDS:
            ui.page_link("frontier.py", "Open the frontier", run.id)
            ui.page_link("review.py", "Open the review meeting", run.id)
    left, right = st.columns([1.6, 1], gap="large")
    with left:
        _training(run)
        _records(run)
        _claim(run)
        _verdict_lines(run)
        _details(run)
    with right:
        _export(run)
        _change(run)


def _records(run: Run) -> None:
    """What was declared, locked, revealed, voted and decided."""
    lines = summary.record_lines(run)
    if not lines:
        return
    ui.chart_title("What was declared and decided", "Only ever added to.")
    items = "".join(
        f'<li><span class="ac-quiet">{words.escape(time)}</span> {words.sentence_html(sentence)}</li>'
        for time, sentence in lines
    )
    ui.html(f'<ol class="ac-list">{items}</ol>')


def _training(run: Run) -> None:
    if run.status in store.ACTIVE:
        st.fragment(_training_charts, run_every=LOOK_AGAIN)(run)
    else:
        _training_charts(run)


def _training_charts(run: Run) -> None:
    if not run.has("training_log"):
        return
    from auditcore.figures import training

    log = ui.read(run, "training_log", order_by="step")
    best = (run.manifest.get("training") or {}).get("best_step")
    finding = training.training_finding(log, best)
    ui.chart_title("Loss while it was trained", finding)
    if len(log):
        ui.chart(training.loss_figure(log, best), f"loss_{run.id}", words.plain(finding))
    if not training.has_adversaries(log):
        return
    guess = _guessing(run)
    said = training.adversary_finding(log, guess)
    ui.chart_title("What the adversaries in the loop still see", said)
    ui.chart(training.adversary_figure(log, guess), f"adversaries_{run.id}", words.plain(said))
    said = training.gradients_finding(log)
    ui.chart_title("The two gradients, before clipping", said)
    ui.chart(training.gradients_figure(log), f"gradients_{run.id}", words.plain(said))


def _guessing(run: Run) -> float | None:
    """Loss of an adversary that guesses; None when one of them reports no cross-entropy."""
    from auditcore.figures.training import guessing

    if "moment" in run.manifest["spec"].get("adversary", []) or not run.has("checkpoints"):
        return None
    return guessing(ui.read(run, "checkpoints").drop_duplicates("attribute")["n_classes"].tolist())


def _claim(run: Run) -> None:
    claim = run.manifest.get("claim") or {}
    if not claim:
        return
    ui.chart_title("What can be claimed")
    ui.html(
        "".join(f'<p class="ac-text">{words.isolated(claim[k])}</p>' for k in ("audited", "not_audited") if k in claim)
    )


def _verdict_lines(run: Run) -> None:
    if not run.has("verdicts"):
        return
    rows = ui.read(run, "verdicts")
    body = ""
    for row in rows.to_dict("records"):
        together = "all artifacts" if row["kind"] == "vectors" else "training rows"
        what = row["artifact"] if isinstance(row["artifact"], str) else together
        attribute = f"{row['attribute']} from " if isinstance(row["attribute"], str) else ""
        attacker = "all declared attackers" if row["attacker"] == "all" else str(row["attacker"])
        measured = words.isolated(words.shorten(f"{attribute}{what}", 60))
        body += (
            f"<tr><td>{ui.pill_html(str(row['verdict']))}</td><td>{measured}<small>{words.isolated(attacker)}</small></td>"
            f'<td class="num">{words.signed(row["value"])}<small>{words.interval(row["low"], row["high"])}</small></td>'
            f'<td class="num">{words.count(row["n_subjects"])}</td></tr>'
        )
    head = '<tr><th scope="col">Verdict</th><th scope="col">Measured<small>by which attacker</small></th>'
    head += '<th scope="col" class="num">Above chance<small>90 % interval</small></th>'
    head += '<th scope="col" class="num">Subjects</th></tr>'
    ui.chart_title("Verdicts, one line per declared attacker", verdict.JUDGED)
    ui.html(stack.table(head, body))


def _details(run: Run) -> None:
    manifest = run.manifest
    notes = (manifest.get("data") or {}).get("notes") or []
    if notes:
        with st.expander(f"What was skipped or counted ({len(notes)})"):
            items = "".join(f"<li>{words.isolated(n)}</li>" for n in notes)
            ui.html(f'<ul class="ac-list ac-quiet">{items}</ul>')
    with st.expander("Spec"):
        st.code(_yaml(manifest["spec"]), language="yaml", wrap_lines=True)
    with st.expander("Manifest"):
        keys = ("created", "started", "finished", "device", "dtype", "precision", "threads")
        pairs: list[tuple[str, object]] = [(k, manifest[k]) for k in keys if manifest.get(k) is not None]
        for group in ("fingerprints", "versions", "counts"):
            pairs += [(f"{group}: {k}", v) for k, v in (manifest.get(group) or {}).items()]
        ui.facts([*pairs, ("size on disk", words.size(run.size())), ("folder", run.path)])
    if run.progress():
        with st.expander("Stages"):
            ui.html(progress.stages_html(run))


def _yaml(spec: dict) -> str:
    import yaml

    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)


def _export(run: Run) -> None:
    ui.chart_title("Export", "Raw text is left out while it is hidden in this session." if ui.hide_text() else "")
    if not run.tables():
        ui.quiet("There is nothing to export yet.")
        return
    for name in FORMATS:
        label, mime, about = EXPORTS[name]
        st.download_button(
            label,
            _content(run, name, text=not ui.hide_text()),
            f"{run.id}{_suffix(name)}",
            mime,
            key=f"export_{name}_{run.id}",
            on_click="ignore",
            help=about,
            width="stretch",
        )
    st.download_button(
        "Spec (YAML)",
        lambda: _yaml(run.manifest["spec"]),
        f"{run.id}.yaml",
        "application/yaml",
        key=f"export_spec_{run.id}",
        on_click="ignore",
        width="stretch",
    )


def _suffix(name: str) -> str:
    from auditcore.report.files import SUFFIXES

    return SUFFIXES[name]


def _content(run: Run, name: str, text: bool) -> Callable[[], bytes]:
    def build() -> bytes:
        from auditcore.report import export

        with tempfile.TemporaryDirectory() as folder:
            return export(run, name, Path(folder) / f"export{_suffix(name)}", text).read_bytes()

    return build


def _change(run: Run) -> None:
    ui.chart_title("Change")
    if run.readonly:
        ui.quiet("This study ships with the product: it is read-only.")
        return
    if run.status in RESUMABLE:
        if st.button(
            "Resume", key=f"resume_{run.id}", type="primary", width="stretch", help="Finished stages are kept."
        ):
            _resume(run)
    elif run.status in store.ACTIVE:
        ui.quiet("It is working; cancel it above before deleting it.")
        return
    if st.button("Delete …", key=f"delete_{run.id}", width="stretch"):
        _confirm(run)


def _resume(run: Run) -> None:
    from auditcore import jobs

    with ui.guard():
        jobs.resume(run)
    st.rerun()


@st.dialog("Delete this run?")
def _confirm(run: Run) -> None:
    name, kind = ui.names(run)
    ui.html(f"<p><b>{words.isolated(words.shorten(name, 100))}</b></p>")
    ui.quiet(
        f"{kind}, {words.size(run.size())}. The folder and everything in it is removed; it cannot be brought back."
    )
    with st.container(horizontal=True):
        if st.button("Delete", type="primary", key="delete_yes"):
            with ui.guard():
                run.delete()
            ui.open_run("")
            st.rerun()
        if st.button("Keep it", key="delete_no"):
            st.rerun()


main()
