"""What chosen defences can be told. In: their names. Out: parts of a spec; what is left as shipped is left out."""

import re
from typing import Any

import streamlit as st

from pages import _ui as ui
from pages._widgets import STAY, whole

DIRECTIONS = ("pca", "pca_vectors", "inlp")  # those that remove so many directions


def choose_details(defences: list[str]) -> dict[str, Any]:
    """The numbers of defences on vectors, and the directives of `prompt`; nothing of those that are not chosen."""
    told = {}
    if {*DIRECTIONS, "noise", "truncate"} & set(defences):
        with st.expander("Strength of the defences"):
            told["defence_options"] = _numbers(defences)
    if "prompt" in defences:
        with st.expander("Directives", expanded=True):
            told |= _directives()
    return told


def _numbers(defences: list[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    a, b, c = st.columns(3)
    if set(DIRECTIONS) & set(defences):
        with a:
            # None: what the classes' means span
            chosen["dimensions"] = whole("Directions to remove (0: classes less one)", 0, 0, "setup_dimensions") or None
    if "noise" in defences:
        with b:
            chosen["noise"] = st.number_input(
                "Noise, in standard deviations of each column", 0.01, 100.0, 0.5, 0.1, key="setup_noise", **STAY
            )
    if "truncate" in defences:
        with c:
            chosen["keep"] = st.number_input(
                "Share of the columns that is kept", 0.01, 1.0, 0.5, 0.05, key="setup_keep", **STAY
            )
    return chosen


def _directives() -> dict[str, Any]:
    from auditcore.leakage.prompting import shipped

    ui.quiet("Each stands before the template, one at a time; one that is emptied is not tried.")
    texts = {
        name: st.text_area(f"Directive {name}", text, height=76, key=f"setup_directive_{name}", **STAY).strip()
        for name, text in shipped().directives.items()
    }
    terms = st.text_area(
        "Words of the directives that no summary should hold",
        ", ".join(shipped().meta_terms),
        height=76,
        key="setup_meta_terms",
        help="Meta-terms, separated by commas: a summary that holds one repeats what it was told.",
        **STAY,
    )
    listed = [term.strip() for term in re.split(r"[,\n]", terms) if term.strip()]
    changed: dict[str, Any] = {}
    if texts != shipped().directives:
        changed["directives"] = {name: text for name, text in texts.items() if text}
    if listed != shipped().meta_terms:
        changed["meta_terms"] = listed
    return changed
