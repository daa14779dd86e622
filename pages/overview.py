"""What was audited last, and is it within budget? In: the newest runs. Out: a sentence, cards, comparisons."""

import pandas as pd
import streamlit as st

from auditcore import cards, decisions, findings, store, summary, verdict, words
from auditcore.findings.ceiling import ceiling_row, ceiling_sentence
from auditcore.store import Run
from auditcore.words import Strong
from pages import _ui as ui

TITLE = "What this model gives away"


def main() -> None:
    """Draw the page."""
    runs = store.list_runs()
    chosen = ui.current_run()
    shown = _shown(runs, chosen)
    with ui.guard():
        found = {kind: summary.finding(run, ui.read) for kind, run in shown.items()}
        drawn = [card for run in shown.values() for card in cards.of_run(run, ui.read, limit=5)]
    if not drawn:
        _empty(runs, chosen)
        return
    ui.head(TITLE, _sentence(list(found.values())))
    _working(runs)
    for run in shown.values():
        _warn(run)
    ui.cards(drawn)
    ui.quiet(_sources(shown))
    left, right = st.columns([1.7, 1], gap="large")
    with left:
        _membership_comparison(runs, shown)
        _artifact_comparison(shown)
    with right:
        _next_steps(runs, shown)


def _shown(runs: pd.DataFrame, chosen: Run | None) -> dict[str, Run]:
    """The chosen run, and the newest finished run of the other kind: two questions, two answers."""
    shown: dict[str, Run] = {}
    done = runs[runs["status"] == "done"]
    for kind in ("membership", "vectors"):
        if chosen is not None and chosen.kind == kind and chosen.has("verdicts"):
            shown[kind] = chosen
            continue
        newest = done[done["kind"] == kind]
        for run_id in newest["run_id"]:
            run = store.open_by_id(run_id)
            if run.has("verdicts"):
                shown[kind] = run
                break
    return shown


def _sentence(findings: list) -> tuple:
    parts: tuple = ()
    for found in findings:
        parts += (" ", *found) if parts and found else tuple(found)
    return parts


def _sources(shown: dict[str, Run]) -> list[str]:
    parts = []
    for kind, run in shown.items():
        name, _ = ui.names(run)
        study = ", a study that ships with the product" if run.readonly else ""
        parts.append(
            f"{ui.KIND_NAMES[kind]}: {words.shorten(name)}, {words.when(run.manifest.get('finished'))}{study}."
        )
    meaning = f" Within budget: {verdict.MEANINGS[verdict.WITHIN]}. {verdict.LEVELS}"
    return [" ".join(parts) + meaning]


def _warn(run: Run) -> None:
    items = summary.warnings(run)
    if items:
        name, _ = ui.names(run)
        more = f" ({len(items) - 1} more on the page of this run.)" if len(items) > 1 else ""
        ui.notice("warning", items[0] + more, f"{words.shorten(name, 40)}:")


def _working(runs: pd.DataFrame) -> None:
    active = runs[runs["status"].isin(store.ACTIVE)]
    if len(active):
        names = ui.quiet_names(list(active["name"]))
        ui.notice("info", f"{names}. The page New audit shows how far it is.", "Working now:")


def _membership_comparison(runs: pd.DataFrame, shown: dict[str, Run]) -> None:
    ids = runs[(runs["status"] == "done") & (runs["kind"] == "membership")]["run_id"].tolist()
    first = [shown["membership"].id] if "membership" in shown else []
    chosen = [store.open_by_id(i) for i in dict.fromkeys(first + ids)]
    frame = summary.compared([r for r in chosen if r.has("attack_metrics")][:4], ui.read)
    if len(frame) < 2:
        return
    from auditcore.figures.overview import membership_comparison

    sentence = summary.comparison_sentence(frame)
    ui.section(sentence)
    lines = [f"{r.name}: {words.percent(r.value)} at 1 % false alarms" for r in frame.itertuples()]
    ui.chart(membership_comparison(frame), "membership_comparison", f"{words.plain(sentence)}. {'; '.join(lines)}")
    ui.quiet("Strongest attack of each run at the same false alarm rate; bars are 95 % intervals over rows.")


