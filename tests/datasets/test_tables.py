"""Files that are right are read exactly; files that are wrong give one DatasetError that says where."""

import csv
import gzip
import hashlib
import io
import json

import numpy as np
import pandas as pd
import pytest

from auditcore.datasets import scan
from auditcore.datasets.tables import open_table, read_table
from auditcore.errors import DatasetError

HOSTILE = [
    "<script>alert(1)</script>",
    "=cmd()|'/c calc'!A0",
    "$x$ *b*",
    "🙂👩‍👧",
    "مرحبا\u202eabc",
    "a\u200bb",
    "é\u0301",
    '"',
    '""',
    ",",
    " x ",
]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error(path, **options):
    with pytest.raises(DatasetError) as caught:
        open_table(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message.removeprefix(str(path))
    return message.removeprefix(f"{path}: ")


def texts(path, **options):
    table = open_table(path, **options)
    frame = read_table(table)
    assert len(frame) == table.n_rows
    assert list(frame) == list(table.readable)
    return [[None if pd.isna(v) else v for v in row] for row in frame.itertuples(index=False)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_csv_with_each_line_ending_and_bom(tmp_path, end, last, bom):
    content = f'a,b{end}1,"x{end}y, ""z"""{end}2,{end if last else ""}'
    table = open_table(write(tmp_path / "t.csv", bom + content.encode()))
    assert table.columns == {"a": "VARCHAR", "b": "VARCHAR"}
    assert texts(table.path) == [["1", f'x{end}y, "z"'], ["2", None]]


def test_values_stay_text_and_blank_lines_are_no_rows(tmp_path):
    content = "a,b\n\n007,NULL\n1e5,nan\n\n2024-01-01,TRUE\n  , \n"
    expected = [["007", "NULL"], ["1e5", "nan"], ["2024-01-01", "TRUE"], ["  ", " "]]
    assert texts(write(tmp_path / "t.csv", content)) == expected


def test_one_column(tmp_path):
    assert texts(write(tmp_path / "t.csv", "a\n1\n\n3\n")) == [["1"], [None], ["3"]]
    assert texts(write(tmp_path / "u.csv", 'a\n""\nx')) == [[None], ["x"]]


def test_hostile_texts_in_every_format(tmp_path):
    values = [*HOSTILE, "line\nbreak", "line\r\nbreak", "x" * 20_000]
    frame = pd.DataFrame({"id": [str(i) for i in range(len(values))], "=header()": values})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True, force_ascii=False)
    frame.to_json(tmp_path / "t.jsonl.gz", orient="records", lines=True)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.csv.gz", "t.tsv", "t.jsonl", "t.jsonl.gz", "t.parquet"):
        table = open_table(tmp_path / name)
        pd.testing.assert_frame_equal(read_table(table), frame, obj=name)
        assert table.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_header_names(tmp_path):
    path = write(tmp_path / "t.csv", ',"a ""b""\nc",Text,text, d \n0,1,2,3,4\n')
    assert list(open_table(path).columns) == ["column_1", 'a "b"\nc', "Text", "text", "d"]
    assert texts(path) == [["0", "1", "2", "3", "4"]]


def test_columns_limit_and_offset(tmp_path):
    table = open_table(write(tmp_path / "t.csv", "a,b\n" + "".join(f"{i},{-i}\n" for i in range(1, 8))))
    frame = read_table(table, ["b", "a", "b"], limit=2, offset=3)
    assert frame.to_dict("list") == {"b": ["-4", "-5"], "a": ["4", "5"]}
    assert len(read_table(table, [], limit=2)) == 2
    with pytest.raises(DatasetError, match=r"no column 'labl'\. Did you mean 'label'"):
        read_table(open_table(write(tmp_path / "u.csv", "label,x\n1,2\n")), ["labl"])


def test_wildcards_in_a_name_are_letters(tmp_path):
    folder = tmp_path / "k=1"
    folder.mkdir()
    write(folder / "d1.csv", "a\nwrong\n")
    assert texts(write(folder / "d[1].csv", "a\nright\n")) == [["right"]]
    assert texts(write(folder / "it's *?.csv", "a\nright\n")) == [["right"]]
    pd.DataFrame({"a": ["right"]}).to_parquet(folder / "d[1]'.parquet")
    assert texts(folder / "d[1]'.parquet") == [["right"]]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["empty"]),
        (b"\xef\xbb\xbf", ["empty"]),
        ("a,b", ["no rows"]),
        ("a,b\n\n", ["no rows"]),
        ("\na,b\n1,2\n", ["first line is blank"]),
        ("a,b,a\n1,2,3\n", ["columns 1 and 3", "'a'"]),
        ("a,b\n1,2\n3\n", ["row 2 (line 3)", "1 value", "header has 2"]),
        ("a,b\n1,2\n\n3,4,5\n6,7\n", ["row 2 (line 4)", "3 values"]),
        ("a,b\n1,2,\n", ["row 1", "3 values"]),
        ("a,b\n1,2\n3", ["row 2 (line 3)", "1 value", "cut short"]),
        ("a,b\n1,x\n2,c\0d\n", ["row 2, column 'b' (line 3)", "NUL"]),
        (b"a,b\n1,x\n2,caf\xe9\n", ["row 2, column 'b' (line 3)", "0xe9", "UTF-8"]),
        (b"a,b\n1,x\n2,caf\xc3", ["row 2, column 'b'", "UTF-8"]),
        (b"caf\xe9,b\n1,x\n", ["header", "UTF-8"]),
        ("a,b\n1,2\n".encode("utf-16"), ["UTF-16"]),
        ('a,b\n1,x\n2,"never\n3,closed\n', ["row 2, column 'b' (line 3)", "never closed"]),
        ('a,b\n1,"x" y\n', ["row 1, column 'b'", "not doubled"]),
        ('a,b\n1,"open\n2,"x"\n', ["row 1, column 'b' (line 2)", "without its closing quote"]),
        ('a,b\n1,5" pipe\n', ["row 1, column 'b'", "not quoted"]),
        ('a,b\n1, "x"\n', ["row 1, column 'b'", "not quoted"]),
        ("a,b\n1,2\r\n3,4\n", ["row 1", "line break"]),
        ("a,b\r\n1,2\n", ["row 1", "line break"]),
        ("a,b\n1,2\r3,4\n", ["row 1", "line break"]),
        ("a;b;c\n1;2;3\n", ["';'", "commas or tabs"]),
        ("a\tb\n1\t2\n", ["tabs (format: tsv)"]),
        (b"PK\x03\x04rest", ["Excel"]),
        (b"\x1f\x8bnot gzip at all", ["gzip"]),
    ],
)  # fmt: skip
def test_broken_csv(tmp_path, content, parts):
    message = error(write(tmp_path / "t.csv", content))
    for part in parts:
        assert part in message, message


