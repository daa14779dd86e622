"""One heavy job at a time. In: a spec or a run. Out: a run folder with a worker process that waits for its turn.

A worker holds its run's lock from the moment it starts to wait, and the heavy lock while it works; both vanish with
the process, however it ends.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from auditcore import disk, store
from auditcore.errors import ModelError, RunError
from auditcore.jobs.context import CANCEL, Context
from auditcore.jobs.corpus import plain_data
from auditcore.spec import AnySpec, dump_spec, parse_spec
from auditcore.store import ACTIVE, Run

PID = "worker.pid"


def submit(spec: AnySpec, out: Path | None = None) -> Run:
    """Write a run folder and start a detached worker for it. Returns at once."""
    run = store.create_run(dump_spec(spec), out, directory=os.getcwd())
    _spawn(run)
    return run


def resume(run: Run) -> None:
    """Continue an interrupted, failed or cancelled run in a new worker. Raises RunError when it is done or working."""
    prepare_resume(run)
    again(run)


def again(run: Run) -> None:
    """Start a worker for a run that is there: it continues with whatever is not finished."""
    run.update(status="queued", queued_at=time.time())
    _spawn(run)


def prepare_resume(run: Run) -> None:
    """Check that a run can be continued; clear its cancel signal and what a kill left half-written."""
    status = run.status
    if run.alive:
        raise RunError(f"Run {run.id} is already being worked on.")
    if status == "done":
        raise RunError(f"Run {run.id} is finished; there is nothing to resume.")
    (run.path / CANCEL).unlink(missing_ok=True)
    for half in run.path.glob(".*.tmp"):
        half.unlink(missing_ok=True)
    run.update(message="")


def require_unchanged(run: Run, only: tuple[str, ...] = ("data", "vectors", "model", "reference")) -> None:
    """Raise RunError when the rows, vectors or models at a finished run's paths are not those it measured.

    A gate that is asked again must not answer for another checkpoint. What is gone cannot be compared.
    """
    from auditcore.datasets.scan import sha256
    from auditcore.lm.sources import fingerprint

    spec, known = parse_spec(run.manifest["spec"], f"run {run.id}"), run.manifest.get("fingerprints", {})
    files = {"data": plain_data(spec).data.path, "vectors": getattr(getattr(spec, "vectors", None), "path", None)}
    now = {what: sha256(Path(path)) for what, path in files.items() if path and Path(path).is_file()}
    models = (
        {"model": (spec.model.source, spec.model.base), "reference": (spec.model.reference, None)} if spec.model else {}
    )
    for what, (source, base) in models.items():
        with contextlib.suppress(ModelError):
            now |= {what: fingerprint(source, base)} if source else {}
    changed = [what for what, print in now.items() if what in only and known.get(what, print) != print]
    if changed:
        raise RunError(f"Run {run.id}: {' and '.join(changed)} changed since it was finished; start a new run.")


def cancel(run: Run, patience: float = 10.0) -> None:
    """Ask the worker to stop; after `patience` seconds end its process. Finished stages stay."""
    if run.status not in ACTIVE:
        raise RunError(f"Run {run.id} is {run.status}; there is nothing to cancel.")
    (run.path / CANCEL).touch(0o600)
    deadline = time.monotonic() + patience
    while run.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    if run.alive:
        # The lock proves that the process which wrote this number is still there.
        with contextlib.suppress(OSError, ValueError):
            _end(int((run.path / PID).read_text()))
        while run.alive and time.monotonic() < deadline + 10:
            time.sleep(0.1)
    if run.status not in ("done", "failed", "cancelled"):
        run.update(status="cancelled", finished=store.now(), message="Cancelled; what was finished is kept.")


def _end(worker: int) -> None:
    """End a worker with the processes it started; one that runs in a script's process group alone, not the script."""
    if os.getpgid(worker) == worker:
        os.killpg(worker, signal.SIGKILL)
    else:
        os.kill(worker, signal.SIGKILL)


def queue() -> pd.DataFrame:
    """Queued and running runs, oldest first: run_id, name, kind, status, created."""
    runs = store.list_runs()
    active = runs[runs["status"].isin(ACTIVE)]
    since = [float(Run(Path(p)).manifest.get("queued_at", 0)) for p in active["path"]]
    active = active.assign(queued_at=since).sort_values(["queued_at", "run_id"], ignore_index=True)
    return active[["run_id", "name", "kind", "status", "created", "queued_at"]]


@contextlib.contextmanager
def turn(context: Context, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the one place for heavy work, first come, first served; cancel works while waiting."""
    path = store.home() / ".heavy.lock"
    disk.make_private(path.parent)
    said = ""
    with open(path, "ab", opener=disk.private) as handle:
        while True:
            context.check_cancelled()
            ahead = _ahead_of(context.run)
            if not ahead:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
            words = f"waiting for {ahead[0]}" if ahead else "waiting for another job to end"
            if waiting and words != said:
                waiting(words)
                said = words
            time.sleep(0.5)
        yield


def _ahead_of(run: Run) -> list[str]:
    mine = (float(run.manifest.get("queued_at", 0)), run.id)
    active = queue()
    return [i for since, i in zip(active["queued_at"], active["run_id"], strict=True) if (since, i) < mine]


def _spawn(run: Run) -> None:
    log = open(run.path / "worker.log", "ab", opener=disk.private)  # noqa: SIM115 - the child inherits it
    with log:
        worker = subprocess.Popen(
            [sys.executable, "-c", "from auditcore.jobs.worker import main; main()", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=run.manifest.get("directory") or None,
            env={**os.environ, "PYTHONPATH": _pythonpath(), "AUDIT_HOME": str(store.home())},
            start_new_session=True,  # outlives the server; cancel ends the whole group
        )
    # Somebody has to collect the exit status, or the finished worker stays in the process table.
    threading.Thread(target=worker.wait, daemon=True).start()


def _pythonpath() -> str:
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
