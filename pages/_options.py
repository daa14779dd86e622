"""The options of a new audit, by kind. In: what the user chooses. Out: parts of a spec, not validated yet."""

from typing import Any

import streamlit as st

from auditcore import words
from auditcore.spec import ARTIFACTS, ATTACKS, DEFENCES, PROBES
from pages import _ui as ui

STAY: dict[str, Any] = {"persist_state": "session"}


def choose_options(kind: str, given: bool = False) -> dict[str, Any]:
    """What else can be chosen for this kind of audit. given: the vectors come from a file, not from a model."""
    if kind == "vectors":
        return _vectors_options(given)
    return {"membership": _membership_options, "finetune": _finetune_options}[kind]()


def _many(label: str, known: dict[str, str], default: list[str], key: str) -> list[str]:
    about = "; ".join(f"{name}: {text}" for name, text in known.items())
    return st.multiselect(label, list(known), default=default, key=key, help=words.markdown(about), **STAY)


def _vectors_options(given: bool) -> dict[str, Any]:
    exported = {} if given else _artifacts()
    left, right = st.columns(2, gap="medium")
    with left:
        probes = _many("Attackers", PROBES, ["linear", "mlp"], "setup_probes")
    with right:
        budget = _budget("setup_budget")
    tried = {name: text for name, text in DEFENCES.items() if name != "none"}
    defences = _many("Defences to try as well", tried, [], "setup_defences")
    if defences:
        ui.quiet("Subjects of defence_fit are set aside for them; every attacker is fitted anew behind each.")
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            seeds = st.text_input("Seeds of the probes", "0, 1, 2", key="setup_seeds", **STAY)
        with b:
            permutations = _whole("Permutations of the null band", 199, 19, "setup_permutations")
        with c:
            n_boot = _whole("Bootstrap resamples", 2000, 100, "setup_boot")
        if "last_k_mean" in exported.get("artifacts", []):
            exported["last_k"] = _whole("Tokens in last_k_mean", 8, 1, "setup_last_k")
        common = _common()
    chosen = {
        **exported,
        "probes": probes,
        "defences": ["none", *defences],
        "budget": budget,
        "permutations": permutations,
        "n_boot": n_boot,
    }
    return {**chosen, "seeds": _numbers(seeds), **common}


def _artifacts() -> dict[str, Any]:
    """Which vectors a model exports."""
    left, right = st.columns(2, gap="medium")
    with left:
        artifacts = _many("Vectors to audit", ARTIFACTS, ["lasttok", "meanpool"], "setup_artifacts")
    with right:
        layers = st.text_input(
            "Layers",
            "-1",
            key="setup_layers",
            help="Comma-separated; -1 is after the final norm, 0 the embeddings; or all.",
            **STAY,
        )
    return {"artifacts": artifacts, "layers": "all" if layers.strip().lower() == "all" else _numbers(layers)}


def _membership_options() -> dict[str, Any]:
    left, right = st.columns(2, gap="medium")
    with left:
        attacks = _many("Attacks", ATTACKS, ["ez", "loss", "reference"], "setup_attacks")
    with right:
        budget = _budget("setup_membership_budget")
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
        common = _common()
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
                chosen["neighbours"] = {"count": _whole("Copies of each row", 10, 1, "setup_neighbours")}
        if "spv" in attacks:
            with b:
                chosen["spv"] = {"pairs": _whole("Pairs of copies for spv", 10, 1, "setup_pairs")}
        if "spv" in attacks or kind == "distillation":
            with c:
                chosen["self_prompt"] = {"texts": _whole("Texts the target writes", 400, 8, "setup_texts")}
        if "lira" in attacks:
            with a:
                chosen["shadows"] = {"count": _whole("Shadow models", 8, 4, "setup_shadows")}
    return chosen


def _finetune_options() -> dict[str, Any]:
    a, b, c, d = st.columns(4)
    with a:
        method = st.selectbox(
            "Method",
            ["full", "lora"],
            format_func=_method_name,
            key="setup_method",
            **STAY,
        )
    with b:
        epochs = _whole("Epochs", 3, 1, "setup_epochs")
    with c:
        default = 5e-5 if method == "full" else 1e-4
        rate = st.text_input("Learning rate", f"{default:g}", key=f"setup_rate_{method}", **STAY)
    with d:
        batch = _whole("Rows per step", 16, 1, "setup_train_batch")
    with st.expander("More options"):
        a, b, c = st.columns(3)
        with a:
            steps = _whole("At most so many steps (0: no limit)", 0, 0, "setup_steps")
        with b:
            rank = _whole("LoRA rank", 16, 1, "setup_rank")
        with c:
            share = st.number_input(
                "Share held out to choose the best checkpoint", 0.0, 0.5, 0.1, 0.05, key="setup_validation", **STAY
            )
        common = _common(batch=False)
    chosen: dict[str, Any] = {"method": method, "epochs": epochs, "learning_rate": rate, "batch_size": batch}
    if method == "lora":
        chosen["lora"] = {"r": rank, "alpha": 2 * rank}
    return {**chosen, "max_steps": steps or None, "validation": share, **common}


def _common(batch: bool = True) -> dict[str, Any]:
    a, b, c = st.columns(3)
    with a:
        seed = _whole("Seed", 0, 0, "setup_seed")
    with b:
        rows = _whole("First rows only (0: all)", 0, 0, "setup_max_rows")
    with c:
        size = _whole("Rows per batch", 16, 1, "setup_batch") if batch else None
    keep = st.toggle(
        "Keep raw text in the run folder",
        True,
        key="setup_store_text",
        help="Off: no text and no token string is written to any file of the run; numbers stay.",
        **STAY,
    )
    chosen = {"seed": seed, "_max_rows": rows or None, "store_text": "full" if keep else "none"}
    return {**chosen, "batch_size": size} if size else chosen


def _budget(key: str) -> float:
    return st.number_input(
        "Budget: how far above chance is acceptable?",
        min_value=0.001,
        max_value=0.5,
        value=0.025,
        step=0.005,
        format="%.3f",
        key=key,
        **STAY,
    )


def _whole(label: str, value: int, least: int, key: str) -> int:
    return int(st.number_input(label, min_value=least, value=value, step=1, key=key, **STAY))


def _numbers(text: str) -> list[Any]:
    """Whole numbers from "0, 1, 2"; what is none stays text, so that the spec's own check names it."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return [int(p) if p.lstrip("-").isdigit() else p for p in parts]


def _method_name(method: str) -> str:
    return {"full": "all weights", "lora": "LoRA"}.get(method, method)