def _artifact_comparison(shown: dict[str, Run]) -> None:
    run = shown.get("vectors")
    if run is None:
        return
    best = findings.leakiest(ui.read(run, "probe_metrics"))
    if best.empty:
        return
    from auditcore.figures.overview import artifact_comparison

    attribute = str(best.sort_values("signed_gap", ascending=False, kind="stable").iloc[0]["attribute"])
    rows = best[best["attribute"] == attribute].sort_values("accuracy", ascending=False, kind="stable")
    sentence = _artifact_sentence(rows)
    ui.section(sentence)
    lines = [f"{r.artifact}: {words.percent(r.accuracy)}" for r in rows.itertuples()]
    budget = run.manifest["spec"].get("budget")
    alt = f"{words.plain(sentence)}. {'; '.join(lines)}; chance {words.percent(rows['chance'].iloc[0])}"
    split = str(rows["split"].iloc[0])
    top = ceiling_row(summary.ceilings(run, ui.read), attribute, split)
    fig = artifact_comparison(best, attribute, budget, None if top is None else float(top["ceiling"]))
    ui.chart(fig, "artifact_comparison", alt)
    where = "the test split" if split == findings.TEST_SPLITS[0] else f"split {split}"
    ui.quiet(
        f"{attribute} on {where}, {words.count(rows['n_subjects'].iloc[0])} subjects; bars are 95 % intervals over "
        "subjects, the shaded band is the budget around chance."
    )
    ui.quiet(ceiling_sentence(top, rows.iloc[0]))


def _artifact_sentence(rows: pd.DataFrame) -> tuple[str, ...]:
    most, least = rows.iloc[0], rows.iloc[-1]
    attribute = words.shorten(most["attribute"], 40)
    if len(rows) == 1:
        return (f"{most['artifact']} tells {attribute} in {summary.per_hundred(most['accuracy'])} of 100 cases",)
    if most["accuracy_low"] > least["accuracy_high"]:
        return (f"{most['artifact']} tells more about {attribute} than {least['artifact']}",)
    return (f"On {attribute} the intervals of {words.listed(rows['artifact'].tolist())} overlap",)


def _next_steps(runs: pd.DataFrame, shown: dict[str, Run]) -> None:
    ui.section("Next")
    ui.page_link("setup.py", "Audit your own model and data")
    if "membership" in shown:
        ui.page_link("membership.py", "See which rows and tokens it remembers", shown["membership"].id)
    if "vectors" in shown:
        ui.page_link("vectors.py", "See what can be inferred from which vector", shown["vectors"].id)
    mitigated = runs[(runs["status"] == "done") & runs["kind"].isin(decisions.KINDS)]
    if len(mitigated):
        newest = str(mitigated["run_id"].iloc[0])
        ui.page_link("frontier.py", "See what a mitigation keeps and what still leaks", newest)
    ui.page_link("runs.py", "Compare, export or delete runs")
    if all(run.readonly for run in shown.values()):
        ui.quiet("The results shown were computed from the bundled study. Everything stays on this machine.")
    else:
        ui.quiet("Everything stays on this machine.")


def _empty(runs: pd.DataFrame, chosen: Run | None) -> None:
    ui.head(TITLE, ("No audit has finished yet. ", Strong("Three clicks start one"), " on the bundled model and data."))
    _working(runs)
    if chosen is not None and chosen.status not in ("done", *store.ACTIVE):
        ui.run_warnings(chosen)
    ui.section("How to start")
    ui.html(
        "<ol class='ac-list'><li>Open <b>New audit</b> and keep the bundled model and data, or name your own.</li>"
        "<li>Read what the audit will be able to show, before anything runs.</li>"
        "<li>Start it. The verdict appears here.</li></ol>"
    )
    ui.page_link("setup.py", "Start an audit")
    ui.quiet("The same on the command line: python -m auditcore demo. Everything stays on this machine.")


main()
