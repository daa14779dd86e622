"""What can be inferred from which exported vector? In: the chosen run. Out: the page."""

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from auditcore import decisions, findings, summary, words
from auditcore.figures import tables as html_tables
from auditcore.figures import tokens as token_figures
from auditcore.figures import vectors as figures
from auditcore.findings.ceiling import ceiling_row, ceiling_sentence
from auditcore.findings.frontier import SEALED, checkpoint_name
from auditcore.store import Run
from pages import (
    _live,
    _notes,
    _vectors_attributes,
    _vectors_baselines,
    _vectors_curve,
    _vectors_layers,
    _vectors_one,
)
from pages import _ui as ui

TABLES = ("examples", "probe_metrics", "predictions", "verdicts")
ATTRIBUTE_KEY, ARTIFACT_KEY, LAYER_KEY, STEP_KEY = "attribute", "artifact", "layer", "step"
SPLITS = ("bal_test", "bal_val")
MOST_SEGMENTS = 8  # layers that stand side by side; more are a list


@dataclass(frozen=True)
class Choice:
    """What the page shows of a run."""

    attribute: str
    artifact: str
    layer: int
    split: str
    budget: float


def main() -> None:
    """Draw the page for the run chosen in the sidebar."""
    run = ui.current_run()
    if run is not None and decisions.has_checkpoints(run):
        step = _step(run)
        _draw(run, ui.read(run, "checkpoints", where="step = ?", params=[step]), step)
        return
    if run is None or run.kind != "vectors":
        _other(run)
        return
    spec = run.manifest["spec"]
    metrics = ui.read(run, "probe_metrics") if run.has("probe_metrics") else None
    if metrics is None or metrics.empty:
        label = spec["data"]["roles"].get("label", "")
        ui.head("Exported vectors", findings.vectors_finding(None, str(label), float(spec["budget"])))
        ui.run_warnings(run)
        ui.empty("No probe has finished yet.", "The page fills as the run works; its progress stands on New audit.")
        _live.watch(run, TABLES)
        return
    _draw(run, metrics)


def _step(run: Run) -> int:
    """Which checkpoint of a run of checkpoints? In the address as ?step=."""
    names = {str(int(r["step"])): r for r in ui.read(run, "checkpoints").drop_duplicates("step").to_dict("records")}
    marked = [step for step, row in names.items() if row.get("selected") is True]
    # By hand: a bound choice would put its label into the address, not the step.
    asked = str(st.query_params.get(STEP_KEY, ""))
    start = asked if asked in names else (marked or list(names))[-1]
    chosen = st.selectbox(
        "Checkpoint", list(names), index=list(names).index(start), key=f"vectors_step_{run.id}", width=240,
        format_func=lambda s: words.markdown(checkpoint_name(names[s])),
    )  # fmt: skip
    st.query_params[STEP_KEY] = str(chosen)
    return int(chosen)


def _draw(run: Run, metrics: pd.DataFrame, step: int | None = None) -> None:
    """Draw everything that is known. step: the checkpoint, in a run of several."""
    spec = run.manifest["spec"]
    head = st.container()
    choice = _choose(metrics, float(spec["budget"]))
    with head:
        finding = findings.vectors_finding(metrics, choice.attribute, choice.budget, choice.split)
        ui.head("Exported vectors", finding)
        ui.run_warnings(run)
        if run.has("verdicts"):
            _verdict(ui.read(run, "verdicts"), choice)
        hidden = findings.giveaway_sentence(metrics, choice.split, choice.attribute)
        if hidden:
            ui.notice("warning", hidden)
        if choice.split == "bal_test":
            ui.quiet(findings.looks_sentence(run.manifest))
        if choice.split != "bal_test" and step is not None:
            ui.quiet(f"Of this checkpoint bal_val is known, which chooses. {SEALED}")
            ui.page_link("frontier.py", "All checkpoints of this run", run.id)
        elif choice.split != "bal_test":
            ui.notice(
                "warning", "The reserved test rows were not evaluated; these numbers come from the selection split."
            )
    st.html(token_figures.style())
    ceilings = summary.ceilings(run, ui.read)
    _vectors_attributes.draw(metrics, choice.split, ceilings)
    rows = _attackers(metrics, choice)
    power_place = _compare(rows, choice, spec, ceiling_row(ceilings, choice.attribute, choice.split))
    if (metrics["defence"] != findings.baseline(metrics)).any():
        ui.page_link("defences.py", "What each defence leaves of it, and what it costs", run.id)
    _vectors_baselines.draw(run, choice.attribute, choice.split, findings.baseline(metrics), choice.layer)
    _vectors_curve.draw(run, choice.attribute, choice.artifact, choice.budget)
    _vectors_one.draw(run, rows, choice.attribute, choice.artifact, choice.layer, choice.split, step)
    _notes.draw(run)
    with power_place:
        _power(rows, choice, spec)
    _live.watch(run, TABLES)


