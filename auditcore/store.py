"""Run folders: JSON manifests and Parquet tables in, DataFrames out. Knows tables, not what they mean.

A run is alive while its worker holds a lock (flock) on the folder; a table is there whole or not at all. Reading goes
through an in-memory DuckDB per call, so no database lock can stop a page while a worker writes.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pandas as pd

from auditcore.disk import make_private, private, write_json, write_parquet
from auditcore.errors import RunError, did_you_mean

_TABLE = re.compile(r"[a-z][a-z0-9_]*")
MANIFEST, EVENTS, LOCK = "run.json", "events.jsonl", ".lock"
ACTIVE = ("queued", "running")
STARTING = 20.0  # seconds a queued run may be without a worker before it counts as interrupted


def home() -> Path:
    """Folder of the user's runs: AUDIT_HOME, or ./runs."""
    return Path(os.environ.get("AUDIT_HOME", "runs")).absolute()


def studies() -> Path:
    """Folder of the finished runs that ship with the product; read-only."""
    return Path(__file__).resolve().parent.parent / "data" / "studies"


_CACHE: ContextVar[Path | None] = ContextVar("cache", default=None)


def cache() -> Path:
    """Folder of the content-keyed stage cache."""
    return _CACHE.get() or home() / "cache"


@contextlib.contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Keep the stage cache of what runs inside in this folder: for rows that may not leave a run's own."""
    before = _CACHE.set(folder)
    try:
        yield
    finally:
        _CACHE.reset(before)


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """One in-memory database per process. Opening one takes 25 ms, a cursor of it none; threads take a cursor each."""
    connection = duckdb.connect(":memory:")
    connection.execute("set enable_external_file_cache = false")  # a replaced table must never be read from memory
    return connection


