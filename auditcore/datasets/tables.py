"""Rows of a file, through DuckDB with every option spelled out. In: a path. Out: a checked Table, then frames of text.

No dialect is ever guessed: a broken file is an error that names row and column, not one wide column. Column names and
paths never become SQL text: columns are addressed by position, everything else is a parameter.
"""

import difflib
import json
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd

from auditcore.datasets import scan
from auditcore.errors import DatasetError, did_you_mean

FORMATS = {"csv": ",", "tsv": "\t", "jsonl": None, "parquet": None}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
UNREADABLE = {"LIST": "lists", "BLOB": "raw bytes"}  # column types that cannot be read as text
MOST_COLUMNS = 2_000


@dataclass(frozen=True)
class Table:
    """A file whose every row was checked. `columns`: name -> type as the file tells it (VARCHAR, BIGINT, LIST ...)."""

    path: Path
    format: str
    columns: dict[str, str]
    n_rows: int
    sha256: str

    @property
    def readable(self) -> tuple[str, ...]:
        """Names of the columns that can be read as text."""
        return tuple(name for name, kind in self.columns.items() if kind not in UNREADABLE)


def open_table(path: str | Path, format: str = "auto") -> Table:
    """Check the whole file: encoding, NUL bytes, quoting, number of values in each row, header.

    Reads .csv, .tsv, .jsonl (also gzipped, told by content) and .parquet; `format` overrides the file name.
    Raises DatasetError naming file, row (1 = first data row) and column.
    """
    path = Path(path)
    must_exist(path)
    format = _format(path) if format == "auto" else format
    if format not in FORMATS:
        raise DatasetError(f"{path}: '{format}' is not a format.{did_you_mean(format, FORMATS)}")
    try:
        if format in ("csv", "tsv"):
            columns, n_rows = _check_delimited(path, format)
        elif format == "jsonl":
            columns, n_rows = _check_jsonl(path)
        else:
            columns, n_rows = _check_parquet(path)
        return Table(path, format, columns, n_rows, scan.sha256(path))
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror or error}).") from None


def read_table(
    table: Table,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
    lists: Container[str] = (),
) -> pd.DataFrame:
    """Return rows in file order, every column as text, missing where empty or null; index 0 = first data row read.

    `columns` None takes all but lists and raw bytes. `lists`: columns that may be lists; they come as JSON. Raises
    DatasetError for an unknown column or one that cannot be read.
    """
    names = list(table.readable) if columns is None else list(dict.fromkeys(columns))
    if not names:
        left = max(0, table.n_rows - offset)
        return pd.DataFrame(index=pd.RangeIndex(left if limit is None else min(left, limit)))
    sql, parameters = select_sql(table, names, lists)
    with connect(table.path) as con:
        query = con.sql(
            f"{sql} LIMIT ? OFFSET ?", params=[*parameters, table.n_rows if limit is None else limit, offset]
        )
        frame = query.to_arrow_table().to_pandas()
    return frame.set_axis(names, axis=1)


def select_sql(table: Table, columns: Sequence[str], lists: Container[str] = ()) -> tuple[str, list[object]]:
    """Return SQL giving `columns` as text under the names v0, v1, ..., and its parameters; `lists` as in read_table."""
    where = [column_index(table, name, lists=name in lists) for name in columns]
    path = _literal(table.path)
    if table.format == "jsonl":
        values = ", ".join(f"nullif(v[{k + 1}], '') AS v{k}" for k in range(len(where)))
        inner = f"SELECT json_extract_string(json, ?) AS v FROM {_jsonl(table.path)}"
        return f"SELECT {values} FROM ({inner})", [[_pointer(name) for name in columns], path]
    if table.format == "parquet":
        nested = {i for i, kind in enumerate(table.columns.values()) if kind in ("LIST", "STRUCT")}
        values = ", ".join(
            f"nullif(CAST({f'to_json(c{i})' if i in nested else f'c{i}'} AS VARCHAR), '') AS v{k}"
            for k, i in enumerate(where)
        )
        return f"SELECT {values} FROM {_parquet(len(table.columns))}", [path]
    values = ", ".join(f"nullif(c{i}, '') AS v{k}" for k, i in enumerate(where))
    return f"SELECT {values} FROM {_csv(table.path, table.format, len(table.columns))}", [path]


def column_index(table: Table, name: str, *, lists: bool = False) -> int:
    """Return the position of a column that can be read as text. Raises DatasetError ("did you mean").

    lists: a list will do, since its JSON is wanted.
    """
    if name not in table.columns:
        raise DatasetError(f"{table.path}: there is no column '{name}'.{did_you_mean(name, table.columns)}")
    if table.columns[name] in UNREADABLE and not (lists and table.columns[name] == "LIST"):
        what = UNREADABLE[table.columns[name]]
        raise DatasetError(f"{table.path}: column '{name}' holds {what}; turn them into text first.")
    return list(table.columns).index(name)


