"""Where the evidence of a membership run lies. In: the chosen run. Out: a part of the page."""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import words
from auditcore.store import Run
from pages import _ui as ui


def draw(run: Run, skip_first: bool) -> None:
    """Draw the tables, folded away; nothing before there are scores of members and non-members."""
    if not (run.has("token_stats") and run.has("membership_scores")):
        return
    hidden = ui.hide_text() or run.manifest["spec"].get("store_text") == "none"
    opened = st.toggle("Show where the evidence lies", key="where", bind="query-params")
    if not opened:
        return
    ui.section(
        "Where the evidence lies",
        "Only tokens in the error zone count. A group tells members apart where their P/N is far above that of others.",
    )
    found = _sums(run.version("token_stats"), run.version("membership_scores"), str(run.path), skip_first)
    tokens = found["tokens"]
    if not tokens["member"].any():
        ui.empty("No row known to be a member has a token in the error zone.")
        return
    from auditcore.figures.where import where_table
    from auditcore.membership import where

    if not hidden:
        kinds = where.shares(
            tokens.assign(kind=where.token_kinds(tokens["token"], tokens["seen"])), "kind", where.KINDS
        )
        st.html(where_table(kinds, "kind of token"))
        ui.quiet(_sentence(kinds, "kind"))
    names = [where.band(low, high) for low, high in where.POSITIONS]
    st.html(where_table(where.shares(found["positions"], "band", names), "position in the row"))
    names = [where.band(low, high, " nats") for low, high in where.SURPRISES]
    st.html(where_table(where.shares(found["surprises"], "band", names), "surprise of the reference"))
    _heaviest(where.heaviest(tokens), hidden)


def _sentence(kinds: pd.DataFrame, by: str) -> str:
    best = kinds.sort_values("p_share", ascending=False).to_dict("records")[0]
    return f"Most of what was raised lies in {best[by]}: {words.percent(best['p_share'], 0)} of P."


def _heaviest(top: pd.DataFrame, hidden: bool) -> None:
    name = top["token_id"].astype(str) if hidden else [words.harmless(t) for t in top["token"]]
    frame = pd.DataFrame(
        {
            "token id" if hidden else "token": name,
            "times": top["n_tokens"],
            "raised, members": top["p_sum"].round(1),
            "lowered, members": top["n_sum"].round(1),
            "raised, others": top["p_others"].round(1),
        }
    )
    ui.chart_title("The tokens that weigh most", "Sums of shifts over members' rows, in nats; others beside them.")
    ui.table(frame, "heaviest", f"The {len(frame)} tokens with the largest shifts", height="content", row_height=32)


_ZONE = """
    from token_stats t join membership_scores s using (example_id)
    where s.attack = (select min(attack) from membership_scores) and s.member is not null
    and t.is_error and t.scored and isfinite(t.delta) and not (? and t.position = 1)
"""
_SUMS = "count(*) as n_tokens, sum(greatest(t.delta, 0)) as p_sum, sum(greatest(-t.delta, 0)) as n_sum"


@st.cache_data(show_spinner="Adding up shifts over all tokens ...", max_entries=20)
def _sums(version: str, scores: str, path: str, skip_first: bool) -> dict[str, Any]:
    from auditcore.membership import where

    run, both = Run(Path(path)), ["token_stats", "membership_scores"]
    tokens = run.sql(
        f"select t.token_id, any_value(t.token) as token, s.member, {_SUMS} {_ZONE} group by all", [skip_first], both
    )
    seen = run.sql("select token_id, count(*) as seen from token_stats group by token_id", tables=["token_stats"])
    found = {"tokens": tokens.merge(seen, on="token_id").astype({"member": bool})}
    for name, value, bands, unit in (
        ("positions", "t.position", where.POSITIONS, ""),
        ("surprises", "-t.logp_reference", where.SURPRISES, " nats"),
    ):
        # Bounds and names are constants of ours.
        cases = " ".join(f"when {value} >= {low} then '{where.band(low, high, unit)}'" for low, high in reversed(bands))
        banded = f"case {cases} else '{where.band(*bands[0], unit)}' end as band"
        query = f"select {banded}, s.member, {_SUMS} {_ZONE} group by all"
        found[name] = run.sql(query, [skip_first], both).astype({"member": bool})
    return found
