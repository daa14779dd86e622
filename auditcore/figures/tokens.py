"""One row of `token_stats` in; its token map and its P/N bar out, as HTML in which every piece of text is escaped.

Used by the page and by reports. Colours sit in html.css; `style` gives them.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.findings import score_number
from auditcore.words import NONE, count, escape, known, number, signed

SCALE = 3.0  # nats: the shift at which the colour is full, the same for every text that is ever compared
STRONGEST = 0.62  # opacity of the full colour; text on it keeps a contrast of 4.5:1 on light and dark paper
STEPS = 16  # opacities are rounded, so that the same class serves many tokens

# Characters that would be invisible, or would reorder what stands around them, are drawn by name.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_PIECE = re.compile(rf"(\r\n|\n|\r|\t| |{_HIDDEN.pattern})")
_SHOWN = {" ": "·", "\t": "→", "\n": "↵", "\r": "␍", "\r\n": "↵"}

_CSS = Path(__file__).with_name("html.css")


def style() -> str:
    """Return the style element, once per page or report."""
    return f"<style>{_CSS.read_text(encoding='utf-8')}</style>"


def token_map(tokens: pd.DataFrame, *, hide_text: bool = False, skip_first: bool = True) -> str:
    """Draw tokens in order, each coloured by its shift on the fixed scale, error positions underlined.

    tokens: rows of `token_stats` of one example (or a page of them), by position. hide_text, or a run that stored no
    text: the place of each token stands for it. skip_first: the first predicted position is not part of the error
    zone; an error there is dotted. Positions that are not scored are quiet and have no colour.
    """
    columns = ["position", "token_id", "token", "logp_target", "logp_reference", "delta", "is_error", "scored"]
    frame = tokens.reindex(columns=columns)
    parts = [_token(*values, hide_text=hide_text, skip_first=skip_first) for values in _values(frame)]
    return f'<div class="tk-map">{" ".join(parts) if hide_text else "".join(parts)}</div>'


def _values(frame: pd.DataFrame) -> Iterable[tuple]:
    return zip(*(frame[c].tolist() for c in frame.columns), strict=True)


def _token(
    position: int,
    token_id: int,
    token: object,
    logp_target: float,
    logp_reference: float,
    delta: float,
    is_error: bool,
    scored: bool,
    *,
    hide_text: bool,
    skip_first: bool,
) -> str:
    text = "" if hide_text or not isinstance(token, str) else token
    body, breaks = visible(text) if text else (f"{position}", "")
    tip = hover(position, token_id, logp_target, logp_reference, delta, is_error, scored, skip_first)
    names, alpha = [], ""
    if not scored:
        names.append("u")
    else:
        if is_error is True:
            names.append("s" if skip_first and position == 1 else "e")
        strength = opacity(delta)
        if strength:
            names.append("r" if delta > 0 else "l")
            alpha = f' style="--a:{strength:.3g}"'
    kind = f' class="{" ".join(names)}"' if names else ""
    chance = "<wbr>" if text[:1].isspace() else ""  # the drawn dot is no place to break a line, the space was one
    return f'{chance}<span{kind}{alpha} data-t="{escape(tip)}">{body}</span>{breaks}'


def opacity(delta: object, scale: float = SCALE) -> float:
    """Opacity of a shift in nats: linear up to `scale`, then full; 0 for a shift that is not a number."""
    if delta is None or np.isnan(delta):  # type: ignore[call-overload]
        return 0.0
    share = min(abs(float(delta)) / scale, 1.0)  # type: ignore[arg-type]
    return round(share * STEPS) / STEPS * STRONGEST


def hover(
    position: int,
    token_id: int,
    logp_target: float,
    logp_reference: float,
    delta: float,
    is_error: bool,
    scored: bool,
    skip_first: bool = True,
) -> str:
    """Plain text shown when the pointer rests on a token: place, both probabilities, shift, error."""
    head = f"position {position}, token id {token_id}"
    if not scored:
        return f"{head}\nnot scored"
    lines = [head, f"after fine-tuning {probability(logp_target)}, before {probability(logp_reference)}"]
    lines.append(f"shift {signed(delta, 2)} nats" if known(delta) else "shift not known: a value is not finite")
    if is_error is True:
        counts = "the first guess is not counted" if skip_first and position == 1 else "counts for P and N"
        lines.append(f"first guess wrong: {counts}")
    else:
        lines.append("first guess right: not in the error zone")
    return "\n".join(lines)


def probability(logp: object) -> str:
    """Write exp(log-probability) with the digits it deserves: "62 %", "0.4 %", "2e-7"."""
    if not known(logp):
        return NONE
    p = float(np.exp(min(float(logp), 0.0)))
    if p >= 0.1:
        return f"{100 * p:.0f} %"
    return f"{100 * p:.1f} %" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")


def visible(text: str) -> tuple[str, str]:
    """Escape one token so that all of it is seen: (HTML of the token, line breaks that follow it).

    Spaces, tabs and line ends are drawn as quiet signs, invisible and direction-changing characters as their code.
    """
    out, breaks = [], ""
    for piece in _PIECE.split(text):
        if piece in _SHOWN:
            out.append(f"<i>{_SHOWN[piece]}</i>")
            breaks += "<br>" if piece in ("\n", "\r\n") else ""
        elif piece and _HIDDEN.fullmatch(piece):
            out.append(f'<i class="h">U+{ord(piece):04X}</i>')
        elif piece:
            out.append(escape(piece))
    body = "".join(out)
    # A combining mark alone would sit on the token before it.
    lone = bool(text) and unicodedata.combining(text[0]) != 0
    return (f"◌{body}" if lone else body), ("<br>" if breaks else "")


def legend(hide_text: bool = False) -> str:
    """Explain colours, underline and signs."""
    words = "numbers: positions in the row; text is hidden" if hide_text else "· space, ↵ line end"
    return (
        '<div class="tk-legend">'
        f"<span>lowered −{SCALE:g} nats<i class='tk-ramp'></i>raised +{SCALE:g} nats</span>"
        '<span><i class="tk-key">token</i>'
        "first guess wrong: the error zone that EZ counts</span>"
        f"<span>{words}</span></div>"
    )


def pn_bar(p_sum: object, n_sum: object) -> str:
    """Draw P and N as one slim bar, blue for lowered and orange for raised, with the numbers in words beside it."""
    if not (known(p_sum) and known(n_sum)):
        return ""
    p, n = float(p_sum), float(n_sum)
    total = p + n
    share = p / total if total > 0 else 0.5
    ratio = f"P/N = {score_number(p / n)}" if n > 0 else "P/N does not exist: N = 0"
    widths = (("tk-n", 100 * (1 - share)), ("tk-p", 100 * share)) if total > 0 else ()
    bars = "".join(f'<i class="{name}" style="width:{width:.4g}%"></i>' for name, width in widths)
    return (
        f'<div class="tk-pn" role="img" aria-label="N {number(n, 2)} nats lowered, P {number(p, 2)} nats raised">'
        f"<span>N = <b>{number(n, 2)}</b> nats lowered</span>"
        f'<span class="tk-track">{bars}</span><span>P = <b>{number(p, 2)}</b> nats raised · {ratio}</span></div>'
    )


def token_table(tokens: pd.DataFrame, hide_text: bool = False) -> pd.DataFrame:
    """Return the numbers behind the map, one line per token, names of columns as a reader knows them."""
    frame = pd.DataFrame(
        {
            "position": tokens["position"],
            "token": tokens["token"].astype(str),
            "p after": np.exp(tokens["logp_target"].astype(float)),
            "p before": np.exp(tokens["logp_reference"].astype(float)),
            "shift, nats": tokens["delta"].astype(float),
            "error": tokens["is_error"].astype("boolean"),
        }
    )
    if hide_text or not tokens["token"].astype(str).str.len().any():
        frame = frame.drop(columns="token").assign(**{"token id": tokens["token_id"]})
    return frame.reset_index(drop=True)


def tokens_sentence(tokens: pd.DataFrame, total: int, skip_first: bool = True) -> list[str]:
    """Say what the map shows: how many tokens, how many in the error zone, raised and lowered, and what is left out."""
    scored = tokens["scored"].astype(bool)
    zone = scored & tokens["is_error"].astype(bool)
    if skip_first:
        zone &= tokens["position"] != 1
    delta = tokens["delta"].astype(float)
    broken = int((scored & ~np.isfinite(delta)).sum())
    raised, lowered = int((zone & (delta > 0)).sum()), int((zone & (delta < 0)).sum())
    part = f"{count(len(tokens))} of {count(total)} tokens" if len(tokens) < total else f"{count(total)} tokens"
    text = f"{part}, {count(int(zone.sum()))} in the error zone: {count(raised)} raised, {count(lowered)} lowered."
    text += f" {count(int((~scored).sum()))} not scored." if (~scored).any() else ""
    text += f" {count(broken)} without a finite shift have no colour." if broken else ""
    return [text]
