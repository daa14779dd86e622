"""The checkpoint a reader looks at. In: a frontier and a click. Out: its leaks, its summaries, the way to its pages."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import store, words
from auditcore.decisions import Frontier
from auditcore.figures.tables import table_html
from auditcore.findings import frontier as say
from auditcore.store import Run
from auditcore.words import Strong
from pages import _frontier_choice as choice
from pages import _ui as ui

FOCUS_KEY, BOX_KEY, SEEN_KEY, AT_KEY = "_frontier_focus", "frontier_checkpoint", "_frontier_clicks", "at"
SHOWN = 3  # summaries at once


def focus(seen: Frontier) -> tuple[str, int] | None:
    """(run id, step) of the checkpoint looked at: clicked or chosen last, else in the address, else the rule's."""
    there = choice.checkpoints(seen)
    if not there:
        return None
    wanted = st.session_state.get(FOCUS_KEY)
    if wanted not in there:
        wanted = choice.parse(str(st.query_params.get(AT_KEY, "")), seen.runs[0].id)
    if wanted not in there:
        at = seen.at
        wanted = (str(at["run_id"]), int(at["step"])) if at is not None else there[-1]
    return wanted


def clicked(key: str, event: Any) -> None:
    """Take over a click on a chart: the page is drawn again with the new checkpoint in focus."""
    points = (event or {}).get("selection", {}).get("points", []) if event else []
    picked = None
    for point in points:
        data = point.get("customdata")
        values = list(data.values()) if isinstance(data, dict) else list(data or [])
        if len(values) >= 2:
            picked = (str(values[0]), int(values[1]))
    known = st.session_state.setdefault(SEEN_KEY, {})
    if known.get(key) == picked:
        return
    known[key] = picked
    if picked is not None and picked != st.session_state.get(FOCUS_KEY):
        st.session_state[FOCUS_KEY] = picked
        st.rerun()


def draw(seen: Frontier, attribute: str, looked_at: tuple[str, int] | None, names: dict[str, str]) -> None:
    """Draw the panel of one checkpoint."""
    if looked_at is None:
        return
    there = choice.checkpoints(seen)
    several = len(seen.runs) > 1
    ui.section("One checkpoint, closely")
    first = seen.points.drop_duplicates(["run_id", "step"]).to_dict("records")
    rows = {(str(r["run_id"]), int(r["step"])): {str(k): v for k, v in r.items()} for r in first}

    def label(pair: tuple[str, int]) -> str:
        return words.markdown(say.checkpoint_name(rows[pair], names[pair[0]] if several else ""))

    st.session_state[BOX_KEY] = looked_at
    st.selectbox("Checkpoint", there, format_func=label, key=BOX_KEY, on_change=_take_over, width=320)
    st.query_params[AT_KEY] = choice.address(looked_at, seen.runs[0].id)
    run = next(r for r in seen.runs if r.id == looked_at[0])
    left, right = st.columns([3, 2], gap="large")
    with left:
        _leaks(seen, attribute, looked_at)
    with right:
        _elsewhere(run, looked_at[1], rows[looked_at])
    _summaries(run, looked_at[1])


def _take_over() -> None:
    st.session_state[FOCUS_KEY] = st.session_state[BOX_KEY]


def _leaks(seen: Frontier, attribute: str, looked_at: tuple[str, int]) -> None:
    found = [seen.point(*looked_at, attribute, a) for a in seen.artifacts()]
    cells = [c for c in found if c is not None]
    head = (
        '<tr><th scope="col">artifact</th><th scope="col" class="num">named correctly</th><th scope="col" class="num">'
        'LeakageGap</th><th scope="col">by</th></tr>'
    )
    body = "".join(
        f'<tr><th scope="row">{words.escape(words.shorten(c["artifact"], 30))}<small>'
        f"{'declared' if c['artifact'] in seen.declaration.artifacts else 'not declared'}</small></th>"
        f'<td class="num">{words.percent(c["accuracy"])}<small>'
        f"{words.percent_interval(c['accuracy_low'], c['accuracy_high'])}</small></td>"
        f'<td class="num">{words.signed(c["signed_gap"])}<small>'
        f"{words.interval(c['signed_low90'], c['signed_high90'])}</small></td><td>{words.escape(c['probe'])}</td></tr>"
        for c in cells
    )
    ui.html(table_html(head, body))
    if cells:
        first = cells[0]
        ui.quiet(
            f"{attribute} on bal_val, {words.count(first['n_subjects'])} subjects, guessing "
            f"{words.percent(first['chance'], 0)}; small: 95 % interval of the accuracy, 90 % of the gap."
        )