@contextmanager
def connect(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a fresh in-memory connection that reaches nothing but the folder of `path`; DuckDB errors become ours."""
    try:
        with duckdb.connect(":memory:", config={"autoload_known_extensions": "false"}) as con:
            con.execute("SET allowed_directories = ?", [[str(path.resolve().parent)]])
            con.execute("SET enable_external_access = false")
            con.execute("SET enable_progress_bar = false")
            yield con
    except duckdb.Error as error:
        raise DatasetError(f"{path}: cannot be read ({_first_line(error)}).") from None


# Line ends are found by the reader itself: new_line='\r\n' makes DuckDB 2.0.1 return no rows at all.
def _csv(path: Path, format: str, n: int) -> str:
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(n))
    return (
        f"read_csv(?, auto_detect=false, columns={{{columns}}}, header=true, delim='{FORMATS[format]}', quote='\"', "
        "escape='\"', comment='', strict_mode=true, null_padding=false, ignore_errors=false, parallel=false, "
        f"max_line_size={scan.LONGEST_ROW}, hive_partitioning=false, encoding='utf-8', "
        f"compression='{_compression(path)}')"
    )


def _jsonl(path: Path) -> str:
    return (
        f"read_ndjson_objects(?, maximum_object_size={scan.LONGEST_ROW}, ignore_errors=false, hive_partitioning=false, "
        f"compression='{_compression(path)}')"
    )


def _compression(path: Path) -> str:
    return "gzip" if scan.is_gzip(path) else "none"


def _parquet(n: int) -> str:
    return f"read_parquet(?, hive_partitioning=false) AS t({', '.join(f'c{i}' for i in range(n))})"


def _check_delimited(path: Path, format: str) -> tuple[dict[str, str], int]:
    layout = scan.scan_delimited(path, FORMATS[format] or ",")
    n = len(layout.columns)
    if n > MOST_COLUMNS:
        raise DatasetError(f"{path}: the header has {n} columns; at most {MOST_COLUMNS} are read.")
    with connect(path) as con:
        counts = ", ".join(f"count(c{i})" for i in range(n))  # makes the reader look at every value
        found = con.execute(f"SELECT count(*), {counts} FROM {_csv(path, format, n)}", [_literal(path)]).fetchone()
    if found is None or found[0] != layout.n_rows:
        got = found[0] if found else 0
        raise DatasetError(f"{path}: the file has {layout.n_rows} rows by its line ends, {got} by its quotes.")
    return dict.fromkeys(layout.columns, "VARCHAR"), layout.n_rows


def _check_jsonl(path: Path) -> tuple[dict[str, str], int]:
    scan.check_lines(path)
    with connect(path) as con:
        try:
            con.execute(f"CREATE TEMP TABLE source AS SELECT json FROM {_jsonl(path)}", [_literal(path)])
        except duckdb.Error:
            if bad := _bad_json_line(path):
                raise DatasetError(f"{path}: line {bad[0]} is not a JSON object ({bad[1]}).") from None
            raise
        return _jsonl_columns(path, con)


def _jsonl_columns(path: Path, con: duckdb.DuckDBPyConnection) -> tuple[dict[str, str], int]:
    n_rows = _one(con, "SELECT count(*) FROM source")
    if not n_rows:
        raise DatasetError(f"{path}: the file has no rows.")
    row = _one(con, "SELECT min(rowid) FROM source WHERE json_type(json) <> 'OBJECT'")
    if row is not None:
        raise DatasetError(f'{path}: row {row + 1} is not a JSON object such as {{"text": "..."}}.')
    sets = con.execute("SELECT json_keys(json) AS k, min(rowid) FROM source GROUP BY k ORDER BY 2").fetchall()
    names: dict[str, None] = {}
    for keys, row in sets:
        names.update(dict.fromkeys(keys))
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise DatasetError(f"{path}: row {row + 1} has the key '{twice}' twice.")
        if len(names) > MOST_COLUMNS:
            raise DatasetError(f"{path}: more than {MOST_COLUMNS} different keys (row {row + 1}); is a key a value?")
    if not names:
        raise DatasetError(f"{path}: the rows have no keys.")
    pointers = [_pointer(name) for name in names]
    con.execute("CREATE TEMP TABLE nul AS SELECT json_extract_string(json, ?) AS v FROM source", [pointers])
    _refuse_nul(path, con, "nul", [f"v[{k + 1}]" for k in range(len(names))], list(names))
    kinds = ", ".join(f"list(DISTINCT t[{k + 1}])" for k in range(len(names)))
    found = (
        con.execute(f"SELECT {kinds} FROM (SELECT json_type(json, ?) AS t FROM source)", [pointers]).fetchone() or ()
    )
    return {name: _json_kind(kind) for name, kind in zip(names, found, strict=True)}, n_rows


def _json_kind(kinds: list[str | None]) -> str:
    """One name for the JSON types seen in a column; any list makes it a list column."""
    known = {k for k in kinds if k not in (None, "NULL")}
    if "ARRAY" in known:
        return "LIST"
    return known.pop() if len(known) == 1 else "VARCHAR"


def _check_parquet(path: Path) -> tuple[dict[str, str], int]:
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise DatasetError(f"{path}: this is not a Parquet file (its first bytes are not PAR1).")
    with connect(path) as con:
        described = con.execute("DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning=false)", [_literal(path)])
        columns = {name: _parquet_kind(kind) for name, kind, *_ in described.fetchall()}
        if len(columns) > MOST_COLUMNS:
            raise DatasetError(f"{path}: {len(columns)} columns; at most {MOST_COLUMNS} are read.")
        source, texts = _parquet(len(columns)), [i for i, kind in enumerate(columns.values()) if kind == "VARCHAR"]
        con.execute(f"CREATE TEMP VIEW source AS SELECT * FROM {source.replace('?', _quoted(path))}")
        n_rows = _one(con, "SELECT count(*) FROM source")
        if not n_rows:
            raise DatasetError(f"{path}: the file has no rows.")
        _refuse_nul(path, con, "source", [f"c{i}" for i in texts], [list(columns)[i] for i in texts])
    return columns, n_rows


def _parquet_kind(kind: str) -> str:
    if kind.endswith("]") or kind.startswith("MAP"):
        return "LIST"
    return "STRUCT" if kind.startswith("STRUCT") else kind


def _refuse_nul(path: Path, con: duckdb.DuckDBPyConnection, source: str, values: list[str], names: list[str]) -> None:
    if not values:
        return
    found = con.execute(
        f"SELECT {', '.join(f'bool_or(contains({value}, chr(0)))' for value in values)} FROM {source}"
    ).fetchone()
    for value, name, has in zip(values, names, found or (), strict=True):
        if has:
            numbered = f"SELECT row_number() OVER () AS n, contains({value}, chr(0)) AS bad FROM {source}"
            row = _one(con, f"SELECT min(n) FROM ({numbered}) WHERE bad")
            raise DatasetError(f"{path}: row {row}, column '{name}' holds a NUL character; remove it.")


def _bad_json_line(path: Path) -> tuple[int, str] | None:
    """Find the first line that is no JSON object, the slow way: only after the reader refused the file."""
    number, rest = 0, b""
    for block in scan.blocks(path):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            number += 1
            if reason := _json_problem(line):
                return number, reason
    reason = _json_problem(rest)
    return (number + 1, reason) if reason else None


def _json_problem(line: bytes) -> str | None:
    if not line.strip():
        return None
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return getattr(error, "msg", None) or str(error)
    return None if isinstance(value, dict) else f"it is a {type(value).__name__}"


def _pointer(name: str) -> str:
    """JSON pointer (RFC 6901) to a key: any key works, unlike in a JSON path."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _literal(path: Path) -> str:
    """The path with DuckDB's wildcards switched off: "d[1].csv" would read "d1.csv"."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.resolve()))


def _quoted(path: Path) -> str:
    return "'" + _literal(path).replace("'", "''") + "'"


def _one(con: duckdb.DuckDBPyConnection, sql: str):
    found = con.execute(sql).fetchone()
    return found[0] if found else None


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0].split(": ", 1)[-1].strip().rstrip(".")


def _format(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    known = ", ".join(SUFFIXES)
    hint = " A .json file must hold one object per line and be called .jsonl." if suffix == ".json" else ""
    raise DatasetError(f"{path}: cannot tell the format from the name; use {known} or name data.format.{hint}")


def must_exist(path: Path) -> None:
    """Raise DatasetError unless `path` is a file; the message names the nearest file beside it."""
    if path.is_file():
        return
    if path.is_dir():
        raise DatasetError(f"{path}: is a folder; name the data file inside it.")
    if not path.parent.is_dir():
        raise DatasetError(f"{path}: no such file; the folder {path.parent} does not exist.")
    siblings = sorted(p.name for p in path.parent.iterdir() if p.is_file())
    near = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    raise DatasetError(f"{path}: no such file.{f' Did you mean {near[0]!r}?' if near else ''}")
