"""Licensed clinical notes from the user's own copy. In: a folder as PhysioNet gives it. Out: rows in memory, a report.

`discharge_me` (Discharge Me! 1.3) joins discharge, discharge_target and edstays; `mimic_iv_bhc` (MIMIC-IV-Ext-BHC) its
one file with MIMIC-IV's admissions and, where given, MIMIC-IV-Note's discharge table. Nothing is fetched, and no row is
written anywhere: they are read again by each run, into memory. Every row that a join loses is counted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from auditcore.datasets.prompts import cut_out, shares_long_ngram
from auditcore.datasets.tables import Table, open_table, read_table
from auditcore.errors import DatasetError, did_you_mean
from auditcore.spec import CLINICAL_SPLITS, ClinicalSpec, DataSpec

NOT_RECORDED = "not recorded"
RACE, SEX = "recorded_race", "recorded_sex"
COLUMNS = ["note_id", "subject_id", "prompt", "target", RACE, SEX, "split"]
SEXES = {"F": "Female", "M": "Male"}
# Subjects of each part; the classes of the bal_ parts are made equally frequent, and who is left over trains the model.
SHARES = {"train": 0.30, "defence_fit": 0.14, "bal_train": 0.20, "bal_val": 0.10, "bal_test": 0.26}


@dataclass(frozen=True)
class Made:
    """frame: `COLUMNS`, all text, missing where unknown; sha256 over every file read; notes: what was counted."""

    frame: pd.DataFrame
    sha256: str
    notes: list[str]


def read_clinical(data: DataSpec) -> Made:
    """Make rows from data.path as data.clinical says. Raises DatasetError: missing file or column, nothing to join."""
    how = data.clinical
    assert how is not None
    frame, tables, notes = READERS[how.source](Path(data.path).expanduser(), how)
    if frame.empty:
        raise DatasetError(f"{data.path}: no note is left after the joins. " + " ".join(notes))
    frame, more = _prompts(frame, how)
    if data.max_rows is not None and len(frame) > data.max_rows:
        more.append(f"Only the first {data.max_rows:,} of {len(frame):,} notes are used (max_rows).")
        frame = frame.head(data.max_rows)
    frame = frame.reset_index(drop=True)
    split, dealt = deal(frame, how.seed)
    digest = hashlib.sha256("\n".join(t.sha256 for t in tables).encode()).hexdigest()
    more.append("Recorded race is administrative: what was written down at a desk, not who somebody is.")
    return Made(frame.assign(split=split)[COLUMNS], digest, [*notes, *more, *dealt])


# --- the two sources ---


def _discharge_me(folder: Path, how: ClinicalSpec) -> tuple[pd.DataFrame, list[Table], list[str]]:
    notes: list[str] = []
    tables, parts = [], []
    wanted = [part for part in CLINICAL_SPLITS if (folder / part).is_dir()] if how.parts is None else how.parts
    if not wanted:
        raise DatasetError(
            f"{folder}: has none of the folders {', '.join(CLINICAL_SPLITS)}; name the folder of Discharge Me! 1.3."
        )
    for part in wanted:
        note, target, stays = (
            _table(folder / part, name, "Discharge Me!") for name in ("discharge", "discharge_target", "edstays")
        )
        tables += [note, target, stays]
        text = _columns(note, ["note_id", "subject_id", "hadm_id", "text"])
        summary = _columns(target, ["note_id", "brief_hospital_course", "discharge_instructions"])
        joined = _unique(text, "note_id", note).merge(_unique(summary, "note_id", target), on="note_id", how="left")
        seen = _stay_facts(_columns(stays, ["hadm_id", "race", "gender"]), how, notes, f"{part}/edstays")
        parts.append(joined.merge(seen, on="hadm_id", how="left"))
        lost = int(joined["brief_hospital_course"].isna().sum())
        notes.append(f"{part}: {len(joined):,} notes" + (f", {lost:,} without a target, left out." if lost else "."))
    frame = pd.concat(parts, ignore_index=True)
    if twice := int(frame["note_id"].duplicated().sum()):
        notes.append(f"{twice:,} notes stand in two parts; the first is kept.")
        frame = frame.drop_duplicates("note_id")
    if (between := frame.groupby("subject_id")["hadm_id"].nunique().gt(1).sum()) > 0:
        notes.append(f"{int(between):,} subjects have notes of several stays; all of a subject go to one split.")
    if missing := int(frame[RACE].isna().sum()):
        notes.append(f"{missing:,} of {len(frame):,} notes have no recorded race (no ED stay, or none that is mapped).")
    frame = frame[frame["brief_hospital_course"].notna()]
    return frame.rename(columns={"brief_hospital_course": "target"}), tables, notes


def _mimic_iv_bhc(path: Path, how: ClinicalSpec) -> tuple[pd.DataFrame, list[Table], list[str]]:
    pairs = open_table(path) if path.is_file() else _table(path, "mimic-iv-bhc", "MIMIC-IV-Ext-BHC")
    if how.admissions is None:
        raise DatasetError(
            f"{path}: recorded race stands in MIMIC-IV's admissions table; name it as data.clinical.admissions."
        )
    notes: list[str] = []
    admissions = open_table(Path(how.admissions).expanduser())
    frame = _columns(pairs, ["note_id", "input", "target"]).rename(columns={"input": "text"})
    frame = _unique(frame, "note_id", pairs)
    frame["subject_id"] = frame["note_id"].str.split("-").str[0]
    stays = _columns(admissions, ["subject_id", "hadm_id", "race"])
    tables = [pairs, admissions]
    if how.notes is not None:
        note = open_table(Path(how.notes).expanduser())
        tables.append(note)
        known = _columns(note, ["note_id", "hadm_id"])
        frame = frame.merge(_unique(known, "note_id", note), on="note_id", how="left")
        seen = _stay_facts(stays, how, notes, "admissions", by="hadm_id")
        frame = frame.merge(seen, on="hadm_id", how="left")
    else:
        seen = _stay_facts(stays, how, notes, "admissions", by="subject_id")
        frame = frame.merge(seen, on="subject_id", how="left")
        notes.append("Without data.clinical.notes race is taken over all stays of a subject, not the note's own.")
    if missing := int(frame[RACE].isna().sum()):
        notes.append(f"{missing:,} of {len(frame):,} notes have no recorded race that is mapped.")
    empty = frame["target"].isna() | frame["text"].isna()
    lost = f", {int(empty.sum()):,} without text or target, left out." if empty.any() else "."
    notes.append(f"{len(frame):,} pairs{lost}")
    return frame[~empty], tables, notes


READERS = {"discharge_me": _discharge_me, "mimic_iv_bhc": _mimic_iv_bhc}


def _table(folder: Path, name: str, source: str) -> Table:
    for suffix in (".csv.gz", ".csv"):
        if (folder / f"{name}{suffix}").is_file():
            return open_table(folder / f"{name}{suffix}")
    raise DatasetError(f"{folder}: there is no {name}.csv.gz here; it is part of {source} as PhysioNet gives it.")


def _columns(table: Table, names: Sequence[str]) -> pd.DataFrame:
    missing = [name for name in names if name not in table.columns]
    if missing:
        hint = did_you_mean(missing[0], table.columns)
        raise DatasetError(f"{table.path}: has no column {', '.join(missing)}.{hint}")
    return read_table(table, list(names))


def _unique(frame: pd.DataFrame, key: str, table: Table) -> pd.DataFrame:
    known = frame[frame[key].notna()]
    twice = known[key][known[key].duplicated()]
    if len(twice):
        raise DatasetError(f"{table.path}: {key} '{twice.iloc[0]}' stands there twice.")
    return known


# --- recorded race ---


def race_table(path: str | None) -> dict[str, str | None]:
    """Value, folded -> category, None for "not recorded". path: an edited copy; None: the table that is shipped."""
    source = files("auditcore.datasets").joinpath("recorded_race.yaml") if path is None else Path(path).expanduser()
    try:
        raw = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DatasetError(f"{path}: the table of recorded race cannot be read ({error}).") from None
    if not isinstance(raw, dict) or not all(isinstance(v, list) for v in raw.values()):
        raise DatasetError(f"{path}: expected categories, each with a list of values, as in the table that is shipped.")
    found: dict[str, str | None] = {}
    for category, values in raw.items():
        for value in values:
            key = _folded(str(value))
            if key in found:
                raise DatasetError(f"{path or 'recorded_race.yaml'}: '{value}' stands in two categories.")
            found[key] = None if category == NOT_RECORDED else str(category)
    return found


def _folded(value: str) -> str:
    return " ".join(value.upper().split())


def _stay_facts(
    stays: pd.DataFrame, how: ClinicalSpec, notes: list[str], where: str, by: str = "hadm_id"
) -> pd.DataFrame:
    """Race and sex of each stay or subject, missing where its rows disagree; what is not mapped is counted."""
    table = race_table(how.race_table)
    stays = stays[stays[by].notna()]
    folded = stays["race"].fillna("").map(_folded)
    strange = folded[(folded != "") & ~folded.isin(list(table))]
    if len(strange):
        told = ", ".join(f"'{value}' {n:,}" for value, n in strange.value_counts().head(8).items())
        notes.append(f"{where}: {len(strange):,} stays have a recorded race that no category holds ({told}).")
    silent = int((folded == "").sum() + folded.isin([k for k, v in table.items() if v is None]).sum())
    if silent:
        notes.append(f"{where}: no race was recorded on {silent:,} of {len(stays):,} stays.")
    sex = stays["gender"].map(SEXES, na_action="ignore") if "gender" in stays else None  # admissions do not tell it
    named = pd.DataFrame({by: stays[by], RACE: folded.map(table), SEX: sex})
    found = {}
    for column in (RACE, SEX):
        known = named[named[column].notna()].drop_duplicates([by, column])
        two = known[by][known[by].duplicated()].unique()
        if len(two):
            what = "subjects" if by == "subject_id" else "stays"
            notes.append(f"{where}: {len(two):,} {what} name two of {column.removeprefix('recorded_')}; none is taken.")
        found[column] = known[~known[by].isin(two)].set_index(by)[column]
    return pd.DataFrame(found).rename_axis(by).reset_index()


# --- prompts and splits ---


def _prompts(frame: pd.DataFrame, how: ClinicalSpec) -> tuple[pd.DataFrame, list[str]]:
    """Cut target and instructions out of each note; prompts that still hold their summary are counted, and may go."""
    notes = []
    prompts, whole = [], 0
    given = "discharge_instructions" in frame.columns
    for row in frame.to_dict("records"):
        sections = [row["target"], row.get("discharge_instructions")] if given else []
        prompt, found = cut_out(row["text"], [s for s in sections if isinstance(s, str)])
        whole += given and not found
        prompts.append(prompt)
    if given:
        notes.append(f"Hospital course and discharge instructions were cut out of {len(frame) - whole:,} notes.")
    if whole:
        notes.append(f"In {whole:,} notes the sections were not found as written; their headings were used instead.")
    left = np.array([shares_long_ngram(p, t) for p, t in zip(prompts, frame["target"], strict=True)], dtype=bool)
    frame = frame.assign(prompt=pd.array(prompts, dtype="str"))
    if left.any():
        what = "are left out" if how.leftovers == "drop" else "are kept (leftovers: keep)"
        notes.append(f"{int(left.sum()):,} prompts still hold 13 words in a row of their summary and {what}.")
        frame = frame[~left] if how.leftovers == "drop" else frame
    return frame, notes


def deal(frame: pd.DataFrame, seed: int) -> tuple[pd.Series, list[str]]:
    """Split of each row: whole subjects, by race; in the bal_ parts every race has as many subjects as the rarest.

    A subject without one race, or left over by the balancing, goes to train.
    """
    known = frame.loc[frame[RACE].notna(), ["subject_id", RACE]].drop_duplicates()
    two = set(known["subject_id"][known["subject_id"].duplicated()])
    single = known[~known["subject_id"].isin(two)].sort_values("subject_id")
    rng = np.random.default_rng([seed % 2**32, 0xC11])
    place: dict[str, str] = {}
    for race in sorted(single[RACE].unique()):
        mine = rng.permutation(single.loc[single[RACE] == race, "subject_id"].to_numpy(dtype=object))
        ends = np.round(np.cumsum(list(SHARES.values())) * len(mine)).astype(int)
        for name, some in zip(SHARES, np.split(mine, ends[:-1]), strict=True):
            place.update(dict.fromkeys(some, name))
    of = single.set_index("subject_id")[RACE]
    spare = 0
    for part in [name for name in SHARES if name.startswith("bal_")]:
        members = pd.Series([s for s, p in place.items() if p == part], dtype=object)
        races = of.loc[members].to_numpy()
        rarest = min((int((races == r).sum()) for r in of.unique()), default=0)
        for race in of.unique():
            for subject in members[races == race].iloc[rarest:]:
                place[subject] = "train"
                spare += 1
    split = frame["subject_id"].map(place).fillna("train").astype("str")
    counts = frame.groupby(split)["subject_id"].nunique()
    told = ", ".join(f"{name} {int(counts.get(name, 0)):,}" for name in SHARES)
    equal = f"Every race is equally frequent in bal_*; {spare:,} left over by that train the model."
    notes = [f"Subjects were dealt by seed {seed}: {told}. {equal}"]
    if two:
        notes.append(f"{len(two):,} subjects have notes of two categories of race; they are in train.")
    return split, notes
