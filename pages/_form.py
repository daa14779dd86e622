"""The form of a new audit. In: what the user chooses. Out: a spec as a plain mapping, not validated yet.

Every widget starts with a fair default, so that the bundled model and data need no typing at all. Keys of widgets that
depend on the file hold its path: another file starts with its own guesses.
"""

from pathlib import Path
from typing import Any

import streamlit as st

from auditcore import words
from auditcore.spec import ROLES
from pages import _data as data
from pages import _ui as ui
from pages._form_files import choose_vectors, short
from pages._uploads import in_user_names

KINDS = {
    "vectors": "Exported vectors",
    "membership": "Remembered rows",
    "finetune": "Fine-tune first",
    "surfacelora": "Train a mitigation",
    "frontier": "Compare checkpoints",
}
ABOUT = {
    "vectors": "What do its exported vectors give away? Probes try to read a sensitive label from them.",
    "membership": "Which rows was it trained on? It is compared with the model it was fine-tuned from.",
    "finetune": "Train on the rows marked as members. It makes the checkpoint that an audit of remembered rows needs.",
    "surfacelora": "Learn to summarise while the exported vector comes to tell less about a label (SurfaceLoRA); every "
    "checkpoint is measured.",
    "frontier": "Adapters you have already: what each of them leaks, and how well it still writes.",
}
NONE = ""  # option of a role that is not mapped
_SHOWN_ROLES = {
    "vectors": ("text", "label", "target", "group", "split", "id", "metadata"),
    "membership": ("text", "target", "messages", "member", "group", "id"),
    "finetune": ("text", "target", "messages", "member", "split", "group", "id"),
    "surfacelora": ("text", "target", "label", "split", "group", "member", "id"),
    "frontier": ("text", "target", "label", "split", "group", "member", "id"),
}
_ROLE_LABELS = {
    "text": "Text the model reads",
    "target": "Text it should write (optional)",
    "messages": "Conversation (instead of text)",
    "label": "Sensitive labels",
    "metadata": "What the recipient holds anyway (optional)",
    "member": "Trained on?",
    "split": "Split (optional)",
    "group": "Subject (optional)",
    "id": "Row id (optional)",
}
_STAY: dict[str, Any] = {"persist_state": "session"}


def choose_kind() -> str:
    """Which question? A link may ask for one by `?kind=`; from then on the reader's choice counts."""
    asked = st.query_params.get(ui.KIND_KEY)
    if asked is not None:
        del st.query_params[ui.KIND_KEY]
    if asked in KINDS:
        st.session_state["setup_kind"] = asked
    kind = st.segmented_control(
        "What do you want to know?",
        list(KINDS),
        format_func=lambda k: KINDS[k],
        default=None if asked in KINDS else "vectors",
        required=True,
        wrap=True,
        key="setup_kind",
        **_STAY,
    )
    ui.quiet(ABOUT[str(kind)])
    return str(kind)


# --- model ---


def choose_model(kind: str) -> dict[str, Any]:
    """Which model? Returns the parts `model` or `vectors` of a spec."""
    if kind == "vectors":
        have = st.segmented_control(
            "Who makes the vectors?",
            [False, True],
            format_func=lambda mine: "I have them already" if mine else "A model makes them",
            default=False,
            required=True,
            key="setup_have_vectors",
            help="Your own: one vector per row, in a Parquet, npy or safetensors file; no model is needed.",
            **_STAY,
        )
        if have:
            return choose_vectors()
    if kind == "frontier":
        return _adapter_folder()
    known = data.checkpoints()
    options = [*known, data.BUNDLED_MODEL] if kind == "membership" else [data.BUNDLED_MODEL, *known]
    label = "Fine-tuned model" if kind == "membership" else "Model"
    # Without a fine-tuned model of our own there is nothing fair to fill in.
    empty = kind == "membership" and not known
    source = _model_box(label, options, f"setup_model_{kind}", known, empty)
    model: dict[str, Any] = {"source": source}
    if kind == "membership":
        if not known:
            ui.notice(
                "info",
                "A membership audit compares a model before and after fine-tuning. Name the folder of a fine-tuned "
                "model here, or choose “Fine-tune first” above.",
            )
        start = known[source][1] if source in known else data.BUNDLED_MODEL
        references = list(dict.fromkeys([start, data.BUNDLED_MODEL]))
        key = f"setup_reference_{short(source)}"
        model["reference"] = _model_box("The model before fine-tuning (reference)", references, key, {})
        if source and source == model["reference"]:
            ui.notice("warning", "Both are the same model: no attack that compares them can show anything.")
    with st.expander("Precision and device"):
        model |= _precision()
    return {"model": model}


def _model_box(label: str, options: list[str], key: str, names: dict[str, tuple[str, str]], empty: bool = False) -> str:
    source = st.selectbox(
        label,
        options,
        index=None if empty else 0,
        placeholder="Type the path of a folder",
        format_func=lambda s: names[s][0] if s in names else s,
        accept_new_options=True,
        key=key,
        help="A short name, a folder with safetensors weights, an adapter folder, a GGUF file or a hub id: type it.",
        **_STAY,
    )
    source = str(source or "").strip()
    if not source:
        return source
    severity, text = data.recognised(source)
    if severity == "error":
        ui.notice("error", text)
    else:
        ui.quiet(text)
    return source


def _adapter_folder() -> dict[str, Any]:
    folder = st.text_input(
        "Folder of adapters",
        key="setup_adapters",
        placeholder="a folder that holds one folder per adapter",
        help="Those that cannot be used (another base, damaged files) are listed with the reason.",
        **_STAY,
    )
    base = _model_box("The model they belong to", [data.BUNDLED_MODEL], "setup_adapters_base", {})
    return {"checkpoints": {"folder": folder.strip(), "base": base}}


