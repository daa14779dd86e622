"""Which mitigation works on which artifact? In: the chosen run. Out: the page."""

import pandas as pd
import streamlit as st

from auditcore import findings, summary, words
from auditcore.figures import defences as figures
from auditcore.figures import tokens as token_figures
from auditcore.findings import defences as told
from auditcore.findings.ceiling import ceiling_of
from auditcore.spec import DEFENCES
from auditcore.store import Run
from pages import _defences_linear, _defences_texts, _live, _notes
from pages import _ui as ui

TABLES = ("probe_metrics", "defence_costs", "defence_effects", "verdicts")
ATTRIBUTE_KEY, ARTIFACT_KEY, LAYER_KEY = "attribute", "artifact", "layer"  # as on Exported vectors
SPLITS = ("bal_test", "bal_val")


def main() -> None:
    """Draw the page for the run chosen in the sidebar."""
    run = ui.current_run()
    if run is None or run.kind != "vectors":
        ui.head("Defences")
        wanted = "an audit of exported vectors that tried defences"
        ui.other_question(run, wanted, (("vectors", "Audit exported vectors, with defences"),))
        return
    spec = run.manifest["spec"]
    metrics = ui.read(run, "probe_metrics") if run.has("probe_metrics") else None
    if metrics is None or metrics.empty:
        ui.head("Defences", told.defences_finding(None, "", float(spec["budget"])))
        ui.run_warnings(run)
        ui.empty("No probe has finished yet.", "The page fills as the run works; its progress stands on New audit.")
        _live.watch(run, TABLES)
        return
    if not told.has_defences(metrics):
        asked = [d for d in spec.get("defences", []) if d != "none"]
        ui.head("Defences", told.defences_finding(_none(metrics), "", float(spec["budget"])))
        ui.run_warnings(run)
        if asked:
            ui.empty(f"{words.listed(asked)} will be measured after the vectors as they are.")
        else:
            possible = [d for d in DEFENCES if d not in ("none", *([] if spec.get("model") else ["prompt"]))]
            ui.empty(
                "Nothing was tried against the leak.",
                "Run the same audit again and choose some under “Defences to try as well”. Most of them are fitted, on "
                "subjects set aside for that; where the data has no splits, they are set aside by themselves.",
            )
            ui.page_link("setup.py", "Audit exported vectors, with defences", run.id, "vectors")
            with st.expander("What could be tried"):
                ui.facts([(d, DEFENCES[d]) for d in possible])
            if run.has("output_metrics"):
                st.html(token_figures.style())
                _defences_texts.draw(run, metrics, str(metrics["attribute"].iloc[0]))
        _live.watch(run, TABLES)
        return
    _page(run, metrics, float(spec["budget"]))
    _notes.draw(run)
    _live.watch(run, TABLES)


def _none(metrics: pd.DataFrame) -> pd.DataFrame:
    rows = metrics[metrics["seed"].isna()]
    return told.summarise(rows, None, str(rows["attribute"].iloc[0]))


def _page(run: Run, metrics: pd.DataFrame, budget: float) -> None:
    head = st.container()
    split = next((s for s in SPLITS if (metrics["split"] == s).any()), str(metrics["split"].iloc[0]))
    attributes = [str(a) for a in metrics["attribute"].unique()]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        attribute = attributes[0]
        if len(attributes) > 1:
            attribute = st.selectbox("Sensitive label", attributes, key=ATTRIBUTE_KEY, bind="query-params", width=240)
        rows = told.defended(metrics, str(attribute), split)
        costs = ui.read(run, "defence_costs") if run.has("defence_costs") else None
        table = told.table_of(metrics, costs, str(attribute), split)
        table = table.assign(falls_more=_defences_linear.falls_more(run, rows, table))
        artifact, layer = _place(table)
    with head:
        ui.head("Defences", told.defences_finding(table, str(attribute), budget))
        ui.run_warnings(run)
        if hidden := findings.giveaway_sentence(metrics, split, str(attribute)):
            ui.notice("warning", hidden)
        if split != "bal_test":
            ui.notice(
                "warning", "The reserved test rows were not evaluated; these numbers come from the selection split."
            )
        else:
            ui.quiet(findings.looks_sentence(run.manifest))
    st.html(token_figures.style())
    top = ceiling_of(summary.ceilings(run, ui.read), str(attribute), split)
    _one_artifact(rows, table, artifact, layer, budget, top)
    _everything(run, rows, table, str(attribute), split)
    _defences_texts.draw(run, metrics, str(attribute))


def _place(table: pd.DataFrame) -> tuple[str, int]:
    """Artifact and layer to look at closely; the one that leaks most to begin with."""
    ordered = table.sort_values("signed_gap", ascending=False, kind="stable")
    artifact = _segmented(
        "Artifact", [str(a) for a in table["artifact"].unique()], str(ordered["artifact"].iloc[0]), ARTIFACT_KEY
    )
    mine = ordered.loc[ordered["artifact"] == artifact, "layer"]
    layers = [str(v) for v in sorted({int(v) for v in mine})]
    return artifact, int(_segmented("Layer", layers, str(int(mine.iloc[0])), LAYER_KEY))


