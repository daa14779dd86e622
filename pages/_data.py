"""What the form knows about models and files. In: paths, uploads. Out: plain facts, cached until a file changes."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from auditcore import disk, store
from auditcore.errors import AuditError, DatasetError
from auditcore.spec import SHORT_NAMES
from pages import _uploads

ROOT = Path(__file__).resolve().parent.parent
BUNDLED_DATA = ROOT / "data" / "notes.parquet"
BUNDLED_MODEL = "smollm2-135m"
BUNDLED_TEMPLATE = "{prompt}\nBrief Hospital Course:"
SMALL = {"bal_train": 40, "bal_val": 12, "bal_test": 40}  # notes per category
UPLOAD_TYPES = ["csv", "tsv", "tab", "jsonl", "ndjson", "parquet", "pq", "gz"]
VECTOR_TYPES = ["parquet", "npy", "safetensors"]
UPLOAD_MB = 50


@dataclass(frozen=True)
class FileFacts:
    """What is known about a data file after reading all of it."""

    path: str
    version: str  # changes when the file does
    format: str
    n_rows: int
    n_bytes: int
    columns: dict[str, str]  # readable ones: name -> type
    guesses: dict[str, tuple[str, str]]  # role -> (column, reason)
    lists: tuple[str, ...] = ()  # columns of lists: conversations perhaps


def bundled_data() -> str | None:
    """Path of the bundled notes as a spec should name it, or None when they are missing."""
    if not BUNDLED_DATA.exists():
        return None
    return str(BUNDLED_DATA.relative_to(ROOT)) if Path.cwd() == ROOT else str(BUNDLED_DATA)


def is_bundled(path: str) -> bool:
    """True when `path` is the bundled data file or the small part of it."""
    return Path(path).absolute() in (BUNDLED_DATA, _small_path())


def small_part() -> str | None:
    """Path of a small part of the bundled notes, written once: for a try-out that takes minutes instead of hours."""
    path = _small_path()
    if not path.exists() and BUNDLED_DATA.exists():
        import pandas as pd

        notes = pd.read_parquet(BUNDLED_DATA)
        parts = [notes[notes["member"] == True].head(64), notes[notes["member"] == False].head(64)]  # noqa: E712
        for split, per_class in SMALL.items():
            rows = notes[notes["split"] == split].drop_duplicates("subject_id")
            parts.append(rows.groupby("recorded_race", sort=True).head(per_class))
        disk.write_parquet(path, pd.concat(parts))
    return str(path) if path.exists() else None


def _small_path() -> Path:
    return store.home() / "samples" / "notes-small.parquet"


def uploads(vectors: bool = False) -> dict[str, str]:
    """Files of rows (or of vectors) uploaded earlier: path -> words to show."""
    folder = _uploads.folder()
    files = sorted(folder.glob("*"), key=lambda p: p.stat().st_mtime, reverse=True) if folder.is_dir() else []
    names = _uploads.names()
    arrays = [f".{kind}" for kind in VECTOR_TYPES if kind not in UPLOAD_TYPES]
    kept = [p for p in files if not p.name.startswith(".")]
    kept = [p for p in kept if (_holds_vectors(p) if vectors else p.suffix not in arrays)]
    return {str(p): f"uploaded: {names.get(p.name, p.name)}" for p in kept[:20]}


def _holds_vectors(path: Path) -> bool:
    try:
        return path.suffix.lstrip(".") in VECTOR_TYPES and bool(vector_sets(str(path)))
    except AuditError:
        return False


def keep_upload(name: str, content: bytes, vectors: bool = False) -> str:
    """Store an uploaded file under a name made of its content's hash; the user's name never becomes a path.

    vectors: a file of vectors, not of rows. Raises DatasetError for a file that cannot be read, which is not kept then.
    """
    suffixes = Path(name.lower()).suffixes[-1 if vectors else -2 :]
    known = [s for s in suffixes if s.lstrip(".") in (VECTOR_TYPES if vectors else UPLOAD_TYPES)]
    if vectors and not known:
        raise DatasetError(f"{name}: upload vectors as a .parquet, .npy or .safetensors file.")
    if not known or known == [".gz"]:
        raise DatasetError(f"{name}: upload a .csv, .tsv, .jsonl or .parquet file; the text forms may be gzipped.")
    if len(content) > UPLOAD_MB * 1_000_000 * 1.05:
        raise DatasetError(f"{name}: larger than {UPLOAD_MB} MB; put it on this machine and name its path instead.")
    path = _uploads.folder() / (hashlib.sha256(content).hexdigest()[:24] + "".join(known))
    if not path.exists():
        with disk.atomic(path) as temporary:
            temporary.write_bytes(content)
        try:
            (vector_sets if vectors else file_facts)(str(path))
        except AuditError as error:
            path.unlink(missing_ok=True)
            raise DatasetError(f"{str(error).replace(str(path), name)} It was not kept.") from None
    _uploads.remember(path, name)
    return str(path)


def file_facts(path: str) -> FileFacts:
    """Read the whole file once and guess its roles. Raises DatasetError naming file, row and column."""
    return _file_facts(path, file_version(path))


def vector_sets(path: str) -> list[Any]:
    """What a file of vectors holds (`datasets.vector_files.Vectors`), from its header. Raises DatasetError."""
    return _vector_sets(path, file_version(path))


@st.cache_data(show_spinner=False, max_entries=20)
def _vector_sets(path: str, version: str) -> list[Any]:
    from auditcore.datasets.vector_files import list_vectors

    found = list_vectors(path)
    if not found:
        raise DatasetError(f"{path}: holds no column of lists of numbers.")
    return found


def file_version(path: str) -> str:
    """A key that changes when the file does."""
    try:
        stat = Path(path).stat()
    except OSError:
        return "absent"
    return f"{stat.st_size}:{stat.st_mtime_ns}"


@st.cache_data(show_spinner="Reading the file ...", max_entries=20)
def _file_facts(path: str, version: str) -> FileFacts:
    from auditcore.datasets.guess import guess_roles
    from auditcore.datasets.tables import open_table

    table = open_table(path)
    columns = {name: table.columns[name] for name in table.readable}
    guesses = {role: (guess.column, guess.reason) for role, guess in guess_roles(table).items()}
    lists = tuple(name for name, kind in table.columns.items() if kind == "LIST")
    return FileFacts(path, version, table.format, table.n_rows, Path(path).stat().st_size, columns, guesses, lists)


@st.cache_data(show_spinner=False, max_entries=20)
def first_rows(path: str, version: str, columns: tuple[str, ...], n: int = 3) -> Any:
    """The first rows as text, each cut to what fits a table cell."""
    from auditcore.datasets.tables import open_table, read_table

    frame = read_table(open_table(path), list(columns), limit=n, lists=columns)
    return frame.map(lambda v: v if not isinstance(v, str) or len(v) <= 240 else v[:240] + "…")


def recognised(source: str, base: str | None = None) -> tuple[str, str]:
    """Say what a model source is, without reading weights: (kind of notice, words)."""
    from auditcore.lm.sources import resolve

    try:
        found = resolve(source, base)
    except AuditError as error:
        return "error", str(error)
    if found.kind == "short":
        there = found.path is not None and found.path.exists()
        return "good", SHORT_NAMES[source] + ("." if there else "; it is fetched once, when it is first used.")
    if found.kind == "adapter":
        return "good", f"Adapter folder; its base is {found.base}."
    if found.kind == "gguf":
        return "good", "GGUF file; it is converted to safetensors once, in the cache."
    if found.kind == "hub":
        return "info", "No local file of this name: taken as a model hub id, fetched from the hub unless it is cached."
    return "good", "Local folder with safetensors weights."


def checkpoints() -> dict[str, tuple[str, str]]:
    """Checkpoints of finished fine-tuning runs: path -> (words to show, the model they started from)."""
    runs = store.list_runs()
    found = {}
    for row in runs[(runs["kind"] == "finetune") & (runs["status"] == "done")].itertuples():
        for which in ("last", "best"):
            folder = Path(str(row.path)) / "checkpoints" / which
            if folder.is_dir():
                found[str(folder)] = (f"{row.name}, {which} checkpoint", str(row.model))
    return found


def finetune_of(checkpoint: str) -> dict[str, Any] | None:
    """The spec of the fine-tuning run that made a checkpoint, or None when it is not one of ours."""
    folder = Path(checkpoint).absolute().parent.parent
    try:
        spec = store.Run(folder).manifest["spec"]
    except (AuditError, KeyError, TypeError):
        return None
    return spec if spec.get("kind") == "finetune" else None
