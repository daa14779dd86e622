"""A sweep over fine-tunings: leakage over steps and at equal validation loss. In: the run. Out: the page's body."""

import streamlit as st

from auditcore import findings, words
from auditcore.figures import sweep as figures
from auditcore.figures import tokens as token_figures
from auditcore.store import Run
from pages import _live, _notes
from pages import _ui as ui

TABLES = ("examples", "sweep", "matched")


def draw(run: Run) -> None:
    """Draw finding, both figures and the table of checkpoints."""
    if not run.has("sweep"):
        ui.head("Remembered rows, by fine-tuning method")
        ui.run_warnings(run)
        ui.empty("No checkpoint has been measured yet.", "The figures appear when every variant is trained and scored.")
        _live.watch(run, TABLES)
        return
    sweep, matched = ui.read(run, "sweep"), ui.read(run, "matched")
    attacks = list(dict.fromkeys(sweep["attack"]))
    rate = findings.finest_rate(sweep)
    spot = st.container()
    attack = st.segmented_control(
        "Attack", attacks, key="attack", bind="query-params", format_func=findings.attack_name, default=attacks[0],
        required=True,
    ) if len(attacks) <= 5 else st.selectbox(
        "Attack", attacks, key="attack", bind="query-params", format_func=findings.attack_name
    )  # fmt: skip
    attack = attack if attack in attacks else attacks[0]
    st.html(token_figures.style())
    with spot:
        ui.head("Remembered rows, by fine-tuning method", findings.matched_finding(matched, attack, rate))
        ui.run_warnings(run)
    if run.has("blind"):
        ui.quiet(findings.blind_sentence(ui.read(run, "blind")))
    rows = findings.at_rate(sweep, attack, rate)
    left, right = st.columns(2, gap="medium")
    with left:
        caption = findings.checkpoints_finding(rows, attack, rate)
        ui.chart_title("Leakage over training", caption)
        ui.chart(figures.steps_figure(rows, rate), "sweep_steps", words.plain(caption))
    with right:
        caption = findings.matched_finding(matched, attack, rate)
        ui.chart_title("Leakage at the same validation loss", "Further left fits unseen text better; lower leaks less.")
        ui.chart(figures.loss_figure(rows, matched, rate), "sweep_loss", words.plain(caption))
    ui.chart_title("Every checkpoint", "95 % intervals by bootstrap over subjects; losses in nats per token.")
    st.html(figures.sweep_table(rows, rate))
    _notes.draw(run)
    _live.watch(run, TABLES)