def test_errors_across_blocks(tmp_path, monkeypatch):
    """Every position is right whatever the size of a block: a quote or a letter may be cut in two."""
    good = 'a,b\r\n1,"é ""x"", \r\ny"\r\n\r\n2,🙂\r\n'
    for size in (1, 2, 3, 5, 7):
        monkeypatch.setattr(scan, "BLOCK", size)
        assert scan.scan_delimited(write(tmp_path / "t.csv", good), ",") == scan.Layout(("a", "b"), 2)
        for bad, part in (
            ("3\r\n", "row 3 (line 6)"),
            ('3,"x', "row 3, column 'b' (line 6) opens"),
            ('3,x"\r\n', "row 3, column 'b' (line 6) holds a quote"),
            ("3,x\n", "row 3 (line 6) ends"),
            ("3,\0\r\n", "row 3, column 'b' (line 6) holds a NUL"),
        ):
            assert part in error(write(tmp_path / "t.csv", good + bad))
        assert "row 3, column 'b' (line 6)" in error(write(tmp_path / "t.csv", good.encode() + b"3,\xf0\x9fx\r\n"))


def test_a_row_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "LONGEST_ROW", 1 << 20)
    content = 'a,b\n1,"' + "x\n" * 600_000 + '"\n'
    assert "row 1 (line 2) is longer than 1 MB" in error(write(tmp_path / "t.csv", content))


def test_missing_files(tmp_path):
    write(tmp_path / "notes.csv", "a\n1\n")
    assert error(tmp_path / "note.csv") == "no such file. Did you mean 'notes.csv'?"
    assert "does not exist" in error(tmp_path / "nowhere" / "note.csv")
    assert "is a folder" in error(tmp_path)
    assert "cannot tell the format" in error(write(tmp_path / "notes.txt", "a\n1\n"))
    assert ".jsonl" in error(write(tmp_path / "notes.json", "[]"))
    assert texts(tmp_path / "notes.txt", format="csv") == [["1"]]