def _segmented(label: str, options: list[str], start: str, key: str) -> str:
    if len(options) == 1:
        return options[0]
    chosen = st.segmented_control(
        label, options, default=start, key=key, bind="query-params", required=True,
        format_func=lambda o: words.markdown(words.shorten(o, 40)),
    )  # fmt: skip
    return str(chosen) if chosen in options else start


def _one_artifact(
    rows: pd.DataFrame, table: pd.DataFrame, artifact: str, layer: int, budget: float, ceiling: float | None
) -> None:
    mine = rows[(rows["artifact"] == artifact) & (rows["layer"] == layer)]
    some = table[(table["artifact"] == artifact) & (table["layer"] == layer)]
    n = words.counted(int(mine["n_subjects"].max()), "subject")
    fit = told.fit_sentence(some)
    where = f"{artifact}, layer {layer}" if table["layer"].nunique() > 1 else artifact
    ui.section(where, f"Every attacker was fitted anew behind each defence and read on {n} it never saw. {fit}")
    marks = told.marks(some)
    best = told.best_defence(table, artifact, layer, budget)
    left, right = st.columns([3, 2], gap="large")
    with left:
        caption = _gap_caption(mine, best)
        ui.chart_title(_gap_title(some, marks, budget), caption)
        alt = f"LeakageGap of {len(mine)} attackers behind {len(some)} defences. {words.plain(caption)}"
        ui.chart(figures.gaps_figure(mine, budget, marks, ceiling), "defence_gaps", alt)
    with right:
        if best is None or not some["overlap"].map(words.known).any():
            ui.chart_title("What it costs")
            ui.empty("The cost of no defence has been measured yet.")
        else:
            caption = told.cost_sentence(best, budget)
            ui.chart_title("What it costs the vectors' user", caption)
            ui.chart(figures.cost_figure(some, budget), "defence_cost", f"Leak against cost. {words.plain(caption)}")
    missing = int((~mine["signed_gap"].map(words.known)).sum())
    if missing:
        ui.notice("warning", f"{words.counted(missing, 'attacker')} without a finite number not drawn.")


def _gap_title(table: pd.DataFrame, marks: dict[str, str], budget: float) -> str:
    within = [str(d) for d in table.loc[table["verdict"] == "within budget", "defence"] if d != "none"]
    if within:
        return f"Within the budget of {budget:g} behind {words.listed(within)}"
    if any(marks.values()):
        return "Linear attackers fall, others read on"
    return f"No defence is shown to be within the budget of {budget:g}"


def _gap_caption(rows: pd.DataFrame, best: dict | None) -> list[str]:
    worst = rows.sort_values("signed_gap", ascending=False, kind="stable").iloc[0]
    text = [f"{worst['probe']} on {_behind(worst)}: {words.number(worst['signed_gap'])}"]
    if best is not None:
        ends = words.interval(best["signed_low90"], best["signed_high90"])
        chosen = f", {best['choice']}" if best["choice"] else ""
        text.append(f"; the strongest attacker behind {best['defence']}{chosen}, {best['probe']}: ")
        text += [words.Strong(words.number(best["signed_gap"])), f", 90 % interval {ends}"]
    return [*text, "."]


def _behind(row: pd.Series) -> str:
    return "the vectors as they are" if row["defence"] == "none" else f"vectors behind {row['defence']}"


def _everything(run: Run, rows: pd.DataFrame, table: pd.DataFrame, attribute: str, split: str) -> None:
    ui.section("Every artifact, defence and attacker")
    effects = ui.read(run, "defence_effects") if run.has("defence_effects") else None
    if effects is not None:
        effects = effects[(effects["attribute"] == attribute) & (effects["split"] == split)]
        if len(effects):
            lowest = effects.sort_values("change", kind="stable").iloc[0].to_dict()
            ui.quiet(
                [("Largest fall: " if lowest["change"] < 0 else "No reading fell: "), *told.change_sentence(lowest)]
            )
    st.html(figures.defence_table(rows, table, effects))
    ui.quiet(
        "Points: change of accuracy against the same attacker on the vectors as exported, rows paired, 95 % interval. "
        "All attackers: their verdict after Holm's correction over every test of the defence; near certainty: the most "
        "subjects that one attacker names so, beyond guessing. Only linear falls: the linear probe is no longer over "
        f"budget and another one is. {told.FALLS_MORE} Neighbours: of the ten nearest "
        "rows (cosine, among the test rows) how many stay, 95 % interval over subjects. Variance: one minus squared "
        "change over variance. Intervals are conditional on the fitted defence and probes."
    )
    ui.download_csv(table.drop(columns=["linear_only", "falls_more"]), "defences.csv", "defences_csv")
    with st.expander("What each defence does"):
        ui.facts(
            [("as exported" if d == "none" else d, DEFENCES[d]) for d in table["defence"].unique() if d in DEFENCES]
        )


main()
