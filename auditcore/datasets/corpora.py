"""Public corpora as they lie on a disk. In: a file, a folder or a hub id. Out: documents, in the order of the source.

Nothing is fetched unless the caller says so.
"""

import hashlib
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from auditcore.datasets import scan
from auditcore.datasets.sequences import Document
from auditcore.datasets.tables import SUFFIXES, Table, must_exist, open_table, read_table
from auditcore.errors import DatasetError, did_you_mean

HUB = "hub:"
LINES = (".txt", ".text", ".tokens", ".raw")
CODE = tuple(
    f".{name}"
    for name in (
        *("c", "cc", "cpp", "cs", "css", "go", "h", "hpp", "html", "java", "jl", "js", "kt", "lua", "m", "php", "pl"),
        *("py", "r", "rb", "rs", "scala", "sh", "sql", "swift", "ts", "tsx", "vue"),
    )
)
_HEADING = re.compile(r"\s*= (?![= ]).*(?<![= ]) =\s*")
_ENTITY = re.compile(r"(?:^| )(#\d{2,5}|quot|amp|lt|gt|nbsp);")  # in AG News a blank stands for the ampersand


@dataclass(frozen=True)
class Corpus:
    """How one corpus is read. columns: the first choice that a table has; names: columns that name a row."""

    title: str
    columns: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    sequences: str  # what the paper's code does with it, except that no document is shared between sides
    lines: bool = True  # in a text file every line is a row; else the file is one document


CORPORA = {
    "ag_news": Corpus("AG News", (("text",), ("title", "description")), ("id",), "joined"),
    "xsum": Corpus("XSum", (("document",), ("text",), ("article",)), ("id",), "joined"),
    "wikitext": Corpus("WikiText", (("text",), ("page",)), (), "cut"),
    "code": Corpus("code", (("code",), ("content",), ("text",), ("whole_func_string",)), ("id",), "last", False),
}


@dataclass(frozen=True)
class Read:
    """Documents of a corpus, the hash of the files they come from, and what was counted on the way."""

    documents: list[Document]
    sha256: str
    notes: list[str]


def files_of(path: str, split: str | None, *, download: bool = False) -> list[Path]:
    """The files that `path` means: itself, those of a folder (sorted), or those of a hub data set kept on this machine.

    split: only files whose name holds this word. Raises DatasetError when there are none, or when a hub id is not here
    and `download` does not allow to fetch it.
    """
    if path.startswith(HUB):
        return _in_folder(_hub_folder(path.removeprefix(HUB), download), split)
    place = Path(path).expanduser()
    if place.is_dir():
        return _in_folder(place, split)
    must_exist(place)
    return [place]


def sha256_of(files: Sequence[Path]) -> str:
    """One hash over the content of all files; of a single one, its own."""
    prints = [scan.sha256(file) for file in files]
    return prints[0] if len(prints) == 1 else hashlib.sha256("\n".join(prints).encode()).hexdigest()


def read_documents(
    name: str, files: Sequence[Path], *, format: str = "auto", clean: bool = False, max_rows: int | None = None
) -> Read:
    """Read a corpus. max_rows: the first rows (lines, files) only.

    Raises DatasetError naming file, column or row.
    """
    corpus, notes = CORPORA[name], []
    rows: list[Document] = []
    skipped = 0
    for number, file in enumerate(files, 1):
        if max_rows is not None and len(rows) >= max_rows:
            notes.append(f"Only the first {max_rows:,} rows are used (max_rows).")
            break
        left = None if max_rows is None else max_rows - len(rows)
        prefix = f"{number}-" if len(files) > 1 else ""
        if format == "auto" and _is_text(file):
            text = _text(file, refuse=len(files) == 1)
            skipped += text is None
            found = (
                _lines(text or "", prefix) if corpus.lines else [Document(f"{prefix}{file.name}", text)] if text else []
            )
        else:
            found = _table(corpus, open_table(file, format), prefix, left)
        rows += found[:left]
    if skipped:
        notes.append(f"{skipped:,} of {len(files):,} files are empty or not UTF-8 text and were left out.")
    if clean and name == "ag_news":
        cleaned = [Document(row.id, unescaped(row.text)) for row in rows]
        changed = sum(a.text != b.text for a, b in zip(rows, cleaned, strict=True))
        notes.append(f"HTML entities or backslashes were undone in {changed:,} of {len(rows):,} texts.")
        rows = cleaned
    if name == "wikitext":
        rows, found_headings = articles(rows)
        if not found_headings:
            notes.append('No article headings (" = Title = ") were found: every line counts as a document.')
    return Read(rows, sha256_of(files), notes)


def unescaped(text: str) -> str:
    """AG News as it was meant: " #39;" and "&lt;" turned into characters, backslashes into the line break they were.

    A line break becomes a blank; a backslash before a dollar sign goes.
    """
    text = html.unescape(_ENTITY.sub(r"&\1;", text))
    return re.sub(r"\\+", " ", re.sub(r"\\+(?=\$)", "", text))


def articles(lines: Sequence[Document]) -> tuple[list[Document], bool]:
    """Join the lines of WikiText into articles, at headings of the first level (" = Title = ") after a blank line.

    Blank lines are what HF's files keep and what a plain text file has. Without any heading every line is a document.
    """
    blank = any(not line.text.strip() for line in lines)
    starts = [
        i
        for i, line in enumerate(lines)
        if _HEADING.fullmatch(line.text) and (not blank or i == 0 or not lines[i - 1].text.strip())
    ]
    if not starts:
        return list(lines), False
    bounds = [0, *starts] if starts[0] else starts
    made = []
    for start, end in zip(bounds, [*bounds[1:], len(lines)], strict=True):
        text = "\n".join(line.text.rstrip("\n") for line in lines[start:end])
        made.append(Document(f"{lines[start].id}", text))
    return made, True


