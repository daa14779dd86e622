"""Pieces of a report. In: words, escaped HTML, figures. Out: sections as HTML; nothing is loaded from anywhere."""

from collections.abc import Sequence
from typing import Any

from auditcore.figures import stack
from auditcore.words import escape


def section(title: str, body: str, note: str = "") -> str:
    """A section with its heading; body is HTML, title and note are text."""
    below = f'<p class="quiet">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{body}{below}</section>"


def table(head: Sequence[str], rows: str) -> str:
    """A table that becomes a list where it does not fit. head: text; rows: HTML, a cell for each name."""
    return stack.table("<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>", rows, "plain")


def number_cell(text: str) -> str:
    """A cell with a number; an interval in parentheses stands below it, so that the column stays narrow."""
    value, mark, spread = text.partition(" (")
    under = f"<small>({escape(spread)}</small>" if mark and spread.endswith(")") else escape(mark + spread)
    return f"<td class=num>{escape(value)}{under}</td>"


def plot(figure: Any, name: str) -> str:
    """A figure as HTML without its library, which the page holds once."""
    from auditcore.figures import theme

    return theme.for_paper(figure).to_html(
        full_html=False, include_plotlyjs=False, div_id=name, config={**theme.CONFIG, "displayModeBar": False}
    )
