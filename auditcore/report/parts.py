"""Pieces of a report. In: words, escaped HTML, figures. Out: sections as HTML; nothing is loaded from anywhere."""

from typing import Any

from auditcore.words import escape


def section(title: str, body: str, note: str = "") -> str:
    """A section with its heading; body is HTML, title and note are text."""
    below = f'<p class="quiet">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{body}{below}</section>"


def plot(figure: Any, name: str) -> str:
    """A figure as HTML without its library, which the page holds once."""
    from auditcore.figures import theme

    return theme.for_paper(figure).to_html(
        full_html=False, include_plotlyjs=False, div_id=name, config={**theme.CONFIG, "displayModeBar": False}
    )
