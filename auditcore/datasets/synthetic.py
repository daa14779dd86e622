"""Makes the bundled data set. In: a seed. Out: data/notes.parquet, byte for byte the same at every call.

`python -m auditcore.datasets.synthetic` rewrites the file. Every subject and every note has a random source of its own,
seeded by the data seed and its number, so the first rows can be made without the rest. No real person, no real note.
"""

import argparse
import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from auditcore.datasets.synthetic_bayes import bayes_accuracy, bayes_posterior
from auditcore.datasets.synthetic_facts import AGE_BANDS, FACT_COLUMNS, RACES, SEXES, draw_shown, draw_subject
from auditcore.datasets.synthetic_notes import write_note
from auditcore.datasets.synthetic_text import draw_case, write_target
from auditcore.errors import DatasetError

__all__ = ["bayes_accuracy", "bayes_posterior", "content_hash", "generate", "plan_notes", "write"]

SEED = 20261130
# Per cell of race x sex x age band (30 cells): subjects with one note, subjects with two.
SUBJECTS_PER_CELL = {
    "train": (84, 12),
    "defence_fit": (42, 6),
    "bal_train": (42, 6),
    "bal_val": (35, 0),
    "bal_test": (100, 0),
}
MEMBER = {"train": True, "defence_fit": False}
COLUMNS = (
    "example_id", "subject_id", "split", "member", "prompt", "target", "recorded_race", "recorded_sex", "age_band",
    *FACT_COLUMNS,
)  # fmt: skip
DEFAULT_PATH = Path(__file__).parents[2] / "data" / "notes.parquet"


@dataclass(frozen=True)
class Planned:
    """One note to be written: whose it is, which of the subject's notes, and in which split."""

    subject: int
    note: int
    split: str
    race: str
    sex: str
    age_band: str


def plan_notes(seed: int = SEED) -> list[Planned]:
    """Return all notes in data order. Subject numbers and the order of rows are shuffled, so neither tells a label."""
    rng = random.Random(f"plan/{seed}")
    people = [
        (split, race, sex, age, notes)
        for split, per_notes in SUBJECTS_PER_CELL.items()
        for race in RACES
        for sex in SEXES
        for age in AGE_BANDS
        for notes, count in enumerate(per_notes, start=1)
        for _ in range(count)
    ]
    people = _shuffled(rng, people)
    rows = [
        Planned(number, note, split, race, sex, age)
        for number, (split, race, sex, age, notes) in enumerate(people, start=1)
        for note in range(1, notes + 1)
    ]
    return _shuffled(rng, rows)


def generate(n_rows: int | None = None, seed: int = SEED) -> pd.DataFrame:
    """Write the first `n_rows` notes (None: all of them) as a frame with COLUMNS; facts not shown are null.

    Raises DatasetError when two notes have the same text, which the shipped seed does not do.
    """
    rows = [_row(number, planned, seed) for number, planned in enumerate(plan_notes(seed)[:n_rows], start=1)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    repeated = frame["prompt"].duplicated()
    if repeated.any():
        row = int(repeated.to_numpy().argmax()) + 1
        raise DatasetError(f"row {row}: its prompt repeats an earlier one; use another seed.")
    frame["member"] = frame["member"].astype("boolean")
    return frame


def _row(number: int, planned: Planned, seed: int) -> dict[str, object]:
    subject = draw_subject(
        random.Random(f"subject/{seed}/{planned.subject}"), planned.race, planned.sex, planned.age_band
    )
    rng = random.Random(f"note/{seed}/{planned.subject}/{planned.note}")
    shown = draw_shown(rng, subject, planned.age_band)
    case = draw_case(rng, shown["condition"])
    return {
        "example_id": f"N{number:05d}",
        "subject_id": f"S{planned.subject:05d}",
        "split": planned.split,
        "member": MEMBER.get(planned.split),
        "prompt": write_note(rng, shown, case),
        "target": write_target(rng, case),
        "recorded_race": planned.race,
        "recorded_sex": planned.sex,
        "age_band": planned.age_band,
        **{f"fact_{name}": value or None for name, value in shown.items()},
    }


def content_hash(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of the rows as JSON lines: the same whatever wrote the Parquet file."""
    digest = hashlib.sha256()
    for row in frame[list(COLUMNS)].astype(object).itertuples(index=False):
        digest.update(json.dumps([None if pd.isna(value) else value for value in row], ensure_ascii=True).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame as zstd Parquet; the bytes are fixed for one version of pyarrow."""
    fields = [pa.field(name, pa.bool_() if name == "member" else pa.string()) for name in COLUMNS]
    arrays = [
        pa.array(frame[f.name].astype(object).where(frame[f.name].notna(), None).tolist(), f.type) for f in fields
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    pq.write_table(table, part, compression="zstd", compression_level=19, row_group_size=len(frame) or 1)
    part.replace(path)


def _shuffled(rng: random.Random, items: list) -> list:
    keyed = sorted((rng.random(), index) for index in range(len(items)))
    return [items[index] for _, index in keyed]


def main() -> None:
    """Command line: rewrite the bundled file."""
    parser = argparse.ArgumentParser(description="Rewrite the bundled synthetic notes.")
    parser.add_argument("--out", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--rows", type=int, default=None, help="the first rows only")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    frame = generate(options.rows, options.seed)
    write(frame, options.out)
    print(f"{options.out}: {len(frame)} notes, content sha256 {content_hash(frame)}")


if __name__ == "__main__":
    main()
