"""The part of New audit that shows the data before anything runs. In: what the form holds. Out: drawn tables."""

from typing import Any

import streamlit as st

from auditcore import words
from auditcore.errors import AuditError
from auditcore.figures import portrait as figures
from auditcore.figures import tokens as token_figures
from auditcore.findings import portrait as told
from auditcore.spec import parse_data
from pages import _data as data
from pages import _ui as ui


def draw(raw: dict[str, Any]) -> None:
    """Class balance by split, lengths, words that tell classes apart; drawn when asked for."""
    roles = raw["data"]["roles"]
    main = next((role for role in ("prompt", "text") if role in roles), None)
    if not ({"label", "member"} & roles.keys()) or "messages" in roles:
        return
    ui.section("The data before the audit")
    if not st.toggle(
        "Show classes, lengths and telling words", key="setup_portrait",
        help="Reads all rows once, here on this machine; nothing is kept.",
    ):  # fmt: skip
        return
    template = (raw.get("template") or f"{{{main}}}") if main else None
    try:
        source = (raw.get("model") or {}).get("source") or ""
        version = data.file_version(raw["data"]["path"])
        found = _portrait(raw["data"], version, template, source, *_dealing(raw))
    except AuditError as error:
        ui.notice("error", str(error), "The data cannot be shown.")
        return
    st.html(token_figures.style())
    attributes = list(dict.fromkeys(found.balance["attribute"]))
    if not attributes:
        ui.empty("No row has a label.")
        return
    attribute = attributes[0]
    if len(attributes) > 1:
        attribute = str(st.selectbox("Label", attributes, format_func=words.harmless, key="setup_portrait_label"))
    left, right = st.columns(2, gap="large")
    with left:
        balance = found.balance[found.balance["attribute"] == attribute]
        caption = told.balance_sentence(balance, attribute) + ([f" {found.dealt}"] if found.dealt else [])
        ui.chart_title("Classes in each split", caption)
        ui.chart(figures.balance_figure(balance), "setup_balance", words.plain(caption))
    with right:
        limit = int(raw["max_length"]) if found.unit == "tokens" and raw.get("max_length") else None
        caption = told.length_sentence(found.lengths, found.unit, limit, found.n_rows)
        ui.chart_title("How long the rows are", caption)
        if len(found.lengths):
            ui.chart(figures.length_figure(found.lengths, found.unit, limit), "setup_lengths", words.plain(caption))
    if template is None:
        return
    mine = found.words[found.words["attribute"] == attribute]
    ui.chart_title("Words that tell classes apart", told.words_sentence(mine, attribute, found.compared[attribute]))
    if ui.hide_text():
        ui.empty("Words of the rows are hidden in this session.")
    elif len(mine):
        st.html(figures.words_table(mine))
    ui.quiet(
        "Counted by subject; the dark tick is the share among all other subjects. z: signed root of the likelihood "
        "ratio (Dunning 1993); a proxy lies beyond what chance gives over all words and classes (5 %, Bonferroni). "
        "Words of fewer than 10 subjects are left out."
    )
    for note in found.notes:
        ui.quiet(note)


def _dealing(raw: dict[str, Any]) -> tuple[str, int, bool]:
    """What decides how subjects are dealt: kind of audit, seed, and whether defences are fitted."""
    fitted = any(name not in ("none", "prompt") for name in raw.get("defences", []))
    return raw["kind"], int(raw.get("seed", 0)), fitted


@st.cache_data(show_spinner="Reading all rows ...", max_entries=10)
def _portrait(
    raw: dict[str, Any], version: str, template: str | None, source: str, kind: str, seed: int, fitted: bool
) -> Any:
    from auditcore.datasets import splits
    from auditcore.datasets.portrait import portrait
    from auditcore.lm.sources import tokenizer_file

    tokenizer = None
    if source:
        try:
            tokenizer = tokenizer_file(source)
        except AuditError:
            tokenizer = None  # lengths are then in words; the form says what is wrong with the model
    rows = parse_data(raw)
    deal = {
        "vectors": lambda frame: splits.make_splits(frame, rows.labels, seed, fitted),
        "surfacelora": lambda frame: splits.training_splits(frame, rows.labels, seed),
        "frontier": lambda frame: splits.checkpoint_splits(frame, rows.labels, seed, fitted),
    }
    return portrait(rows, template, tokenizer, deal.get(kind))