def _elsewhere(run: Run, step: int, row: dict) -> None:
    """Facts of the checkpoint, and links to what is known of it on other pages."""
    pairs = [
        (
            f"ROUGE-{n}",
            f"{words.number(row[f'rouge{n}'], 1)} ({words.interval(row[f'rouge{n}_low'], row[f'rouge{n}_high'], 1)})",
        )
        for n in ("1", "2", "L")
        if words.known(row.get(f"rouge{n}"))
    ]
    if words.known(row.get("ez_tpr_at_1pct")):
        pairs.append(("rows found by EZ at 1 %", words.percent(row["ez_tpr_at_1pct"])))
    ui.facts(pairs)
    folder = checkpoint_folder(run, step, row)
    st.page_link("vectors.py", label="Its exported vectors", query_params={ui.RUN_KEY: run.id, "step": str(step)})
    audits = _audits(folder)
    for kind, label in (
        ("vectors", "A whole audit of its vectors"),
        ("membership", "The rows and tokens it remembers"),
    ):
        if kind in audits:
            ui.page_link("vectors.py" if kind == "vectors" else "membership.py", label, audits[kind])
    if "membership" not in audits:
        ui.page_link("setup.py", "Audit which rows it remembers")
        ui.quiet(["There, name this folder as the model: ", Strong(words.shorten(folder, 80))])


def checkpoint_folder(run: Run, step: int, row: dict) -> str:
    """Where the weights of a checkpoint lie, as a model source."""
    if run.kind == "frontier":
        if step == 0:
            return str(run.manifest["spec"]["checkpoints"]["base"])
        known = ui.read(run, "adapters", where="checkpoint = ?", params=[str(row["checkpoint"])])
        return str(known["path"].iloc[0]) if len(known) else str(row["checkpoint"])
    return str(run.path / "checkpoints" / f"step-{step:06d}") if step else str(run.manifest["spec"]["model"]["source"])


def _audits(folder: str) -> dict[str, str]:
    """Newest finished audits whose model is this folder: kind -> run id."""
    target = Path(folder).absolute()
    runs = store.list_runs()
    done = runs[runs["status"] == "done"].to_dict("records")
    mine = [r for r in done if isinstance(r["model"], str) and Path(r["model"]).absolute() == target]
    return {str(r["kind"]): str(r["run_id"]) for r in reversed(mine)}


# --- summaries ---


def _summaries(run: Run, step: int) -> None:
    if not run.has("generations"):
        return
    rows = ui.read(run, "generations", where="step = ?", params=[step], order_by="example_id")
    ui.chart_title("What it writes", _summary_words(rows))
    if rows.empty:
        return
    if ui.hide_text() or rows["generated"].isna().all():
        why = "hidden in this session" if ui.hide_text() else "not kept with this run (store_text: none)"
        ui.empty(f"The texts are {why}; their scores are in the table above.")
        return
    pages = (len(rows) - 1) // SHOWN + 1
    page = st.pagination(pages, key=f"summaries_{run.id}") if pages > 1 else 1
    part = rows.iloc[(page - 1) * SHOWN : page * SHOWN]
    ui.html("".join(_one_summary(r) for r in part.to_dict("records")))


def _summary_words(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "No summaries of this checkpoint were kept."
    mean = rows["rougeL"].astype(float).mean()
    return f"{words.counted(len(rows), 'summary', 'summaries')} of bal_val rows, mean ROUGE-L {words.number(mean, 1)}."


def _one_summary(row: dict) -> str:
    score = f"ROUGE-L {words.number(row['rougeL'], 0)}"
    return (
        f'<div class="ac-pair"><p class="ac-quiet">{words.isolated(words.shorten(row["example_id"], 40))} · {score}</p>'
        f'<div><p class="ac-quiet">written</p><p>{words.isolated(row["generated"])}</p></div>'
        f'<div><p class="ac-quiet">reference</p><p>{words.isolated(row["reference"])}</p></div></div>'
    )