def _other(run: Run | None) -> None:
    ui.head("Exported vectors")
    ui.other_question(run, "an audit of exported vectors", (("vectors", "Audit exported vectors"),))


def _choose(metrics: pd.DataFrame, budget: float) -> Choice:
    """Pickers of attribute, artifact and layer, in the address of the page; only what can be chosen is drawn."""
    split = next((s for s in SPLITS if (metrics["split"] == s).any()), str(metrics["split"].iloc[0]))
    attributes = [str(a) for a in metrics["attribute"].unique()]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        attribute = attributes[0]
        if len(attributes) > 1:
            attribute = st.selectbox("Sensitive label", attributes, key=ATTRIBUTE_KEY, bind="query-params", width=240)
        mine = metrics[(metrics["attribute"] == attribute) & (metrics["split"] == split)]
        best = findings.strongest(metrics, attribute, split)
        artifacts = [str(a) for a in mine["artifact"].unique()]
        start = str(best["artifact"].iloc[0]) if len(best) else artifacts[0]
        artifact = _segmented("Artifact", artifacts, start, ARTIFACT_KEY)
        layers = [
            str(v) for v in sorted(int(v) for v in mine.loc[mine["artifact"] == artifact, "layer"].dropna().unique())
        ]
        layer = layers[-1] if layers else "-1"
        if len(layers) > 1:
            best_layer = best.loc[best["artifact"] == artifact, "layer"]
            start = str(int(best_layer.iloc[0])) if len(best_layer) else layer
            layer = (_segmented if len(layers) <= MOST_SEGMENTS else _list)("Layer", layers, start, LAYER_KEY)
    return Choice(str(attribute), artifact, int(layer), split, budget)


def _list(label: str, options: list[str], start: str, key: str) -> str:
    """For choices too many to stand side by side."""
    chosen = st.selectbox(label, options, index=options.index(start), key=key, bind="query-params", width=120)
    return str(chosen) if chosen in options else start


def _segmented(label: str, options: list[str], start: str, key: str) -> str:
    chosen = st.segmented_control(
        label, options, default=start, key=key, bind="query-params", required=True,
        # Options are read as Markdown, and an artifact may be named by the user's file of vectors.
        format_func=lambda o: words.markdown(words.shorten(o, 40)),
    )  # fmt: skip
    return str(chosen) if chosen in options else start


def _verdict(verdicts: pd.DataFrame, choice: Choice) -> None:
    """The run's verdict over all declared attackers, beside its pill."""
    mine = verdicts[verdicts["defence"] == findings.baseline(verdicts)]
    combined = mine[mine["attacker"] == "all"]
    if mine.empty:
        return
    name = str(combined["verdict"].iloc[0]) if len(combined) else findings.overall(mine)
    each = mine[mine["attacker"] != "all"]
    labels = each["attribute"].nunique()
    rest = f"over all {len(each)} declared attackers" if len(each) > 1 else "for the one declared attacker"
    rest += f" on {labels} sensitive labels" if labels > 1 else ""
    rest += ", after Holm's correction" if len(each) > 1 else ""
    meaning = findings.MEANINGS.get(name, "")
    alone = int(each["verdict"].eq("over budget").sum())
    if name == "not resolved" and alone:
        meaning = (
            f"{alone} of {len(each)} attackers {'is' if alone == 1 else 'are'} over budget alone, which so many tries "
            "may show by chance"
        )
    ui.html(
        f'<p class="ac-quiet" style="margin-top:.75rem">{ui.pill_html(name)} &ensp;'
        f"{words.escape(meaning[:1].upper() + meaning[1:])}: {words.escape(rest)}, budget {choice.budget:g}.</p>"
    )


