"""Real runs on hostile data, exported: the report shows and runs nothing, tables give every value back."""

import csv
import io
import json
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from auditcore.cli import main
from auditcore.report import export
from tests.hostile_rows import CLASSES, IMAGE, LABELS, NAME, VECTOR_COLUMN, HostileRuns

FORMULA = tuple("=+-@\t\r\n＝")


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text between them outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = tag if tag in ("script", "style") else ""
        self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif not self._in:
            self.text += data


def test_the_audits_give_back_what_they_were_given(hostile_runs: HostileRuns) -> None:
    examples = hostile_runs.membership.read("examples")
    assert examples["example_id"].tolist() == list(hostile_runs.texts)
    tokens = hostile_runs.membership.read("token_stats", order_by="example_id, position")
    whole = tokens.groupby("example_id")["token"].agg("".join)
    for row in examples.itertuples():
        text = hostile_runs.texts[row.example_id]
        assert text.startswith(whole[row.example_id]) if row.truncated else text == whole[row.example_id]
    assert examples["truncated"].sum() == 1
    vectors = hostile_runs.vectors.read("examples", ["example_id", *LABELS])  # quotes in a column's name are no SQL
    pd.testing.assert_frame_equal(vectors, hostile_runs.labels, check_dtype=False)
    assert set(hostile_runs.vectors.read("predictions")["actual"]) == {c for some in CLASSES for c in some}


def test_a_name_never_becomes_a_path(hostile_runs: HostileRuns) -> None:
    run = hostile_runs.given
    assert set(run.read("probe_metrics")["artifact"]) == {VECTOR_COLUMN}
    files = list(run.path.rglob("*.safetensors"))
    assert files == [run.vectors_path(VECTOR_COLUMN, 0)]
    assert files[0].parent == run.path / "vectors"
    made = {p.name for p in run.path.parent.parent.iterdir()}
    assert made == {"home", "made"}
    assert len(run.vectors_path("é" * 200, 0).name) < 100


@pytest.mark.parametrize("which", range(3))
def test_the_report_is_text_where_the_data_stands(hostile_runs: HostileRuns, which: int, tmp_path: Path) -> None:
    run = hostile_runs.runs[which]
    page = export(run, "html", tmp_path / "r.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    assert not [t for t, _ in tags.found if t in ("img", "iframe", "object", "embed", "link", "a", "form", "base")]
    assert not [n for _, attributes in tags.found for n in attributes if n.startswith("on")]
    assert not [s for _, attributes in tags.found for s in ("src", "href") if s in attributes]
    # A figure's script holds names as JSON, in which "<" is written \u003c: it can neither end nor begin an element.
    assert not [s for s in tags.scripts if "hacked" in s and ("</" in s or "<script" in s or "<img" in s)]
    assert page.count("<script") == page.count("</script>") == len(tags.scripts)
    shown = NAME.replace("\u202e", "\ufffd")
    assert shown in tags.text
    assert not set("\u202e\u2067\u2069\x1b\x07") & set(page)
    if which == 0:
        rows = [text for text in hostile_runs.texts.values() if len(text) > 12 and text not in NAME]
        assert not [text for text in rows if text in tags.text]


@pytest.mark.parametrize("which", range(3))
def test_csv_cells_are_neutral_and_otherwise_unharmed(hostile_runs: HostileRuns, which: int, tmp_path: Path) -> None:
    run = hostile_runs.runs[which]
    with zipfile.ZipFile(export(run, "csv", tmp_path / "x")) as archive:
        for table in run.tables():
            original = run.read(table)
            rows = list(csv.reader(io.StringIO(archive.read(f"{table}.csv").decode(), newline="")))
            assert [_plain(c) for c in rows[0]] == list(original.columns)
            assert len(rows) == len(original) + 1
            for position, column in enumerate(original.columns):
                cells = [row[position] for row in rows[1:]]
                if pd.api.types.is_numeric_dtype(original[column]) or original[column].dtype == bool:
                    continue
                assert not [c for c in cells if c.startswith(FORMULA)], (table, column)
                given = ["" if pd.isna(v) else v for v in original[column]]
                if given and all(isinstance(v, str) for v in given):
                    assert cells == [f"'{v}" if v.startswith(FORMULA) else v for v in given], (table, column)
        assert json.loads(archive.read("run.json"))["spec"]["name"] == NAME


def _plain(name: str) -> str:
    return name[1:] if name.startswith("'") else name


@pytest.mark.parametrize("which", range(3))
def test_parquet_and_duckdb_hold_the_very_bytes(hostile_runs: HostileRuns, which: int, tmp_path: Path) -> None:
    run = hostile_runs.runs[which]
    with zipfile.ZipFile(export(run, "parquet", tmp_path / "x")) as archive:
        archive.extractall(tmp_path)
    database = export(run, "duckdb", tmp_path / "d.duckdb")
    with duckdb.connect(str(database), read_only=True) as con:
        for table in run.tables():
            original = pd.read_parquet(run.path / f"{table}.parquet")
            pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / f"{table}.parquet"), original)
            stored = con.table(table).to_arrow_table()
            assert stored.column_names == list(original.columns)
            for column in original.select_dtypes(["object", "string"]).columns:
                values = [None if pd.isna(v) else v for v in original[column]]
                assert stored[column].to_pylist() == values, (table, column)
        assert json.loads(con.execute("select manifest from run").fetchall()[0][0])["spec"]["name"] == NAME


def test_a_terminal_obeys_nothing_of_the_data(hostile_runs: HostileRuns, capsys: pytest.CaptureFixture) -> None:
    roles = [f"--role={role}={column}" for role, column in (("text", "prompt"), ("id", "id"), ("label", LABELS[0]))]
    assert main(["check", str(hostile_runs.labelled), *roles]) == 0
    assert IMAGE in capsys.readouterr().out
    for run in hostile_runs.runs:
        assert main(["show", str(run.path)]) == 0
        assert not set("\x07\x1b\x7f\x85\u202e\u2069\u2067") & set(capsys.readouterr().out)
    assert main(["check", str(hostile_runs.rows_csv), "--role", "text=\x1b[31m"]) == 2
    assert "\x1b" not in capsys.readouterr().err
