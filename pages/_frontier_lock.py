"""Declare, lock, reveal. In: a run and its frontier. Out: records in the run, and the job that reads bal_test once."""

from typing import Any

import streamlit as st

from auditcore import decisions, records, store, words
from auditcore.decisions import Frontier
from auditcore.findings import frontier as say
from auditcore.frontier import Declaration
from auditcore.store import Run
from pages import _frontier_choice as choice
from pages import _ui as ui

WHO_KEY = "who"  # how the reader calls themselves, kept for the session
DONE_KEY = "_frontier_said"


def draw(run: Run, seen: Frontier, others: list[Run]) -> None:
    """Draw the section: what is declared, what it chooses, the button, and everything on record."""
    lock, reveal = decisions.locked(run), decisions.revealed(run)
    names = {r.id: words.shorten(str(r.manifest["spec"].get("name") or r.id), 30) for r in seen.runs}
    if reveal is not None:
        ui.section("The choice was locked and the test rows were read")
    elif lock is not None:
        ui.section("The choice is locked")
    else:
        ui.section(
            "Lock the choice, then read the test rows once",
            "What is promised is written down first. Only then are vectors of bal_test rows extracted, of the chosen "
            "checkpoint alone, and fresh probes judged on them.",
        )
    _said()
    if lock is None:
        if run.readonly:
            ui.read_only(run, "declare and lock a choice")
        elif run.status != "done":
            ui.quiet("A choice can be locked when every checkpoint is measured.")
        else:
            _form(run, seen.declaration, others, names)
    else:
        at = lock["content"]["chosen"]
        which = names.get(at["run_id"], at["run_id"]) if at["run_id"] != run.id else ""
        ui.text([f"{words.when(lock['time'])}: ", *say.record_words(lock)])
        if reveal is None and at["run_id"] == run.id:
            _pending(run)
        elif which:
            ui.page_link("frontier.py", f"Open {which}", at["run_id"])
    _history(run)


def _form(run: Run, start: Declaration, others: list[Run], names: dict[str, str]) -> None:
    spec = run.manifest["spec"]
    label = spec["data"]["roles"].get("label", [])
    attributes = [label] if isinstance(label, str) else list(label)
    key = f"_{run.id}"
    left, right = st.columns([1, 1], gap="large")
    with left:
        budget = st.number_input(
            "Budget, above chance", 0.0, 0.5, start.budget, 0.005, format="%.3f", key=f"budget{key}"
        )
        rule = st.radio(
            "A checkpoint qualifies when", list(say.RULES), index=list(say.RULES).index(start.select_on),
            format_func=lambda r: say.RULES[r], key=f"rule{key}",
        )  # fmt: skip
        who = st.text_input("Your name", key=WHO_KEY, max_chars=80, persist_state="session")
    with right:
        artifacts = _many("Artifacts", list(spec["audit"]), start.artifacts, f"artifacts{key}")
        attackers = _many("Attackers", list(spec["probes"]), start.attackers, f"attackers{key}")
        chosen = (
            _many("Sensitive labels", attributes, start.attributes, f"labels{key}")
            if len(attributes) > 1
            else attributes
        )
        st.caption(f"Probe seeds {words.listed([str(s) for s in start.seeds])}, as audited.")
    if not (artifacts and attackers and chosen):
        ui.quiet("Name at least one artifact, one attacker and one label.")
        return
    declaration = decisions.merge(
        start, budget=float(budget), select_on=str(rule), artifacts=tuple(artifacts), attackers=tuple(attackers),
        attributes=tuple(chosen),
    )  # fmt: skip
    with ui.guard():
        preview = choice.view([run, *others], declaration)
        at = preview.at
        which = names[at["run_id"]] if at is not None and others else ""
        ui.text(say.selection_sentence(preview.selection, declaration, which))
    _button(run, declaration, others, str(who), preview.selection.chosen is not None)


def _button(run: Run, declaration: Declaration, others: list[Run], who: str, chosen: bool) -> None:
    """One more yes before what cannot be taken back; then the records and the job."""
    sure = True
    if chosen:
        more = f", with {words.counted(len(others), 'other run')}," if others else ""
        sure = st.checkbox(
            f"Lock this choice{more} and read its test rows once: a later declaration is recorded and changes nothing.",
            key=f"sure_{run.id}",
        )
    label = "Lock and reveal" if chosen else "Record this declaration"
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(label, type="primary", key=f"lock_{run.id}", disabled=not (who.strip() and sure)):
            with ui.guard():
                _lock(run, declaration, others, who)
            st.rerun()
        if not who.strip():
            ui.quiet("Your name goes on record.")


def _many(label: str, options: list[str], start: tuple[str, ...], key: str) -> list[str]:
    return st.multiselect(label, options, [s for s in start if s in options], key=key, format_func=words.markdown)


def _lock(run: Run, declaration: Declaration, others: list[Run], who: str) -> None:
    from auditcore.jobs import lock as locking

    found = locking.lock(run, declaration, who, others)
    if found.record is None or found.run is None:
        said = "No checkpoint meets the budget. The declaration is on record; the test rows stay sealed."
        st.session_state[DONE_KEY] = ("warning", said)
        return
    locking.submit(found.run)
    st.session_state[DONE_KEY] = ("good", "Locked. The test rows are being read; the verdict appears here.")


def _said() -> None:
    said: Any = st.session_state.pop(DONE_KEY, None)
    if said:
        ui.notice(said[0], said[1])


def _pending(run: Run) -> None:
    if run.status in store.ACTIVE:
        ui.notice("info", "The test rows are being read. The page New audit shows how far it is.")
        return
    ui.notice("warning", "The choice is locked, but its test rows were not read to the end.")
    if st.button("Read them now", type="primary", key=f"reveal_{run.id}"):
        from auditcore.jobs import lock as locking

        with ui.guard():
            locking.submit(run)
        st.rerun()


def _history(run: Run) -> None:
    found = [r for r in records.read(run) if r["kind"] != "vote"]
    if not found:
        return
    rows = "".join(
        f'<li><span class="ac-quiet">{words.escape(words.when(r["time"]))}</span> '
        f"{words.sentence_html(say.record_words(r))}</li>"
        for r in found
    )
    ui.chart_title("On record", "Only ever added to; a change of mind is a new line.")
    ui.html(f'<ol class="ac-list">{rows}</ol>')
