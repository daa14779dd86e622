"""What people declared, locked, voted and decided. In: a run and a record. Out: `records.jsonl`, only ever appended to.

Every record carries the hash of the one before it, so that a record that was changed or taken away later shows. A
change of mind is a new record, never an edit.
"""

import contextlib
import fcntl
import getpass
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from auditcore.disk import private
from auditcore.errors import RunError
from auditcore.store import Run, now

FILE = "records.jsonl"
KINDS = ("declaration", "lock", "reveal", "vote", "decision")


def append(run: Run, kind: str, by: str, **content: Any) -> dict[str, Any]:
    """Add a record and return it: number (from 1), time (UTC), kind, by, content, previous, hash.

    by: who says so, as they call themselves. Raises RunError for a shipped study, an unknown kind, an empty name, or
    when the records that are there were changed.
    """
    if kind not in KINDS:
        raise RunError(f"'{kind}' is not a kind of record.")
    who = " ".join(by.split())
    if not who:
        raise RunError("A record needs the name of who makes it.")
    if run.readonly:
        raise RunError(f"Run {run.id} is a shipped study; nothing can be recorded in it.")
    with _locked(run.path / FILE) as handle:
        known, problems = _parse(handle.read())
        if problems:
            raise RunError(f"Run {run.id}: {problems[0]} Nothing is added to records that cannot be trusted.")
        previous = known[-1]["hash"] if known else ""
        record = {"number": len(known) + 1, "time": now(), "kind": kind, "by": who, "content": content}
        record["previous"] = previous
        record["hash"] = _hash(record)
        handle.write(json.dumps(record, ensure_ascii=False) + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    return record


def read(run: Run, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the records of one kind, or all, oldest first; those that can be read even where `problems` finds some."""
    records, _ = _parse(_text(run))
    return [r for r in records if kind is None or r["kind"] == kind]


def latest(run: Run, kind: str) -> dict[str, Any] | None:
    """Return the newest record of a kind, or None."""
    found = read(run, kind)
    return found[-1] if found else None


def problems(run: Run) -> list[str]:
    """Say, one sentence each, where the records of a run are not as they were written; empty when all is well."""
    return _parse(_text(run))[1]


def me() -> str:
    """The name of whoever runs this process, for the command line's default."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return f"user {os.getuid()}"


def _text(run: Run) -> str:
    path = run.path / FILE
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _parse(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    found: list[dict[str, Any]] = []
    problems: list[str] = []
    previous = ""
    lines = text.removesuffix("\n").split("\n") if text else []  # not splitlines: a name may hold U+2028
    for number, line in enumerate(lines, 1):
        record = None
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(line)
        if not isinstance(record, dict) or not {"kind", "by", "time", "content", "hash"} <= record.keys():
            problems.append(f"Line {number} of {FILE} is not a record.")
            continue
        if record.get("previous") != previous or record["hash"] != _hash(record):
            problems.append(f"Record {number} of {FILE} was changed, or one before it was taken away.")
        previous = record["hash"]
        found.append(record)
    return found, problems


def _hash(record: dict[str, Any]) -> str:
    content = {k: v for k, v in record.items() if k != "hash"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """The file, opened at its beginning for reading and appending, by one process at a time."""
    with open(path, "a+", encoding="utf-8", opener=private) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        yield handle