def _attackers(metrics: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    """All attackers of the attribute at the chosen layer of each artifact, strongest first."""
    rows = findings.pooled(metrics, choice.attribute, choice.split)
    return rows.sort_values("signed_gap", ascending=False, kind="stable")


def _compare(rows: pd.DataFrame, choice: Choice, spec: dict, top: dict | None):
    """Accuracy and gap of every attacker side by side, the numbers below. Returns the place for the power statement.

    top: the line of table `ceilings` for this label, None where nothing is known of how the data was made.
    """
    ceiling = None if top is None else float(top["ceiling"])
    several = rows["layer"].nunique() > 2
    shown = rows[rows["layer"] == choice.layer] if several else rows
    ui.section(
        "Every attacker against the budget",
        f"Probes fitted on exported vectors, read on {words.count(shown['n_eval'].max())} rows they never saw.",
    )
    left, right = st.columns(2, gap="large")
    with left:
        caption = findings.accuracy_sentence(shown)
        ui.chart_title(_accuracy_title(shown), caption)
        fig = figures.accuracy_figure(shown, choice.artifact, ceiling)
        ui.chart(fig, "accuracy", f"Accuracy of {len(shown)} attackers. {words.plain(caption)}")
    with right:
        caption = findings.gap_sentence(shown.iloc[0])
        ui.chart_title(_gap_title(shown, choice.budget), caption)
        fig = figures.gap_figure(shown, choice.budget, ceiling)
        ui.chart(fig, "gap", f"LeakageGap of {len(shown)} attackers against the budget. {words.plain(caption)}")
    missing = figures.not_finite(shown, ["accuracy", "signed_gap"])
    if missing:
        ui.notice("warning", f"{words.counted(missing, 'attacker')} without a finite number not drawn.")
    ui.quiet(ceiling_sentence(top, rows.iloc[0]))
    if told := findings.both_sentence(rows.to_dict("records")):
        ui.quiet(told)
    place = st.container()
    seeds = len(spec.get("seeds") or [])
    st.html(html_tables.probe_table(shown, choice.budget, seeds))
    if several:
        with st.expander(f"All {len(rows)} attackers, every layer"):
            st.html(html_tables.probe_table(rows, choice.budget, seeds))
    ui.quiet(findings.POINT_RULE)
    if made := findings.null_sentence(rows):
        ui.quiet(made)
    ui.download_csv(rows, "probe_metrics.csv", "probe_csv")
    _vectors_layers.draw(rows, choice.artifact, choice.layer, ceiling)
    return place


def _accuracy_title(rows: pd.DataFrame) -> str:
    row = rows.iloc[0]
    return f"{row['artifact']} tells most: {words.percent(row['accuracy'], 0)} named correctly"


def _gap_title(rows: pd.DataFrame, budget: float) -> str:
    over = int((rows["verdict"] == "over budget").sum())
    within = int((rows["verdict"] == "within budget").sum())
    if over:
        return f"{over} of {words.counted(len(rows), 'attacker')} over the budget of {budget:g}"
    if within == len(rows):
        return f"All {len(rows)} attackers within the budget of {budget:g}"
    return f"No attacker is over the budget of {budget:g}; {len(rows) - within} not shown to be within it"


def _power(rows: pd.DataFrame, choice: Choice, spec: dict) -> None:
    row = rows.iloc[0]
    attackers = len(rows)
    n, k = int(row["n_subjects"]), int(row["n_classes"])
    found = _power_of(n, k, choice.budget, attackers, max(1.0, float(row["n_eval"]) / max(n, 1)))
    ui.quiet(findings.power_sentence(**found, subjects=n, budget=choice.budget, tests=attackers))


@st.cache_data(show_spinner=False, max_entries=50)
def _power_of(n: int, k: int, budget: float, attackers: int, rows_per_subject: float) -> dict:
    from auditcore.leakage.power import power  # here: scipy is slow to import, and the page stands before it is there

    found = power(n, k, budget, attackers, rows_per_subject)
    return {
        "p_within": found.p_within_if_leak_free,
        "smallest": found.smallest_gap_detectable,
        "needed": found.subjects_needed,
        "needed_by_one": found.needed_by_one,
    }


main()
