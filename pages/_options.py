"""The options of a new audit, by kind. In: what the user chooses. Out: parts of a spec, not validated yet."""

from typing import Any

import streamlit as st

from auditcore.spec import ARTIFACTS, ATTACKS, DEFENCES, PROBES
from pages import _options_checkpoints as checkpoint_options
from pages import _ui as ui
from pages._options_defences import choose_details
from pages._widgets import STAY, budget_box, many, numbers, rank_box, seeds_box, shared, whole


def choose_options(kind: str, given: bool = False) -> dict[str, Any]:
    """What else can be chosen for this kind of audit. given: the vectors come from a file, not from a model."""
    if kind == "vectors":
        return _vectors_options(given)
    return {
        "membership": _membership_options,
        "finetune": _finetune_options,
        "surfacelora": checkpoint_options.surfacelora,
        "frontier": checkpoint_options.frontier,
    }[kind]()


def _vectors_options(given: bool) -> dict[str, Any]:
    exported = {} if given else _artifacts()
    left, right = st.columns(2, gap="medium")
    with left:
        probes = many("Attackers", PROBES, ["linear", "mlp"], "setup_probes")
    with right:
        budget = budget_box("setup_budget")
    # A directive changes what a model reads: vectors from a file know none.
    tried = {name: text for name, text in DEFENCES.items() if name not in ("none", *(["prompt"] if given else []))}
    defences = many("Defences to try as well", tried, [], "setup_defences")
    if defences:
        ui.quiet("Subjects are set aside to fit them on (defence_fit); every attacker is fitted anew behind each.")
    told = choose_details(defences)
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            seeds = seeds_box("setup_seeds")
        with b:
            permutations = whole("Permutations of the null band", 199, 19, "setup_permutations")
        with c:
            n_boot = whole("Bootstrap resamples", 2000, 100, "setup_boot")
        curve = st.toggle(
            "Measure accuracy against training rows",
            key="setup_curve",
            help="Probes fitted on 1/16 to 1/2 of the training rows too, five draws each, and an extrapolation to "
            "10 times the rows where the curve determines one. The plan says what it costs.",
            **STAY,
        )
        written = 0 if given else whole("Summaries to write and read (0: none)", 0, 0, "setup_generate")
        if "last_k_mean" in exported.get("artifacts", []):
            exported["last_k"] = whole("Tokens in last_k_mean", 8, 1, "setup_last_k")
        common = shared()
    chosen = {
        **exported,
        "probes": probes,
        "defences": ["none", *defences],
        "budget": budget,
        "permutations": permutations,
        "n_boot": n_boot,
        **told,
    }
    chosen |= {"generate": {"rows": written}} if written else {}
    chosen |= {"curve": {}} if curve else {}
    return {**chosen, "seeds": seeds, **common}


def _artifacts() -> dict[str, Any]:
    """Which vectors a model exports."""
    left, right = st.columns(2, gap="medium")
    with left:
        artifacts = many("Vectors to audit", ARTIFACTS, ["lasttok", "meanpool"], "setup_artifacts")
    with right:
        layers = st.text_input(
            "Layers",
            "-1",
            key="setup_layers",
            help="Comma-separated; -1 is after the final norm, 0 the embeddings; or all.",
            **STAY,
        )
    return {"artifacts": artifacts, "layers": "all" if layers.strip().lower() == "all" else numbers(layers)}


def _membership_options() -> dict[str, Any]:
    left, right = st.columns(2, gap="medium")
    with left:
        attacks = many("Attacks", ATTACKS, ["ez", "loss", "reference"], "setup_attacks")
    with right:
        budget = budget_box("setup_membership_budget")
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            policy = st.selectbox(
                "Rows without errors rank",
                ["paper", "official"],
                key="setup_policy",
                help="paper: first; official: last, as in the authors' code.",
                **STAY,
            )
        with b:
            score = st.selectbox(
                "Tokens that count",
                ["target", "all"],
                key="setup_score",
                help="For rows with a text to write: only its tokens, or all.",
                **STAY,
            )
        with c:
            mismatch = st.selectbox(
                "Member column disagrees with training",
                ["error", "warn"],
                key="setup_mismatch",
                help="What to do when the checkpoint says that it was trained on other rows.",
                **STAY,
            )
        duplicates = st.selectbox(
            "Texts on both sides of the member line",
            ["warn", "exclude"],
            key="setup_duplicates",
            help="Equal or nearly equal texts among members and non-members: count them, or leave them out as well.",
            **STAY,
        )
        common = shared()
    chosen = {"attacks": attacks, "membership_budget": budget, "ez_policy": policy, "score": score}
    chosen |= _expensive(attacks)
    return {**chosen, "on_mismatch": mismatch, "on_duplicates": duplicates, **common}


REFERENCES = {
    "base": "the model before fine-tuning",
    "sft": "the same, fine-tuned on known non-members",
    "distillation": "the same, fine-tuned on texts the target writes",
}


def _expensive(attacks: list[str]) -> dict[str, Any]:
    """What the attacks that train a model or alter rows can be told; nothing of those that are not chosen."""
    chosen: dict[str, Any] = {}
    with st.expander("Reference, copies and models trained for the attack"):
        kind = st.selectbox(
            "Compare the target with",
            list(REFERENCES),
            format_func=REFERENCES.__getitem__,
            key="setup_compare_with",
            help="Non-members that the reference is fine-tuned on leave the evaluation.",
            **STAY,
        )
        chosen["reference"] = {"kind": kind}
        a, b, c = st.columns(3)
        if "neighbourhood" in attacks:
            with a:
                chosen["neighbours"] = {"count": whole("Copies of each row", 10, 1, "setup_neighbours")}
        if "spv" in attacks:
            with b:
                chosen["spv"] = {"pairs": whole("Pairs of copies for spv", 10, 1, "setup_pairs")}
        if "spv" in attacks or kind == "distillation":
            with c:
                chosen["self_prompt"] = {"texts": whole("Texts the target writes", 400, 8, "setup_texts")}
        if "lira" in attacks:
            with a:
                chosen["shadows"] = {"count": whole("Shadow models", 8, 4, "setup_shadows")}
    return chosen


def _finetune_options() -> dict[str, Any]:
    a, b, c, d = st.columns([1.7, 1, 1.2, 1.2])  # names of methods are long
    with a:
        method = st.selectbox(
            "Method",
            ["full", "lora"],
            format_func=_method_name,
            key="setup_method",
            **STAY,
        )
    with b:
        epochs = whole("Epochs", 3, 1, "setup_epochs")
    with c:
        default = 5e-5 if method == "full" else 1e-4
        rate = st.text_input("Learning rate", f"{default:g}", key=f"setup_rate_{method}", **STAY)
    with d:
        batch = whole("Rows per step", 16, 1, "setup_train_batch")
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            steps = whole("At most so many steps (0: no limit)", 0, 0, "setup_steps")
        with b:
            lora = rank_box("setup_rank")
        with c:
            share = st.number_input(
                "Share held out to choose the best checkpoint", 0.0, 0.5, 0.1, 0.05, key="setup_validation", **STAY
            )
        common = shared(batch=False)
    chosen: dict[str, Any] = {"method": method, "epochs": epochs, "learning_rate": rate, "batch_size": batch}
    if method == "lora":
        chosen["lora"] = lora
    return {**chosen, "max_steps": steps or None, "validation": share, **common}


def _method_name(method: str) -> str:
    return {"full": "all weights", "lora": "LoRA"}.get(method, method)
