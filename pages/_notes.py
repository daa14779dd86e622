"""The end of a findings page. In: a run's manifest. Out: what was audited, what was not, what was left out."""

from auditcore.store import Run
from auditcore.words import escape
from pages import _ui as ui


def draw(run: Run) -> None:
    """Draw both halves of the claim and everything that was skipped or counted while the run worked."""
    manifest = run.manifest
    claim = manifest.get("claim") or {}
    notes = [str(note) for note in (manifest.get("data") or {}).get("notes") or []]
    if not claim.get("audited") and not notes:
        return
    ui.section("What these numbers speak about")
    halves = [str(claim[key]) for key in ("audited", "not_audited") if claim.get(key)]
    body = "".join(f'<p class="ac-text" style="margin-bottom:.6rem">{escape(half)}</p>' for half in halves)
    if notes:
        rows = "".join(f"<li>{escape(note)}</li>" for note in notes)
        body += f'<p class="ac-quiet">Counted while the rows were read:</p><ul class="ac-list ac-quiet">{rows}</ul>'
    ui.html(body)
