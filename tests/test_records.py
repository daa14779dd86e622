"""Records of a run: appended to, never edited; a change shows."""

import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditcore import records, store
from auditcore.errors import RunError


@pytest.fixture
def run(tmp_path, monkeypatch) -> store.Run:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path))
    return store.create_run({"kind": "finetune", "data": {"path": "x.csv"}}, tmp_path / "one")


def test_records_are_numbered_in_order_and_read_by_kind(run) -> None:
    assert records.read(run) == []
    records.append(run, "declaration", " Ada  L. ", budget=0.025)
    records.append(run, "vote", "Bo", row="N1\u2028\n", choice=None)
    assert [(r["number"], r["kind"], r["by"]) for r in records.read(run)] == [
        (1, "declaration", "Ada L."),
        (2, "vote", "Bo"),
    ]
    assert records.latest(run, "vote")["content"] == {"row": "N1\u2028\n", "choice": None}
    assert records.latest(run, "decision") is None
    assert records.problems(run) == []
    assert records.me()


def test_what_cannot_be_recorded_is_refused(run, monkeypatch) -> None:
    with pytest.raises(RunError, match="not a kind"):
        records.append(run, "note", "Ada")
    with pytest.raises(RunError, match="name of who"):
        records.append(run, "vote", "  ")
    monkeypatch.setattr(store, "studies", lambda: run.path.parent)
    with pytest.raises(RunError, match="shipped study"):
        records.append(store.Run(run.path), "vote", "Ada")
    assert records.read(run) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_shows_and_nothing_is_added_behind_it(run, data) -> None:
    file = run.path / records.FILE
    file.unlink(missing_ok=True)
    for place in range(3):
        records.append(run, "decision", "Ada", choice="accept", place=place)
    lines = file.read_text().splitlines()
    what = data.draw(st.sampled_from(["change", "remove", "swap", "cut"]))
    place = data.draw(st.integers(0, 2))
    if what == "change":
        lines[place] = lines[place].replace("accept", "reject")
    elif what == "remove":
        del lines[min(place, 1)]  # without its last record a chain is whole: the file's own copy elsewhere would tell
    elif what == "swap":
        lines[0], lines[place or 1] = lines[place or 1], lines[0]
    else:
        lines[place] = lines[place][:-5]
    file.write_text("\n".join(lines) + "\n")
    assert records.problems(run)
    with pytest.raises(RunError, match="cannot be trusted"):
        records.append(run, "decision", "Bo", choice="reject")
    assert file.read_text().splitlines() == lines


def test_two_people_at_once_do_not_break_the_chain(run) -> None:
    def vote(name: str) -> None:
        for place in range(20):
            records.append(run, "vote", name, place=place)

    people = [threading.Thread(target=vote, args=(name,)) for name in ("Ada", "Bo", "Cy")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert records.problems(run) == []
    assert [r["number"] for r in records.read(run)] == list(range(1, 61))


def test_a_chain_kept_by_somebody_else_shows_a_lost_ending(run) -> None:
    last = [records.append(run, "vote", "Ada", place=i) for i in range(2)][-1]
    assert json.loads((run.path / records.FILE).read_text().splitlines()[-1])["hash"] == last["hash"]
