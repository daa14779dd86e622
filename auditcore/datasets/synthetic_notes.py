"""Composes one discharge-style note. In: shown facts, a clinical case, a random source. Out: the note's text.

A note is a list of sections in one of several orders; a section is a list of sentences; a sentence is one of many
patterns. Facts come first, then filler sentences until the note has about the length drawn for it, so that the filler
depends on the facts only through their length.
"""

import random
import re
from collections.abc import Mapping, Sequence

from auditcore.datasets.synthetic_text import Case, capital, choose, expand, numbers, sentences

LAYOUTS = (
    ("open", "history", "social", "exam", "data", "course", "plan"),
    ("open", "exam", "data", "course", "social", "history", "plan"),
    ("social", "open", "exam", "data", "course", "history", "plan"),
    ("history", "open", "data", "exam", "course", "social", "plan"),
    ("open", "data", "course", "plan", "history", "exam", "social"),
    ("history", "social", "open", "data", "exam", "course", "plan"),
    ("open", "social", "data", "exam", "course", "plan", "history"),
    ("social", "history", "open", "exam", "data", "course", "plan"),
)
HEADINGS = {
    "open": ("HPI:", "Presentation:", "Story:"),
    "social": ("Social:", "SH:", "Social history:", "At home:"),
    "exam": ("Objective:", "O:", "Findings:"),
    "data": ("Data:", "Results:", "Studies:"),
    "course": ("Events:", "In hospital:", "Progress:"),
    "plan": ("Plan:", "P:", "Discharge plan:", "Going forward:"),
}
FILLERS = {
    "history": "history", "home_meds": "history", "allergies": "history", "habits": "social", "vitals": "exam",
    "exam": "exam", "labs": "data", "consult": "course", "improved": "course", "advice": "plan",
    "condition_out": "plan",
}  # fmt: skip
_SIDED = "(?=MCA|ACA|lower|upper|leg|hand|flank|hip|femoral|basilar|temporal|arm|atrium|foot|intertroch)"
ABBREVIATIONS = (
    (r"\bwith\b", "w/"), (r"\b([Tt]he )?patient\b", "pt"), (r"\bhistory of\b", "h/o"), (r"\bdays\b", "d"),
    (r"\bhours\b", "hrs"), (r"\band\b", "&"), (r"\bwithout\b", "w/o"), (r"\bblood pressure\b", "BP"),
    (r"\bweeks\b", "wks"), (r"\bdischarge\b", "d/c"), (rf"\bright {_SIDED}", "R "), (rf"\bleft {_SIDED}", "L "),
)  # fmt: skip
_LABELLED = re.compile(r"[^.,;:]{1,30}:")  # a sentence that brings its own heading
_PRONOUN = re.compile(r"\b(he|she|his|her)\b", re.IGNORECASE)
LATE_SHARE = 0.4  # of the facts that can be told in the discharge part
LENGTH = (90.0, 136.0)  # estimated tokens a note is filled up to


class _Writer:
    """Resolves the subject of each sentence; the first one is the pronoun whenever the note shows it."""

    def __init__(self, rng: random.Random, pronoun: str) -> None:
        self.rng = rng
        self.pronoun = pronoun
        self.named = choose(rng, ("the patient", "the patient", "patient", "pt"))
        self.said = False

    def subject(self) -> str:
        if self.pronoun and (not self.said or self.rng.random() < 0.7):
            self.said = True
            return self.pronoun
        return self.named

    def say(self, pattern: str, kind: str, **slots: str) -> str:
        own = {"she": "her ", "he": "his "}.get(self.pronoun, "")
        given = {**numbers(self.rng, kind), "own": own, **slots}
        while "{Subj}" in pattern:
            pattern = pattern.replace("{Subj}", capital(self.subject()), 1)
        # "What brought him in": the object form, so the noun keeps it simple.
        return expand(self.rng, pattern, {"subj": "the patient", "Subj_mid": self.named, **given})


