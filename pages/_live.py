"""A run that is still working in; a page that draws itself again as soon as one of its tables changes, out."""

import streamlit as st

from auditcore.store import Run


def watch(run: Run, tables: tuple[str, ...], every: float = 2.0) -> None:
    """Poll while the run works, and redraw the page when a table appears or the run stops. Call once, at the end."""
    if run.status not in ("queued", "running"):
        return
    seen = _state(run, tables)

    def poll() -> None:
        if _state(run, tables) != seen:
            st.rerun()

    st.fragment(poll, run_every=every)()


def _state(run: Run, tables: tuple[str, ...]) -> tuple[str, ...]:
    return (run.status, *(run.version(table) for table in tables))
