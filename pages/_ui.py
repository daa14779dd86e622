"""Shared parts of every page. In: runs, DataFrames, sentences. Out: drawn elements; nothing unescaped is ever drawn.

User text (names, columns, rows) goes through `words.escape` / `words.isolated` into HTML, or through `words.markdown`
into labels of widgets. Importing this module pulls in neither plotly nor torch.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from auditcore import store, summary, verdict, words
from auditcore.cards import Card
from auditcore.errors import AuditError
from auditcore.figures import stack
from auditcore.store import Run
from auditcore.words import Sentence, Strong, escape, isolated, sentence_html
from pages._uploads import in_user_names

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Card", "Sentence", "Strong", "escape", "isolated"]

RUN_KEY = "run"  # the run id in the address, ?run=
KIND_KEY = "kind"  # in the address of New audit, which question to begin with
CHOSEN_KEY = "_chosen_run"  # the id of a run that exists: what pages show
HIDE_KEY = "hide_text"  # presentation mode
OPEN_KEY = "_open_run"  # a page sets it, then st.rerun(): the router's picker takes it over
PAGES_FOLDER = Path(__file__).parent
HUES = {
    "over budget": "#C2362B",
    "within budget": "#128A80",
    "not resolved": "#9A7B0A",
    "below chance": "#0072B2",
    "error": "#C2362B",
    "warning": "#9A7B0A",
    "info": "#0072B2",
    "good": "#128A80",
    "quiet": "#7A838E",
}
STATUS_HUES = {
    "done": "good",
    "running": "info",
    "queued": "info",
    "interrupted": "warning",
    "cancelled": "quiet",
    "failed": "error",
    "broken": "error",
}
KIND_NAMES = {
    "membership": "Remembered rows",
    "vectors": "Exported vectors",
    "finetune": "Fine-tuning",
    "sweep": "Fine-tuning methods",
    "surfacelora": "Checkpoints",
    "frontier": "Checkpoints",
}


# --- state shared by all pages ---


def current_run() -> Run | None:
    """The run chosen in the sidebar, or None when there is none."""
    run_id = st.session_state.get(CHOSEN_KEY)
    try:
        return store.open_by_id(run_id) if run_id else None
    except AuditError:
        return None


def open_run(run_id: str) -> None:
    """Make this run the one that every page shows; call st.rerun() or st.switch_page() after it."""
    st.session_state[OPEN_KEY] = run_id


def hide_text() -> bool:
    """True when presentation mode hides raw text for this session."""
    return bool(st.session_state.get(HIDE_KEY, False))


def read(
    run: Run,
    table: str,
    columns: Sequence[str] | None = None,
    where: str = "",
    params: Sequence[Any] = (),
    order_by: str = "",
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame:
    """Like `Run.read`, cached until the file changes. Do not change the returned frame in place."""
    chosen = tuple(columns) if columns is not None else None
    return _read(str(run.path), run.version(table), table, chosen, where, tuple(params), order_by, limit, offset)


@st.cache_data(show_spinner=False, max_entries=200)
def _read(
    path: str,
    version: str,
    table: str,
    columns: tuple[str, ...] | None,
    where: str,
    params: tuple[Any, ...],
    order_by: str,
    limit: int | None,
    offset: int,
) -> pd.DataFrame:
    return Run(Path(path)).read(table, columns, where, params, order_by, limit, offset)


# --- words ---


def html(body: str) -> None:
    """Draw HTML made by our own code from escaped parts."""
    st.html(f'<div class="ac">{body}</div>')


def head(title: str, finding: str | Sentence = "") -> None:
    """Draw the page's title and its one finding sentence (parts that matter are `Strong`)."""
    lead = f'<p class="ac-lead">{sentence_html(finding)}</p>' if finding else ""
    html(f"<h1>{escape(title)}</h1>{lead}")


def section(title: str | Sentence, text: str | Sentence = "") -> None:
    """Draw a section heading, with an optional quiet sentence below it."""
    html(f"<h2>{sentence_html(title)}</h2>" + (f'<p class="ac-quiet">{sentence_html(text)}</p>' if text else ""))


def chart_title(title: str | Sentence, text: str | Sentence = "") -> None:
    """Draw the title of a chart or a table: what is seen, not what is plotted."""
    html(f"<h3>{sentence_html(title)}</h3>" + (f'<p class="ac-quiet">{sentence_html(text)}</p>' if text else ""))


def text(parts: str | Sentence) -> None:
    """Draw a paragraph."""
    html(f'<p class="ac-text">{sentence_html(parts)}</p>')


def quiet(parts: str | Sentence) -> None:
    """Draw a small, quiet paragraph; nothing for no words."""
    if not parts:
        return
    html(f'<p class="ac-quiet">{sentence_html(parts)}</p>')


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Draw names and values under each other."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{isolated(value)}</dd>" for name, value in pairs)
    html(f'<dl class="ac-facts">{rows}</dl>')


def notice(kind: str, message: str | Sentence, title: str = "") -> None:
    """Draw a notice that stays: kind is error, warning, info, good or quiet."""
    heading = f"<b>{escape(title)}</b> " if title else ""
    role = "alert" if kind == "error" else "note"
    html(f'<div class="ac-notice" role="{role}" style="--hue:{HUES[kind]}">{heading}{sentence_html(message)}</div>')


def empty(message: str | Sentence, what_to_do: str | Sentence = "") -> None:
    """Say that there is nothing to show, and which action makes it."""
    more = f'<p class="ac-quiet">{sentence_html(what_to_do)}</p>' if what_to_do else ""
    html(
        f'<div class="ac-notice" role="note" style="--hue:{HUES["quiet"]}"><p>{sentence_html(message)}</p>{more}</div>'
    )