def estimate_tokens(text: str) -> float:
    """Estimate the number of SmolLM2 tokens from characters, digits and marks (fitted; within about 5 percent)."""
    digits = sum(c.isdigit() for c in text)
    words = len(re.findall(r"[A-Za-z]+", text))
    letters = sum(c.isalpha() for c in text)
    marks = sum(not c.isalnum() and not c.isspace() for c in text)
    return 0.64 * words + 0.10 * letters + 1.48 * digits + 1.39 * marks


def write_note(rng: random.Random, shown: Mapping[str, str], case: Case) -> str:
    """Write the prompt: every shown fact appears in it, nothing else about the subject does."""
    writer = _Writer(rng, shown["pronoun"])
    terse = rng.random() < 0.35
    layout = choose(rng, LAYOUTS)
    sections: dict[str, list[str]] = {name: [] for name in layout}
    facts = [name for name in shown if shown[name] and name not in ("condition", "pronoun")]
    facts.sort(key=lambda _: rng.random())
    sections["open"].append(_opening(writer, case, shown, facts))
    _clinical(writer, case, sections)
    _facts(writer, shown, facts, sections, terse)
    _fill(writer, sections)
    if shown["pronoun"] and not any(_PRONOUN.search(text) for texts in sections.values() for text in texts):
        writer.said = False
        sections["plan"].append(writer.say("{Subj} was [well|steady|comfortable] at discharge.", "plan"))
    return _abbreviate(rng, _lay_out(rng, layout, sections), 0.4 if terse else 0.06)


def _opening(writer: _Writer, case: Case, shown: Mapping[str, str], facts: list[str]) -> str:
    """One sentence on the presentation; it may take up the stated age and the language."""
    rng = writer.rng
    pattern = choose(rng, sentences()["open"])
    if "{Who}" in pattern:
        words = []
        if "age" in facts and rng.random() < 0.7:
            facts.remove("age")
            words.append(expand(rng, "[{age}-year-old|{age} yo|{age}-yr-old]", {"age": shown["age"]}))
        if "language" in facts and shown["language"] != "English" and rng.random() < 0.35:
            facts.remove("language")
            words.append(f"{shown['language']}-speaking")
        who = f"{choose(rng, ('This', 'A', 'Our'))} {' '.join(words)} patient" if words else capital(writer.subject())
        pattern = pattern.replace("{Who}", who)
    time = choose(rng, sentences()["durations"])
    return writer.say(
        pattern,
        "open",
        symptom=case.parts["symptom"][0],
        minor=case.minor,
        for_time=expand(rng, "[for|over] [the last |the past |]" if time[0] not in "a" else "for ", {}) + time,
        since=expand(rng, "[going on for {t}|present for {t}|{t} in duration|x {t}]", {"t": time}),
        ago=f"{time} {choose(rng, ('ago', 'before', 'earlier'))}",
        ago_plain=f"{time} {choose(rng, ('into symptoms', 'after it began'))}",
        Time=capital(time),
    )


def _clinical(writer: _Writer, case: Case, sections: dict[str, list[str]]) -> None:
    """The core every target needs: finding, diagnosis, treatment, event, medication, follow-up, disposition."""
    rng = writer.rng
    patterns = sentences()
    slots = {name: expand(rng, note, _keep(writer, "course")) for name, (note, _) in case.parts.items()}
    for name in ("finding", "dx"):
        slots[capital(name)] = capital(slots[name])

    def add(section: str, kind: str) -> None:
        sections[section].append(writer.say(choose(rng, patterns[kind]), kind, **slots))

    if rng.random() < 0.5:
        add("data", "finding_diagnosis")
    else:
        kinds = ["finding", "diagnosis"] if rng.random() < 0.8 else ["diagnosis", "finding"]
        for kind in kinds:
            add("data", kind)
    add("course", "treatment")
    if case.event:
        sections["course"].append(writer.say(case.event[0] + ".", "event"))
    for kind in sorted(("regimen", "follow_up", "disposition"), key=lambda _: rng.random()):
        add("plan", kind)


def _keep(writer: _Writer, kind: str) -> dict[str, str]:
    return {**numbers(writer.rng, kind), "Subj": capital(writer.named), "Subj_mid": writer.named, "own": ""}


