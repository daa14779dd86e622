"""Options of runs that train or compare checkpoints. In: what the user chooses. Out: parts of a spec, not validated."""

from typing import Any

import streamlit as st

from auditcore.spec import ADVERSARIES, ARTIFACTS, PROBES
from pages import _ui as ui
from pages._widgets import STAY, budget_box, many, rank_box, seeds_box, shared, whole


def surfacelora() -> dict[str, Any]:
    """How the mitigation is trained, and how its checkpoints are measured."""
    left, right = st.columns(2, gap="medium")
    with left:
        targets = many("Vectors that should tell less", ARTIFACTS, ["lasttok"], "setup_targets")
        strength = st.number_input(
            "Lambda: how hard it pulls",
            min_value=0.0,
            value=2.0,
            step=0.5,
            key="setup_lambda",
            help="Weight of the turned gradient. 0: the same adapter learns its summaries only, to compare with.",
            **STAY,
        )
    with right:
        adversary = many("Adversaries in the loop", ADVERSARIES, ["mlp", "ridge"], "setup_adversary")
        a, b = st.columns(2)
        with a:
            steps = whole("Steps", 400, 1, "setup_surface_steps")
        with b:
            every = whole("Checkpoint every so many", 50, 1, "setup_checkpoint_every")
    if strength == 0:
        ui.quiet("Lambda 0 is utility-only LoRA: no adversary takes part.")
    measured, more = _measured(targets)
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            rate = st.text_input("Learning rate", "0.0002", key="setup_rate_surfacelora", **STAY)
        with b:
            lora = rank_box("setup_surface_rank")
        with c:
            batch = whole("Summaries per step", 8, 1, "setup_surface_batch")
        a, b, c = st.columns(3)
        with a:
            rows = whole("Prompts the adversaries see per step", 32, 1, "setup_surface_rows")
        with b:
            begin = whole("Steps before lambda rises", 0, 0, "setup_lambda_begin")
        with c:
            checkpointing = st.toggle(
                "Save memory",
                key="setup_activation_checkpointing",
                help="Layers are computed again in the backward pass: less memory, about half more time.",
                **STAY,
            )
        common = more()
    return {
        "targets": targets,
        "lambda": strength,
        "lambda_begin": begin,
        "adversary": adversary,
        "steps": steps,
        "checkpoint_every": every,
        "learning_rate": rate,
        "batch_size": batch,
        "lora": lora,
        "discriminator": {"rows": rows},
        "activation_checkpointing": checkpointing,
        **measured,
        **common,
    }


def frontier() -> dict[str, Any]:
    """How checkpoints that are there already are measured."""
    measured, more = _measured([])
    with st.expander("More options"):
        common = more()
    return {**measured, **common}


def _measured(targets: list[str]) -> tuple[dict[str, Any], Any]:
    """What is measured of every checkpoint; and the widgets that belong under More options, as a function."""
    left, right = st.columns(2, gap="medium")
    with left:
        default = list(dict.fromkeys([*targets, "lasttok", "meanpool", "concat"]))
        audit = many("Vectors to audit", ARTIFACTS, default, f"setup_audit_{'_'.join(targets)}")
        budget = budget_box("setup_checkpoint_budget")
    with right:
        probes = many("Attackers, fresh at every checkpoint", PROBES, ["linear", "mlp"], "setup_checkpoint_probes")
        summaries = whole("Summaries written at every checkpoint", 200, 0, "setup_rouge_rows")
    measured = {"audit": audit, "probes": probes, "budget": budget, "rouge_rows": summaries}

    def more() -> dict[str, Any]:
        a, b = st.columns(2)
        with a:
            seeds = seeds_box("setup_checkpoint_seeds")
        with b:
            members = whole("Members, and as many others, for attack ez (0: not measured)", 0, 0, "setup_members")
        return {"seeds": seeds, "membership_rows": members, **shared(batch=False)}

    return measured, more
