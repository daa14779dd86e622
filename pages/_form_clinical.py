"""Licensed notes in the form. In: a typed path. Out: the part `clinical` of a spec's data, and its roles."""

from pathlib import Path
from typing import Any

import streamlit as st

from auditcore.spec import CLINICAL, CLINICAL_ROLES, CLINICAL_SPLITS
from pages import _data as data
from pages import _ui as ui

PAIRS = ("mimic-iv-bhc.csv", "mimic-iv-bhc.csv.gz")
LABELS = ["recorded_race", "recorded_sex"]
_STAY: dict[str, Any] = {"persist_state": "session"}


def looks_licensed(path: str) -> str | None:
    """Which source lies at a path, told by names of files alone; None for anything else."""
    place = Path(path).expanduser()
    if place.name in PAIRS and place.is_file():
        return "mimic_iv_bhc"
    if not place.is_dir():
        return None
    if any((place / name).is_file() for name in PAIRS):
        return "mimic_iv_bhc"
    return "discharge_me" if any((place / part).is_dir() for part in CLINICAL_SPLITS) else None


def choose_notes(path: str, found: str) -> dict[str, Any]:
    """Which corpus it is, and what the joins need. Returns the part `clinical` of a spec."""
    sources = list(CLINICAL)
    source = st.selectbox(
        "Licensed notes",
        sources,
        index=sources.index(found),
        format_func=lambda name: CLINICAL[name],
        key=f"setup_clinical_{found}",
        help="Read from where they lie, into memory, at each run; no row is copied and nothing is fetched.",
        **_STAY,
    )
    chosen: dict[str, Any] = {"source": source}
    if source == "mimic_iv_bhc":
        left, right = st.columns(2, gap="medium")
        with left:
            chosen["admissions"] = _file("MIMIC-IV's admissions (recorded race)", "admissions.csv.gz") or None
        with right:
            chosen["notes"] = _file("MIMIC-IV-Note's discharge (optional)", "discharge.csv.gz") or None
        if not chosen["admissions"]:
            ui.notice("info", "Recorded race stands in MIMIC-IV's admissions table: name that file.")
    with st.expander("How notes are read"):
        table = _file("Edited table of recorded race (optional)", "recorded_race.yaml")
        keep = st.toggle("Keep prompts that still hold 13 words in a row of their summary", key="setup_leftovers")
    chosen |= {"race_table": table} if table else {}
    chosen |= {"leftovers": "keep"} if keep else {}
    return {name: value for name, value in chosen.items() if value is not None}


def choose_labels() -> dict[str, Any]:
    """The roles of licensed notes: all given, but for the sensitive labels."""
    labels = st.multiselect("Sensitive labels", LABELS, default=LABELS[:1], key="setup_clinical_labels", **_STAY)
    ui.quiet("Prompt, summary, subject, note and split are given by the source; subjects are dealt by recorded race.")
    return {**CLINICAL_ROLES, "label": labels[0] if len(labels) == 1 else labels}


def facts_of(path: str) -> data.FileFacts:
    """What the form needs to know of notes that are not read yet."""
    return data.FileFacts(path, data.file_version(path), "csv", 0, 0, {}, {})


def _file(label: str, name: str) -> str:
    return st.text_input(label, key=f"setup_clinical_{name}", placeholder=f"path of {name}", **_STAY).strip()