class Run:
    """One run folder. Reading never needs the lock; writing is the worker's."""

    def __init__(self, path: Path):
        self.path = path
        self.id = path.name
        self.readonly = studies() in path.parents

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # --- manifest and status ---

    @property
    def manifest(self) -> dict[str, Any]:
        """Content of run.json. Raises RunError when it is missing or broken."""
        try:
            content = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: not a run folder ({MANIFEST} is missing).") from None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise RunError(f"{self.path / MANIFEST}: cannot be read ({error}).") from None
        spec = content.get("spec") if isinstance(content, dict) else None
        if not isinstance(spec, dict) or "kind" not in spec:
            raise RunError(f"{self.path / MANIFEST}: does not say what was audited (no spec with a kind).")
        return content

    def update(self, **values: Any) -> None:
        """Merge values into run.json."""
        self._writable()
        write_json(self.path / MANIFEST, {**self.manifest, **values})

    @property
    def kind(self) -> str:
        """membership, vectors or finetune."""
        return str(self.manifest["spec"]["kind"])

    @property
    def status(self) -> str:
        """done, failed, cancelled, queued, running, or interrupted: said to be at work, but nobody holds the lock."""
        manifest = self.manifest
        status = str(manifest.get("status", "interrupted"))
        if status not in ACTIVE or self.alive:
            return status
        # A worker needs a moment to start and take the lock.
        fresh = status == "queued" and time.time() - float(manifest.get("queued_at", 0)) < STARTING
        return "queued" if fresh else "interrupted"

    @property
    def alive(self) -> bool:
        """True while a worker holds the folder's lock; a process number proves nothing."""
        if self.readonly or not (self.path / LOCK).exists():
            return False
        with open(self.path / LOCK, "rb") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one worker. Raises RunError when another worker has it."""
        self._writable()
        with open(self.path / LOCK, "ab", opener=private) as handle:
            deadline = time.monotonic() + 2.0  # a reader's check holds a shared lock for an instant
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise RunError(f"Run {self.id} is being worked on by another process.") from None
                    time.sleep(0.05)
            yield

    # --- tables ---

    def tables(self) -> list[str]:
        """Names of the tables that are there."""
        return sorted(p.stem for p in self.path.glob("*.parquet") if _TABLE.fullmatch(p.stem))

    def has(self, table: str) -> bool:
        """True when the table is there."""
        return (self.path / f"{table}.parquet").exists()

    def write(self, table: str, frame: pd.DataFrame) -> None:
        """Write a table atomically."""
        self._writable()
        if not _TABLE.fullmatch(table):
            raise RunError(f"'{table}' is not a table name.")
        write_parquet(self.path / f"{table}.parquet", frame)

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str = "",
        params: Sequence[Any] = (),
        order_by: str = "",
        limit: int | None = None,
        offset: int = 0,
    ) -> pd.DataFrame:
        """Read (part of) a table. `where` and `order_by` are code, never user text; values go into `params`."""
        if not self.has(table):
            raise RunError(f"Run {self.id} has no table '{table}'.{did_you_mean(table, self.tables())}")
        # Label columns carry the names the user's file gives them, quotes included.
        chosen = ", ".join('"' + c.replace('"', '""') + '"' for c in columns) if columns else "*"
        query = f'select {chosen} from "{table}"'
        query += f" where {where}" if where else ""
        query += f" order by {order_by}" if order_by else ""
        query += f" limit {int(limit)} offset {int(offset)}" if limit is not None else ""
        return self.sql(query, params, tables=[table])

    def sql(self, query: str, params: Sequence[Any] = (), tables: Sequence[str] | None = None) -> pd.DataFrame:
        """Run one read-only query in which every table of the run is a view of its own name."""
        # Views are temporary: they belong to this cursor, so that two runs read at once never see each other's.
        with _database().cursor() as cursor:
            try:
                for table in tables if tables is not None else self.tables():
                    path = str(self.path / f"{table}.parquet").replace("'", "''")
                    cursor.execute(f"create temp view \"{table}\" as select * from read_parquet('{path}')")
                return cursor.execute(query, list(params)).df()
            except duckdb.Error as error:
                raise RunError(f"Run {self.id}: a table cannot be read ({error}).") from None

    def version(self, table: str) -> str:
        """A short key that changes when the table does; for page caches."""
        path = self.path / f"{table}.parquet"
        if not path.exists():
            return "absent"
        stat = path.stat()
        return f"{path}:{stat.st_size}:{stat.st_mtime_ns}"

    def vectors_path(self, artifact: str, layer: int) -> Path:
        """File of one artifact's vectors. An artifact may be named by the user's file: it never becomes a path."""
        name = quote(artifact, safe="")
        if len(name) > 150:  # file systems take 255 bytes
            name = hashlib.sha256(artifact.encode()).hexdigest()[:24]
        return self.path / "vectors" / f"{name}-layer{layer}.safetensors"

    # --- progress ---

    def event(self, stage: str, done: int, total: int, eta: float | None = None, message: str = "") -> None:
        """Append one progress event: counts, seconds left, words."""
        line = {"time": now(), "stage": stage, "done": done, "total": total, "eta": eta, "message": message}
        with open(self.path / EVENTS, "a", encoding="utf-8", opener=private) as handle:
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")

    def progress(self) -> list[dict[str, Any]]:
        """The latest event of each stage, in the order the stages began."""
        latest: dict[str, dict[str, Any]] = {}
        path = self.path / EVENTS
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):  # a last line cut by kill -9
                    event = json.loads(line)
                    latest[event["stage"]] = event
        return list(latest.values())

    def size(self) -> int:
        """Bytes on disk."""
        return sum(p.stat().st_size for p in self.path.rglob("*") if p.is_file())

    def delete(self) -> None:
        """Remove the folder. Raises RunError for a shipped study or a run that is being worked on."""
        self._writable()
        if self.alive:
            raise RunError(f"Run {self.id} is working; cancel it before deleting it.")
        # Renamed first: a listing never meets half a folder.
        grave = self.path.with_name(f".deleted-{self.id}-{secrets.token_hex(3)}")
        os.rename(self.path, grave)
        shutil.rmtree(grave, ignore_errors=True)

    def _writable(self) -> None:
        if self.readonly:
            raise RunError(f"Run {self.id} is a shipped study and cannot be changed.")


def enter_ledger(path: Path, key: str, run_id: str) -> int:
    """Append one look at a test set (by its hash) and return how many other runs looked at it before."""
    make_private(path.parent)
    with open(path, "a+", encoding="utf-8", opener=private) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        seen = {line.get("run") for line in map(_parsed, handle) if line.get("key") == key}
        if run_id not in seen:
            handle.write(json.dumps({"time": now(), "key": key, "run": run_id}) + "\n")
    return len(seen - {run_id})


def _parsed(line: str) -> dict[str, Any]:
    with contextlib.suppress(json.JSONDecodeError):
        value = json.loads(line)
        return value if isinstance(value, dict) else {}
    return {}


def now() -> str:
    """Current time, UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def create_run(spec: dict[str, Any], out: Path | None = None, **manifest: Any) -> Run:
    """Make a run folder and its manifest (status `queued`). Raises RunError when `out` is already a run."""
    if out is None:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(spec.get("name") or spec["kind"])).strip("-.")[:60] or spec["kind"]
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        out = home() / f"{name}-{stamp}-{secrets.token_hex(2)}"
    out = Path(out).absolute()
    if (out / MANIFEST).exists():
        raise RunError(f"{out}: already holds a run; choose another folder, or continue it with --resume.")
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out}: is not empty and holds no run; choose another folder.")
    run = Run(make_private(out))
    (out / LOCK).touch(0o600)
    content = {"id": run.id, "spec": spec, "status": "queued", "created": now(), "queued_at": time.time()}
    content |= {"finished": None, "message": ""}
    write_json(out / MANIFEST, {**content, **manifest})
    return run


