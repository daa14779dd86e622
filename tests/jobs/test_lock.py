"""Declaring and locking over fake runs of checkpoints: what is written, in which order, and what is refused."""

import pytest

from auditcore import decisions, records
from auditcore.errors import RunError, SpecError
from auditcore.frontier import Declaration
from auditcore.jobs import lock, sealed
from tests.fake_surface import surfacelora_run


def kinds(run) -> list[str]:
    return [r["kind"] for r in records.read(run)]


def test_a_declaration_is_written_before_the_choice_it_locks(home) -> None:
    run = surfacelora_run(home / "runs" / "one", leak=0.005)
    found = lock.lock(run, decisions.declared(run), "Ada")
    assert kinds(run) == ["declaration", "lock"]
    declared, locked = records.read(run)
    assert declared["content"]["declaration"] == locked["content"]["declaration"] == decisions.declared(run).record()
    assert locked["content"]["chosen"]["step"] == found.selection.chosen["step"]
    assert len(locked["content"]["checkpoints"]) == 64
    assert found.run.id == run.id
    assert lock.pending(run)
    records.append(run, "reveal", "Ada", chosen=locked["content"]["chosen"])
    assert not lock.pending(run)
    with pytest.raises(RunError, match="nothing to reveal"):
        lock.submit(run)


def test_the_same_declaration_finds_its_lock_and_another_is_recorded_and_refused(home) -> None:
    run = surfacelora_run(home / "runs" / "one", leak=0.005)
    first = lock.lock(run, decisions.declared(run), "Ada")
    again = lock.lock(run, decisions.declared(run), "Bo")
    assert again.record == first.record
    assert kinds(run) == ["declaration", "lock"]
    wider = decisions.merge(decisions.declared(run), budget=0.4)
    with pytest.raises(RunError, match=r"locked on .* by Ada under another declaration.*number 3"):
        lock.lock(run, wider, "Bo")
    assert kinds(run) == ["declaration", "lock", "declaration"]
    assert records.read(run)[-1]["content"]["after_lock"] == 2
    assert decisions.declared(run).budget == 0.025


def test_a_budget_that_nothing_meets_may_be_changed_while_the_rows_are_sealed(home) -> None:
    run = surfacelora_run(home / "runs" / "one", leak=0.1)
    strict = lock.lock(run, decisions.declared(run), "Ada")
    assert strict.record is None
    assert strict.selection.nearest is not None
    wider = decisions.merge(decisions.declared(run), budget=0.4)
    assert lock.lock(run, wider, "Ada").record is not None
    assert kinds(run) == ["declaration", "declaration", "lock"]


def test_several_runs_are_locked_together_and_the_chosen_one_reads_its_rows(home) -> None:
    weak = surfacelora_run(home / "runs" / "weak", strength=0.0, seed=1)
    strong = surfacelora_run(home / "runs" / "strong", leak=0.005, seed=2)
    found = lock.lock(weak, decisions.declared(weak), "Ada", [strong])
    assert found.run.id == "strong"
    assert kinds(strong) == ["lock"]
    assert kinds(weak) == ["declaration", "lock"]
    assert lock.pending(strong)
    assert not lock.pending(weak)
    third = surfacelora_run(home / "runs" / "third", leak=0.005, seed=3)
    with pytest.raises(RunError, match="locked already"):
        lock.lock(third, decisions.declared(third), "Bo", [strong])


def test_what_cannot_be_locked_is_refused_and_leaves_no_record(home, monkeypatch) -> None:
    working = surfacelora_run(home / "runs" / "working", status="queued")
    with pytest.raises(RunError, match="when every checkpoint is measured"):
        lock.lock(working, decisions.declared(working), "Ada")
    empty = surfacelora_run(home / "runs" / "empty", stages=0)
    with pytest.raises(RunError, match="no measured checkpoint"):
        lock.lock(empty, Declaration(0.1, ("a",), ("b",), ("c",)), "Ada")
    untested = surfacelora_run(home / "runs" / "untested")
    sealed.file_of(untested).unlink()
    with pytest.raises(RunError, match="sealed no bal_test rows"):
        lock.lock(untested, decisions.declared(untested), "Ada")
    run = surfacelora_run(home / "runs" / "one")
    with pytest.raises(SpecError, match="Did you mean 'linear'"):
        lock.lock(run, decisions.merge(decisions.declared(run), attackers=("lienar",)), "Ada")
    with pytest.raises(RunError, match="name of who"):
        lock.lock(run, decisions.declared(run), " ")
    other = surfacelora_run(home / "runs" / "other")
    other.update(fingerprints={"data": "another"})
    with pytest.raises(RunError, match="different data"):
        lock.lock(run, decisions.declared(run), "Ada", [other])
    for one in (working, empty, untested, run, other):
        assert kinds(one) == []
