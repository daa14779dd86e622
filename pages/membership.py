"""Which training rows does the model give away, and at which tokens? In: the chosen run. Out: the page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditcore import findings, words
from auditcore.figures import membership as figures
from auditcore.figures import tables as html_tables
from auditcore.figures import tokens as token_figures
from auditcore.store import Run
from pages import (
    _live,
    _membership_compare,
    _membership_groups,
    _membership_rows,
    _membership_scores,
    _membership_sweep,
    _membership_where,
    _notes,
)
from pages import _ui as ui

TABLES = ("examples", "token_stats", "membership_scores", "blind", "attack_metrics", "roc", "verdicts")
ATTACK_KEY, FPR_KEY = "attack", "fpr"


@dataclass(frozen=True)
class Choice:
    """What the page shows of a run."""

    attack: str
    target_fpr: float
    threshold: float | None
    skip_first: bool


def main() -> None:
    """Draw the page for the run chosen in the sidebar."""
    run = ui.current_run()
    if run is not None and run.kind == "sweep":
        _membership_sweep.draw(run)
        return
    if run is None or run.kind != "membership":
        _other(run)
        return
    metrics = ui.read(run, "attack_metrics") if run.has("attack_metrics") else None
    ui.head("Remembered rows", findings.membership_finding(metrics))
    ui.run_warnings(run)
    st.html(token_figures.style())
    if run.has("verdicts"):
        _verdict(ui.read(run, "verdicts"), metrics)
    choice = _choose(run, metrics)
    notes = None
    if metrics is not None and len(metrics):
        notes = _attacks(run, metrics, choice)
    st.fragment(_linked)(run, choice)
    _membership_where.draw(run, choice.skip_first)
    _membership_compare.draw(run, choice.target_fpr)
    _notes.draw(run)
    if notes is not None and metrics is not None:
        # Last, since it imports scipy: the page stands before it is there.
        with notes:
            for note in _unresolved(run.version("attack_metrics"), str(run.path)):
                ui.quiet(note)
    _live.watch(run, TABLES)


def _linked(run: Run, choice: Choice) -> None:
    """Scores, subjects, rows and tokens: one fragment, so that a choice in any of them redraws these and nothing above.

    The scores stand first and are drawn last: the row that they mark is chosen below them.
    """
    _membership_scores.take_click(run, choice.attack)
    place = st.container()
    _membership_groups.draw(run, choice.attack, choice.target_fpr, choice.threshold)
    row = _membership_rows.draw(run, choice.attack, choice.threshold, choice.skip_first)
    with place:
        _membership_scores.draw(run, choice.attack, choice.threshold, row)


def _other(run: Run | None) -> None:
    ui.head("Remembered rows")
    starts = (("membership", "Audit remembered rows"), ("finetune", "Fine-tune a model first"))
    ui.other_question(run, "an audit of remembered rows", starts)


def _verdict(verdicts: pd.DataFrame, metrics: pd.DataFrame | None) -> None:
    """The run's verdict over all declared attacks, in words beside its pill."""
    if verdicts.empty:
        return
    combined = verdicts[verdicts["attacker"] == "all"]
    line = (combined if len(combined) else verdicts).iloc[0]
    name = str(line["verdict"]) if len(combined) or len(verdicts) == 1 else findings.overall(verdicts)
    ui.html(
        f'<p class="ac-quiet" style="margin-top:.75rem">{ui.pill_html(name)} &ensp;'
        f"{words.sentence_html(findings.excess_sentence(line, name, findings.tie_reasons(metrics)))}</p>"
    )


def _choose(run: Run, metrics: pd.DataFrame | None) -> Choice:
    """Pickers of attack and false-positive rate, both in the address of the page."""
    spec = run.manifest["spec"]
    attacks = list(metrics["attack"].unique()) if metrics is not None and len(metrics) else list(spec["attacks"])
    rates = [float(f) for f in spec["target_fprs"]]
    if metrics is not None and len(metrics):
        rates = sorted(metrics["target_fpr"].dropna().unique().tolist()) or rates
    options = {f"{100 * f:g}": f for f in rates}
    default = (findings.finest_fpr(metrics) if metrics is not None else None) or findings.HEADLINE_FPR
    start = f"{100 * default:g}"
    ranked = findings.points(metrics, default)["attack"].tolist() if metrics is not None and len(metrics) else []
    first = next((a for a in ranked if a in attacks), attacks[0])  # what the head of the page speaks of
    left, right = st.columns([1, 1], vertical_alignment="bottom")
    with left:
        # Buttons as long as they fit into one line.
        pick: Any = st.segmented_control if len(attacks) <= 5 else st.selectbox
        few = len(attacks) <= 5
        more = {"default": first, "required": True} if few else {"index": attacks.index(first)}
        attack = pick("Attack", attacks, key=ATTACK_KEY, bind="query-params", format_func=findings.attack_name, **more)
    with right:
        rate = st.segmented_control(
            "Other rows falsely accused, %", list(options), key=FPR_KEY, bind="query-params", required=True,
            default=start if start in options else next(iter(options)),
        )  # fmt: skip
    attack = attack if attack in attacks else first
    fpr = options.get(str(rate), default)
    threshold = findings.threshold_at(metrics, attack, fpr) if metrics is not None and len(metrics) else None
    return Choice(attack, fpr, threshold, bool(spec.get("skip_first", True)))


