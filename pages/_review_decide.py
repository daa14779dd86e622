"""The decision. In: the candidates. Out: one record in the run, and every decision made before."""

from typing import Any

import streamlit as st

from auditcore import decisions, findings, records, votes, words
from auditcore.decisions import Frontier
from auditcore.findings import frontier as say
from auditcore.store import Run
from auditcore.votes import Candidate
from pages import _ui as ui
from pages._frontier_lock import WHO_KEY

CHOICES = {"accept": "Accept: it may ship", "reject": "Reject: it may not"}


def draw(run: Run, seen: Frontier, candidates: list[Candidate], names: list[str]) -> None:
    """Draw the form and the list of decisions."""
    ui.section("Decide", "The record becomes part of the run and of its report. It can be followed, never edited.")
    if run.readonly:
        ui.read_only(run, "record a decision")
    else:
        _form(run, seen, candidates, names)
    found = records.read(run, "decision")
    if found:
        rows = "".join(
            f'<li><span class="ac-quiet">{words.escape(words.when(r["time"]))}</span> '
            f"{words.sentence_html(say.record_words(r))}</li>"
            for r in reversed(found)
        )
        ui.html(f'<ol class="ac-list" reversed>{rows}</ol>')


def _form(run: Run, seen: Frontier, candidates: list[Candidate], names: list[str]) -> None:
    key = f"_{run.id}"
    left, right = st.columns(2, gap="large")
    with left:
        place = st.radio(
            "Which checkpoint",
            range(len(candidates)),
            format_func=lambda i: words.markdown(names[i]),
            key=f"which{key}",
        )
        choice = st.radio(
            "Decision", list(CHOICES), format_func=lambda c: CHOICES[c], key=f"choice{key}", horizontal=True
        )
    with right:
        reason = st.text_area("Reason", key=f"reason{key}", max_chars=2000, height=124)
    who = str(st.session_state.get(WHO_KEY, "")).strip()
    candidate = candidates[int(place)]
    warning = _warning(run, candidate, str(choice))
    if warning:
        ui.notice("warning", warning)
    with st.container(horizontal=True, vertical_alignment="center"):
        ready = bool(who and reason.strip())
        if st.button("Record the decision", type="primary", key=f"decide{key}", disabled=not ready):
            with ui.guard():
                records.append(
                    run, "decision", who, **_content(run, seen, candidates, int(place), names, str(choice), reason)
                )
            st.rerun()
        if not ready:
            ui.quiet("A decision carries a name (above) and a reason.")


def _warning(run: Run, candidate: Candidate, choice: str) -> str:
    """What speaks against accepting this checkpoint; empty when nothing does."""
    if choice != "accept":
        return ""
    reveal = decisions.revealed(run)
    if reveal is None:
        return "The test rows were not read: nothing but the selection rows speaks for this checkpoint."
    chosen = reveal["content"]["chosen"]
    if (chosen["run_id"], chosen["step"]) != candidate:
        return f"The test rows were read for {say.checkpoint_name(chosen)}, not for this checkpoint."
    word = findings.overall(ui.read(run, "verdicts")) if run.has("verdicts") else ""
    return "" if word == "within budget" else f"Its verdict on the test rows is: {word or 'none'}."


def _content(
    run: Run, seen: Frontier, candidates: list[Candidate], place: int, names: list[str], choice: str, reason: str
) -> dict[str, Any]:
    """The record: the choice and everything that lay on the table."""
    candidate = candidates[place]
    cast = votes.tally(votes.counted(records.read(run, "vote"), candidates), candidates)
    reveal = decisions.revealed(run)
    chosen = reveal["content"]["chosen"] if reveal else None
    same = chosen is not None and (chosen["run_id"], chosen["step"]) == candidate
    row = seen.candidates[(seen.candidates["run_id"] == candidate[0]) & (seen.candidates["step"] == candidate[1])]
    gap = None if row.empty or not words.known(row["gap"].iloc[0]) else float(row["gap"].iloc[0])
    return {
        "choice": choice,
        "reason": reason.strip(),
        "name": names[place],
        "run_id": candidate[0],
        "step": candidate[1],
        "beside": [name for i, name in enumerate(names) if i != place],
        "selection_gap": gap,
        "verdict": reveal["content"].get("verdict") if reveal and same else None,
        "votes": {"for it": cast.wins[candidate], "in all": sum(cast.wins.values()) + cast.no_difference},
    }
