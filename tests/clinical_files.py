"""Made-up notes in the exact schemas of the licensed sources. In: a folder. Out: gzipped CSV files; no real person."""

from pathlib import Path

import numpy as np
import pandas as pd

RACES = ("ASIAN - CHINESE", "BLACK/AFRICAN AMERICAN", "HISPANIC OR LATINO", "OTHER", "WHITE", "WHITE", "WHITE", "WHITE")
WORDS = [f"{a}{b}" for a in ("fever", "cough", "pain", "fluids", "labs", "diet") for b in ("", "s", "ed", "ing", "y")]
NOTE = ["note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text"]
TARGET = [
    *("note_id", "hadm_id", "discharge_instructions", "brief_hospital_course"),
    *("discharge_instructions_word_count", "brief_hospital_course_word_count"),
]
EDSTAYS = [
    *("subject_id", "hadm_id", "stay_id", "intime", "outtime", "gender", "race", "arrival_transport", "disposition"),
]
ADMISSIONS = [
    *("subject_id", "hadm_id", "admittime", "dischtime", "deathtime", "admission_type", "admit_provider_id"),
    *("admission_location", "discharge_location", "insurance", "language", "marital_status", "race", "edregtime"),
    *("edouttime", "hospital_expire_flag"),
]
PAIRS = ["note_id", "input", "target", "input_tokens", "target_tokens"]
DAY = "2150-01-01 00:00:00"


def discharge_me(folder: Path, n: int = 160) -> Path:
    """`train` and `valid` with discharge, discharge_target and edstays; 1 of 20 subjects has no ED stay."""
    rng = np.random.default_rng(0)
    for part, subjects in (("train", range(n)), ("valid", range(n, n + n // 4))):
        notes, targets, stays = [], [], []
        for i in subjects:
            subject, stay, note = 10_000_000 + i, 20_000_000 + i, f"{10_000_000 + i}-DS-{i % 7}"
            course, told = " ".join(rng.choice(WORDS, 30)), " ".join(rng.choice(WORDS, 20))
            text = (
                f"Name:  ___\nSex:   {'FM'[i % 2]}\nHistory of Present Illness:\n{' '.join(rng.choice(WORDS, 40))}\n"
                f"Brief Hospital Course:\n{_wrapped(course)}\n\nMedications on Admission:\nnone\n"
                f"Discharge Instructions:\n{told}\n \nFollowup Instructions:\n___\n"
            )
            notes.append((note, subject, stay, "DS", i % 7, DAY, DAY, text))
            targets.append((note, stay, told, course, 20, 30))
            if i % 20 == 19:
                continue
            race = RACES[i % len(RACES)] if i % 20 != 18 else ("UNKNOWN" if i % 40 == 18 else "MARTIAN")
            stays.append((subject, stay, 30_000_000 + i, DAY, DAY, "FM"[i % 2], race, "WALK IN", "ADMITTED"))
        _write(folder / part / "discharge.csv.gz", notes, NOTE)
        _write(folder / part / "discharge_target.csv.gz", targets, TARGET)
        _write(folder / part / "edstays.csv.gz", stays, EDSTAYS)
    return folder


def mimic_iv_bhc(folder: Path, n: int = 160) -> dict[str, Path]:
    """mimic-iv-bhc.csv, admissions.csv.gz, MIMIC-IV-Note's discharge.csv.gz; race of the first subject changes."""
    rng = np.random.default_rng(1)
    pairs, admissions, notes = [], [], []
    for i in range(n):
        subject = 10_000_000 + i
        for k in range(1 + (i % 5 == 0)):
            note, stay = f"{subject}-DS-{k}", 20_000_000 + 2 * i + k
            race = RACES[i % len(RACES)] if i else ("WHITE", "ASIAN")[k]
            pairs.append((note, " ".join(rng.choice(WORDS, 50)), " ".join(rng.choice(WORDS, 25)), 60, 30))
            before, after = (DAY, DAY, "", "URGENT", "P1", "ED", "HOME", "Other", "English", "SINGLE"), ("", "", 0)
            admissions.append((subject, stay, *before, race, *after))
            notes.append((note, subject, stay, "DS", k, DAY, DAY, "text"))
    found = {name: folder / f"{name}.csv.gz" for name in ("admissions", "discharge")}
    found["pairs"] = folder / "mimic-iv-bhc.csv"
    _write(found["pairs"], pairs, PAIRS)
    _write(found["admissions"], admissions, ADMISSIONS)
    _write(found["discharge"], notes, NOTE)
    return {**found, "notes": found["discharge"]}


def _wrapped(text: str) -> str:
    """The note breaks its lines where the target does not."""
    words = text.split()
    return "\n".join(" ".join(words[i : i + 7]) for i in range(0, len(words), 7))


def _write(path: Path, rows: list[tuple], columns: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
