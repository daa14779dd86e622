"""Scores of members against others, linked with the rows below. In: run, attack, row. Out: a part of the page."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import findings, words
from auditcore.figures import scores as figures
from auditcore.store import Run
from pages import _membership_rows
from pages import _ui as ui

KEY, SEEN = "scores", "_scores_seen"
MARKS = 150  # rows of each side that are marked; more cannot be told apart
SIDES = {"members": True, "nonmembers": False}


def take_click(run: Run, attack: str) -> None:
    """Show the row that was clicked in the chart since it was last asked. Before any widget of the rows is drawn.

    A bar stands for many rows: the one nearest to its middle is shown. A mark taken back shows nothing new.
    """
    chosen = (st.session_state.get(KEY) or {}).get("selection", {}).get("points", [])
    now = json.dumps([run.id, attack, chosen], default=str)
    before, st.session_state[SEEN] = st.session_state.get(SEEN), now
    if not chosen or before in (None, now) or json.loads(before)[:2] != [run.id, attack]:
        return
    row = _row_of(run, attack, chosen[0].get("customdata"))
    if row is not None:
        _membership_rows.show(row)


def draw(run: Run, attack: str, threshold: float | None, row: str | None) -> None:
    """Draw the distribution with some rows marked, `row` among them; nothing before there are scores."""
    if not run.has("membership_scores"):
        return
    version, path = run.version("membership_scores"), str(run.path)
    bins = figures.Histogram(**_histogram(version, path, attack))
    if not bins.counts["member"] + bins.counts["nonmember"] + bins.counts["forced"]:
        return
    name = findings.attack_name(attack)
    caption = [*findings.scores_sentence(bins.counts, attack), " Click a mark or a bar to see a row of it below."]
    ui.chart_title(findings.scores_title(attack, threshold, *_called(version, path, attack, threshold)), caption)
    marks = _marks(version, path, attack)
    if row is not None and row not in set(marks["example_id"]):
        marks = pd.concat([marks, _scored(version, path, attack, row)], ignore_index=True)
    fig = figures.scores_figure(bins, attack, threshold, rows=marks, chosen=row)
    alt = f"Distribution of {name} scores. {words.plain(caption)}"
    ui.chart(fig, KEY, alt, on_select="rerun", selection_mode="points")


def _row_of(run: Run, attack: str, custom: Any) -> str | None:
    """The row that a mark or a bar stands for."""
    if isinstance(custom, str):
        return custom
    cells = list(custom or [])
    if len(cells) == 1:
        return str(cells[0])
    if len(cells) < 6 or cells[3] not in SIDES:
        return None
    ends = [float(v) if isinstance(v, (int, float)) else math.nan for v in cells[4:6]]
    if any(map(math.isnan, ends)):  # rows without a ratio
        where, params, order = f"s.status in {findings.FORCED}", [], "s.rank_score desc"
    else:
        table = _histogram(run.version("membership_scores"), str(run.path), attack)["table"]
        low = -math.inf if ends[0] <= float(table["left"].min()) else ends[0]
        high = math.inf if ends[1] >= float(table["right"].max()) else ends[1]
        where, params = "s.score >= ? and s.score < ?", [low, high]
        order = f"abs(s.score - {(ends[0] + ends[1]) / 2!r})"
    query = (
        f"select s.example_id from membership_scores s where s.attack = ? and s.member = ? and {where} "
        f"order by {order}, s.example_id limit 1"
    )
    found = run.sql(query, [attack, SIDES[str(cells[3])], *params], ["membership_scores"])
    return None if found.empty else str(found["example_id"].iloc[0])


# Caches hold frames and dicts, keyed by the version of a table: never a class of ours, never a frame as an argument.


@st.cache_data(show_spinner=False, max_entries=40)
def _called(version: str, path: str, attack: str, threshold: float | None) -> tuple[int, int, bool]:
    """Rows of known membership without a ratio; how many of them are called; whether no other row is."""
    query = f"""
        select count(*) filter (apart), count(*) filter (apart and rank_score >= ?),
        count(*) filter (not apart and rank_score >= ?) = 0
        from (select rank_score, status in {findings.FORCED} as apart from membership_scores
        where attack = ? and member is not null and isfinite(rank_score))
    """
    limit = math.inf if threshold is None else threshold
    line = Run(Path(path)).sql(query, [limit, limit, attack], ["membership_scores"]).iloc[0]
    return int(line.iloc[0]), int(line.iloc[1]), bool(line.iloc[2])


@st.cache_data(show_spinner=False, max_entries=40)
def _histogram(version: str, path: str, attack: str) -> dict[str, Any]:
    run, columns = Run(Path(path)), ["attack", "member", "score", "rank_score", "status"]
    found = vars(figures.histogram(run.read("membership_scores", columns, "attack = ?", [attack]), attack))
    query = """
        select count(*) as n from membership_scores s join examples e using (example_id)
        where s.attack = ? and s.member is null and e.member is not null and s.status <> 'no_evidence'
    """
    left = int(run.sql(query, [attack], ["membership_scores", "examples"])["n"].iloc[0]) if run.has("examples") else 0
    counts = found["counts"]
    return {**found, "counts": {**counts, "unknown": counts["unknown"] - left, "left_out": left}}


@st.cache_data(show_spinner=False, max_entries=40)
def _marks(version: str, path: str, attack: str) -> pd.DataFrame:
    """Some rows of each side, evenly spaced in rank."""
    query = """
        with placed as (
            select example_id, member, score, row_number() over (partition by member order by score, example_id) as k,
            count(*) over (partition by member) as n
            from membership_scores where attack = ? and member is not null and isfinite(score)
        )
        select example_id, member, score from placed where (k * ?) // n <> ((k - 1) * ?) // n order by member, k
    """
    return Run(Path(path)).sql(query, [attack, MARKS, MARKS], ["membership_scores"])


@st.cache_data(show_spinner=False, max_entries=200)
def _scored(version: str, path: str, attack: str, row: str) -> pd.DataFrame:
    query = """
        select example_id, member, score from membership_scores
        where attack = ? and example_id = ? and member is not null and isfinite(score)
    """
    return Run(Path(path)).sql(query, [attack, row], ["membership_scores"])