def run_warnings(run: Run) -> None:
    """Draw what a reader must know before any number of this run: state, warnings, what was skipped."""
    manifest = run.manifest
    if run.status in ("queued", "running"):
        notice("info", "This run is still working; what is there already is shown.")
    elif run.status != "done":
        message = in_user_names(str(manifest.get("message") or "")) or "It can be resumed on the page Runs and reports."
        notice("warning", message, f"This run was {run.status}." if run.status != "failed" else "This run failed.")
    items = summary.warnings(run)
    if len(items) == 1:
        notice("warning", items[0], "Warning.")
    elif items:
        rows = "".join(f"<li>{escape(item)}</li>" for item in items)
        body = f"<b>{len(items)} warnings.</b><ul>{rows}</ul>"
        html(f'<div class="ac-notice" role="note" style="--hue:{HUES["warning"]}">{body}</div>')


def read_only(run: Run, what: str) -> None:
    """Say that a shipped study takes no records, and how a copy of it does. what: what the reader wanted to do."""
    there = [os.path.relpath(p) if p.is_relative_to(Path.cwd()) else str(p) for p in (run.path, store.home())]
    folder, home = (shlex.quote(p) for p in there)
    quiet(
        f"This study ships with the product: it is read-only. To {what}, make a copy among your own runs, which opens "
        "in its place:"
    )
    st.code(f"mkdir -p {home} && cp -r {folder} {home}/", language="sh", wrap_lines=True)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Show an AuditError as one notice instead of a traceback, and stop the page there."""
    try:
        yield
    except AuditError as error:
        notice("error", in_user_names(str(error)), "This did not work.")
        st.stop()


# --- verdicts ---


def pill_html(name: str) -> str:
    """HTML of a verdict pill: symbol and words, never a colour alone. Other words get a quiet pill."""
    symbol = verdict.SYMBOLS.get(name, "")
    hue = HUES.get(name, HUES["quiet"])
    return f'<span class="ac-pill" style="--hue:{hue}">{symbol} {escape(name)}</span>'


def status_html(status: str) -> str:
    """HTML of a pill for the state of a run."""
    hue = HUES[STATUS_HUES.get(status, "quiet")]
    return f'<span class="ac-pill" style="--hue:{hue}">{escape(status)}</span>'


def cards(items: Sequence[Card]) -> None:
    """Draw verdict cards side by side; they stack on a narrow screen."""
    body = "".join(
        f'<div class="ac-card">{pill_html(card.verdict)}<p class="ac-card-what">{sentence_html(card.what)}</p>'
        f'<p class="ac-card-number">{escape(card.number)}</p>'
        f'<p class="ac-card-detail">{"<br>".join(sentence_html(_called(d)) for d in card.details)}</p></div>'
        for card in items
    )
    html(f'<div class="ac-cards">{body}</div>')


def _called(detail: str | Sentence) -> str | Sentence:
    return in_user_names(detail) if isinstance(detail, str) else detail


# --- charts and tables ---


def page_link(file: str, label: str, run_id: str | None = None, kind: str = "") -> None:
    """Link to another page, keeping or changing the run; nothing when that page does not exist.

    kind: on the way to New audit, the question chosen there.
    """
    if (PAGES_FOLDER / file).exists():
        query = ({RUN_KEY: run_id} if run_id else {}) | ({KIND_KEY: kind} if kind else {})
        st.page_link(file, label=words.markdown(label), query_params=query or None)


def other_question(run: Run | None, wanted: str, starts: Sequence[tuple[str, str]]) -> None:
    """Say that the chosen run, or none, has nothing for this page, and link to New audit with each question it needs.

    wanted: what the page shows, in plain words ("a run of checkpoints"); starts: kind of audit, words of its link.
    """
    if run is None:
        empty("There is no run yet.", f"This page shows {wanted}; start one on New audit.")
    else:
        name, kind = names(run)
        told = f"The chosen run, {words.shorten(name, 60)}, answers another question ({kind})."
        empty(told, f"This page shows {wanted}: choose one under Run, or start one.")
    for one, label in starts:
        page_link("setup.py", label, run.id if run is not None else None, one)


def chart(fig: "go.Figure", key: str, alt: str, **options: Any) -> Any:
    """Draw a figure. `key` is unique on the page; `alt` says in words what is seen. Returns the selection, if asked."""
    from auditcore.figures.theme import CONFIG

    return st.plotly_chart(fig, key=key, alt=alt, config=CONFIG, **options)


def table(frame: pd.DataFrame, key: str, alt: str, **options: Any) -> Any:
    """Draw a frame as an interactive table without its index. Returns the selection, if asked."""
    return st.dataframe(frame, hide_index=True, key=key, alt=alt, **options)


def download_csv(frame: pd.DataFrame, file_name: str, key: str, label: str = "Download as CSV") -> None:
    """Offer exactly the rows on screen as CSV, with formulas neutralised in cells and headers."""

    def content() -> bytes:
        from auditcore.report import safe_csv

        return safe_csv(frame)

    st.download_button(label, content, file_name, "text/csv", key=key, on_click="ignore", type="tertiary")


def names(run: Run) -> tuple[str, str]:
    """Name and kind of a run in words, for headings (escape before drawing)."""
    manifest = run.manifest
    spec = manifest["spec"]
    return str(spec.get("name") or run.id), KIND_NAMES.get(spec["kind"], spec["kind"])


def style() -> None:
    """Draw the style sheets; the router does it once per run of the script."""
    st.html(Path(__file__).with_name("_style.css"))
    st.html(f"<style>{stack.css('44rem')}</style>")


def quiet_names(values: Sequence[str], limit: int = 4) -> str:
    """List some names and count the rest."""
    shown = [words.shorten(v, 40) for v in values[:limit]]
    rest = len(values) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