def test_truncated_gzip(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    assert "gzip file is broken or cut short" in error(write(tmp_path / "t.csv.gz", whole[:-9]))


def test_gzip_is_told_by_content(tmp_path):
    assert texts(write(tmp_path / "t.csv", gzip.compress(b"a\n1\n") + gzip.compress(b"2\n"))) == [["1"], ["2"]]
    assert texts(write(tmp_path / "t.csv.gz", b"a\n1\n")) == [["1"]]
    assert texts(write(tmp_path / "t.jsonl", gzip.compress(b'{"a": 1}\n'))) == [["1"]]


def test_jsonl_values_of_any_kind(tmp_path):
    lines = [
        {"text": "x", "n": 1, "mixed": 1, "deep": {"k": [1]}, "a/b~c.d $": "odd", "": "unnamed", "list": [1]},
        {"text": None, "n": 2.5, "mixed": "two", "0": "zero", "Text": "other"},
        {"text": "", "mixed": True, "list": ["a"], "when": "2024-01-01T00:00:00"},
    ]
    path = write(tmp_path / "t.jsonl", "\n\n".join(json.dumps(line) for line in lines))
    table = open_table(path)
    assert list(table.columns) == ["text", "n", "mixed", "deep", "a/b~c.d $", "", "list", "0", "Text", "when"]
    assert table.columns["list"] == "LIST"
    frame = read_table(table)
    assert "list" not in frame
    assert frame["mixed"].tolist() == ["1", "two", "true"]
    assert frame["text"].isna().tolist() == [False, True, True]
    assert frame.loc[0, ["n", "deep", "a/b~c.d $", ""]].tolist() == ["1", '{"k":[1]}', "odd", "unnamed"]
    assert frame.loc[1, ["n", "0", "Text"]].tolist() == ["2.5", "zero", "other"]
    assert frame.loc[2, "when"] == "2024-01-01T00:00:00"
    with pytest.raises(DatasetError, match="column 'list' holds lists"):
        read_table(table, ["list"])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["empty"]),
        ("\n\n", ["no rows"]),
        ("{}\n", ["no keys"]),
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', ["line 2", "not a JSON object"]),
        ('{"a": 1}\n[1]\n', ["row 2", "not a JSON object"]),
        ('[\n{"a": 1}\n]\n', ["line 1", "not a JSON object"]),
        ('{"a": 1}\n{"a": 1, "a": 2}\n', ["row 2", "key 'a' twice"]),
        ('{"a": 1}\n{"a": "x\\u0000"}\n', ["row 2, column 'a'", "NUL"]),
        ('{"a": 1}\n{"a": "x\0"}\n', ["line 2", "NUL"]),
        (b'{"a": 1}\n{"a": "\xe9"}\n', ["line 2", "0xe9", "UTF-8"]),
        (b'{"a": 1}\n{"a": "\xc3', ["line 2", "UTF-8"]),
        ('{"a": "\\ud800"}\n', ["line 1", "half of a surrogate pair"]),
    ],
)
def test_broken_jsonl(tmp_path, content, parts):
    message = error(write(tmp_path / "t.jsonl", content))
    for part in parts:
        assert part in message, message


def test_parquet_types(tmp_path):
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "x": [1.0, np.nan],
            "when": pd.to_datetime(["2024-01-01", None]),
            "flag": [True, False],
            "text": ["a", ""],
            "kind": pd.Categorical(["u", "v"]),
            "vector": [[1.0, 2.0], [3.0]],
            "raw": [b"\xff", b""],
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert table.columns["vector"] == "LIST"
    assert table.columns["raw"] == "BLOB"
    read = read_table(table)
    assert list(read) == ["n", "x", "when", "flag", "text", "kind"]
    assert read.loc[0].tolist() == ["1", "1.0", "2024-01-01 00:00:00", "true", "a", "u"]
    assert read.loc[1].isna().tolist() == [True, True, True, False, True, False]
    assert all(dtype == "str" for dtype in read.dtypes)
    with pytest.raises(DatasetError, match="column 'raw' holds raw bytes"):
        read_table(table, ["raw"])


def test_broken_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"text": ["x" * 5000, "y\0"]}).to_parquet(path)
    assert "row 2, column 'text' holds a NUL" in error(path)
    assert "not a Parquet file" in error(write(tmp_path / "u.parquet", "a,b\n1,2\n"))
    assert "cannot be read" in error(write(tmp_path / "v.parquet", path.read_bytes()[:-40]))
    pd.DataFrame({"text": []}).to_parquet(path)
    assert "no rows" in error(path)


def test_a_hundred_thousand_rows_keep_their_order(tmp_path):
    """Quoted line breaks across the reader's buffers; the rows come back whole and in order."""
    rng = np.random.default_rng(0)
    words = np.array(["pain", "no\nfever", '"q"', "a, b", "été 🙂", "=cmd()"], dtype=object)
    values = [" ".join(row) for row in words[rng.integers(0, len(words), (100_000, 6))]]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(values))
    table = open_table(write(tmp_path / "t.csv", buffer.getvalue()))
    assert table.n_rows == 100_000
    frame = read_table(table)
    assert frame["text"].tolist() == values
    assert frame["id"].tolist() == [str(i) for i in range(100_000)]
    cut = buffer.getvalue().encode()[:-3]
    assert "row 100000, column 'text'" in error(write(tmp_path / "t.csv", cut[:-1] + b"\xe9" + cut[-1:]))


def test_a_reader_that_loses_rows_is_caught(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv", "a,b\n1,2\n3,4\n")
    layout = scan.Layout(("a", "b"), 3)
    monkeypatch.setattr(scan, "scan_delimited", lambda *_: layout)
    assert "3 rows by its line ends, 2 by its quotes" in error(path)
