"""Exports: whole, complete, harmless."""

import csv
import html
import io
import json
import re
import zipfile
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore.errors import RunError
from auditcore.report import FORMATS, export, safe_csv
from auditcore.report.files import neutral
from auditcore.report.page import html_report
from auditcore.store import Run
from auditcore.verdict import JUDGED
from tests.fake_runs import HOSTILE, membership_run, vectors_run


@pytest.fixture(scope="module")
def membership(tmp_path_factory) -> Run:
    run = membership_run(tmp_path_factory.mktemp("m") / "run", rows=200, tokens=12, hostile=True)
    run.update(spec={**run.manifest["spec"], "name": HOSTILE[0]}, warnings=[HOSTILE[0]])
    return run


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Run:
    return vectors_run(tmp_path_factory.mktemp("v") / "run", rows=200, hostile=True)


def test_a_suffix_that_says_something_else_is_refused(membership: Run, tmp_path: Path) -> None:
    assert export(membership, "html", tmp_path / "report").name == "report.html"
    with pytest.raises(RunError, match=r"csv is written as one zip with a file for each table; call it out\.zip"):
        export(membership, "csv", tmp_path / "out.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_csv_holds_every_table_and_no_formula(membership: Run, tmp_path: Path) -> None:
    path = export(membership, "csv", tmp_path / "out.csv.zip")
    assert path.name == "out.csv.zip"
    with zipfile.ZipFile(path) as archive:
        assert set(archive.namelist()) == {"run.json", *(f"{t}.csv" for t in membership.tables())}
        for table in membership.tables():
            rows = list(csv.reader(io.StringIO(archive.read(f"{table}.csv").decode())))
            original = membership.read(table)
            assert rows[0] == list(original.columns)
            assert len(rows) == len(original) + 1
            for position, column in enumerate(original.columns):
                if not pd.api.types.is_numeric_dtype(original[column]):
                    assert not [r[position] for r in rows[1:] if r[position][:1] in tuple("=+-@\t\r")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv.zip"]  # nothing left behind


def test_numbers_are_untouched_and_headers_are_neutralised() -> None:
    frame = pd.DataFrame({"=cmd()": [-1.5, 2.0], "text": ["-1", None], "a,b": ['say "x"', "+1\n2"]})
    rows = list(csv.reader(io.StringIO(safe_csv(frame).decode())))
    assert rows[0] == ["'=cmd()", "text", "a,b"]
    assert rows[1] == ["-1.5", "'-1", 'say "x"']
    assert rows[2] == ["2.0", "", "'+1\n2"]


@given(st.text())
def test_neutral_text_never_begins_a_formula_and_keeps_the_rest(text: str) -> None:
    made = neutral(text)
    assert made[:1] not in set("=+-@\t\r\n＝＋－＠")
    assert made in (text, f"'{text}")


def test_parquet_and_duckdb_hold_the_same_tables(membership: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(export(membership, "parquet", tmp_path / "p.zip")) as archive:
        archive.extractall(tmp_path / "p")
    database = export(membership, "duckdb", tmp_path / "d.duckdb")
    with duckdb.connect(str(database), read_only=True) as con:
        for table in membership.tables():
            original = membership.read(table)
            pd.testing.assert_frame_equal(
                pd.read_parquet(tmp_path / "p" / f"{table}.parquet"),
                pd.read_parquet(membership.path / f"{table}.parquet"),
            )
            assert con.execute(f'select count(*) from "{table}"').fetchone() == (len(original),)
        assert json.loads(con.execute("select manifest from run").fetchone()[0])["id"] == membership.id


@pytest.mark.parametrize("format", ["csv", "parquet", "duckdb"])
def test_raw_text_can_be_left_out(membership: Run, tmp_path: Path, format: str) -> None:
    path = export(membership, format, tmp_path / "x", text=False)
    if format == "duckdb":
        with duckdb.connect(str(path), read_only=True) as con:
            found = con.execute("select distinct token from token_stats").fetchall()
        assert found == [("",)]
        return
    with zipfile.ZipFile(path) as archive:
        file = io.BytesIO(archive.read(f"token_stats.{format}"))
    frame = pd.read_csv(file) if format == "csv" else pd.read_parquet(file)
    assert all(pd.isna(t) or t == "" for t in frame["token"].unique())
    assert len(frame) == len(membership.read("token_stats", ["position"]))


@pytest.mark.parametrize("kind", ["membership", "vectors"])
def test_the_report_is_one_file_that_loads_nothing(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    path = export(run, "html", tmp_path / "r.html")
    text = path.read_text()
    assert path.stat().st_size < 6_000_000
    assert "default-src 'none'" in text
    assert text.count("plotly.js v") == 1
    own = re.sub(r"<script type=\"text/javascript\">.*?</script>", "", text, flags=re.S)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", own)
    assert "<script>alert" not in own
    assert "<img" not in own
    assert "onerror=alert" not in own.replace("onerror=alert(2)&gt;", "")
    assert "What was audited, and what was not" in text


def test_the_report_tells_what_defences_leave_and_cost(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=400, defences=("none", "leace", "noise"))
    text = export(run, "html", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Defences against recorded_race" in text
    assert "What defences leave of recorded_race in meanpool" in text
    assert "Linear falls, mlp does not" in text
    assert "neighbours kept (95 % interval)" in text
    assert "all declared attackers behind leace" in text


def test_the_report_tells_what_is_read_from_texts(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=400, defences=("none", "prompt:blind"), summaries=60)
    text = export(run, "html", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Where recorded_race is, text by text and vector by vector" in text
    assert "Summaries the model wrote" in text
    assert "of 60 summaries hold a meta-term" in text


def test_the_report_tells_layers_labels_correction_and_ceiling(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, layers=(0, 1, 2), attributes=("race", "sex"), ceiling=0.8)
    text = export(run, "html", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "How deep race can be read" in text
    assert "How deep sex can be read" in text
    assert "2 labels in one run" in text
    assert "24 tests (2 labels × 2 vectors × 3 layers × 2 attackers)" in text
    assert "Bayes ceiling of this data: 80.0" in text
    assert text.count("Bayes ceiling of this data 80.0") >= 4  # on both pictures of both labels
    assert "all artifacts" in text
    assert "training rows" not in text.split("</script>")[-1]


def test_small_classes_are_suppressed_in_the_report(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=60)
    text = export(run, "html", tmp_path / "r.html").read_text()
    assert "fewer than 10 subjects suppressed" in text


def test_subjects_are_counted_in_the_report_and_none_is_named(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "run", rows=1600, tokens=12, per_subject=4)
    page = export(run, "html", tmp_path / "report.html").read_text()
    section = re.search(r"<section><h2>Subjects</h2>.*?</section>", page, re.S)
    assert section
    text = section.group()
    assert "in training" in text
    assert "falsely accused by at least one row" in text
    assert not re.search(r">s\d+<", text)
    few = membership_run(tmp_path / "few", rows=1600, tokens=12, per_subject=200, members=0.5)
    text = export(few, "html", tmp_path / "few.html").read_text()
    assert "fewer than 10" in text
    assert "suppressed" in text
    alone = export(
        membership_run(tmp_path / "alone", rows=1600, tokens=12), "html", tmp_path / "alone.html"
    ).read_text()
    assert "<h2>Subjects</h2>" not in alone


def test_a_run_that_is_not_finished_says_so(tmp_path: Path) -> None:
    run = membership_run(tmp_path / "m", rows=60, tokens=8, stages=1, status="failed")
    text = export(run, "html", tmp_path / "r.html").read_text()
    assert "This run is failed" in text
    assert "plotly.js v" not in text  # no figure, no library


def test_what_cannot_be_exported_is_said(vectors: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not an export format"):
        export(vectors, "pdf", tmp_path / "x.pdf")
    with pytest.raises(RunError, match="is a folder"):
        export(vectors, "html", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        export(vectors, "html", tmp_path / "file" / "x.html")
    assert set(FORMATS) == {"html", "csv", "parquet", "duckdb"}


def test_no_table_of_a_report_is_cut_and_every_cell_says_what_it_is(tmp_path: Path) -> None:
    text = html_report(vectors_run(tmp_path / "v", rows=200))
    probes = text.split("<h2>Probes on the test split")[1].split("</section>")[0]
    assert probes.count("<th>") <= 9  # as many as the page holds
    assert 'data-th="LeakageGap (90 % interval)"' in probes
    assert 'data-th="subjects"' in probes
    assert JUDGED in html.unescape(text)
