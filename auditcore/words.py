"""Numbers and hostile text in; plain words and escaped HTML out. Shared by findings, figures, reports and pages.

Whatever comes from a user (names, columns, texts) is escaped here before it stands in HTML or in Markdown.
"""

import html
import math
import re
from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeGuard

THIN = "\u202f"  # narrow no-break space, between a number and its unit
NONE = "\u2013"

# ASCII punctuation may be backslash-escaped in Markdown; this covers *bold*, $formulas$, :colours[], <tags>, links.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+\-.!$:~|^=&\"'/@])")
# Also what turns the direction of all that follows: a name that ends in U+202E would have 36 of 100 read as 001 fo 63.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Strong(str):
    """A part of a sentence that matters: drawn in bold, still a plain string everywhere else."""

    __slots__ = ()


Sentence = Sequence[str]  # parts, some of them Strong; "".join(parts) is the plain text


def harmless(text: object) -> str:
    """Replace characters that a terminal would obey, or that would reorder what follows, by the replacement character.

    Tabs and line feeds stay; right-to-left letters do too, since they turn themselves only.
    """
    return _CONTROL.sub("\ufffd", str(text))


def escape(text: object) -> str:
    """Escape harmless text for HTML (content and attributes)."""
    return html.escape(harmless(text), quote=True)


def isolated(text: object) -> str:
    """Escape user text and isolate its writing direction, so that right-to-left text cannot reorder ours."""
    return f"<bdi>{escape(text)}</bdi>"


def markdown(text: object) -> str:
    """Escape user text for places that read Markdown (labels of widgets): it shows exactly as written."""
    one_line = harmless(text).replace("\n", " ")
    return _MARKDOWN.sub(r"\\\1", one_line)


def sentence_html(parts: str | Sentence) -> str:
    """Turn a sentence into HTML: Strong parts in bold, everything escaped."""
    if isinstance(parts, str):
        parts = [parts]
    return "".join(f"<b>{escape(p)}</b>" if isinstance(p, Strong) else escape(p) for p in parts)


def plain(parts: str | Sentence) -> str:
    """Join a sentence into plain text."""
    return parts if isinstance(parts, str) else "".join(parts)


def shorten(text: object, limit: int = 60) -> str:
    """Cut a long name in its middle: the beginning and the end tell names apart."""
    value = " ".join(str(text).split())
    if len(value) <= limit:
        return value
    head = (limit - 1) * 2 // 3
    return f"{value[:head]}…{value[-(limit - 1 - head) :]}"


def known(value: object) -> TypeGuard[float]:
    """True for a finite number (not None, NaN, NA or infinite)."""
    try:
        return math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def half_up(value: float, digits: int = 0) -> float | Decimal:
    """The one rounding rule of every number shown: a half goes away from 0, as in the decimals of the ratio itself.

    61 of 400 is 15.25 %, and reads 15.3 here; Python's own formatting would give 15.2, and 15.3 for 15.35. Twelve
    significant digits are taken for exact, since sums and differences of such ratios carry noise behind them.
    """
    if abs(value) >= 1e12:  # no digit behind the point is known
        return value
    return Decimal(f"{value:.12g}").quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def number(value: object, digits: int = 3) -> str:
    """Format a number with a real minus sign; a dash when it is not known."""
    return f"{half_up(float(value), digits):.{digits}f}".replace("-", "−") if known(value) else NONE


def signed(value: object, digits: int = 3) -> str:
    """Format a number with its sign."""
    return f"{half_up(float(value), digits):+.{digits}f}".replace("-", "−") if known(value) else NONE


def percent(value: object, digits: int = 1) -> str:
    """Format a share: 0.846 -> "84.6 %"."""
    return f"{number(100 * float(value), digits)}{THIN}%" if known(value) else NONE


def percent_interval(low: object, high: object, digits: int = 1) -> str:
    """Format an interval of shares: "79.8 to 88.1 %"."""
    if not (known(low) and known(high)):
        return NONE
    return f"{number(100 * float(low), digits)} to {percent(high, digits)}"


def interval(low: object, high: object, digits: int = 3) -> str:
    """Format an interval: "0.401 to 0.442"."""
    return f"{number(low, digits)} to {number(high, digits)}" if known(low) and known(high) else NONE


def count(value: object) -> str:
    """Format a count: 3000 -> "3,000"."""
    return f"{int(float(value)):,}" if known(value) else NONE


def counted(n: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: "1 row", "3,000 rows"."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """Join words: "a, b and c"."""
    items = [str(i) for i in items]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def duration(seconds: object) -> str:
    """Format a time: "40 seconds", "8 minutes", "2 h 10 min"."""
    if not known(seconds):
        return "an unknown time"
    s = max(0.0, float(seconds))
    if s < 1.5:
        return "1 second"
    if s < 90:
        return f"{s:.0f} seconds"
    if s < 5400:
        return f"{s / 60:.0f} minutes"
    return f"{int(s // 3600)} h {int(s % 3600 // 60):02d} min"


def size(n_bytes: object) -> str:
    """Format a size on disk: "4.8 MB"."""
    if not known(n_bytes):
        return NONE
    value = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f}{THIN}{unit}" if unit == "bytes" or value >= 100 else f"{value:.1f}{THIN}{unit}"
        value /= 1000
    return NONE


def when(iso: object) -> str:
    """Format an ISO time: "29 Nov 2026, 21:14"; a dash when there is none."""
    try:
        moment = datetime.fromisoformat(str(iso))
    except ValueError:
        return NONE
    return f"{moment.day} {moment:%b %Y, %H:%M}"
