"""Widgets that several forms share. In: labels and defaults. Out: what the user chose; it stays for the session."""

from typing import Any

import streamlit as st

from auditcore import words

STAY: dict[str, Any] = {"persist_state": "session"}


def many(label: str, known: dict[str, str], default: list[str], key: str) -> list[str]:
    """Several of the names a spec knows, with their words as help."""
    about = "; ".join(f"{name}: {text}" for name, text in known.items())
    return st.multiselect(label, list(known), default=default, key=key, help=words.markdown(about), **STAY)


def shared(batch: bool = True) -> dict[str, Any]:
    """What every kind of run takes: seed, first rows only, rows per batch, raw text."""
    a, b, c = st.columns(3)
    with a:
        seed = whole("Seed", 0, 0, "setup_seed")
    with b:
        rows = whole("First rows only (0: all)", 0, 0, "setup_max_rows")
    with c:
        size = whole("Rows per batch", 16, 1, "setup_batch") if batch else None
    keep = st.toggle(
        "Keep raw text in the run folder",
        True,
        key="setup_store_text",
        help="Off: no text and no token string is written to any file of the run; numbers stay.",
        **STAY,
    )
    chosen = {"seed": seed, "_max_rows": rows or None, "store_text": "full" if keep else "none"}
    return {**chosen, "batch_size": size} if size else chosen


def budget_box(key: str) -> float:
    """How far above chance is acceptable?"""
    return st.number_input(
        "Budget: how far above chance is acceptable?",
        min_value=0.001,
        max_value=0.5,
        value=0.025,
        step=0.005,
        format="%.3f",
        key=key,
        **STAY,
    )


def seeds_box(key: str) -> list[Any]:
    """Seeds of the probes."""
    return numbers(st.text_input("Seeds of the probes", "0, 1, 2", key=key, **STAY))


def rank_box(key: str) -> dict[str, int]:
    """Shape of an adapter: its rank, and alpha at twice that."""
    rank = whole("LoRA rank", 16, 1, key)
    return {"r": rank, "alpha": 2 * rank}


def whole(label: str, value: int, least: int, key: str) -> int:
    """A whole number of at least `least`."""
    return int(st.number_input(label, min_value=least, value=value, step=1, key=key, **STAY))


def numbers(text: str) -> list[Any]:
    """Whole numbers from "0, 1, 2"; what is none stays text, so that the spec's own check names it."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return [int(p) if p.lstrip("-").isdigit() else p for p in parts]
