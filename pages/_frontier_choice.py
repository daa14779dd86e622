"""Which runs and checkpoints a page speaks of. In: the address and the store. Out: runs, a label, names, checkpoints.

Shared by the pages Checkpoint frontier and Review meeting, so that a link leads from one to the other.
"""

from pathlib import Path
from typing import Any

import streamlit as st

from auditcore import decisions, records, store, words
from auditcore.decisions import Frontier
from auditcore.frontier import Declaration
from auditcore.store import Run
from pages import _ui as ui

ATTRIBUTE_KEY, WITH_KEY = "attribute", "with"
MOST = 6  # runs drawn together
WANTED = "a run of checkpoints (a model trained to leak less, measured every few steps)"
STARTS = (("surfacelora", "Train a mitigation"), ("frontier", "Compare checkpoints you have already"))


def runs_and_label(run: Run) -> tuple[list[Run], str]:
    """Other runs beside this one, by id in the address; and the sensitive label."""
    label = run.manifest["spec"]["data"]["roles"].get("label", [])
    attributes = [label] if isinstance(label, str) else list(label)
    found = _comparable(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        attribute = attributes[0]
        if len(attributes) > 1:
            attribute = st.selectbox("Sensitive label", attributes, key=ATTRIBUTE_KEY, bind="query-params", width=240)
        chosen: list[str] = []
        if found:
            asked = [i for i in str(st.query_params.get(WITH_KEY, "")).split(",") if i in found]
            chosen = st.multiselect(
                "Together with", list(found), default=asked[: MOST - 1], max_selections=MOST - 1,
                key=f"frontier_with_{run.id}", placeholder="other runs on the same data",
                format_func=lambda i: words.markdown(found[i]), width=520,
            )  # fmt: skip
            if chosen:
                st.query_params[WITH_KEY] = ",".join(chosen)
            else:
                st.query_params.pop(WITH_KEY, None)
    return [store.open_by_id(i) for i in chosen], str(attribute)


def _comparable(run: Run) -> dict[str, str]:
    """Ids and names of other runs of checkpoints on the same data."""
    runs = store.list_runs()
    mine = (run.manifest.get("fingerprints") or {}).get("data")
    found = {}
    for row in runs[runs["kind"].isin(decisions.KINDS)].to_dict("records"):
        if row["run_id"] == run.id:
            continue
        other = store.open_by_id(str(row["run_id"]))
        if decisions.has_checkpoints(other) and (other.manifest.get("fingerprints") or {}).get("data") == mine:
            strength = other.manifest["spec"].get("lambda")
            found[other.id] = words.shorten(row["name"], 40) + (f" · λ {strength:g}" if strength is not None else "")
    return found


def names(runs: list[Run]) -> dict[str, str]:
    """Run id -> the words that tell it apart from the others: lambda, or its name where that does not."""
    shown = {r.id: r.manifest["spec"].get("lambda") for r in runs}
    unique = len(set(shown.values())) == len(shown) and None not in shown.values()
    full = {r.id: words.shorten(str(r.manifest["spec"].get("name") or r.id), 30) for r in runs}
    return {i: (f"λ {value:g}" if unique else full[i]) for i, value in shown.items()}


def view(runs: list[Run], declaration: Declaration) -> Frontier:
    """The checkpoints of these runs under a declaration; what takes time is computed once per state of their tables."""
    places = tuple(str(r.path) for r in runs)
    versions = tuple(r.version("checkpoints") for r in runs)
    computed = _computed(places, versions, declaration.record())
    return decisions.view(runs, declaration, ui.read).known(**computed)


@st.cache_data(show_spinner=False, max_entries=30)
def _computed(places: tuple[str, ...], versions: tuple[str, ...], declaration: dict[str, Any]) -> dict[str, Any]:
    seen = decisions.view([Run(Path(p)) for p in places], Declaration.read(declaration), ui.read)
    return {"points": seen.points, "candidates": seen.candidates, "anchors": seen.anchors}


def checkpoints(seen: Frontier) -> list[tuple[str, int]]:
    """Every checkpoint as (run id, step)."""
    pairs = seen.points[["run_id", "step"]].drop_duplicates()
    return [(str(r), int(s)) for r, s in zip(pairs["run_id"], pairs["step"], strict=True)]


def parse(text: str, run_id: str) -> tuple[str, int] | None:
    """A checkpoint as the address writes it: "250", or "other-run~250"."""
    name, _, step = text.rpartition("~")
    return (name or run_id, int(step)) if step.isdecimal() and len(step) < 12 else None


def address(checkpoint: tuple[str, int], run_id: str) -> str:
    """A checkpoint for the address; what `parse` reads."""
    return str(checkpoint[1]) if checkpoint[0] == run_id else f"{checkpoint[0]}~{checkpoint[1]}"


def changed_records(run: Run) -> None:
    """Say when the records of a run are not as they were written."""
    for problem in records.problems(run):
        ui.notice("error", problem, "The records of this run are not as they were written.")
