"""This membership run beside another on the same rows. In: the chosen run, a target FPR. Out: a part of the page."""

from pathlib import Path
from typing import Any

import streamlit as st

from auditcore import findings, store, summary, words
from auditcore.errors import AuditError
from auditcore.store import Run
from pages import _ui as ui

OTHER_KEY, BOX_KEY = "with", "_other_run"


def draw(run: Run, target_fpr: float) -> None:
    """Draw picker, finding and table; nothing when no other run can be compared."""
    if not run.has("membership_scores"):
        return
    runs = store.list_runs()
    runs = runs[(runs["kind"] == "membership") & (runs["status"] == "done") & (runs["run_id"] != run.id)]
    names = dict(zip(runs["run_id"], runs["name"].astype(str), strict=True))
    if not names:
        return
    ui.section(
        "Beside another run", "The same rows under another model: full against LoRA, an earlier epoch, a defence."
    )
    asked = st.query_params.get(OTHER_KEY)  # by hand: a bound choice would put its label into the address, not the id
    chosen = st.selectbox(
        "Other run",
        list(names),
        index=list(names).index(asked) if asked in names else None,
        placeholder="Choose a run to compare with",
        format_func=lambda i: words.harmless(words.shorten(names.get(i, i), 60)),
        key=BOX_KEY,
    )
    if chosen not in names:
        st.query_params.pop(OTHER_KEY, None)
        return
    if asked != chosen:
        st.query_params[OTHER_KEY] = chosen
    other = store.open_by_id(chosen)
    if not other.has("membership_scores"):
        ui.empty("That run has no scores.")
        return
    if _numbered(run, other):
        ui.empty(
            "The two runs cannot be paired: their data files differ, and their rows have numbers but no names.",
            "Audit both with the same file, or give the rows an id column.",
        )
        return
    found = _compared(_version(run), str(run.path), _version(other), str(other.path), target_fpr)
    a, b = short_names(run, other)
    ui.text(findings.comparison_finding(found["differences"], a, b, found["shared"], found["left_out"]))
    for said in summary.warnings(other):
        if said.startswith(summary.SUSPECT) and said not in summary.warnings(run):
            ui.notice("warning", said, "The other run:")
    if differing := findings.settings_finding(run.manifest["spec"], other.manifest["spec"]):
        ui.notice("warning", differing)
    if len(found["differences"]):
        from auditcore.figures.compare import comparison_table

        st.html(comparison_table(found["differences"], a, b, target_fpr))
        ui.quiet(
            "Differences are paired by row: 95 % intervals by bootstrap over subjects, the same draws for both runs."
        )


def other_run(run: Run) -> Run | None:
    """The run chosen to compare with, if its rows are this run's; for parts of the page that are drawn before this."""
    chosen = st.session_state.get(BOX_KEY, st.query_params.get(OTHER_KEY))
    try:
        other = store.open_by_id(chosen) if chosen and chosen != run.id else None
        fits = other is not None and other.kind == "membership" and other.has("token_stats")
        return other if fits and other is not None and not _numbered(run, other) else None
    except AuditError:
        return None


def short_names(run: Run, other: Run) -> tuple[str, str]:
    """Both runs' names as a reader tells them apart (escape before drawing)."""
    a, b = (words.shorten(ui.names(r)[0], 30) for r in (run, other))
    return (a, b) if a != b else (f"{a} (this run)", f"{b} (the other)")


def _numbered(a: Run, b: Run) -> bool:
    """Whether row 7 of one run may be another row than row 7 of the other."""
    files = [(run.manifest.get("data") or {}).get("sha256") for run in (a, b)]
    named = all("id" in run.manifest["spec"]["data"]["roles"] for run in (a, b))
    return files[0] != files[1] and not named


def _version(run: Run) -> str:
    return run.version("membership_scores")


@st.cache_data(show_spinner="Comparing the two runs row by row ...", max_entries=20)
def _compared(version_a: str, path_a: str, version_b: str, path_b: str, target_fpr: float) -> dict[str, Any]:
    from auditcore.membership.compare import compare

    columns = ["example_id", "attack", "member", "rank_score"]
    a, b = (Run(Path(path)).read("membership_scores", columns) for path in (path_a, path_b))
    groups = Run(Path(path_a)).read("examples", ["example_id", "group"]).set_index("example_id")["group"].to_dict()
    return vars(compare(a, b, groups, [target_fpr]))
