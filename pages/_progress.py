"""Runs that work or wait. In: run folders. Out: a live panel with bars, time left and cancel.

It looks again every moment while something works, and not at all afterwards.
"""

import streamlit as st

from auditcore import store, words
from auditcore.errors import AuditError
from auditcore.store import Run
from auditcore.words import escape, isolated
from pages import _ui as ui
from pages._uploads import in_user_names

EVERY = 1.5  # seconds between looks
PAGES = {
    "vectors": "vectors.py",
    "membership": "membership.py",
    "surfacelora": "frontier.py",
    "frontier": "frontier.py",
}
WATCHED_KEY = "_watched_runs"


def panel() -> None:
    """Draw the panel; when a run ends, the whole page is drawn anew."""
    active = _active()
    finished = [i for i in st.session_state.get(WATCHED_KEY, {}) if i not in active]
    st.session_state[WATCHED_KEY] = active
    for run_id in finished:
        st.session_state.setdefault("_finished_runs", []).append(run_id)
    _announce()
    if active:
        ui.section("Working now" if len(active) == 1 else "Working now, one after the other")
        st.fragment(_live, run_every=EVERY)()
        ui.html("<hr>")


def _active() -> dict[str, str]:
    """Ids of queued and running runs, oldest first, with their status."""
    runs = store.list_runs()
    active = runs[runs["status"].isin(store.ACTIVE)].sort_values("created", kind="stable")
    return dict(zip(active["run_id"].astype(str), active["status"].astype(str), strict=True))


def _live() -> None:
    active = _active()
    if active != st.session_state.get(WATCHED_KEY):
        st.rerun()  # of the whole page: the sidebar tells the state too, and polling stops with the last run
    for position, run_id in enumerate(active):
        try:
            _one(store.open_by_id(run_id), waits=position > 0)
        except AuditError:
            continue  # deleted between two looks


def _one(run: Run, waits: bool) -> None:
    name, kind = ui.names(run)
    status = run.status
    left, right = st.columns([5, 1], vertical_alignment="top")
    with left:
        heading = f"<h3>{isolated(words.shorten(name))} {ui.status_html(status)}</h3>"
        ui.html(heading + f'<p class="ac-quiet">{escape(kind)}</p>' + stages_html(run, waits))
    with right:
        if st.button("Cancel", key=f"cancel_{run.id}", help="What is finished is kept and can be resumed."):
            _cancel(run)


def stages_html(run: Run, waits: bool = False) -> str:
    """The stages of a run as bars with counts and time left."""
    events = run.progress()
    if not events:
        text = "Waiting for the run before it to end." if waits else "Starting ..."
        return f'<p class="ac-quiet">{text}</p>'
    rows = []
    for event in events:
        done, total = int(event.get("done") or 0), int(event.get("total") or 0)
        share = min(1.0, done / total) if total else 0.0
        stage = escape(event.get("stage", ""))
        rows.append(
            f'<div class="ac-stage"><span>{stage}</span><span class="ac-bar" role="progressbar" aria-label="{stage}" '
            f'aria-valuenow="{round(100 * share)}" aria-valuemin="0" aria-valuemax="100">'
            f'<i style="width:{100 * share:.1f}%"></i></span>'
            f'<span class="ac-quiet">{escape(_left(event, done, total))}</span></div>'
        )
    return "".join(rows)


def _left(event: dict, done: int, total: int) -> str:
    if total and done >= total:
        return str(event.get("message") or "done")
    if total <= 1:
        return str(event.get("message") or "working ...")
    counted = f"{words.count(done)} of {words.count(total)}"
    eta = event.get("eta")
    return f"{counted}, {words.duration(eta)} left" if words.known(eta) else counted


def _cancel(run: Run) -> None:
    from auditcore import jobs

    with st.spinner("Stopping ..."):
        try:
            jobs.cancel(run)
        except AuditError as error:
            ui.notice("error", str(error))
            return
    st.rerun()


def _announce() -> None:
    """Say how runs ended that this session watched, until the notice is dismissed."""
    for run_id in list(st.session_state.get("_finished_runs", [])):
        try:
            run = store.open_by_id(run_id)
        except AuditError:
            st.session_state["_finished_runs"].remove(run_id)
            continue
        _announce_one(run)


def _announce_one(run: Run) -> None:
    name, _ = ui.names(run)
    status = run.status
    message = in_user_names(str(run.manifest.get("message") or ""))
    if status == "done":
        ui.notice("good", "It has finished.", f"{words.shorten(name)}:")
    else:
        ui.notice(
            "error" if status == "failed" else "warning", message or f"It was {status}.", f"{words.shorten(name)}:"
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        page = PAGES.get(run.kind, "runs.py")
        ui.page_link(page if status == "done" else "runs.py", "Open it", run.id)
        if st.button("Dismiss", key=f"dismiss_{run.id}", type="tertiary"):
            st.session_state["_finished_runs"].remove(run.id)
            st.rerun()
