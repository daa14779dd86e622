"""A run in; its tables as one file out. Text cells that a spreadsheet would run as a formula are neutralised in CSV.

Everything is written to a temporary name and renamed: an export is there whole or not at all.
"""

import contextlib
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd

from auditcore import records
from auditcore.disk import atomic
from auditcore.errors import RunError, did_you_mean
from auditcore.store import MANIFEST, Run

FORMATS = ("html", "csv", "parquet", "duckdb")
SUFFIXES = {"html": ".html", "csv": ".csv.zip", "parquet": ".parquet.zip", "duckdb": ".duckdb"}
# What a spreadsheet takes for the beginning of a formula, full-width forms included (OWASP, CSV injection).
_FORMULA = "=+-@\t\r\n＝＋－＠"
# Columns that hold pieces of the user's texts, by table.
_RAW_TEXT = {
    "token_stats": ("token",),
    "generations": ("prompt", "reference", "generated"),
    "self_prompt_texts": ("prompt", "text"),
}


def export(run: Run, format: str, out: str | Path, text: bool = True) -> Path:
    """Write a run as one file and return its path.

    format: html (report), csv or parquet (a zip with one file per table and run.json), duckdb (one database). A suffix
    that is missing is added to `out`; one that says something else is refused. text: False leaves out the raw text of
    rows, tokens and generations.
    Raises RunError: unknown format, a run without tables, a file that cannot be written.
    """
    if format not in FORMATS:
        raise RunError(f"'{format}' is not an export format.{did_you_mean(format, FORMATS)}")
    path, suffix = Path(out), Path(f"x{SUFFIXES[format]}").suffix
    if path.is_dir():
        raise RunError(f"{path}: is a folder; name a file.")
    if not path.suffix:
        path = path.with_name(f"{path.name}{suffix}")
    if path.suffix.lower() != suffix:
        what = "one zip with a file for each table" if suffix == ".zip" else f"one {suffix[1:]} file"
        raise RunError(f"{path}: {format} is written as {what}; call it {path.with_suffix(suffix).name}.")
    try:
        if format == "html":
            from auditcore.report.page import html_report

            content = html_report(run)
            with atomic(path, shared=True) as temporary:
                temporary.write_text(content, encoding="utf-8")
            return path
        if not run.tables():
            raise RunError(f"Run {run.id} has no tables yet; there is nothing to export.")
        writer = {"csv": _zip_of_csv, "parquet": _zip_of_parquet, "duckdb": _database}[format]
        with atomic(path, shared=True) as temporary:
            writer(run, temporary, text)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror or error}).") from None
    except duckdb.Error as error:
        raise RunError(f"Run {run.id}: a table cannot be exported ({str(error).splitlines()[0]}).") from None
    return path


def neutral(value: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula."""
    return f"'{value}" if value[:1] and value[0] in _FORMULA else value


def safe_csv(frame: pd.DataFrame) -> bytes:
    """Write a frame as CSV (UTF-8, missing cells empty) with formulas neutralised in text cells and in the header."""
    columns = []
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            column = pd.Series(
                [neutral(v) if isinstance(v, str) else v for v in column], index=frame.index, dtype=object
            )
        columns.append(column)
    safe = pd.DataFrame(dict(enumerate(columns)), index=frame.index)
    safe.columns = pd.Index([neutral(str(c)) for c in frame.columns])
    return safe.to_csv(index=False).encode("utf-8", errors="replace")


def _zip_of_csv(run: Run, out: Path, text: bool) -> None:
    with _zip(run, out) as archive, tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as folder:
        for table in run.tables():
            file = Path(folder) / f"{table}.csv"
            with _reader(run, table) as con:
                chosen = ", ".join(_safe_column(name, kind, table, text) for name, kind in _columns(con))
                con.execute(f"copy (select {chosen} from source) to {_quoted(str(file), chr(39))} (format csv, header)")
            archive.write(file, file.name)
            file.unlink()


def _zip_of_parquet(run: Run, out: Path, text: bool) -> None:
    with _zip(run, out) as archive, tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as folder:
        for table in run.tables():
            file = run.path / f"{table}.parquet"
            if not text and table in _RAW_TEXT:
                file = Path(folder) / f"{table}.parquet"
                with _reader(run, table) as con:
                    chosen = ", ".join(_column(name, table, text) for name, _ in _columns(con))
                    target = _quoted(str(file), "'")
                    con.execute(f"copy (select {chosen} from source) to {target} (format parquet, compression zstd)")
            archive.write(file, file.name, compress_type=zipfile.ZIP_STORED)  # compressed already


def _database(run: Run, out: Path, text: bool) -> None:
    with duckdb.connect(str(out)) as con:
        for table in run.tables():
            source = f"read_parquet({_quoted(str(run.path / f'{table}.parquet'), chr(39))})"
            names = [row[0] for row in con.execute(f"describe select * from {source}").fetchall()]
            chosen = ", ".join(_column(name, table, text) for name in names)
            con.execute(f'create table "{table}" as select {chosen} from {source}')
        con.execute("create table run (manifest json)")
        con.execute("insert into run values (?)", [json.dumps(run.manifest, ensure_ascii=False)])
        con.execute("create table records (record json)")
        for record in records.read(run):
            con.execute("insert into records values (?)", [json.dumps(record, ensure_ascii=False)])


@contextlib.contextmanager
def _zip(run: Run, out: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr(MANIFEST, json.dumps(run.manifest, indent=2, ensure_ascii=False))
        if (run.path / records.FILE).exists():
            archive.write(run.path / records.FILE, records.FILE)
        yield archive


@contextlib.contextmanager
def _reader(run: Run, table: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as con:
        con.execute("set enable_progress_bar = false")
        path = _quoted(str(run.path / f"{table}.parquet"), "'")
        con.execute(f"create view source as select * from read_parquet({path})")
        yield con


def _columns(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in con.execute("describe source").fetchall()]


def _column(name: str, table: str, text: bool) -> str:
    quoted = _quoted(name, '"')
    hidden = not text and name in _RAW_TEXT.get(table, ())
    return f"'' as {quoted}" if hidden else quoted


def _safe_column(name: str, kind: str, table: str, text: bool) -> str:
    """One column of a CSV; names are quoted identifiers, never bare SQL."""
    quoted, title = _quoted(name, '"'), _quoted(neutral(name), '"')
    if not text and name in _RAW_TEXT.get(table, ()):
        return f"'' as {title}"
    if kind != "VARCHAR":
        return f"{quoted} as {title}"
    first = " or ".join(f"starts_with({quoted}, chr({ord(c)}))" for c in _FORMULA)
    return f"case when {first} then chr(39) || {quoted} else {quoted} end as {title}"


def _quoted(name: str, mark: str) -> str:
    return mark + name.replace(mark, mark * 2) + mark
