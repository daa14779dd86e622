"""Rows of a table as escaped HTML in; a table out that becomes a list where it would not fit. For pages and reports.

Where a table is wider than its place (a phone), the rules of `css` lay its cells under each other and write before each
what the head of its column says (`data-th`): a number never loses its interval at the edge of the screen.
"""

import re

_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_OPEN = re.compile(r"<(tr|th|td)\b")
FEW, MANY = 3, 6  # columns: so few fit everywhere, more need a wide screen

_LIST = """
@container (max-width: WIDTH) {
  .NAME, .NAME tbody, .NAME tr { display: block; }
  .NAME thead { display: none; }
  .NAME tr { border-bottom: 1px solid color-mix(in srgb, currentColor 22%, transparent); padding: 0.5rem 0;
    break-inside: avoid; }
  .NAME tr > *, .NAME tr > th[scope=row], .NAME tr > .num { display: flow-root; min-width: 0; max-width: none;
    border-bottom: 0; padding: 0.15rem 0; text-align: left; white-space: normal; }
  .NAME tr > [data-th]:not([scope]) { padding-left: 9.25rem; }
  .NAME tr > [data-th]:not([scope])::before { content: attr(data-th); float: left; width: 8.5rem; margin-left: -9.25rem;
    font-size: 0.8125rem; color: color-mix(in srgb, currentColor 74%, transparent); }
  .NAME small { white-space: normal; }
}
"""


def css(wide: str) -> str:
    """Rules of stacked tables for a style sheet. wide: below which width those of many columns become lists."""
    return "".join(
        _LIST.replace("NAME", name).replace("WIDTH", width)
        for name, width in (("ac-stack", "25rem"), ("ac-wide", wide))
    )


def table(head: str, body: str, names: str = "ac-table") -> str:
    """A table whose rows can be stacked. head: one `<tr>` of `<th>`; body: rows of as many cells; all escaped.

    names: classes of the table.
    """
    heads = [" ".join(_TAG.sub(" ", h.replace("<small>", ", ")).split()) for h in _HEAD.findall(head)]
    heads = [h.replace(" , ", ", ").replace('"', "&quot;") for h in heads]
    size = "" if len(heads) <= FEW else " ac-stack" if len(heads) <= MANY else " ac-stack ac-wide"
    return (
        f'<div class="ac-scroll"><table class="{names}{size}"><thead>{head}</thead>'
        f"<tbody>{_labelled(body, heads)}</tbody></table></div>"
    )


def _labelled(body: str, heads: list[str]) -> str:
    """Give every cell the words of its column's head."""
    place = 0

    def label(found: re.Match[str]) -> str:
        nonlocal place
        if found.group(1) == "tr":
            place = 0
            return found.group()
        said = heads[place] if place < len(heads) else ""
        place += 1
        return f'{found.group()} data-th="{said}"' if said else found.group()

    return _OPEN.sub(label, body)
