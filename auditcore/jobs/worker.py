"""Work on one run in this process. In: a run folder. Out: its tables, and a status that tells how it ended."""

import contextlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from auditcore import __version__, disk, store
from auditcore.errors import AuditError, Cancelled
from auditcore.jobs.context import Context
from auditcore.jobs.corpus import plain_data
from auditcore.jobs.queue import PID, turn
from auditcore.spec import parse_spec
from auditcore.store import Run

_PACKAGES = ("torch", "transformers", "peft", "scikit-learn", "numpy", "duckdb", "pandas")


def execute(run: Run, echo: Callable[[str], None] | None = None) -> None:
    """Run every stage that is not finished yet. Raises AuditError (the run says `failed`) or Cancelled."""
    from auditcore.jobs import adapters, finetune, lock, membership, reveal, surfacelora, sweep, vectors

    pipelines = {
        "membership": membership.audit,
        "vectors": vectors.audit,
        "finetune": finetune.train,
        "sweep": sweep.audit,
        "surfacelora": surfacelora.train,
        "frontier": adapters.audit,
    }
    with disk.all_private(), run.lock():
        (run.path / PID).write_text(str(os.getpid()))
        if run.status in ("failed", "cancelled"):  # while it waits for its turn it is listed, and can be cancelled
            run.update(status="queued", queued_at=time.time(), message="")
        try:
            spec = parse_spec(run.manifest["spec"], f"run {run.id}")
            context = Context(run, spec, echo)
            licensed = spec.data.clinical is not None  # no copy of such rows outside the run's folder
            with turn(context, echo), store.cache_in(run.path / "cache") if licensed else contextlib.nullcontext():
                threads = spec.threads or _cores()
                os.environ.setdefault("OMP_NUM_THREADS", str(threads))
                run.update(status="running", started=store.now(), versions=_versions(), message="", threads=threads)
                context.spec = plain_data(spec)
                # A choice is locked when its run is done: all that is left to do is to read the test rows.
                (reveal.work if lock.pending(run) else pipelines[spec.kind])(context)
                run.update(status="done", finished=store.now(), message="")
        except (Cancelled, KeyboardInterrupt):
            run.update(status="cancelled", finished=store.now(), message="Cancelled; what was finished is kept.")
            raise
        except AuditError as error:
            run.update(status="failed", finished=store.now(), message=str(error))
            raise
        except MemoryError:
            message = "Out of memory. A smaller batch_size or max_length needs less; finished stages are kept."
            run.update(status="failed", finished=store.now(), message=message)
            raise AuditError(message) from None
        except Exception as error:
            message = (
                f"Unexpected error: {type(error).__name__}: {str(error)[:300]}. Details: {run.path / 'worker.log'}"
            )
            with open(run.path / "worker.log", "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
            run.update(status="failed", finished=store.now(), message=message)
            raise AuditError(message) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _versions() -> dict[str, str]:
    found = {"auditcore": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def main() -> None:
    """Entry of the detached process; its only argument is the run folder."""
    try:
        execute(Run(Path(sys.argv[1])))
    except AuditError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
