"""Any table that a writer makes is read exactly; any damage gives a DatasetError or the table that is really there."""

import csv
import io
import itertools
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditcore.datasets import scan
from auditcore.datasets import tables as reader
from auditcore.datasets.tables import open_table, read_table
from auditcore.errors import DatasetError

EXAMPLES = int(os.environ.get("AUDIT_EXAMPLES", "20"))
FAST = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# "\r" alone is left out: pandas writes it bare, and then it is a line break to every reader.
SPECIAL = st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\t", ";", "=cmd()", "\u200b", "\u202e", "é", "🙂", " ", "\\", "#", "NULL", "'"]
)
LETTERS = st.characters(blacklist_categories=("Cs",), blacklist_characters="\0\r")
VALUE = st.lists(SPECIAL | st.text(LETTERS, max_size=4), max_size=5).map("".join)
NAME = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=6)


@pytest.fixture(scope="module", autouse=True)
def one_database():
    """One DuckDB for all examples: a fresh one costs 30 ms, and the other tests pay for it."""
    with duckdb.connect(":memory:") as database, pytest.MonkeyPatch.context() as patch:

        @contextmanager
        def connect(path):
            try:
                with database.cursor() as con:
                    yield con
            except duckdb.Error as error:
                raise DatasetError(f"{path}: {str(error).splitlines()[0]}") from None

        patch.setattr(reader, "connect", connect)
        yield


@st.composite
def tables(draw):
    names = draw(st.lists(NAME, min_size=2, max_size=4, unique=True))
    values = draw(st.lists(st.tuples(*[VALUE] * len(names)), min_size=1, max_size=8))
    return pd.DataFrame(values, columns=names, dtype="str")


def read(content, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        path.write_bytes(content)
        return read_table(open_table(path))


def same(found, frame):
    assert list(found) == list(frame)
    assert found.fillna("").to_numpy().tolist() == frame.to_numpy().tolist()


@FAST
@given(tables(), st.sampled_from([",", "\t"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_pandas_csv_round_trip(frame, delimiter, end, every):
    quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
    text = frame.to_csv(index=False, sep=delimiter, lineterminator=end, quoting=quoting)
    same(read(text.encode(), ".csv" if delimiter == "," else ".tsv"), frame)


@FAST
@given(tables())
def test_csv_module_round_trip(frame):
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([list(frame), *frame.to_numpy().tolist()])
    same(read(buffer.getvalue().encode(), ".csv"), frame)


@FAST
@given(tables(), st.booleans())
def test_jsonl_and_parquet_round_trip(frame, ascii_only):
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in frame.to_dict("records")]
    same(read("\n".join(lines).encode(), ".jsonl"), frame)
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    if len({name.lower() for name in frame}) == len(frame.columns):  # the reader renames "A" beside "a"
        same(read(buffer.getvalue(), ".parquet"), frame)


@st.composite
def damaged(draw, content):
    kind = draw(st.sampled_from(["cut", "drop", "nul", "latin1", "quote", "return", "swap"]))
    at = draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "cut":
        return content[:at]
    if kind == "drop":
        marks = [i for i, byte in enumerate(content) if byte in b',\n"{}:']
        at = draw(st.sampled_from(marks)) if marks else at
        return content[:at] + content[at + 1 :]
    insert = {"nul": b"\0", "latin1": b"\xe9", "quote": b'"', "return": b"\r", "swap": b",\n"}[kind]
    return content[:at] + insert + content[at:]


def expected(content):
    """What Python's own reader finds, None where it would not be a table."""
    lines = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    lines = [line or [""] for line in lines if line or len(lines[0]) == 1]
    return lines if len({len(line) for line in lines}) == 1 else None


@settings(FAST, max_examples=3 * EXAMPLES)
@given(tables(), st.data())
def test_damaged_csv_is_an_error_or_the_right_table(frame, data):
    content = data.draw(damaged(frame.to_csv(index=False).encode()))
    try:
        found = read(content, ".csv")
    except DatasetError:
        return
    lines = expected(content)
    assert lines is not None
    assert found.fillna("").to_numpy().tolist() == lines[1:]


@settings(FAST, max_examples=2 * EXAMPLES)
@given(tables(), st.data())
def test_damaged_jsonl_is_an_error_or_the_right_table(frame, data):
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in frame.to_dict("records"))
    content = data.draw(damaged(lines.encode()))
    try:
        found = read(content, ".jsonl")
    except DatasetError:
        return
    kept = [line for line in content.split(b"\n") if line.strip()]
    assert len(found) == len(kept)
    for row, line in zip(found.fillna("").to_dict("records"), kept, strict=True):
        values = json.loads(line)
        assert {k: v for k, v in row.items() if v} == {k: v for k, v in values.items() if v}


@settings(FAST, max_examples=2 * EXAMPLES)
@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz"]))
def test_any_bytes_give_a_table_or_an_error(content, suffix):
    try:
        found = read(content, suffix)
    except DatasetError:
        return
    assert len(found) > 0


@FAST
@given(tables(), st.data())
def test_damaged_parquet_is_an_error_or_a_table(frame, data):
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    content = bytearray(buffer.getvalue())
    at = data.draw(st.integers(4, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        read(bytes(content), ".parquet")
    except DatasetError:
        return


def test_every_short_file(monkeypatch):
    """All strings of up to four marks below a header: what the scan lets through, Python's reader finds as well."""
    accepted = 0
    for end in (b"\n", b"\r\n"):
        for n in range(1, 5):
            for marks in itertools.product(b'a,"\n\r', repeat=n):
                content = b"a,b" + end + bytes(marks)
                monkeypatch.setattr(scan, "blocks", lambda _, content=content: iter([content]))
                try:
                    layout = scan.scan_delimited(Path("t.csv"), ",")
                except DatasetError:
                    continue
                lines = expected(content)
                assert lines is not None
                assert layout.n_rows == len(lines) - 1
                accepted += 1
    assert accepted > 50


def test_the_oracle_knows_a_table():
    assert expected(b"a,b\n1,2\n") == [["a", "b"], ["1", "2"]]
    assert expected(b"a,b\n1\n") is None
    with pytest.raises(csv.Error):
        expected(b'a\n"1')
