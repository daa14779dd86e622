"""One job while it works: a run folder in; progress events, warnings, finished stages and a cancel signal out."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from auditcore.errors import Cancelled, RunError
from auditcore.spec import AnySpec
from auditcore.store import Run
from auditcore.words import duration

CANCEL = "cancel"
OnProgress = Callable[[int, int], None]


class Context:
    """What the steps of one job share. Not for other threads."""

    def __init__(self, run: Run, spec: AnySpec, echo: Callable[[str], None] | None = None):
        self.run = run
        self.spec = spec
        self._echo = echo
        self._last_event = 0.0

    # --- stages ---

    def finished(self, stage: str) -> bool:
        """True when an earlier attempt finished this stage: its tables are there, whole."""
        return stage in self.run.manifest.get("finished_stages", [])

    @contextmanager
    def stage(self, name: str, total: int = 1) -> Iterator[OnProgress]:
        """Announce a stage; yield `on_progress(done, total)`; mark the stage finished at the end.

        The caller writes the stage's tables inside the block, so a stage marked as finished has all of them.
        """
        self.check_cancelled()
        started = time.monotonic()
        first: list[tuple[int, float]] = []

        def on_progress(done: int, total: int) -> None:
            self.check_cancelled()
            clock = time.monotonic()
            if not first:
                first.append((done, clock))  # the first step pays for warming up: time left is counted from there
            if clock - self._last_event < 0.5 and done < total:
                return
            self._last_event = clock
            begun, since = first[0]
            rate = (done - begun) / (clock - since) if done > begun and clock > since else 0.0
            eta = (total - done) / rate if rate else None
            self.run.event(name, done, total, None if eta is None else round(eta, 1))
            if self._echo:
                left = "" if eta is None or done >= total else f", about {duration(eta)} left"
                self._echo(f"{name}: {done:,} of {total:,}{left}")

        self.run.event(name, 0, total)
        if self._echo:
            self._echo(f"{name} ...")
        yield on_progress
        self.check_cancelled()
        self.run.update(finished_stages=[*self.run.manifest.get("finished_stages", []), name])
        seconds = time.monotonic() - started
        self.run.event(name, total, total, 0.0, f"done in {duration(seconds)}")

    @contextmanager
    def again(self, name: str, total: int = 1) -> Iterator[OnProgress]:
        """The same for a stage whose results lie in the cache: silent when an earlier attempt finished it."""
        if self.finished(name):
            yield lambda done, total: self.check_cancelled()
        else:
            with self.stage(name, total) as on_progress:
                yield on_progress

    def check_cancelled(self) -> None:
        """Raise Cancelled when somebody asked this run to stop."""
        if (self.run.path / CANCEL).exists():
            raise Cancelled(f"Run {self.run.id} was cancelled; what was finished is kept.")

    # --- what a reader must know ---

    def warn(self, text: str) -> None:
        """Record a warning that every page, the command line and the report show prominently."""
        warnings = self.run.manifest.get("warnings", [])
        if text not in warnings:
            self.run.update(warnings=[*warnings, text])
            if self._echo:
                self._echo(f"Warning: {text}")

    def note(self, text: str) -> None:
        """Record something counted, shown beside the data's own notes."""
        notes = self.run.manifest.get("data", {}).get("notes", [])
        if text not in notes:
            self.record(data={"notes": [*notes, text]})

    def fingerprint(self, stage: str, **prints: str) -> None:
        """Record fingerprints of what `stage` reads. Raises RunError when it was finished with something else.

        Without that a resumed run would put the numbers of two models into one set of tables.
        """
        known = self.run.manifest.get("fingerprints", {})
        changed = [what for what, print in prints.items() if known.get(what, print) != print]
        if changed and self.finished(stage):
            raise RunError(f"Run {self.run.id}: {' and '.join(changed)} changed since this run began; start a new run.")
        self.record(fingerprints=prints)

    def record(self, **values: Any) -> None:
        """Merge facts into run.json; nested mappings are merged one level deep."""
        manifest = self.run.manifest
        merged = {k: {**manifest.get(k, {}), **v} if isinstance(v, dict) else v for k, v in values.items()}
        self.run.update(**merged)


def shifted(on_progress: OnProgress, start: int, total: int) -> OnProgress:
    """Report a part of a stage as a part of the whole."""
    return lambda done, _: on_progress(start + done, total)
