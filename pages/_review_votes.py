"""Blind votes. In: the candidates' summaries of ten rows. Out: a vote per row in the run; names when all are cast."""

import pandas as pd
import streamlit as st

from auditcore import records, votes, words
from auditcore.store import Run
from auditcore.votes import Candidate
from auditcore.words import Strong
from pages import _ui as ui
from pages._frontier_lock import WHO_KEY

LETTERS = "ABC"


def draw(run: Run, candidates: list[Candidate], names: list[str], texts: dict[Candidate, pd.DataFrame]) -> None:
    """Draw the next row to vote on, or the outcome."""
    ui.section(
        "Which summary would you hand on?",
        f"{votes.ROWS} rows that nobody picked; the letters stand for another candidate on every row. Vote before the "
        "names are shown.",
    )
    if ui.hide_text():
        ui.empty("The texts are hidden in this session, so there is nothing to vote on.")
        return
    if run.readonly and not records.read(run, "vote"):
        ui.read_only(run, "vote")
        return
    who = str(st.text_input("Your name", key=WHO_KEY, max_chars=80, persist_state="session", width=320)).strip()
    ballots = votes.ballots(texts, " ".join(who.split()), run.id)
    if not ballots:
        ui.empty(
            "The candidates share no kept summaries.", "rouge_rows sets how many are written; store_text keeps them."
        )
        return
    cast = votes.counted(records.read(run, "vote"), candidates)
    mine = {v["example_id"] for v in cast if v["by"] == " ".join(who.split())}
    left = [b for b in ballots if b.example_id not in mine]
    if who and left and not run.readonly:
        _ballot(run, left[0], who, len(ballots) - len(left), len(ballots))
    elif not run.readonly and not who:
        ui.quiet("Your name opens the ballot; votes go on record under it.")
    if cast and (not left or run.readonly):
        _outcome(ballots, cast, candidates, names)
    elif cast:
        people = len({v["by"] for v in cast})
        ui.quiet(
            f"{words.counted(len(cast), 'vote')} of {words.counted(people, 'reviewer')} so far; names after your last."
        )


def _ballot(run: Run, ballot: votes.Ballot, who: str, done: int, total: int) -> None:
    ui.chart_title(f"Row {done + 1} of {total}", f"{ballot.example_id}")
    parts = [
        f'<div><p class="ac-quiet">{LETTERS[i]}</p><p>{words.isolated(text)}</p></div>'
        for i, text in enumerate(ballot.texts)
    ]
    ui.html(
        f'<div class="ac-pair ac-many">{"".join(parts)}'
        f'<div><p class="ac-quiet">reference</p><p>{words.isolated(ballot.reference)}</p></div></div>'
    )
    with st.container(horizontal=True):
        for place in range(len(ballot.order)):
            if st.button(f"{LETTERS[place]} is better", key=f"vote_{place}"):
                _cast(run, ballot, place, who)
        if st.button("No difference", key="vote_none"):
            _cast(run, ballot, None, who)


def _cast(run: Run, ballot: votes.Ballot, place: int | None, who: str) -> None:
    with ui.guard():
        records.append(run, "vote", who, **votes.vote(ballot, place))
    st.rerun()


def _outcome(ballots: list[votes.Ballot], cast: list[dict], candidates: list[Candidate], names: list[str]) -> None:
    found = votes.tally(cast, candidates)
    known = dict(zip(candidates, names, strict=True))
    said = [f"{n} for {known[c]}" for c, n in found.wins.items()]
    parts: list[str] = [
        f"{words.counted(found.reviewers, 'reviewer')}, {words.counted(found.rows, 'row')}: ",
        Strong(words.listed(said)),
        f", {found.no_difference} without a preference.",
    ]
    if found.p is not None:
        chance = "could be chance" if found.p > 0.05 else "is more than chance"
        parts.append(f" Exact sign test over votes with a preference: p {words.number(found.p, 3)}, which {chance}.")
    ui.text(parts)
    by_row: dict[str, list[str]] = {}
    for one in cast:
        by_row.setdefault(one["example_id"], []).append(known[one["choice"]] if one["choice"] else "no difference")
    with st.expander("The rows, with names"):
        body = "".join(
            f'<div class="ac-pair ac-many">'
            f'<p class="ac-quiet">{words.isolated(b.example_id)} · voted: '
            f"{words.escape(words.listed(by_row.get(b.example_id, ['nobody'])))}</p>"
            + "".join(
                f'<div><p class="ac-quiet">{words.escape(known[c])}</p><p>{words.isolated(t)}</p></div>'
                for c, t in zip(b.order, b.texts, strict=True)
            )
            + f'<div><p class="ac-quiet">reference</p><p>{words.isolated(b.reference)}</p></div></div>'
            for b in ballots
        )
        ui.html(body)
