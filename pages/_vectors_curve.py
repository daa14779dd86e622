"""An attacker with fewer rows or with more, on the page Exported vectors. In: run, choice. Out: the section."""

import streamlit as st

from auditcore import summary, words
from auditcore.figures import curve as figures
from auditcore.findings import curve as told
from auditcore.findings.ceiling import ceiling_of
from auditcore.store import Run
from pages import _ui as ui

TITLE = "An attacker with more rows"


def draw(run: Run, attribute: str, artifact: str, budget: float) -> None:
    """Draw the curve of the chosen artifact; nothing where the spec asked for none."""
    if not run.manifest["spec"].get("curve"):
        return
    there = run.has("sample_curve") and run.has("sample_extrapolation")
    points = told.of_attribute(ui.read(run, "sample_curve"), attribute) if there else None
    if points is None or points.empty:
        ui.section(TITLE)
        working = run.status in ("queued", "running")
        ui.empty("The sample-size curve is measured after the probes." if working else "No size could be measured.")
        return
    more = told.of_attribute(ui.read(run, "sample_extrapolation"), attribute)
    shown = artifact if (points["artifact"] == artifact).any() else told.leading(points)
    sentence = told.curve_finding(points, more, shown, budget)
    ui.section(TITLE, sentence)
    mine, beyond = points[points["artifact"] == shown], more[more["artifact"] == shown]
    n = words.count(mine["n_subjects"].max())
    layer = f"layer {int(mine['layer'].iloc[0])}, " if run.manifest["spec"].get("model") else ""
    ui.chart_title(
        f"Accuracy of {shown} against training rows", f"{layer}{n} test subjects; dotted: guessing. 95 % intervals."
    )
    top = ceiling_of(summary.ceilings(run, ui.read), attribute, str(mine["split"].iloc[0]))
    fig = figures.curve_figure(mine, beyond, ceiling=top)
    ui.chart(fig, "curve", f"Accuracy over training rows. {words.plain(sentence)}")
    st.html(figures.curve_table(mine, beyond))
    ui.quiet(told.RULE)
    ui.download_csv(points, "sample_curve.csv", "curve_csv")