def _facts(
    writer: _Writer, shown: Mapping[str, str], facts: Sequence[str], sections: dict[str, list[str]], terse: bool
) -> None:
    """Tell each shown fact once, in the social part or in the discharge part."""
    rng = writer.rng
    early: list[str] = []
    for name in facts:
        if rng.random() < LATE_SHARE:
            at = int(rng.random() * (len(sections["plan"]) + 1))
            sections["plan"].insert(at, _tell(writer, name, shown[name], "late"))
        else:
            early.append(name)
    while early:
        name = early.pop()
        if terse and len(early) and rng.random() < 0.6:
            second = early.pop()
            first = _tell(writer, name, shown[name], choose(rng, ("vp", "s"))).rstrip(".")
            told = f"{capital(first)}; {_tell(writer, second, shown[second], 'vp')}."
        elif early and rng.random() < 0.4:
            phrases = [_tell(writer, fact, shown[fact], "vp") for fact in (name, early.pop())]
            told = writer.say("{Subj} " + " and ".join(phrases) + ".", "social")
        elif terse or rng.random() < 0.5:
            told = _tell(writer, name, shown[name], "s")
        else:
            told = writer.say("{Subj} " + _tell(writer, name, shown[name], "vp") + ".", "social")
        sections["history" if name == "history" and rng.random() < 0.5 else "social"].append(told)


def _tell(writer: _Writer, name: str, value: str, form: str) -> str:
    """One phrase (vp) or sentence (s, late) that tells a fact."""
    phrases = sentences()["facts"][name]
    pattern = choose(writer.rng, phrases.get(value, phrases.get("any"))[form])
    slots = {"value": value}
    if "{place}" in pattern:
        slots["place"] = choose(writer.rng, sentences()["places"][value])
    if "{insurance}" in pattern:
        slots["insurance"] = value if value in ("Medicare", "Medicaid") else f"an {value}"
    return writer.say(pattern, "social", **slots)


def _fill(writer: _Writer, sections: dict[str, list[str]]) -> None:
    """Add filler sentences in random order until the drawn length is reached; none that would overshoot it much."""
    rng = writer.rng
    patterns = sentences()
    wanted = LENGTH[0] + rng.random() * (LENGTH[1] - LENGTH[0])
    length = sum(estimate_tokens(text) for texts in sections.values() for text in texts)
    for kind in sorted(FILLERS, key=lambda _: rng.random()):
        if length >= wanted - 6:
            return
        several = [choose(rng, patterns["comorbidities"]) for _ in range(2)]
        drugs = [choose(rng, patterns["medications"]) for _ in range(2)]
        text = writer.say(
            choose(rng, patterns[kind]), kind, comorbid=several[0], comorbid2=several[1], med=drugs[0], med2=drugs[1]
        )
        if length + estimate_tokens(text) > wanted + 8:
            continue
        at = int(rng.random() * (len(sections[FILLERS[kind]]) + 1)) if kind in ("consult", "advice") else None
        texts = sections[FILLERS[kind]]
        texts.insert(len(texts) if at is None else at, text)
        length += estimate_tokens(text)


def _lay_out(rng: random.Random, layout: Sequence[str], sections: Mapping[str, Sequence[str]]) -> str:
    long = sum(estimate_tokens(text) for texts in sections.values() for text in texts) > LENGTH[1]
    headed = not long and rng.random() < 0.5
    separator = "\n" if rng.random() < (0.7 if headed else 0.2) else " "
    blocks = []
    for name in layout:
        if not sections[name]:
            continue
        text = " ".join(sections[name])
        wanted = headed and name in HEADINGS and rng.random() < 0.85
        heading = choose(rng, HEADINGS[name]) if wanted and not _LABELLED.match(text) else ""
        blocks.append(f"{heading} {text}" if heading else text)
    return separator.join(blocks)


def _abbreviate(rng: random.Random, text: str, share: float) -> str:
    """Use some of the usual abbreviations throughout one note, capitals after a full stop kept."""
    for pattern, short in ABBREVIATIONS:
        if rng.random() < share:
            text = re.sub(pattern, short, text)
    return re.sub(r"(^|[.\n] )([a-z])", lambda match: match[1] + match[2].upper(), text)
