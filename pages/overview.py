"""What was audited last, and is it within budget? In: the newest runs. Out: a sentence, cards, comparisons."""

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from auditcore import cards, decisions, findings, store, subject, summary, verdict, words
from auditcore.findings.ceiling import ceiling_row, ceiling_sentence
from auditcore.store import Run
from auditcore.subject import Subject
from auditcore.words import Strong
from pages import _ui as ui
from pages._uploads import in_user_names

TITLE = "What this model gives away"
QUESTIONS = {"membership": "membership", "vectors": "vectors"} | dict.fromkeys(decisions.KINDS, "checkpoints")
MOST = 4  # models and data shown; the others are named
CARDS = 4  # of one run, where one model stands alone; else two, and its sentence names the rest


@dataclass(frozen=True)
class Part:
    """One model on one data set, and of each question about it the newest audit."""

    about: Subject
    runs: dict[str, Run]


def main() -> None:
    """Draw the page."""
    runs = store.list_runs()
    chosen = ui.current_run()
    with ui.guard():
        every = _parts(runs, chosen)
        parts = every[:MOST]
        said = [_told(part) for part in parts]
        most = 2 if len(parts) > 1 else CARDS
        drawn = [[c for run in part.runs.values() for c in cards.of_run(run, ui.read, most)] for part in parts]
    if not any(drawn):
        _empty(runs, chosen)
        return
    several = len(parts) > 1
    ui.head(_title(parts), _lead(drawn, parts) if several else said[0])
    _working(runs)
    for part, told, mine in zip(parts, said, drawn, strict=True):
        if several:
            ui.section(in_user_names(part.about.model), in_user_names(_source(part)))
            ui.text(told)
        for run in part.runs.values():
            _warn(run)
        ui.cards(mine)
    if not several:
        ui.quiet(in_user_names(f"{parts[0].about.model}. {_source(parts[0])}"))
    ui.quiet(_not_shown(every[MOST:]))
    ui.quiet(f"Within budget: {verdict.MEANINGS[verdict.WITHIN]}. {verdict.LEVELS}")
    shown = {question: run for part in reversed(parts) for question, run in part.runs.items()}
    left, right = st.columns([1.7, 1], gap="large")
    with left:
        _membership_comparison(runs, shown)
        _artifact_comparison(shown)
    with right:
        _next_steps(runs, shown)


def _parts(runs: pd.DataFrame, chosen: Run | None) -> list[Part]:
    """Audits put together by what they speak of: numbers of two models are never said of one. The chosen run's first.

    Newest first, the shipped studies last; an audit replaces only an older one of the same model, data and question.
    """
    done = [str(i) for i in runs.loc[(runs["status"] == "done") & runs["kind"].isin(list(QUESTIONS)), "run_id"]]
    first = [chosen.id] if chosen is not None and chosen.kind in QUESTIONS else []
    found: dict[tuple[str, str], Part] = {}
    for run in map(store.open_by_id, dict.fromkeys(first + done)):
        if not (run.has("verdicts") or decisions.has_checkpoints(run)):
            continue
        about = subject.of(run)
        found.setdefault(about.key, Part(about, {})).runs.setdefault(QUESTIONS[run.kind], run)
    return list(found.values())


def _title(parts: list[Part]) -> str:
    if len({part.about.model_key for part in parts}) > 1:
        return "What these models give away"
    return TITLE if len(parts) == 1 else f"{TITLE}, on {len(parts)} data sets"


def _lead(drawn: list[list], parts: list[Part]) -> list[str]:
    """How many models and data sets stand here, and in how many of them something is over budget."""
    over = sum(any(card.verdict == verdict.OVER for card in mine) for mine in drawn)
    models, data = ({getattr(part.about, key) for part in parts} for key in ("model_key", "data_key"))
    what = f"{words.counted(len(models), 'model')} on {words.counted(len(data), 'data set')}"
    told = Strong(f"{over} of {len(parts)} over budget" if over else "none over budget")
    return [f"{what}: ", told, ". A number speaks of the model and the data that it stands under, of no other."]


def _told(part: Part) -> tuple[str, ...]:
    """What was found of one model, in the order of the questions."""
    told: tuple[str, ...] = ()
    for run in part.runs.values():
        found = summary.finding(run, ui.read)
        told += (" ", *found) if told and found else tuple(found)
    return told


def _source(part: Part) -> str:
    named = []
    for run in part.runs.values():
        name, kind = ui.names(run)
        study = ", a study that ships with the product" if run.readonly else ""
        named.append(f"{kind}: {words.shorten(name)}, {words.when(run.manifest.get('finished'))}{study}")
    return f"Data: {part.about.data}. {'. '.join(named)}."


def _not_shown(parts: list[Part]) -> str:
    """The models and data sets for which there was no room, by name; "" when there are none."""
    if not parts:
        return ""
    names = ui.quiet_names([ui.names(run)[0] for part in parts for run in part.runs.values()], 6)
    return f"Not shown here, but on Runs and reports: {names}."


def _warn(run: Run) -> None:
    items = summary.warnings(run)
    name, _ = ui.names(run)
    for hidden in summary.giveaway_sentences(run, ui.read):
        ui.notice("warning", hidden, f"{words.shorten(name, 40)}:")
    if items:
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
    ui.quiet(
        "Strongest attack of each run at the same false alarm rate; bars are 95 % intervals over rows. Runs may "
        "differ in model and data: Remembered rows names both and compares two runs row by row."
    )


def _artifact_comparison(shown: dict[str, Run]) -> None:
    run = shown.get("vectors")
    if run is None:
        return
    metrics = ui.read(run, "probe_metrics")
    best = findings.leakiest(metrics)
    if best.empty:
        return
    several = metrics["layer"].nunique() > 1
    best["artifact"] = [findings.artifact_words(row, several) for row in best.to_dict("records")]
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
        f"{attribute} from vectors of {in_user_names(subject.of(run).line)}, {where}, "
        f"{words.count(rows['n_subjects'].iloc[0])} subjects; bars are 95 % intervals over subjects, the band is "
        "the budget around chance. All vectors are read on the same subjects: overlapping bars are no test of their "
        "difference."
    )
    ui.quiet(ceiling_sentence(top, rows.iloc[0]))


def _artifact_sentence(rows: pd.DataFrame) -> tuple[str, ...]:
    most, least = rows.iloc[0], rows.iloc[-1]
    attribute = words.shorten(most["attribute"], 40)
    told = f"{most['artifact']} tells {attribute} in {summary.per_hundred(most['accuracy'])} of 100 cases"
    if len(rows) == 1:
        return (told,)
    return (f"{told}, {least['artifact']} in {summary.per_hundred(least['accuracy'])}",)


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
        ui.page_link("frontier.py", "See what a mitigation still leaks", newest)
    ui.page_link("runs.py", "Compare, export or delete runs")
    if all(run.readonly for run in shown.values()):
        ui.quiet("All of it comes from the studies that ship with the product. Everything stays on this machine.")
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