def open_run(run: str | Path) -> Run:
    """Find a run by id (AUDIT_HOME first, then the shipped studies) or by path. Raises RunError with a suggestion."""
    text = str(run)
    # An id is one path component: a deep link or a form never walks out of the folder.
    if text and text not in (".", "..") and "/" not in text and os.sep not in text:
        for parent in (home(), studies()):
            if (parent / text / MANIFEST).exists():
                return Run(parent / text)
    path = Path(text).absolute()
    if (path / MANIFEST).exists():
        return Run(path)
    known = [r.id for r in _all_runs()]
    raise RunError(f"There is no run '{text}'.{did_you_mean(text, known) if known else ''}")


def open_by_id(run_id: str) -> Run:
    """Like open_run, but an id only: what a URL may name."""
    if not run_id or run_id in (".", "..") or "/" in run_id or os.sep in run_id or "\0" in run_id:
        raise RunError(f"'{run_id}' is not the name of a run.")
    return open_run(run_id)


def list_runs() -> pd.DataFrame:
    """All runs, newest first, shipped studies last.

    Columns: run_id, name, kind, status, created, finished, model, data, message, readonly, path.
    """
    rows = []
    for run in _all_runs():
        try:
            manifest, status = run.manifest, run.status
            spec = manifest["spec"]
            model = spec.get("model") or {}
            source = model.get("source") or (spec.get("vectors") or {}).get("path") or ""
            source = source or (spec.get("checkpoints") or {}).get("base") or ""
            row = {
                "run_id": run.id,
                "name": spec.get("name") or run.id,
                "kind": spec["kind"],
                "status": status,
                "created": manifest.get("created"),
                "finished": manifest.get("finished"),
                "model": source,
                "data": spec["data"]["path"],
                "message": manifest.get("message", ""),
            }
        except (RunError, KeyError, TypeError, AttributeError) as error:
            row = {"run_id": run.id, "name": run.id, "kind": "unknown", "status": "broken", "message": str(error)}
        rows.append({**row, "readonly": run.readonly, "path": str(run.path)})
    columns = [
        "run_id",
        "name",
        "kind",
        "status",
        "created",
        "finished",
        "model",
        "data",
        "message",
        "readonly",
        "path",
    ]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.assign(created=["" if pd.isna(c) else str(c) for c in frame["created"]])
    return frame.sort_values(["readonly", "created"], ascending=[True, False], kind="stable", ignore_index=True)


def _all_runs() -> list[Run]:
    """One run per id: a copy of a shipped study among one's own runs stands in its place, as `open_run` finds it."""
    found: dict[str, Run] = {}
    for parent in (home(), studies()):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            if not path.name.startswith(".") and (path / MANIFEST).exists():
                found.setdefault(path.name, Run(path))
    return list(found.values())
