"""A note without the sections it should be summarised into. In: a note, sections. Out: the rest; is any of it left?"""

import re
from collections.abc import Sequence

LONG = 13  # words in a row that a prompt and its summary do not share by chance
HEADINGS = ("brief hospital course", "discharge instructions")
_NEXT = re.compile(
    r"^[ \t]*(?:medications on admission|discharge medications|discharge disposition|discharge diagnosis|discharge "
    r"condition|discharge instructions|followup instructions|follow-up instructions|facility|transitional issues)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_WORD = re.compile(r"\w+")


def cut_out(text: str, sections: Sequence[str]) -> tuple[str, bool]:
    """The text without the sections; True when every one of them was found as it is written, blanks aside.

    A section that is not found is cut by its heading, up to the next known heading.
    """
    found_all = True
    for section in sections:
        where = _find(text, section)
        if where is None:
            found_all = False
            continue
        text = f"{text[: where[0]]}\n{text[where[1] :]}"
    if not found_all:
        for heading in HEADINGS:
            text = _without_heading(text, heading)
    return text, found_all


def _find(text: str, section: str) -> tuple[int, int] | None:
    """Where the section stands, runs of white space counting as one blank; None when it does not."""
    wanted = " ".join(section.split())
    if not wanted:
        return (0, 0)
    at = text.find(section)
    if at >= 0:
        return at, at + len(section)
    letters: list[str] = []
    places: list[int] = []
    for match in re.finditer(r"\S+", text):
        if letters:
            letters.append(" ")
            places.append(match.start() - 1)
        letters.append(match.group())
        places.extend(range(match.start(), match.end()))
    at = "".join(letters).find(wanted)
    return None if at < 0 else (places[at], places[at + len(wanted) - 1] + 1)


def _without_heading(text: str, heading: str) -> str:
    begin = re.search(rf"^[ \t]*{re.escape(heading)}\s*:", text, re.IGNORECASE | re.MULTILINE)
    if begin is None:
        return text
    following = _NEXT.search(text, begin.end())
    return text[: begin.start()] + (text[following.start() :] if following else "")


def shares_long_ngram(prompt: str, target: str, n: int = LONG) -> bool:
    """True when n words in a row of the target stand in the prompt too, case and punctuation aside."""
    words = _WORD.findall(target.casefold())
    if len(words) < n:
        return False
    wanted = {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
    there = _WORD.findall(prompt.casefold())
    return any(tuple(there[i : i + n]) in wanted for i in range(len(there) - n + 1))