def _precision() -> dict[str, Any]:
    left, middle, right = st.columns(3)
    with left:
        dtype = st.selectbox("Weights in", ["float32", "bfloat16", "float16"], key="setup_dtype", **_STAY)
    with middle:
        precision = st.selectbox(
            "Body computed in",
            ["full", "bf16"],
            key="setup_precision",
            help="bf16: faster, the head and the log-softmax stay in float32.",
            **_STAY,
        )
    with right:
        device = st.selectbox(
            "Device", ["auto", "cpu", "cuda", "mps"], accept_new_options=True, key="setup_device", **_STAY
        )
    return {"dtype": dtype, "precision": precision, "device": device or "auto"}


# --- data ---


def choose_roles(kind: str, facts: data.FileFacts, text: bool = True) -> dict[str, Any]:
    """Which column plays which role? Starts from the guesses; each says why. text: a model reads some of it."""
    main = main_role(kind, "target" in facts.guesses)
    guesses = dict(facts.guesses)
    if "text" not in guesses and "prompt" in guesses:
        guesses["text"] = guesses["prompt"]
    if kind in ("vectors", "surfacelora", "frontier") and "prompt" in facts.guesses:
        guesses["text"] = facts.guesses["prompt"]
    chosen: dict[str, Any] = {}
    roles = [role for role in _SHOWN_ROLES[kind] if role != "messages" or facts.lists]
    roles = roles if text else [role for role in roles if role not in ("target", "messages")]
    for start in range(0, len(roles), 2):
        for role, place in zip(roles[start : start + 2], st.columns(2, gap="medium"), strict=False):
            with place, st.container(gap="xxsmall"):
                name = "Text it was made from (optional)" if role == "text" and not text else _ROLE_LABELS[role]
                value = _one_role(kind, role, name, facts, guesses.get(role, ("", "")))
            if value:
                chosen[role] = value
    if "messages" in chosen:
        return {role: column for role, column in chosen.items() if role not in ("text", "target")}
    if "text" in chosen:
        chosen = {main_role(kind, "target" in chosen): chosen.pop("text"), **chosen}
    elif main in chosen:
        chosen.pop(main)
    return chosen


def _one_role(kind: str, role: str, name: str, facts: data.FileFacts, guessed: tuple[str, str]) -> Any:
    guess, reason = guessed
    columns = list(facts.lists if role == "messages" else facts.columns)
    key = f"setup_role_{kind}_{role}_{short(facts.path)}"
    if role in ("label", "metadata"):
        value: Any = _several(role, columns, guess, key)
    else:
        options = [NONE, *columns]
        value = st.selectbox(
            name,
            options,
            index=options.index(guess) if guess in options else 0,
            format_func=lambda c: c or "none",
            key=key,
            help=words.markdown(ROLES[role]),
            **_STAY,
        )
    if guess and value == guess:
        ui.quiet(f"Guessed: {reason}.")
    return value


def main_role(kind: str, has_target: bool) -> str:
    """The role of the text the model reads."""
    return "prompt" if kind in ("vectors", "surfacelora", "frontier") or has_target else "text"


def _several(role: str, columns: list[str], guess: str, key: str) -> Any:
    value = st.multiselect(
        _ROLE_LABELS[role],
        columns,
        default=[guess] if guess in columns else [],
        key=key,
        help="One column or several; each is an attribute of its own." if role == "label" else ROLES[role],
        **_STAY,
    )
    return value[0] if len(value) == 1 else value


def choose_template(facts: data.FileFacts, roles: dict[str, Any]) -> tuple[str, int]:
    """How is a row written, and how long may it be? Returns the template ("" for conversations) and max_length."""
    main = "prompt" if "prompt" in roles else "text"
    default = data.BUNDLED_TEMPLATE if data.is_bundled(facts.path) and main == "prompt" else "{" + main + "}"
    left, right = st.columns([3, 1], gap="medium")
    with left:
        if "messages" in roles:
            template = ""
            ui.quiet("Conversations are written with the model's own chat template; what the assistant writes counts.")
        else:
            template = st.text_area(
                "Template",
                default,
                height=76,
                key=f"setup_template_{main}_{short(facts.path)}",
                help="How a row is written for the model. Names in braces are roles or columns.",
                **_STAY,
            )
    with right:
        length = st.number_input(
            "Longest text, in tokens",
            min_value=2,
            max_value=32_768,
            value=320 if data.is_bundled(facts.path) else 128,
            key=f"setup_length_{short(facts.path)}",
            help="Longer texts are cut at their end and counted; the template never is.",
            **_STAY,
        )
    return template, int(length)


def default_name(kind: str, spec: dict[str, Any]) -> str:
    """A name that tells runs apart in lists."""
    source = (spec.get("model") or {}).get("source") or (spec.get("vectors") or {}).get("path")
    path = Path(in_user_names(source or (spec.get("checkpoints") or {}).get("folder") or "vectors"))
    model = path.name if path.name not in ("last", "best") else f"{path.parent.parent.name} {path.name}"
    what = {
        "vectors": "vectors",
        "membership": "memory",
        "finetune": str(spec.get("method", "full")),
        "surfacelora": f"lambda {spec.get('lambda', '')}",
        "frontier": "checkpoints",
    }[kind]
    data_name = Path(in_user_names(spec["data"]["path"])).name.split(".")[0]
    return f"{data_name} · {model} · {what}"
