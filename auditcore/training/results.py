"""What a training leaves behind. In: a task, its folder of checkpoints. Out: its record, its log, words on its rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from auditcore.training.checkpoint import read_record, recover
from auditcore.training.trainer import Task


def ended(task: Task, checkpoints: Path) -> dict[str, Any] | None:
    """The record of `last` where this very training has ended before; tidies up after a writer that was killed."""
    recover(checkpoints / "last")
    record = read_record(checkpoints / "last")
    if not record or record["key"] != task.key or record["step"] != task.total_steps:
        return None
    return record


def log_table(rows: list[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Table training_log from the rows of the log so far."""
    log = pd.DataFrame(rows).reindex(columns=list(columns))
    return log.astype({name: "int64" if name == "step" else "float64" for name in columns})


def row_notes(task: Task, unseen: str) -> list[str]:
    """Training rows that taught nothing. unseen: a sentence with {rows} for those the steps never reached."""
    notes = []
    silent = len(task.train) - len(task.learnt)
    if silent:
        notes.append(f"{silent:,} of {len(task.train):,} training rows have no token in the loss.")
    missed = len(task.train) - len(task.seen(task.total_steps))
    if missed:
        notes.append(unseen.format(rows=f"{missed:,} of {len(task.train):,}"))
    return notes
