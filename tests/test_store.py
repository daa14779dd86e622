"""The store: whole tables or none, liveness by lock, nothing outside the folder."""

import json
import multiprocessing
import os
import shutil
import time

import pandas as pd
import pytest

from auditcore import disk, records, store
from auditcore.errors import RunError

SPEC = {"kind": "finetune", "name": "a <b> $x$", "model": {"source": "m"}, "data": {"path": "d.csv"}}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    monkeypatch.setattr(store, "studies", lambda: tmp_path / "studies")
    return tmp_path


def test_a_table_survives_and_is_read_in_parts(home) -> None:
    run = store.create_run(SPEC)
    frame = pd.DataFrame({"example_id": ["a", "b", "c"], "score": [1.0, None, float("inf")]})
    run.write("membership_scores", frame)
    assert run.tables() == ["membership_scores"]
    assert run.read("membership_scores", ["score"], where="example_id = ?", params=["a"])["score"].tolist() == [1.0]
    assert run.read("membership_scores", order_by="example_id desc", limit=1, offset=1)["example_id"].tolist() == ["b"]
    assert run.sql("select count(*) n from membership_scores")["n"][0] == 3
    with pytest.raises(RunError, match="Did you mean 'membership_scores'"):
        run.read("membership_score")
    with pytest.raises(RunError, match="not a table name"):
        run.write("../x", frame)


def test_no_half_written_file_is_ever_visible(home) -> None:
    run = store.create_run(SPEC)

    def fail_half_way() -> None:
        with disk.atomic(run.path / "roc.parquet") as temporary:
            temporary.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert not run.has("roc")
    assert [p.name for p in run.path.iterdir() if p.name.endswith(".tmp")] == []


def test_names_are_made_safe_and_ids_never_walk(home) -> None:
    run = store.create_run(SPEC)
    assert run.path.parent == store.home()
    assert all(c.isalnum() or c in "._-" for c in run.id)
    assert store.open_run(run.id).path == run.path
    assert store.open_run(str(run.path)).path == run.path
    for bad in ("../x", "/etc", "..", "", "a\0b"):
        with pytest.raises(RunError):
            store.open_by_id(bad)
    with pytest.raises(RunError, match="Did you mean"):
        store.open_run(run.id[:-1])


def _hold(path: str, ready, done) -> None:
    with store.Run(store.Path(path)).lock():
        ready.set()
        done.wait(20)


def test_a_run_is_alive_while_its_lock_is_held_and_only_then(home) -> None:
    run = store.create_run(SPEC)
    run.update(status="running")
    assert run.status == "interrupted"
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(run.path), ready, done))
    process.start()
    try:
        assert ready.wait(60)
        assert run.status == "running"
        with pytest.raises(RunError, match="worked on by another process"), run.lock():
            pass
        with pytest.raises(RunError, match="cancel it before"):
            run.delete()
    finally:
        process.kill()
        process.join()
    assert run.status == "interrupted"


def test_a_queued_run_without_a_worker_is_interrupted_after_a_while(home) -> None:
    run = store.create_run(SPEC)
    assert run.status == "queued"
    run.update(queued_at=time.time() - store.STARTING - 1)
    assert run.status == "interrupted"


def test_progress_ignores_a_line_cut_by_a_kill(home) -> None:
    run = store.create_run(SPEC)
    run.event("rows", 1, 2)
    run.event("rows", 2, 2, 0.0, "done")
    with open(run.path / store.EVENTS, "a") as handle:
        handle.write('{"stage": "tok')
    assert [(e["stage"], e["done"]) for e in run.progress()] == [("rows", 2)]


def test_listing_shows_broken_runs_instead_of_failing(home) -> None:
    good = store.create_run(SPEC)
    bad = store.home() / "bad"
    bad.mkdir()
    (bad / "run.json").write_text("{")
    (store.home() / "cache").mkdir()
    listed = store.list_runs().set_index("run_id")
    assert listed.loc["bad", "status"] == "broken"
    assert listed.loc[good.id, "name"] == SPEC["name"]
    assert len(listed) == 2


@pytest.mark.parametrize("content", ["[1]", "7", "{}", '{"spec": null}', '{"spec": {"data": {}}}'])
def test_a_manifest_that_names_no_audit_is_said_to_be_broken(content, home) -> None:
    bad = store.home() / "bad"
    bad.mkdir(parents=True)
    (bad / "run.json").write_text(content)
    with pytest.raises(RunError, match="does not say what was audited"):
        _ = store.open_run("bad").kind
    assert store.list_runs()["status"].tolist() == ["broken"]


def test_shipped_studies_cannot_be_changed(home) -> None:
    path = store.studies() / "s"
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"id": "s", "spec": SPEC, "status": "done", "created": store.now()}))
    run = store.open_run("s")
    assert run.readonly
    assert run.status == "done"
    for change in (run.delete, lambda: run.write("roc", pd.DataFrame()), lambda: run.update(status="x")):
        with pytest.raises(RunError, match="shipped study"):
            change()


def test_a_run_never_overwrites_another(home, tmp_path) -> None:
    out = tmp_path / "mine"
    store.create_run(SPEC, out)
    with pytest.raises(RunError, match="already holds a run"):
        store.create_run(SPEC, out)
    other = tmp_path / "full"
    other.mkdir()
    (other / "x").touch()
    with pytest.raises(RunError, match="not empty"):
        store.create_run(SPEC, other)
    store.open_run(str(out)).delete()
    assert not out.exists()
    assert os.listdir(other) == ["x"]


def test_what_is_made_is_the_user_s_alone_and_an_export_is_as_any_file(home) -> None:
    before = os.umask(0o022)
    try:
        run = store.create_run(SPEC)
        run.write("roc", pd.DataFrame({"fpr": [0.0]}))
        run.event("rows", 0, 1)
        store.enter_ledger(store.home() / "ledger.jsonl", "key", run.id)
        with disk.all_private():
            (run.path / "checkpoints").mkdir()
            (run.path / "checkpoints" / "by-another-library").write_text("x")
        with disk.atomic(home / "report.html", shared=True) as temporary:
            temporary.write_text("x")
        made = [store.home(), *store.home().rglob("*")]
        rights = {oct(p.stat().st_mode & 0o777) for p in made if p.is_file()}
        assert rights == {"0o600"}
        assert {oct(p.stat().st_mode & 0o777) for p in made if p.is_dir()} == {"0o700"}
        assert (home / "report.html").stat().st_mode & 0o777 == 0o644
        os.umask(0o277)  # stricter than ours: kept
        disk.write_json(run.path / "more.json", {})
        assert (run.path / "more.json").stat().st_mode & 0o777 == 0o400
    finally:
        os.umask(before)


def test_a_copy_of_a_shipped_study_opens_in_its_place_and_takes_records(home) -> None:
    path = store.studies() / "s"
    store.create_run({"kind": "vectors", "data": {"path": "x.csv"}}, path)
    assert store.open_run("s").readonly
    shutil.copytree(path, store.home() / "s")
    assert store.list_runs()[["run_id", "readonly"]].to_numpy().tolist() == [["s", False]]
    records.append(store.open_run("s"), "decision", "Ada", choice="accept")
    assert [r["by"] for r in records.read(store.open_run("s"))] == ["Ada"]
    assert records.read(store.Run(path)) == []