def _attacks(run: Run, metrics: pd.DataFrame, choice: Choice):
    """ROC and the table of attacks side by side. Returns the place for notes that are filled in later."""
    left, right = st.columns([5, 6], gap="medium")
    with left:
        drawn = figures.Curves(**_curves(run.version("roc"), str(run.path))) if run.has("roc") else None
        if drawn is not None and len(drawn.points):
            caption = findings.roc_sentence(metrics, len(drawn.points), drawn.realisable)
            best = findings.strongest_attack(metrics, choice.target_fpr)
            ui.chart_title(_roc_title(best, choice), caption)
            name = None if best is None else str(best["attack"])
            fig = figures.roc_figure(drawn, choice.target_fpr, best=name, chosen=choice.attack)
            ui.chart(fig, "roc", f"Log-log ROC of {len(metrics['attack'].unique())} attacks. {words.plain(caption)}")
            _left_out(drawn)
        else:
            ui.empty("No ROC: it takes rows known to be members and rows known not to be.")
    with right:
        about, table = "95 % intervals by bootstrap over subjects, never narrower than exact ones.", metrics
        about += " Passes: runs of a model per row."
        if run.has("blind"):
            about += " Words alone: a bag of words that asks no model; it should be at chance (AUC 0.5)."
            table = pd.concat([metrics, ui.read(run, "blind")], ignore_index=True)
        ui.chart_title("What each attack finds", about)
        costs = findings.attack_costs(run.manifest["spec"])
        passes = {str(one["attack"]): int(one["passes"]) for one in costs}
        said = findings.no_difference(run.manifest)
        st.html(html_tables.attack_table(table, choice.target_fpr, passes, None, said))
        notes = st.container()
    if costs:
        with st.expander("What each attack reads and costs"):
            st.html(html_tables.cost_table(costs))
            ui.quiet("Passes are counted for each attack alone; attacks that read the same numbers share them.")
    return notes


def _roc_title(best: pd.Series | None, choice: Choice) -> str:
    if best is not None and findings.tie_reason(best) and not words.known(best["value"]):
        return f"Tied scores leave no threshold at {words.percent(choice.target_fpr, 1)} false accusations"
    if best is None or not words.known(best["value"]):
        return f"{words.percent(choice.target_fpr, 1)} false accusations cannot be shown with so few other rows"
    name = findings.attack_name(best["attack"])
    return f"{name} finds {words.percent(best['value'], 0)} while accusing {findings.alarms(choice.target_fpr)} falsely"


def _left_out(drawn: figures.Curves) -> None:
    parts = []
    if drawn.no_hits:
        parts.append(f"{words.counted(drawn.no_hits, 'threshold')} that find nothing lie below the axis")
    if drawn.not_finite:
        parts.append(f"{words.counted(drawn.not_finite, 'threshold')} without a finite rate not drawn")
    if drawn.flat:
        parts.append(f"no curve: {words.listed(drawn.flat)}")
    if parts:
        ui.quiet(f"{'; '.join(parts)}.")


# Caches hold frames and dicts, keyed by the version of a table: never a class of ours, never a frame as an argument.


@st.cache_data(show_spinner=False, max_entries=20)
def _curves(version: str, path: str) -> dict[str, Any]:
    run = Run(Path(path))
    n = run.sql("select max(n_nonmember) as n from attack_metrics", tables=["attack_metrics"])["n"].iloc[0]
    return vars(figures.curves(run.read("roc", ["attack", "fpr", "tpr"]), int(n)))


@st.cache_data(show_spinner=False, max_entries=20)
def _unresolved(version: str, path: str) -> list[list[str]]:
    return findings.unresolved_notes(Run(Path(path)).read("attack_metrics"))


main()
