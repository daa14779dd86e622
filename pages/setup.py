"""Which model, which data, which audit? In: choices, filled in already. Out: a run that works in its own process."""

import hashlib
import json
from typing import Any

import streamlit as st

from auditcore import words
from auditcore.errors import AuditError
from auditcore.figures.tables import cost_table
from auditcore.jobs.estimate import time_words
from auditcore.spec import AnySpec, VectorsSpec, dump_spec, parse_spec
from auditcore.verdict import power_basis
from auditcore.words import Strong
from pages import _data as data
from pages import _form as form
from pages import _progress as progress
from pages import _setup_portrait
from pages import _ui as ui
from pages._form_clinical import choose_labels as choose_label_roles
from pages._form_clinical import choose_notes, facts_of, looks_licensed
from pages._form_files import choose_data, choose_labels
from pages._options import choose_options
from pages._uploads import in_user_names

PLAN_KEY = "_setup_plan"
LONG = 1200  # seconds from which a shorter way is pointed out
UNANSWERED = {
    ("model", "source"): "Name the model first.",
    ("model", "reference"): "Name the model before fine-tuning first.",
    ("checkpoints", "folder"): "Name the folder of adapters first.",
    ("checkpoints", "base"): "Name the model that the adapters belong to first.",
}


def main() -> None:
    """Draw the page."""
    ui.head("New audit", ("Say what to audit; ", Strong("nothing runs"), " before you have seen what it can show."))
    progress.panel()
    left, right = st.columns([1.75, 1], gap="large")
    with left:
        raw = _form()
    with right, st.container(key="decide"):
        _decide(raw)
    if raw is not None:
        _setup_portrait.draw(raw)


def _form() -> dict[str, Any] | None:
    """Everything that can be chosen. Returns a spec as a mapping, or None while something is missing."""
    kind = form.choose_kind()
    ui.section("Model")
    model = form.choose_model(kind)
    ui.section("Data")
    given = model.get("vectors")
    if given is not None and not given["path"]:
        ui.empty("No vectors chosen yet.")
        return None
    path = choose_data(kind) if given is None else choose_labels(str(given["path"]))
    if not path:
        ui.empty("No data chosen yet.", "Type the path of a file, or upload one.")
        return None
    chosen = _rows(kind, path, model)
    if chosen is None:
        return None
    rows_of, template, length = chosen
    ui.section("Training" if kind in ("finetune", "surfacelora") else "Attack")
    options = choose_options(kind, given is not None)
    rows = options.pop("_max_rows")
    raw: dict[str, Any] = {"kind": kind, **model, "data": {"path": path, **rows_of, "max_rows": rows}}
    raw |= {"template": template} if template else {}
    raw |= {"max_length": length} if length else {}
    raw |= options
    name = st.text_input("Name of the run", placeholder=form.default_name(kind, raw), key="setup_name")
    return {"name": name.strip() or form.default_name(kind, raw), **raw}


def _rows(kind: str, path: str, model: dict[str, Any]) -> tuple[dict[str, Any], str, int] | None:
    """Roles (and `clinical`, for licensed notes), template and longest text; None for a file that cannot be read."""
    given = "vectors" in model
    licensed = None if given else looks_licensed(path)
    if licensed is not None:
        how = choose_notes(path, licensed)
        roles = choose_label_roles()
        return {"clinical": how, "roles": roles}, *form.choose_template(facts_of(path), roles)
    try:
        facts = data.file_facts(path)
    except AuditError as error:
        ui.notice("error", in_user_names(str(error)), "This file cannot be used.")
        return None
    ui.quiet(
        f"{facts.format.upper() if facts.format != 'parquet' else 'Parquet'}, {words.counted(facts.n_rows, 'row')}, "
        f"{words.counted(len(facts.columns), 'column')}, {words.size(facts.n_bytes)}."
    )
    roles = form.choose_roles(kind, facts, text=not given)
    template, length = ("", 0) if given else form.choose_template(facts, roles)
    _first_rows(facts, roles)
    return {"roles": roles}, template, length


