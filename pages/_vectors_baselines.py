"""A vector against what its recipient holds, on the page Exported vectors. In: run, choice. Out: the section."""

import pandas as pd
import streamlit as st

from auditcore import words
from auditcore.figures import baselines as figures
from auditcore.findings import baselines as told
from auditcore.store import Run
from pages import _ui as ui

TITLE = "Does a vector tell more or less than what its recipient already holds?"


def draw(run: Run, attribute: str, split: str, defence: str, layer: int) -> None:
    """Draw the section; what to do where there is nothing to compare with. layer: shown where a run has many."""
    asked = [str(b) for b in run.manifest["spec"].get("baselines") or []]
    if not run.has("baseline_metrics"):
        if asked and run.kind == "vectors":
            ui.section(TITLE)
            working = run.status in ("queued", "running")
            ui.empty(
                "No baseline was read yet." if working else "This run read no baseline.",
                "" if working else told.missing_sentence(asked, []),
            )
        return
    metrics = told.chosen(ui.read(run, "baseline_metrics"), attribute, split)
    rows = pd.DataFrame()
    if run.has("baseline_differences"):
        rows = told.chosen(ui.read(run, "baseline_differences"), attribute, split, defence)
    sentence = told.baselines_finding(metrics, rows if len(rows) else None, attribute)
    ui.section(TITLE, sentence)
    if metrics.empty:
        ui.empty("No baseline could be judged on these rows.")
        return
    if rows.empty:
        ui.empty("The differences are computed after the probes.")
    else:
        shown = rows[rows["layer"] == layer] if rows["layer"].nunique() > 2 and (rows["layer"] == layer).any() else rows
        shown = shown.sort_values("accuracy", ascending=False, kind="stable")
        few = words.counted(shown.drop_duplicates(["artifact", "layer", "probe"]).shape[0], "attacker")
        ui.chart_title(f"{few} against {words.counted(len(metrics), 'baseline')}", _layers(rows, shown, layer))
        alt = f"Probe minus baseline of {few}. {words.plain(sentence)}"
        ui.chart(figures.differences_figure(shown), "baselines", alt)
        st.html(figures.baselines_table(metrics, shown))
        ui.download_csv(rows, "baseline_differences.csv", "baselines_csv")
    ui.quiet(f"{told.RULE} {told.missing_sentence(asked, metrics['baseline'].tolist())}".strip())


def _layers(rows: pd.DataFrame, shown: pd.DataFrame, layer: int) -> str:
    if len(rows) == len(shown):
        return "Points of accuracy, 95 % intervals; dotted: no difference."
    return f"Layer {layer}; the download holds every layer. 95 % intervals; dotted: no difference."