def _is_text(file: Path) -> bool:
    name = file.name.lower().removesuffix(".gz")
    return Path(name).suffix in (*LINES, *CODE)


def _text(file: Path, *, refuse: bool) -> str | None:
    """A text file as one string; None where it is empty or not UTF-8 text and others are there to read."""
    must_exist(file)
    try:
        scan.check_lines(file)
        return b"".join(scan.blocks(file)).decode("utf-8")
    except DatasetError:
        if refuse:
            raise
        return None


def _lines(text: str, prefix: str) -> list[Document]:
    return [Document(f"{prefix}{k}", line) for k, line in enumerate(text.split("\n"), 1)]


def _table(corpus: Corpus, table: Table, prefix: str, limit: int | None) -> list[Document]:
    folded = {name.strip().lower().replace(" ", "_"): name for name in table.columns}
    wanted = next((choice for choice in corpus.columns if all(c in folded for c in choice)), None)
    if wanted is None:
        return _without_header(corpus, table, prefix, limit)
    columns = [folded[name] for name in wanted]
    named = [folded[name] for name in corpus.names if name in folded and folded[name] not in columns]
    frame = read_table(table, [*columns, *named], limit=limit)
    names = frame[named[0]] if named and frame[named[0]].notna().all() else None
    return _documents(frame, columns, prefix, names if names is not None and names.is_unique else None)


def _documents(frame: pd.DataFrame, columns: list[str], prefix: str, names: pd.Series | None) -> list[Document]:
    texts = frame[columns[0]].fillna("")
    for column in columns[1:]:
        texts = texts + " " + frame[column].fillna("")
    ids: Sequence[object] = range(1, len(frame) + 1) if names is None else names.tolist()
    return [Document(f"{prefix}{i}", text) for i, text in zip(ids, texts.tolist(), strict=True)]


def _without_header(corpus: Corpus, table: Table, prefix: str, limit: int | None) -> list[Document]:
    """AG News was first published as class, title, description without a line of names: the first row is data."""
    first = list(table.columns)
    if corpus.title == "AG News" and len(first) == 3 and first[0].strip() in ("1", "2", "3", "4"):
        frame = read_table(table, first, limit=None if limit is None else limit - 1)
        whole = pd.concat([pd.DataFrame([first], columns=frame.columns), frame], ignore_index=True)
        return _documents(whole, first[1:], prefix, None)
    choices = " or ".join(" and ".join(f"'{c}'" for c in choice) for choice in corpus.columns)
    hint = did_you_mean(corpus.columns[0][0], table.columns)
    raise DatasetError(f"{table.path}: {corpus.title} is read from the column {choices}; the file has none.{hint}")


# --- folders and hub ids ---


def _in_folder(folder: Path, split: str | None) -> list[Path]:
    """Tables of a folder, else its text files; hidden ones are left alone."""
    inside = [f for f in sorted(folder.rglob("*")) if f.is_file() and not _hidden(f.relative_to(folder))]
    tables = [f for f in inside if Path(f.name.lower().removesuffix(".gz")).suffix in SUFFIXES]
    found = tables or [f for f in inside if _is_text(f)]
    if split is not None:
        found = [f for f in found if split.lower() in str(f.relative_to(folder)).lower()]
    if not found:
        which = "" if split is None else f" whose name holds '{split}' (corpus.split)"
        known = ", ".join([*SUFFIXES, *LINES])
        raise DatasetError(f"{folder}: no data file{which} in it; {known} and source files are read.")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _hub_folder(name: str, download: bool) -> Path:
    """Folder of a hub data set (owner/name, or owner/name/subfolder) in the hub's own cache."""
    parts = name.strip("/").split("/")
    if len(parts) < 2 or not all(re.fullmatch(r"[\w][\w.-]*", part) for part in parts):
        raise DatasetError(f"{HUB}{name}: write it as {HUB}owner/name, or {HUB}owner/name/subfolder.")
    repo, inside = "/".join(parts[:2]), "/".join(parts[2:])
    way_out = (
        f"Fetch it once where a network is (hf download {repo} --repo-type dataset, or python -m auditcore import with "
        "--download), or name a file of it."
    )
    fetch = _snapshot_download()
    if fetch is None:
        raise DatasetError(f"{HUB}{name}: the package huggingface_hub, which reads hub ids, is not here. {way_out}")
    patterns = [f"{inside}/*" if inside else "*"]
    patterns = [f"{pattern}{suffix}" for pattern in patterns for suffix in (*SUFFIXES, ".gz", *LINES)]
    try:
        folder = Path(fetch(repo, repo_type="dataset", allow_patterns=patterns, local_files_only=not download))
    except (OSError, ValueError, RuntimeError) as error:  # not here, offline, unknown name, gated, disk full, bad name
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        what = f"it could not be fetched ({cause})" if download else "it is not on this machine, and nothing is fetched"
        raise DatasetError(f"{HUB}{name}: {what}. {way_out}") from None
    folder = folder / inside
    if not folder.is_dir():
        raise DatasetError(f"{HUB}{name}: the data set has no folder '{inside}' on this machine. {way_out}")
    return folder


def _snapshot_download() -> Callable[..., str] | None:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return None
    return snapshot_download