def _first_rows(facts: data.FileFacts, roles: dict[str, Any]) -> None:
    flat = [c for value in roles.values() for c in ([value] if isinstance(value, str) else value)]
    with st.expander("First rows"):
        if ui.hide_text():
            ui.empty("Raw text is hidden in this session.")
        elif flat:
            frame = data.first_rows(facts.path, facts.version, tuple(dict.fromkeys(flat)))
            ui.table(frame, "setup_first_rows", "the first three rows of the columns that play a role")


def _decide(raw: dict[str, Any] | None) -> None:
    """What the audit will be able to show, then start."""
    ui.section("Before you start")
    missing = "Choose the data first." if raw is None else _unanswered(raw)
    if raw is None or missing:
        ui.empty(missing)
        st.button("Check and plan", type="primary", key="setup_check", width="stretch", disabled=True)
        return
    try:
        spec = parse_spec(raw, "This audit")
    except AuditError as error:
        ui.notice("error", str(error), "Not ready yet.")
        return
    key = _key(spec)
    found = st.session_state.get(PLAN_KEY)
    if found is None or found["key"] != key:
        ui.quiet(
            "Checks the data and computes what so many rows can show, how long it will take and how much it will write."
        )
        if st.button("Check and plan", type="primary", key="setup_check", width="stretch"):
            with st.spinner("Reading all rows, counting tokens ..."):
                st.session_state[PLAN_KEY] = _plan(spec, key)
            st.rerun()
        if found is not None:
            ui.quiet("Something was changed since the last plan.")
    else:
        _show_plan(spec, found)
    _download(spec)


def _unanswered(raw: dict[str, Any]) -> str:
    """What must be named before anything can be planned, or "" when all is."""
    for (part, field), sentence in UNANSWERED.items():
        if (raw.get(part) or {}).get(field) == "":
            return sentence
    return ""


def _key(spec: AnySpec) -> str:
    text = json.dumps(dump_spec(spec), sort_keys=True) + data.file_version(spec.data.path)
    text += data.file_version(spec.vectors.path) if isinstance(spec, VectorsSpec) and spec.vectors else ""
    return hashlib.sha256(text.encode()).hexdigest()


def _plan(spec: AnySpec, key: str) -> dict[str, Any]:
    """Plain data only: it stays in the session."""
    from auditcore import jobs

    try:
        return {"key": key, "error": "", "findings": _check(spec), "plan": jobs.plan(spec).__dict__}
    except AuditError as error:
        return {"key": key, "error": in_user_names(str(error)), "findings": [], "plan": None}


def _check(spec: AnySpec) -> list[tuple[str, str]]:
    from auditcore.datasets.checks import check
    from auditcore.lm.sources import tokenizer_file

    if spec.data.clinical is not None:
        return []  # the joins count what they lose: these are notes of the plan
    if isinstance(spec, VectorsSpec) and spec.vectors is not None:
        report = check(spec.data, spec.read_template, None)  # no model reads the text: no length is too long
    else:
        assert spec.model is not None
        tokenizer = tokenizer_file(spec.model.source, spec.model.base)
        report = check(spec.data, spec.prompt_template, spec.max_length, tokenizer)
    return [(str(f.severity), str(f.text)) for f in report.findings]


