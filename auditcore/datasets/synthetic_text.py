"""Wording of the synthetic notes. In: shown facts and a clinical case. Out: the note and its Brief Hospital Course.

The writer sees only what the note may show, never a recorded attribute. Content lies in two YAML files beside this one;
[a|b] in a pattern is a free choice, {slot} a value.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_HERE = Path(__file__).parent
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_ARROW = " => "
_DAYS = {"event": (2, 3), "improved": (3, 5), "disposition": (6, 9), "consult": (3, 5)}


@dataclass(frozen=True)
class Condition:
    """One diagnosis with everything that may go with it; entries read "note wording => target wording"."""

    age: tuple[float, ...]
    dx: tuple[str, ...]
    symptoms: tuple[str, ...]
    minor: tuple[str, ...]
    findings: tuple[str, ...]
    rx: tuple[str, ...]
    events: tuple[str, ...]
    dc: tuple[str, ...]
    fu: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """What happened in one admission: slot -> (note wording, target wording); no event: None."""

    parts: Mapping[str, tuple[str, str]]
    minor: str
    event: tuple[str, str] | None


def _load(name: str) -> dict[str, Any]:
    return yaml.safe_load((_HERE / name).read_text(encoding="utf-8"))


CONDITIONS: dict[str, Condition] = {
    name: Condition(**{field: tuple(values) for field, values in fields.items()})
    for name, fields in _load("synthetic_conditions.yaml").items()
}


@cache
def sentences() -> dict[str, Any]:
    """Return the patterns of synthetic_sentences.yaml."""
    return _load("synthetic_sentences.yaml")


def choose(rng: random.Random, options: Sequence[Any]) -> Any:
    """Pick one option; uses rng.random() only, which every Python version repeats."""
    return options[int(rng.random() * len(options))]


def expand(rng: random.Random, pattern: str, slots: Mapping[str, str]) -> str:
    """Resolve the choices of a pattern from the inside out, then its slots (a slot's value may hold both again)."""
    while True:
        found = _CHOICE.search(pattern)
        if found is None:
            break
        pattern = pattern[: found.start()] + choose(rng, found[1].split("|")) + pattern[found.end() :]
    for _ in range(4):
        found = _SLOT.search(pattern)
        if found is None:
            return pattern
        pattern = _SLOT.sub(lambda match: slots[match[1]], pattern)
        if _CHOICE.search(pattern):
            return expand(rng, pattern, slots)
    return pattern


def capital(text: str) -> str:
    """Upper-case the first letter."""
    return text[:1].upper() + text[1:]


def draw_case(rng: random.Random, condition: str) -> Case:
    """Draw one admission for a condition: symptoms, finding, treatment, event and plan that belong together."""
    chosen = CONDITIONS[condition]

    def pair(options: Sequence[str]) -> tuple[str, str]:
        note, target = choose(rng, options).split(_ARROW)
        return note, target

    parts = {
        "symptom": pair(chosen.symptoms),
        "finding": pair(chosen.findings),
        "dx": pair(chosen.dx),
        "rx": pair(chosen.rx),
        "dc": pair(chosen.dc),
        "fu": pair(chosen.fu),
        "dispo": pair(sentences()["dispositions"]),
    }
    minor = sorted(chosen.minor, key=lambda _: rng.random())[0]
    point = rng.random()
    event = pair(chosen.events) if point < 0.4 else pair(sentences()["shared_events"]) if point < 0.65 else None
    return Case(parts=parts, minor=minor, event=event)


def numbers(rng: random.Random, kind: str) -> dict[str, str]:
    """Draw the figures a sentence may quote, each within a plausible range; days run event, recovery, discharge."""

    def between(low: float, high: float, digits: int = 0) -> str:
        value = round(low + rng.random() * (high - low), digits)
        return f"{value:.{digits}f}"

    return {
        "d": between(*_DAYS.get(kind, (2, 4))), "n": between(3, 6),
        "h": choose(rng, ["6", "12", "18", "24", "36", "48"]),
        "temp": between(36.4, 39.2, 1), "hr": between(64, 124), "bp": f"{between(96, 168)}/{between(54, 96)}",
        "spo": between(89, 99), "wbc": between(4, 19, 1), "cr": between(0.6, 1.4, 1), "hgb": between(9, 15, 1),
        "plt": between(120, 390), "lac": between(0.8, 2.4, 1), "crp": between(4, 190), "cr_high": between(1.8, 2.9, 1),
        "bnp": between(700, 4800), "glu": between(380, 790), "lip": between(600, 5200), "trop": between(0.4, 18, 1),
        "eos": between(600, 1400),
    }  # fmt: skip


def write_target(rng: random.Random, case: Case) -> str:
    """Write a Brief Hospital Course of two to four sentences from the case alone: no pronoun, age or social fact."""
    patterns = sentences()["target"]
    slots: dict[str, str] = {}
    for slot, (_, wording) in case.parts.items():
        slots[slot] = expand(rng, wording, {})
        slots[slot.capitalize()] = capital(slots[slot])
    written = [expand(rng, choose(rng, patterns["first"]), slots), expand(rng, choose(rng, patterns["second"]), slots)]
    if case.event:
        event = expand(rng, case.event[1], {})
        slots |= {"event": event, "Event": capital(event)}
        written.append(expand(rng, choose(rng, patterns["event"]), slots))
    elif rng.random() < 0.6:
        written.append(expand(rng, choose(rng, patterns["no_event"]), {}))
    written.append(expand(rng, choose(rng, patterns["last"]), slots))
    return " ".join(written)
