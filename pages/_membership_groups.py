"""Subjects with many remembered rows. In: the chosen run and operating point. Out: a part of the page."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import findings, summary, words
from auditcore.store import Run
from pages import _ui as ui

KEY, TABLE = "subject", "subjects"
SHOWN = 200


def draw(run: Run, attack: str, target_fpr: float, threshold: float | None) -> None:
    """Draw what is found of subjects; nothing where rows share none, or before there are scores."""
    if not run.has("attack_metrics") or not _shared(run):
        return
    if threshold is None:
        ui.section("Subjects", "No threshold at the chosen rate, so no row of a subject is called anything.")
        return
    found = findings.Subjects(**_found(run.version("membership_scores"), str(run.path), attack, threshold))
    ui.section("Subjects", findings.subjects_finding(found, attack, target_fpr))
    if found.table.empty:
        ui.quiet("No subject has two or more rows in training.")
        return
    top = found.table.head(SHOWN)
    more = f"the first {SHOWN} of {words.count(len(found.table))}" if len(found.table) > SHOWN else "all"
    ui.chart_title(
        "Subjects with the most rows found",
        f"Of those with two or more training rows: {more}. Choose one to list its rows.",
    )
    frame = pd.DataFrame(
        {
            "subject": [words.harmless(name) for name in top["group"]],
            "training rows": top["n_members"],
            "found": top["n_found"],
            "share": (100 * top["share"]).round(0),
            "95 % interval": [words.percent_interval(a, b, 0) for a, b in zip(top["low"], top["high"], strict=True)],
            "more than others": ["yes" if s else "" for s in top["stands_out"]],
            "p": [words.number(p) for p in top["p_value"]],
        }
    )
    config = {
        "share": st.column_config.NumberColumn("share found", format="%d %%"),
        "p": st.column_config.TextColumn(
            "p", help="Exact test against all other training rows, corrected for all subjects."
        ),
    }
    names = top["group"].tolist()
    ui.table(
        frame, TABLE, f"{len(frame)} subjects with the share of their training rows that is found", height=240,
        column_config=config, on_select=lambda: _pick(names), selection_mode="single-row", row_height=32,
    )  # fmt: skip
    ui.quiet("Intervals and tests count the rows of a subject as independent, which they seldom are.")


def choose(run: Run) -> str:
    """The field that keeps the rows of one subject; "" for all. Not drawn where rows share no subject."""
    if not _shared(run):
        return ""
    return str(
        st.text_input(
            "Subject", key=KEY, bind="query-params", max_chars=500, type="search", width=180, placeholder="all",
        ) or ""
    ).strip()  # fmt: skip


def _pick(names: list[str]) -> None:
    chosen = (st.session_state.get(TABLE) or {}).get("selection", {}).get("rows", [])
    st.session_state[KEY] = names[chosen[0]] if chosen and chosen[0] < len(names) else ""


def _shared(run: Run) -> bool:
    return run.has("examples") and _duplicated(run.version("examples"), str(run.path))


@st.cache_data(show_spinner=False, max_entries=40)
def _duplicated(version: str, path: str) -> bool:
    run = Run(Path(path))
    return findings.shared_subjects(run.manifest["spec"]["data"], run.read("examples", ["group"])["group"])


@st.cache_data(show_spinner="Counting subjects ...", max_entries=40)
def _found(version: str, path: str, attack: str, threshold: float) -> dict[str, Any]:
    found = findings.subjects(summary.subject_scores(Run(Path(path)), attack), threshold)
    assert found is not None
    return vars(found)