def _show_plan(spec: AnySpec, found: dict[str, Any]) -> None:
    if found["error"]:
        ui.notice("error", found["error"], "This would not run.")
        return
    plan = found["plan"]
    ui.facts(
        [
            ("Rows", words.count(plan["rows"])),
            *([("Tokens", words.count(plan["tokens"]))] if plan["tokens"] else []),
            ("Time", f"about {time_words(plan['seconds'], plan.get('slowdown', 1.0))}"),
            ("Disk", f"about {words.size(plan['bytes'])}"),
        ]
    )
    if plan["seconds"] > LONG and data.is_bundled(spec.data.path) and "small" not in spec.data.path:
        ui.notice("info", "For a try-out in minutes choose the small part of the bundled notes under Rows.")
    for power in plan["power"]:
        _power(power)
    if plan["operating_points"]:
        _operating_points(plan["operating_points"])
    if plan["attacks"]:
        _costs(plan["attacks"])
    _findings([*[("warning", text) for text in plan["warnings"]], *found["findings"]], plan["notes"])
    if st.button("Start the audit", type="primary", key="setup_start", width="stretch"):
        _start(spec)


def _costs(attacks: list[dict[str, Any]]) -> None:
    most = max(attacks, key=lambda one: one["passes"])
    label = f"What each attack reads and costs (at most {words.counted(most['passes'], 'pass', 'passes')} a row)"
    with st.expander(label):
        st.html(cost_table(attacks))


def _power(power: dict[str, Any]) -> None:
    enough = power["p_within"] >= 0.8
    subjects = words.counted(power["n_subjects"], "test subject")
    parts: list[str] = [f"{subjects} in {power['n_classes']} classes. If nothing leaks, “within budget” is reached "]
    parts += ["with probability ", Strong(words.number(power["p_within"], 2))]
    if not enough:
        parts += ["; ", Strong(f"{words.count(power['subjects_needed'])} subjects"), " would make it 0.80"]
    parts.append(f" ({power_basis(power['tests'], power['needed_by_one'])})")
    parts.append(f". Gaps from {words.number(power['smallest_gap'])} upwards are shown reliably.")
    title = f"{words.shorten(power['attribute'], 40)}:"
    ui.notice("good" if enough else "warning", parts, title)


def _operating_points(points: list[dict[str, Any]]) -> None:
    n = words.count(points[0]["n_nonmember"])
    able = [p for p in points if p["resolvable"]]
    unable = [p for p in points if not p["resolvable"]]
    if able:
        rates = words.listed([words.percent(p["target_fpr"]) for p in able])
        ui.notice("good", f"{n} rows that were not trained on can show a false alarm rate of {rates}.")
    for point in unable:
        kind = "warning" if abs(point["target_fpr"] - 0.01) < 1e-9 else "quiet"
        rate = words.percent(point["target_fpr"])
        needed = Strong(f"{words.count(point['needed'])} are needed")
        ui.notice(
            kind,
            (f"A false alarm rate of {rate} cannot be shown with {n} rows that were not trained on: ", needed, "."),
        )


def _findings(findings: list[tuple[str, str]], notes: list[str]) -> None:
    serious = [text for severity, text in findings if severity in ("error", "warning")]
    for text in serious:
        ui.notice("warning", text)
    rest = [text for severity, text in findings if severity not in ("error", "warning")]
    rest += [n for n in notes if n not in rest and n not in serious]
    if rest:
        with st.expander(f"What the check found ({len(rest)})", expanded=not serious and len(rest) < 6):
            items = "".join(f"<li>{words.isolated(text)}</li>" for text in rest)
            ui.html(f'<ul class="ac-list ac-quiet">{items}</ul>')


def _start(spec: AnySpec) -> None:
    from auditcore import jobs

    with ui.guard():
        run = jobs.submit(spec)
    st.session_state.pop(PLAN_KEY, None)
    ui.open_run(run.id)
    st.rerun()


def _download(spec: AnySpec) -> None:
    def content() -> str:
        import yaml

        return yaml.safe_dump(dump_spec(spec), sort_keys=False, allow_unicode=True, width=100)

    st.download_button(
        "Download as a spec (YAML)",
        content,
        "audit.yaml",
        "application/yaml",
        key="setup_yaml",
        on_click="ignore",
        type="tertiary",
        help="The same audit on the command line: python -m auditcore run audit.yaml",
    )


main()
