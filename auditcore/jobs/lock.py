"""Declare and lock a choice. In: runs of checkpoints, a declaration. Out: records, and a job that reads the test rows.

The declaration is written first; then the rule chooses on bal_val, and that choice is locked; `jobs.reveal` may read
the test rows only afterwards.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore import decisions, records
from auditcore.errors import RunError
from auditcore.frontier import Declaration, Selection
from auditcore.jobs.sealed import mark_open, sealed_rows
from auditcore.store import Run, open_run


@dataclass(frozen=True)
class Locked:
    """What came of a declaration."""

    selection: Selection
    record: dict[str, Any] | None  # the lock; None: no checkpoint meets the budget, and bal_test stays sealed
    run: Run | None  # the run whose checkpoint was chosen


def lock(run: Run, declaration: Declaration, by: str, others: Sequence[Run] = ()) -> Locked:
    """Record a declaration, choose by it among the checkpoints of `run` and `others`, and lock the choice.

    A declaration that no checkpoint meets is recorded and locks nothing. Once locked, the same declaration gives the
    same lock; any other is recorded as made after the lock and refused (RunError): bal_test is read once, for one
    choice. Raises RunError for a run that still works, has no test rows, or was locked together with another.
    """
    runs = [run, *others]
    for one in runs:
        if not decisions.has_checkpoints(one):
            raise RunError(f"Run {one.id} has no measured checkpoint to choose.")
        if one.readonly:
            raise RunError(f"Run {one.id} is a shipped study; its choice was made when it was.")
    with run.lock():
        before = decisions.locked(run)
        if before is None:
            _require_ready(runs)
        seen = decisions.view(runs, declaration)
        content = {
            "declaration": declaration.record(),
            "with": sorted(one.id for one in others),
            "checkpoints": _hash(runs),
        }
        if before is not None:
            return _again(run, before, declaration, content, by)
        selection = seen.selection
        records.append(run, "declaration", by, **content, **_result(selection))
        if selection.chosen is None:
            return Locked(selection, None, None)
        content |= {"declared_in": run.id, **_result(selection)}
        for one in others:
            records.append(one, "lock", by, **content)
        record = records.append(run, "lock", by, **content)
        for one in runs:
            mark_open(one, record)
            one.update(locked={k: record[k] for k in ("number", "time", "by")} | record["content"])
    return Locked(selection, record, _chosen_run(runs, selection.chosen))


def _require_ready(runs: Sequence[Run]) -> None:
    for one in runs:
        if one.status != "done":
            raise RunError(
                f"Run {one.id} is {one.status}: a choice is locked when every checkpoint is measured, not before."
            )
        if decisions.locked(one) is not None:
            raise RunError(f"Run {one.id} is locked already; its checkpoints cannot be chosen from again.")
        if sealed_rows(one).empty:
            raise RunError(f"Run {one.id} has sealed no bal_test rows here; there is nothing to reveal.")


def _again(run: Run, before: dict[str, Any], declaration: Declaration, content: dict[str, Any], by: str) -> Locked:
    """The same declaration finds the lock that is there; another one is recorded, and changes nothing."""
    locked = before["content"]
    if locked["declaration"] == content["declaration"] and locked["with"] == content["with"]:
        selection = Selection(locked["chosen"], None, locked["candidates"], locked["qualified"], locked["unmeasured"])
        return Locked(selection, before, _chosen_run([run], locked["chosen"]))
    number = records.append(run, "declaration", by, **content, after_lock=before["number"])["number"]
    raise RunError(
        f"Run {run.id} was locked on {before['time']} by {before['by']} under another declaration. This one is on "
        f"record (number {number}) as made afterwards and changes nothing: the test rows are read once, for one choice."
    )


def _result(selection: Selection) -> dict[str, Any]:
    counts = {k: getattr(selection, k) for k in ("candidates", "qualified", "unmeasured")}
    return {"chosen": plain(selection.chosen), "nearest": plain(selection.nearest), **counts}


def plain(row: dict[Any, Any] | None) -> dict[str, Any] | None:
    """A row of a frame without what JSON does not know."""
    if row is None:
        return None
    simple = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
    return {k: None if v is pd.NA or (isinstance(v, float) and not np.isfinite(v)) else v for k, v in simple.items()}


def _hash(runs: Sequence[Run]) -> str:
    """SHA-256 of the tables the choice is made from."""
    digest = hashlib.sha256()
    for one in runs:
        digest.update((one.path / "checkpoints.parquet").read_bytes())
    return digest.hexdigest()


def _chosen_run(runs: Sequence[Run], chosen: dict[str, Any]) -> Run | None:
    return next((r for r in runs if r.id == chosen["run_id"]), None) or open_run(str(chosen["run_id"]))


def pending(run: Run) -> bool:
    """True when a checkpoint of this run was locked as the choice and its test rows were not read to the end."""
    record = decisions.locked(run)
    return record is not None and record["content"]["chosen"]["run_id"] == run.id and decisions.revealed(run) is None


def submit(run: Run) -> None:
    """Start a detached worker that reads the test rows of a locked run."""
    from auditcore.jobs.queue import again

    if not pending(run):
        raise RunError(f"Run {run.id} has nothing to reveal: it is not locked, or its test rows were read.")
    again(run)
