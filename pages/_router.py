"""Navigation and what every page shares. In: the URL. Out: the sidebar with the run picker, then the page itself.

The picker stands here and not in the pages: only a widget drawn by the router keeps its binding to the URL when the
page changes.
"""

import streamlit as st

from auditcore import store, words
from pages import _ui as ui

NAVIGATION = {
    "Audit": [("overview.py", "Overview", ""), ("setup.py", "New audit", "setup")],
    "Findings": [
        ("vectors.py", "Exported vectors", "vectors"),
        ("membership.py", "Remembered rows", "membership"),
    ],
    "Decide": [("runs.py", "Runs and reports", "runs")],
}


def main() -> None:
    """Draw the frame, then run the page."""
    st.set_page_config(page_title="Audit of language models", layout="wide", initial_sidebar_state="auto")
    here = ui.PAGES_FOLDER
    page = st.navigation(
        {
            group: [
                st.Page(file, title=title, url_path=url or None, default=not url)
                for file, title, url in pages
                if (here / file).exists()
            ]
            for group, pages in NAVIGATION.items()
        }
    )
    ui.style()
    with st.sidebar:
        _picker()
    page.run()


def _picker() -> None:
    """The run every page talks about, bound to ?run=, and the switch of presentation mode."""
    runs = store.list_runs()
    names = {
        str(row.run_id): f"{words.shorten(row.name, 44)} · {_short(row)}"
        for row in runs.itertuples()
        if row.status != "broken"
    }
    _check_link(list(names))
    wanted = st.session_state.pop(ui.OPEN_KEY, None)
    if wanted in names:
        st.session_state[ui.RUN_KEY] = wanted
    if st.session_state.get(ui.RUN_KEY) not in names:
        st.session_state.pop(ui.RUN_KEY, None)
    if names:
        st.selectbox(
            "Run",
            list(names),
            format_func=lambda run_id: names.get(run_id, run_id),
            key=ui.RUN_KEY,
            bind="query-params",
            help="Every page shows this run; its name stands in the address of the page.",
        )
        run = ui.current_run()
        if run is not None:
            _summary(run)
    st.toggle(
        "Hide raw text",
        key=ui.HIDE_KEY,
        persist_state="session",
        help="Presentation mode: no text of any row is shown in this session; numbers and positions stay.",
    )
    bad = st.session_state.get(ui.BAD_LINK_KEY)
    if bad:
        fallback = "The newest run is shown instead." if names else "There are no runs yet."
        ui.notice("warning", f"There is no run '{words.shorten(bad, 60)}'. {fallback}", "The address names no run.")


def _check_link(known: list[str]) -> None:
    """Remember a run named by the URL that does not exist, so that it is said and not silently ignored."""
    if ui.LINK_SEEN_KEY in st.session_state:
        if st.session_state.get(ui.RUN_KEY) != st.session_state[ui.LINK_SEEN_KEY]:
            st.session_state.pop(ui.BAD_LINK_KEY, None)  # another run was chosen since
        return
    asked = st.query_params.get(ui.RUN_KEY)
    st.session_state[ui.LINK_SEEN_KEY] = known[0] if known else None
    if asked is not None and asked not in known:
        st.session_state[ui.BAD_LINK_KEY] = asked


def _short(row) -> str:
    kind = {"membership": "rows", "vectors": "vectors", "finetune": "fine-tuning"}.get(row.kind, row.kind)
    return kind if row.status == "done" else f"{kind}, {row.status}"


def _summary(run: store.Run) -> None:
    manifest = run.manifest
    rows = (manifest.get("data") or {}).get("rows")
    parts = [
        run.status,
        words.when(manifest.get("finished") or manifest.get("created")),
        words.counted(rows, "row") if rows else "",
        "shipped study" if run.readonly else "",
    ]
    ui.quiet(" · ".join(p for p in parts if p))


main()
