"""How deep a label can be read. In: attackers at many layers. Out: a heat map to click, its numbers, one sentence."""

import pandas as pd
import streamlit as st

from auditcore import words
from auditcore.figures import layers as figures
from auditcore.findings import layers as say
from pages import _ui as ui

KEY, PROBE_KEY, ARTIFACT_KEY, LAYER_KEY = "layers", "depth", "artifact", "layer"
STRONGEST = "strongest"
BESIDE = 3  # artifacts
TALL = 12  # layers from which the table scrolls beside the picture


def draw(rows: pd.DataFrame, artifact: str, layer: int, ceiling: float | None) -> None:
    """Draw the section, where more than a few layers were audited.

    rows: seed-averaged attackers of one label, split and defence; artifact, layer: what the page shows closely.
    """
    if not say.swept(rows):
        return
    rows = rows.sort_index(kind="stable")  # artifacts and attackers in the order of the run, not of their strength
    ui.section(
        "How deep it can be read",
        "Accuracy by layer and artifact, from one pass of the model. Click a cell to look at it closely below.",
    )
    probe = _probe(rows)
    cells = say.by_layer(rows, probe)
    sentence = say.layers_sentence(cells)
    shown = probe or say.probes_in(rows)
    # The numbers of up to three artifacts stand beside the picture, more of them below.
    beside = cells["artifact"].nunique() <= BESIDE
    left, right = st.columns([2, 3], gap="large") if beside else (st.container(), st.container())
    with left:
        ui.chart_title(f"Named correctly, % ({shown})", sentence)
        fig = figures.layers_figure(cells, ceiling, (artifact, layer))
        alt = f"Accuracy of {words.counted(len(cells), 'cell')}, layer by artifact. {words.plain(sentence)}"
        ui.chart(fig, KEY, alt, on_select=pick, selection_mode="points")
        missing = say.missing_cells(cells)
        if missing:
            ui.quiet(f"{words.counted(missing, 'place')} not measured (yet), or without a finite number: left blank.")
    with right:
        n = words.counted(int(cells["n_subjects"].max()), "subject")
        ui.chart_title("Layer by layer", f"95 % interval over {n} below each number, verdict of its own 90 % interval.")
        place = st.container(height=figures.height(cells)) if cells["layer"].nunique() > TALL else st.container()
        with place:
            st.html(figures.layers_table(cells, (artifact, layer)))


def _probe(rows: pd.DataFrame) -> str | None:
    names = [str(p) for p in dict.fromkeys(rows["probe"])]
    if len(names) < 2:
        return None
    chosen = st.segmented_control(
        "Attacker in the picture", [STRONGEST, *names], default=STRONGEST, key=PROBE_KEY, bind="query-params",
        required=True,
    )  # fmt: skip
    return str(chosen) if chosen in names else None


def pick() -> None:
    """Take the clicked cell over into the pickers of the page, before they are drawn."""
    event = st.session_state.get(KEY) or {}
    points = (event.get("selection") or {}).get("points") or []
    where = points[0].get("customdata") if points else None
    if not where or len(where) < 2:
        return
    st.session_state[ARTIFACT_KEY], st.session_state[LAYER_KEY] = str(where[0]), str(int(where[1]))
