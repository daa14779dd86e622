"""Navigation and what every page shares. In: the URL. Out: the sidebar with the run picker, then the page itself.

The picker stands here and not in the pages: only a widget drawn by the router keeps its binding to the URL when the
page changes.
"""

from pathlib import Path

import pandas as pd
import streamlit as st

from auditcore import decisions, store, words
from pages import _ui as ui

NAVIGATION = {
    "Audit": [("overview.py", "Overview", ""), ("setup.py", "New audit", "setup")],
    "Findings": [
        ("vectors.py", "Exported vectors", "vectors"),
        ("defences.py", "Defences", "defences"),
        ("membership.py", "Remembered rows", "membership"),
    ],
    "Decide": [
        ("frontier.py", "Checkpoint frontier", "frontier"),
        ("review.py", "Review meeting", "review"),
        ("runs.py", "Runs and reports", "runs"),
    ],
}


# Pages that show runs of some kinds only.
KINDS_OF_PAGE = {
    "vectors": ("vectors",),
    "defences": ("vectors",),
    "membership": ("membership", "sweep"),
    "frontier": decisions.KINDS,
    "review": decisions.KINDS,
}
_BOX_KEY, _PAGE_KEY = "_run_box", "_page"


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
        missing = _picker(page.url_path)
    if missing:
        _say_missing(missing)
    page.run()


def _picker(page: str) -> str:
    """The run every page talks about, bound to ?run=, and the switch of presentation mode.

    Returns the id that the address names where there is no such run.
    """
    runs = store.list_runs()
    names = {
        str(row.run_id): words.harmless(f"{words.shorten(row.name, 44)} · {_short(row)}")
        for row in runs.itertuples()
        if row.status != "broken"
    }
    switched = _fit_to(page, runs)
    asked = _address(names)
    chosen = asked if asked in names else next(iter([*_fitting(page, runs), *names]), None)
    st.session_state[ui.CHOSEN_KEY] = chosen
    if chosen is not None:
        st.session_state[_BOX_KEY] = chosen
        st.selectbox(
            "Run",
            list(names),
            format_func=lambda run_id: names.get(run_id, run_id),
            key=_BOX_KEY,
            on_change=_take_over,
            help="Every page shows this run; its id stands in the address of the page.",
        )
        run = ui.current_run()
        if run is not None:
            _summary(run)
            if switched:
                ui.quiet("Newest run that this page can show; the one chosen before answers another question.")
    st.toggle(
        "Hide raw text",
        key=ui.HIDE_KEY,
        persist_state="session",
        help="Presentation mode: no text of any row is shown in this session; numbers and positions stay.",
    )
    return asked if asked != chosen else ""


def _say_missing(asked: str) -> None:
    """Above the page: which run is not there, what is shown instead, where all of them are."""
    told, run = f"There is no run '{words.shorten(asked, 60)}'.", ui.current_run()
    if run is None:
        ui.notice("warning", f"{told} There are no runs yet.", "The address names no run.")
        ui.page_link("setup.py", "Start an audit")
        return
    name = words.shorten(ui.names(run)[0], 60)
    told += f" Shown instead: {name}, the newest that this page can show. Another can be chosen under Run."
    ui.notice("warning", told, "The address names no run.")
    ui.page_link("runs.py", "All runs", run.id)


def _fit_to(page: str, runs: pd.DataFrame) -> bool:
    """On coming to a page that shows one kind of run, choose the newest of that kind unless the chosen one fits."""
    before = st.session_state.get(_PAGE_KEY)
    st.session_state[_PAGE_KEY] = page
    if before == page or page not in KINDS_OF_PAGE or ui.OPEN_KEY in st.session_state:
        return False
    asked = st.query_params.get(ui.RUN_KEY) or st.session_state.get(ui.RUN_KEY)
    if before is None and asked:  # a deep link means the run it names
        return False
    if asked and page == "vectors" and st.query_params.get("step"):  # one checkpoint of a run of checkpoints
        return False
    fits = runs[runs["kind"].isin(KINDS_OF_PAGE[page]) & (runs["status"] != "broken")]
    if fits.empty or asked in set(fits["run_id"]):
        return False
    st.session_state[ui.OPEN_KEY] = _fitting(page, runs)[0]
    return before is not None


def _fitting(page: str, runs: pd.DataFrame) -> list[str]:
    """Ids of the runs that this page can show, newest first; of those with defences only, on their page."""
    if runs.empty or page not in KINDS_OF_PAGE:
        return []
    fits = runs[runs["kind"].isin(KINDS_OF_PAGE[page]) & (runs["status"] != "broken")]
    if page == "defences" and len(fits):  # rather one that tried some
        tried = fits["path"].map(lambda path: store.Run(Path(path)).has("defence_costs")).astype(bool)
        fits = fits[tried] if tried.any() else fits
    return [str(run_id) for run_id in fits["run_id"]]


def _address(names: dict[str, str]) -> str:
    """The run id in the address. It lives in a hidden field: a bound choice would put its label there, not the id."""
    wanted = st.session_state.pop(ui.OPEN_KEY, None)
    if wanted is not None:
        st.session_state[ui.RUN_KEY] = wanted
    elif names and not st.session_state.get(ui.RUN_KEY) and not st.query_params.get(ui.RUN_KEY):
        st.session_state[ui.RUN_KEY] = next(iter(names))
    with st.container(key="run_address"):
        return str(st.text_input("Run id", key=ui.RUN_KEY, bind="query-params") or "")


def _take_over() -> None:
    st.session_state[ui.RUN_KEY] = st.session_state[_BOX_KEY]


def _short(row) -> str:
    kind = {
        "membership": "rows",
        "vectors": "vectors",
        "finetune": "fine-tuning",
        "surfacelora": "checkpoints",
        "frontier": "checkpoints",
        "sweep": "methods",
    }.get(row.kind, row.kind)
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
