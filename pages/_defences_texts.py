"""What the model writes, on the page Defences. In: run, attribute. Out: one axis, scores, marked summaries."""

from typing import Any

import pandas as pd
import streamlit as st

from auditcore import summary, words
from auditcore.figures import outputs as figures
from auditcore.findings import outputs as told
from auditcore.findings.ceiling import ceiling_of
from auditcore.store import Run
from pages import _ui as ui

SHOWN = 5  # summaries with a meta-term, at first


def draw(run: Run, metrics: pd.DataFrame, attribute: str) -> None:
    """Draw the section; what to do when nothing was generated."""
    if not run.has("output_metrics"):
        _nothing(run)
        return
    readings = ui.read(run, "output_metrics")
    held = ui.read(run, "baseline_metrics") if run.has("baseline_metrics") else None
    rows = told.one_axis(readings, metrics, attribute, held)
    ui.section("What the model writes", told.outputs_finding(rows, attribute))
    left, right = st.columns([3, 2], gap="large")
    with left:
        ui.chart_title("Where the label is, text by text and vector by vector", told.axis_note(rows))
        if len(rows):
            sentence = words.plain(told.outputs_finding(rows, attribute))
            top = ceiling_of(summary.ceilings(run, ui.read), attribute)
            alt = f"Accuracy on {len(rows)} texts and vectors. {sentence}"
            ui.chart(figures.axis_figure(rows, top), "one_axis", alt)
        else:
            ui.empty("Too few subjects of two classes were among the generated rows.")
    with right:
        scores = ui.read(run, "generation_metrics")
        ui.chart_title("What directives do to the summaries", told.writing_sentence(scores))
        _offending(run)
    st.html(figures.scores_table(scores))
    ui.quiet(
        "ROUGE: F-measure x 100, no stemming, 95 % interval over subjects. Meta-term: a word of the directives "
        "themselves; Wilson's interval. Change: against the same rows without a directive, paired."
    )
    changed = told.changes(readings, attribute)
    if len(changed):
        ui.chart_title("What directives change in how well the label is read", told.changes_sentence(changed))
        st.html(figures.changes_table(changed))
        ui.quiet("Accuracy behind the directive minus accuracy without it, rows paired, 95 % interval over subjects.")


def _nothing(run: Run) -> None:
    spec = run.manifest["spec"]
    if not spec.get("model"):
        return
    ui.section("What the model writes")
    if spec.get("generate"):
        ui.empty("The summaries are written after the probes.")
    else:
        ui.empty(
            "No summary was written in this run.",
            "With generate: {rows: 200} in the spec the model writes summaries, and attackers read them.",
        )


def _offending(run: Run) -> None:
    """Summaries that hold a meta-term, marked, each beside what the model writes of the same row undirected."""
    found = ui.read(run, "generations", ["example_id", "defence", "generated", "meta_terms"], "meta_terms <> ''")
    if found.empty:
        ui.quiet("No summary holds a meta-term.")
        return
    if ui.hide_text() or not found["generated"].astype(bool).any():
        why = "Raw text is hidden in this session." if ui.hide_text() else "This run kept no text (store_text: none)."
        ui.empty(f"{words.counted(len(found), 'summary', 'summaries')} hold a meta-term. {why}")
        return
    names = [str(d) for d in found["defence"].unique()]
    start = next((n for n in names if n != "none"), names[0])
    name = start
    if len(names) > 1:
        name = st.selectbox(
            "Summaries with a meta-term",
            names,
            names.index(start),
            key="offending",
            format_func=lambda d: "without a directive" if d == "none" else words.harmless(d),
        )
    mine = found[found["defence"] == name]
    plain = pd.Series(dtype=str)
    if name != "none":
        undirected = ui.read(run, "generations", ["example_id", "generated"], "defence = 'none'")
        plain = undirected.set_index("example_id")["generated"]
    body = "".join(
        f'<p class="ac-text"><small class="ac-quiet">{words.isolated(words.shorten(row.example_id, 40))}</small><br>'
        f"{figures.marked_html(str(row.generated), str(row.meta_terms).split(', '))}</p>{_undirected(plain, row)}"
        for row in mine.head(SHOWN).itertuples()
    )
    ui.html(body)
    if len(mine) > SHOWN:
        ui.quiet(f"{SHOWN} of {words.count(len(mine))} shown; the rest stands in the table generations of the export.")


def _undirected(plain: pd.Series, row: Any) -> str:
    """What the model writes of the same row without a directive; "" where that is not kept."""
    text = plain.get(row.example_id)
    if not isinstance(text, str):
        return ""
    told = figures.marked_html(text, str(row.meta_terms).split(", ")) if text.strip() else "nothing"
    return f'<p class="ac-text ac-quiet"><small>The same row without a directive:</small><br>{told}</p>'
