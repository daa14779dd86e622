"""A small audit of both kinds on the bundled model and data. In: nothing. Out: finished runs and their verdicts.

Small enough for a few minutes on two cores; the numbers are real, and the sample sizes say what they can show.
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from auditcore import disk, jobs, store
from auditcore.errors import DatasetError
from auditcore.spec import dump_spec, parse_spec
from auditcore.store import Run

NOTES = Path(__file__).resolve().parent.parent / "data" / "notes.parquet"
MODEL = "smollm2-135m"
TRAINED, HELD_OUT = 64, 64
MAX_LENGTH = 96  # tokens of a note that are learnt and scored
SUBJECTS = {"bal_train": 40, "bal_val": 12, "bal_test": 40}  # per class


def demo(echo: Callable[[str], None]) -> list[Run]:
    """Fine-tune on 64 notes, audit membership, audit the exported vectors. Returns the finished audits."""
    folder = store.home() / "demo"
    disk.make_private(folder)
    if not NOTES.exists():
        raise DatasetError(f"{NOTES}: the bundled data is missing; run python -m auditcore.datasets.synthetic")
    notes = pd.read_parquet(NOTES)
    echo(f"1 of 3: fine-tune {MODEL} on {TRAINED} notes")
    tuned = _run("demo-finetune", _finetune_spec(_membership_rows(notes, folder)), echo)
    echo(f"2 of 3: which of these notes does it remember? ({TRAINED} trained on, {HELD_OUT} held out)")
    membership = _run("demo-membership", _membership_spec(folder, tuned), echo)
    echo("3 of 3: can recorded_race be read from the vectors it exports?")
    vectors = _run("demo-vectors", _vectors_spec(_vector_rows(notes, folder)), echo)
    return [membership, vectors]


def _run(name: str, spec: dict, echo: Callable[[str], None]) -> Run:
    run = store.create_run(dump_spec(parse_spec({"name": name, **spec})))
    jobs.execute(run, echo=echo)
    return run


def _membership_rows(notes: pd.DataFrame, folder: Path) -> Path:
    trained = notes[notes["member"] == True].head(TRAINED)  # noqa: E712 - a column of true, false and null
    held_out = notes[notes["member"] == False].head(HELD_OUT)  # noqa: E712
    path = folder / "membership.parquet"
    disk.write_parquet(path, pd.concat([trained, held_out]))
    return path


def _vector_rows(notes: pd.DataFrame, folder: Path) -> Path:
    parts = []
    for split, n in SUBJECTS.items():
        first = notes[notes["split"] == split].drop_duplicates("subject_id")
        parts.append(first.groupby("recorded_race", sort=True).head(n))
    path = folder / "vectors.parquet"
    disk.write_parquet(path, pd.concat(parts))
    return path


def _finetune_spec(path: Path) -> dict:
    return {
        "kind": "finetune",
        "model": {"source": MODEL},
        "data": {"path": str(path), "roles": _ROLES},
        "template": "{prompt}",
        "max_length": MAX_LENGTH,
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 2e-4,
        "validation": 0.0,
    }


def _membership_spec(folder: Path, tuned: Run) -> dict:
    return {
        "kind": "membership",
        "model": {"source": str(tuned.path / "checkpoints" / "last"), "reference": MODEL},
        "data": {"path": str(folder / "membership.parquet"), "roles": _ROLES},
        "template": "{prompt}",
        "max_length": MAX_LENGTH,
    }


def _vectors_spec(path: Path) -> dict:
    roles = {"prompt": "prompt", "label": "recorded_race", "group": "subject_id", "split": "split", "id": "example_id"}
    return {
        "kind": "vectors",
        "model": {"source": MODEL},
        "data": {"path": str(path), "roles": roles},
        "template": "{prompt}\nBrief Hospital Course:",
        "permutations": 99,
        "seeds": [0],
    }


_ROLES = {"prompt": "prompt", "member": "member", "group": "subject_id", "id": "example_id"}
