"""Rows of a membership run, and one of them token by token. In: run, attack, threshold. Out: the lower page part."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import findings, words
from auditcore.figures import tokens as figures
from auditcore.findings.common import records
from auditcore.store import Run
from auditcore.words import Strong
from pages import _membership_compare, _membership_groups
from pages import _ui as ui

ROW_KEY = "row"
PAGE_ROWS, PAGE_TOKENS = 10, 600
WHO = {"all": "all rows", "member": "trained on", "other": "not trained on", "unknown": "unknown"}
WHO_SQL = {"all": "true", "member": "member", "other": "not member", "unknown": "member is null"}
SORT = {
    "score": ("highest score first", "rank_score desc nulls last, place"),
    "low": ("lowest score first", "rank_score asc nulls last, place"),
    "data": ("order of the data", "place"),
    "long": ("longest first", "n_scored desc, place"),
}


def draw(run: Run, attack: str, threshold: float | None, skip_first: bool) -> str | None:
    """Draw table and token view; return the row that is shown."""
    if not run.has("token_stats"):
        ui.empty(
            "No token statistics yet.", "They are the first stage of a membership audit; the page fills as it works."
        )
        return None
    ui.section("Rows", "Choose a row to see it token by token; the address of the page names it.")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        who = st.selectbox("Show", list(WHO), format_func=lambda k: WHO[k], key="show", bind="query-params", width=170)
        sort = st.selectbox(
            "Sort", list(SORT), format_func=lambda k: SORT[k][0], key="sort", bind="query-params", width=190
        )
        label = "Find in row names" if ui.hide_text() or _no_text(run) else "Find in row names and texts"
        search = st.text_input(label, key="rows_search", max_chars=200, type="search", width=260) or ""
        subject = _membership_groups.choose(run)
    ids, first = _ids(run, attack, who, sort, search, subject)
    row = _current(run, first)
    page = _table_page(ids, row, (run.id, attack, who, sort, search, subject))
    if len(ids):
        _table(run, attack, threshold, ids[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], row, page)
    else:
        ui.empty("No row fits this choice.", "Clear the search or the subject, or show all rows.")
    if row is not None:
        _token_view(run, attack, threshold, skip_first, row, ids, page)
    return row


def show(row: str) -> None:
    """Make `row` the row shown, and the list turn to its page. Before any widget of the rows is drawn."""
    st.session_state[ROW_KEY] = row
    _new_pager()


# --- which row ---


def _current(run: Run, first: str | None) -> str | None:
    """The row named in the address, else the first of the list with a score. An unknown name is said, not ignored."""
    asked = st.session_state.get(ROW_KEY) or st.query_params.get(ROW_KEY)
    if asked and not _exists(run, asked):
        ui.notice("warning", f"This run has no row '{words.shorten(asked, 60)}'; the first of the list is shown.")
        asked = None
    return asked or first


def _exists(run: Run, example_id: str) -> bool:
    return bool(len(_example(str(run.path), run.version("examples"), example_id)))


def _table_page(ids: list[str], row: str | None, choice: tuple[Any, ...]) -> int:
    """Page of the table: it follows the chosen row when the list changes, else stays where the reader left it.

    A new list gets a new pager (a new key), so that its default, the page of the row, counts again.
    """
    if st.session_state.get("_rows_choice") != choice:
        st.session_state["_rows_choice"] = choice
        _new_pager()
    pages = max(1, -(-len(ids) // PAGE_ROWS))
    page = st.session_state.get(_pager_key()) or _page_of(ids, row)
    return min(int(page), pages)


def _page_of(ids: list[str], row: str | None) -> int:
    return ids.index(row) // PAGE_ROWS + 1 if row in ids else 1


def _pager_key() -> str:
    return f"rows_page_{st.session_state.get('_rows_pager', 0)}"


def _new_pager() -> None:
    st.session_state["_rows_pager"] = st.session_state.get("_rows_pager", 0) + 1


def _ids(run: Run, attack: str, who: str, sort: str, search: str, subject: str) -> tuple[list[str], str | None]:
    """Names of the rows to list, in order; and the first that has a score.

    Rows placed at the top without a ratio open the list, but show little: the page starts with one that has a score.
    """
    deep = bool(search) and not ui.hide_text() and not _no_text(run)
    table = "membership_scores" if run.has("membership_scores") else "examples"
    found = _ordered(str(run.path), run.version(table), table, attack, who, sort, search.strip(), deep, subject)
    return found["ids"], found["first"]


@st.cache_data(show_spinner=False, max_entries=60)
def _ordered(
    path: str, version: str, table: str, attack: str, who: str, sort: str, search: str, deep: bool, subject: str
) -> dict[str, Any]:
    """Ids of the rows to list, in order. Names of tables and orders are ours; what was typed goes in as a parameter."""
    scores = table == "membership_scores"
    columns = "rank_score, n_scored, status" if scores else "null as rank_score, n_tokens as n_scored, null as status"
    inner = f"select example_id, member, {columns}, row_number() over () as place from {table}"
    inner += " where attack = ?" if scores else ""
    params: list[Any] = [attack] if scores else []
    where = WHO_SQL[who]
    if search:
        text = (
            " or example_id in (select example_id from token_stats group by example_id "
            "having contains(lower(string_agg(token, '' order by position)), lower(?)))"
        )
        where += f" and (contains(lower(example_id), lower(?)){text if deep else ''})"
        params += [search, search] if deep else [search]
    if subject:
        where += ' and example_id in (select example_id from examples where "group" = ?)'
        params.append(subject)
    query = f"select example_id, status from ({inner}) where {where} order by {SORT[sort][1]}"
    more = [*(["token_stats"] if deep else []), *(["examples"] if subject and scores else [])]
    found = Run(Path(path)).sql(query, params, [table, *more])
    ids = found["example_id"].tolist()
    scored = found.loc[found["status"] == "ok", "example_id"].head(1).tolist()
    return {"ids": ids, "first": (scored or ids[:1] or [None])[0]}


@st.cache_data(show_spinner=False, max_entries=200)
def _example(path: str, version: str, example_id: str) -> pd.DataFrame:
    return Run(Path(path)).read("examples", where="example_id = ?", params=[example_id], limit=1)


def _no_text(run: Run) -> bool:
    return run.manifest["spec"].get("store_text") == "none"


# --- the table ---


def _table(run: Run, attack: str, threshold: float | None, ids: list[str], row: str | None, page: int) -> None:
    frame = _shown(run, attack, threshold, ids)
    at = ids.index(row) if row in ids else None
    key = f"rows_table_{page}_{at}"
    config = {
        "score": st.column_config.NumberColumn(findings.attack_name(attack), format="%.3f"),
        "row": st.column_config.TextColumn("row", width=150),
    }
    ui.table(
        frame, key, f"{len(frame)} rows of page {page}, with score and truth", column_config=config,
        on_select=lambda: _pick(key, ids), selection_mode="single-row", height="content", row_height=32,
        placeholder=words.NONE,
        selection_default={"selection": {"rows": [at] if at is not None else []}},
    )  # fmt: skip
    if "P" in frame:
        ui.quiet(
            "Errors: tokens that the model's first guess gets wrong. P, N: by how many nats fine-tuning raised "
            "and lowered these, together; EZ is P/N."
        )


def _pick(key: str, ids: list[str]) -> None:
    chosen = (st.session_state.get(key) or {}).get("selection", {}).get("rows", [])
    if chosen and chosen[0] < len(ids):
        st.session_state[ROW_KEY] = ids[chosen[0]]


def _shown(run: Run, attack: str, threshold: float | None, ids: list[str]) -> pd.DataFrame:
    """The columns a reader needs, for the rows of one page, in the order of `ids`."""
    if not run.has("membership_scores"):
        marks = ", ".join("?" * len(ids))
        frame = ui.read(run, "examples", ["example_id", "member", "n_tokens"], f"example_id in ({marks})", ids)
        frame = frame.set_index("example_id").loc[ids].reset_index()
        return pd.DataFrame({"row": _names(frame), "trained on": _truth(frame), "tokens": frame["n_tokens"]})
    frame = _scores(run, ids)
    frame = frame[frame["attack"] == attack].set_index("example_id").loc[ids].reset_index()
    says = [findings.called(r, threshold) for r in frame["rank_score"]]
    shown = {
        "row": _names(frame),
        "score": frame["score"],
        "called": [words.NONE if s is None else "training row" if s else "other row" for s in says],
        "trained on": _truth(frame),
        "tokens": frame["n_scored"],
    }
    if frame["n_errors"].notna().any():
        shown |= {"errors": frame["n_errors"], "P": frame["p_sum"].round(2), "N": frame["n_sum"].round(2)}
    return pd.DataFrame({**shown, "note": _notes(frame)})


def _names(frame: pd.DataFrame) -> list[str]:
    return [words.harmless(name) for name in frame["example_id"]]


def _truth(frame: pd.DataFrame) -> list[str]:
    return ["unknown" if pd.isna(m) else "yes" if m else "no" for m in frame["member"]]


def _notes(frame: pd.DataFrame) -> list[str]:
    pairs = zip(frame["status"], frame["rank_score"], strict=True)
    return [findings.status_words(str(status), rank, short=True) for status, rank in pairs]


# --- one row ---


def _token_view(
    run: Run, attack: str, threshold: float | None, skip_first: bool, row: str, ids: list[str], page: int
) -> None:
    at = ids.index(row) if row in ids else None
    _step_buttons(ids, at, page)
    scores = _score_rows(run, row, ids[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    mine = next((s for s in scores if s["attack"] == attack), None)
    name = f"Row {words.isolated(words.shorten(row, 60))}"
    told = words.escape(findings.score_words(mine, attack, threshold)) if mine else "not scored yet"
    ui.html(f"<h2>{name}: {told}</h2>")
    if mine:
        ui.text(findings.row_sentence(mine, threshold, attack))
    example = _example(str(run.path), run.version("examples"), row).iloc[0]
    total = int(example["n_tokens"])
    if total == 0:
        ui.empty("This row has no tokens: its text is empty.")
        return
    if bool(example["truncated"]):
        ui.notice("warning", "This row was longer than the maximum length and was cut at its end.")
    first = _token_page(row, total)
    tokens = _tokens(run, row, first)
    hidden = ui.hide_text() or _no_text(run)
    st.html(figures.token_map(tokens, hide_text=hidden, skip_first=skip_first) + figures.legend(hidden))
    ui.quiet(figures.tokens_sentence(tokens, total, skip_first))
    zone = next((s for s in scores if s["attack"] == "ez"), None)
    if zone is not None and zone["status"] not in ("no_evidence", "no_errors"):
        st.html(figures.pn_bar(zone["p_sum"], zone["n_sum"]))
    _under_the_other(run, attack, row, tokens, skip_first)
    numbers = st.expander("The numbers behind the map", key="numbers", on_change="rerun")
    if numbers.open:  # a table that nobody looks at is neither made nor sent
        with numbers:
            _numbers(tokens, hidden)


def _under_the_other(run: Run, attack: str, row: str, tokens: pd.DataFrame, skip_first: bool) -> None:
    """The same tokens under the run chosen to compare with; nothing where none is chosen."""
    other = _membership_compare.other_run(run)
    if other is None:
        return
    here, there = _membership_compare.short_names(run, other)
    theirs = _tokens(other, row, int(tokens["position"].min()))
    both = tokens.merge(theirs, on="position", suffixes=("", "_b"))
    if both.empty or (both["token_id"] != both["token_id_b"]).any():
        what = "holds other tokens" if len(both) else "is not there"
        ui.quiet(f"Under {there} a row of this name {what}: nothing to lay beside it.")
        return
    mine = next((s for s in _score_rows(other, row, []) if s["attack"] == attack), None)
    told = f": {findings.score_words(mine, attack)}" if mine else ""
    ui.chart_title(f"The same tokens under {there}{told}", findings.tokens_under_both(tokens, theirs, here, there))
    hidden = ui.hide_text() or _no_text(run) or _no_text(other)
    st.html(figures.token_map(theirs, hide_text=hidden, skip_first=skip_first))


def _step_buttons(ids: list[str], at: int | None, page: int) -> None:
    def go(step: int) -> None:
        row = ids[0 if at is None else at + step]
        if _page_of(ids, row) != page:
            _new_pager()
        st.session_state[ROW_KEY] = row

    pages = max(1, -(-len(ids) // PAGE_ROWS))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if pages > 1:
            st.pagination(pages, default=page, key=_pager_key())
        st.button("Previous row", on_click=go, args=(-1,), disabled=at in (None, 0), shortcut="alt+left")
        st.button("Next row", on_click=go, args=(1,), disabled=at is None or at + 1 >= len(ids), shortcut="alt+right")
        st.text_input(
            "Row", key=ROW_KEY, bind="query-params", label_visibility="collapsed", width=220, max_chars=500,
            placeholder="name of a row", help="The row shown; part of the address of this page.",
        )  # fmt: skip
    where = "" if at is None else f"Row {words.count(at + 1)} of {words.count(len(ids))}"
    ui.quiet([Strong(where), " in this list."] if where else "The row shown is not part of the list above.")


def _scores(run: Run, ids: list[str]) -> pd.DataFrame:
    """Scores of some rows under every attack: read once for a page of rows, whichever of them is shown."""
    return ui.read(run, "membership_scores", None, f"example_id in ({', '.join('?' * len(ids))})", ids)


def _score_rows(run: Run, row: str, listed: list[str]) -> list[dict[str, Any]]:
    """One row's scores. listed: the rows on this page of the list, which it may be one of."""
    if not run.has("membership_scores"):
        return []
    found = _scores(run, listed if row in listed else [row])
    return records(found[found["example_id"] == row])


def _tokens(run: Run, row: str, first: int) -> pd.DataFrame:
    where = "example_id = ? and position between ? and ?"
    return ui.read(run, "token_stats", None, where, [row, first, first + PAGE_TOKENS - 1], "position")


def _token_page(row: str, total: int) -> int:
    pages = -(-total // PAGE_TOKENS)
    if pages < 2:
        return 0
    ui.quiet(f"{words.count(total)} tokens, {PAGE_TOKENS} on each page.")
    return (st.pagination(pages, key=f"tokens_page_{row}") - 1) * PAGE_TOKENS


def _numbers(tokens: pd.DataFrame, hidden: bool) -> None:
    frame = figures.token_table(tokens, hidden)
    config: dict[str, Any] = {
        "p after": st.column_config.NumberColumn("probability after fine-tuning", format="%.2e"),
        "p before": st.column_config.NumberColumn("before", format="%.2e"),
        "shift, nats": st.column_config.NumberColumn(format="%.3f"),
    }
    ui.table(frame, "token_numbers", f"{len(frame)} tokens with both probabilities", column_config=config, height=420)
    ui.download_csv(frame, "tokens.csv", "token_csv")
