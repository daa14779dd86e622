"""Runs and reports: history, claim, resume, delete with confirmation."""

from pathlib import Path

from auditcore import jobs, store
from pages import _data as data
from tests.fake_runs import membership_run, vectors_run
from tests.pages.conftest import words_of


def test_history_lists_every_run_with_its_verdict(open_page, home: Path) -> None:
    membership_run(home / "m", rows=1500, tokens=8, lift=2.5)
    vectors_run(home / "v", rows=300)
    app = open_page("runs.py", run="m")
    table = app.dataframe[0].value
    assert len(table) == 2
    assert set(table["Kind"]) == {"Remembered rows", "Exported vectors"}
    assert all(" " in v for v in table["Verdict"])  # a symbol and words
    text = words_of(app)
    assert "What can be claimed" in text
    assert "Verdicts, one line per declared attacker" in text
    assert {b.proto.label for b in app.get("download_button")} == {
        "Report (HTML)",
        "Tables (CSV)",
        "Tables (Parquet)",
        "Database (DuckDB)",
        "Spec (YAML)",
    }


def test_an_interrupted_run_can_be_resumed(open_page, home: Path, monkeypatch) -> None:
    run = membership_run(home / "m", rows=60, tokens=8, stages=1, status="running")
    resumed: list[str] = []
    monkeypatch.setattr(jobs, "resume", lambda which: resumed.append(which.id))
    app = open_page("runs.py")
    assert run.status == "interrupted"
    assert "This run was interrupted." in words_of(app)
    app.get_by_key("resume_m").click().run()
    assert resumed == ["m"]


def test_delete_asks_first(open_page, home: Path) -> None:
    vectors_run(home / "v", rows=60)
    app = open_page("runs.py")
    app.get_by_key("delete_v").click().run()
    assert (home / "v").exists()
    assert {b.label for b in app.button} >= {"Delete", "Keep it"}  # the rest of it needs a browser


def test_a_shipped_study_is_read_only(open_page, home: Path, tmp_path: Path, monkeypatch) -> None:
    vectors_run(tmp_path / "made", rows=60)
    (tmp_path / "studies").mkdir()
    (tmp_path / "made").rename(tmp_path / "studies" / "made")
    assert store.Run(tmp_path / "studies" / "made").readonly
    app = open_page("runs.py")
    assert "it is read-only" in words_of(app)
    assert not [b for b in app.button if b.label.startswith("Delete")]


def test_a_run_on_an_upload_is_listed_by_the_name_of_the_file(open_page, home: Path) -> None:
    path = data.keep_upload("my notes.csv", b"text,sex\nhello,F\nworld,M\n")
    run = vectors_run(home / "v", rows=60)
    run.update(spec={**run.manifest["spec"], "data": {**run.manifest["spec"]["data"], "path": path}})
    assert list(open_page("runs.py").dataframe[0].value["Data"]) == ["my notes.csv"]
