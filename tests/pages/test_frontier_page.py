"""The page Checkpoint frontier, run by Streamlit's own test harness on fake runs."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from auditcore import decisions, records
from auditcore.jobs import lock
from tests.fake_runs import vectors_run
from tests.fake_surface import surfacelora_run
from tests.pages.conftest import words_of


def button(app, label: str):
    return next(b for b in app.button if b.label == label)


def test_it_opens_with_the_choice_what_it_keeps_and_what_it_still_tells(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.005)
    text = words_of(open_page("frontier.py", run="one"))
    assert "reaches ROUGE-L" in text
    assert "to name recorded_race from lasttok</b> (guessing gives 20)" in text
    assert "meanpool, which was not targeted, still gives" in text
    assert "bal_test) stay sealed" in text
    assert "no other beats on both axes" in text
    assert "3 checkpoints" in text or "checkpoints within the budget" in text
    assert "the leak <b>comes back</b> by" in text


def test_no_checkpoint_within_the_budget_is_a_result_with_the_nearest(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.1)
    text = words_of(open_page("frontier.py", run="one"))
    assert "<b>No checkpoint meets the budget</b> of 0.025. The nearest, step" in text
    assert "<b>None qualifies</b>; step" in text


def test_several_runs_stand_together_with_plain_lora_as_the_anchor(home, open_page: Callable) -> None:
    surfacelora_run(home / "plain", strength=0.0, seed=1)
    surfacelora_run(home / "two", strength=2.0, leak=0.005)
    other = surfacelora_run(home / "elsewhere")
    other.update(fingerprints={"data": "another file"})
    app = open_page("frontier.py", run="two", **{"with": "plain,elsewhere,gone"})
    text = words_of(app)
    assert "below utility-only LoRA" in text
    assert "λ 0" in text
    assert app.multiselect(key="frontier_with_two").value == ["plain"]
    assert "16 checkpoints" in text


def test_a_click_brings_the_checkpoint_its_leaks_and_its_summaries(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.005)
    click = {
        "selection": {
            "points": [{"customdata": ["one", 100, "", "", ""]}],
            "point_indices": [2],
            "box": [],
            "lasso": [],
        }
    }
    app = open_page("frontier.py", run="one", state={"tradeoff_lasttok": click})
    assert app.selectbox(key="frontier_checkpoint").value == ("one", 100)
    text = words_of(app)
    assert "24 summaries of bal_val rows" in text
    assert "step-000100" in text
    app.selectbox(key="frontier_checkpoint").set_value(("one", 200)).run()
    assert "step-000200" in words_of(app)


def test_the_address_restores_the_checkpoint_and_a_wrong_one_is_ignored(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.005)
    assert open_page("frontier.py", run="one", at="150").selectbox(key="frontier_checkpoint").value == ("one", 150)
    for wrong in ("9999", "<b>", "two~50", ""):
        value = open_page("frontier.py", run="one", at=wrong).selectbox(key="frontier_checkpoint").value
        assert value[0] == "one"
        assert value[1] > 0


def test_locking_asks_first_needs_a_name_and_starts_the_job_once(home, open_page: Callable, monkeypatch) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    started = []
    monkeypatch.setattr(lock, "submit", lambda which: started.append(which.id))
    app = open_page("frontier.py", run="one")
    assert button(app, "Lock and reveal").disabled
    app.text_input(key="who").set_value("Ada").run()
    assert button(app, "Lock and reveal").disabled
    app.checkbox(key="sure_one").check().run()
    assert records.read(run) == []
    button(app, "Lock and reveal").click().run()
    assert started == ["one"]
    assert [r["kind"] for r in records.read(run)] == ["declaration", "lock"]
    assert records.read(run)[0]["by"] == "Ada"
    text = words_of(app)
    assert "The choice is locked" in text
    assert "not read to the end" in text  # the job was not really started
    assert "On record" in text
    button(app, "Read them now").click().run()
    assert started == ["one", "one"]


def test_a_budget_that_nothing_meets_is_recorded_and_locks_nothing(home, open_page: Callable, monkeypatch) -> None:
    run = surfacelora_run(home / "one", leak=0.1)
    monkeypatch.setattr(lock, "submit", lambda which: pytest.fail("nothing was chosen"))
    app = open_page("frontier.py", run="one")
    app.text_input(key="who").set_value("Ada").run()
    button(app, "Record this declaration").click().run()
    assert [r["kind"] for r in records.read(run)] == ["declaration"]
    assert decisions.locked(run) is None
    assert "stay sealed" in words_of(app)
    assert "no checkpoint met it" in words_of(app)


def test_a_folder_of_foreign_adapters_shows_the_usable_and_lists_the_others(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "foreign", kind="frontier", leak=0.005)
    table = run.read("checkpoints")
    names = np.where(table["step"] > 0, "adapter-" + table["step"].astype(str), "base")
    run.write("checkpoints", table.assign(checkpoint=names, **{"lambda": np.where(table["step"] > 0, np.nan, 0.0)}))
    steps = sorted(set(table["step"]) - {0})
    found = {"checkpoint": [f"adapter-{s}" for s in steps], "step": steps, "path": [f"/else/where/{s}" for s in steps]}
    run.write("adapters", pd.DataFrame(found))
    left_out = [("<img src=x>", "another base: gpt2"), ("b", "corrupt")]
    run.write("skipped", pd.DataFrame(left_out, columns=["checkpoint", "reason"]))
    text = words_of(open_page("frontier.py", run="foreign"))
    assert "Adapter-" in text
    assert "/else/where/" in text
    assert "utility-only" not in text
    assert "2 checkpoints left out" in text
    assert "another base: gpt2" in text
    assert "<img" not in text


def test_without_summaries_the_page_says_that_nothing_can_be_chosen(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    table = run.read("checkpoints")
    run.write("checkpoints", table.assign(rougeL=np.nan, rougeL_low=np.nan, rougeL_high=np.nan))
    text = words_of(open_page("frontier.py", run="one"))
    assert "nothing to hold the leak against" in text
    assert "8 checkpoints left out: a gap or ROUGE-L is missing" in text


def test_hostile_names_and_texts_are_shown_as_written(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", hostile=True)
    text = words_of(open_page("frontier.py", run="one"))
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "<img" not in text


def test_texts_can_be_hidden_or_absent(home, open_page: Callable) -> None:
    surfacelora_run(home / "one")
    assert "hidden in this session" in words_of(open_page("frontier.py", run="one", state={"hide_text": True}))
    surfacelora_run(home / "two", text=False)
    assert "store_text: none" in words_of(open_page("frontier.py", run="two"))


@pytest.mark.parametrize("stages", [0, 1])
def test_a_run_still_working_shows_what_is_there(home, open_page: Callable, stages: int) -> None:
    surfacelora_run(home / "one", status="queued", stages=stages)
    text = words_of(open_page("frontier.py", run="one"))
    assert "still working" in text
    assert ("No checkpoint has been measured yet" in text) == (stages == 0)


def test_changed_records_are_said_before_anything_else(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    records.append(run, "decision", "Ada", choice="accept")
    file = run.path / records.FILE
    file.write_text(file.read_text().replace("accept", "reject"))
    assert "was changed" in words_of(open_page("frontier.py", run="one"))


def test_a_run_of_another_kind_or_none_says_what_to_do(home, open_page: Callable) -> None:
    assert "There is no run yet" in words_of(open_page("frontier.py"))
    vectors_run(home / "v", rows=60)
    for page in ("frontier.py", "review.py"):
        app = open_page(page, run="v")
        text = words_of(app)
        assert "answers another question (Exported vectors)" in text
        assert "kind surfacelora" not in text
        links = {link.proto.label: link.proto.query_string for link in app.get("page_link")}
        assert "kind=surfacelora" in links["Train a mitigation"]


def test_the_vectors_page_shows_one_checkpoint_and_says_that_the_test_rows_are_sealed(
    home, open_page: Callable
) -> None:
    surfacelora_run(home / "one", leak=0.005)
    app = open_page("vectors.py", run="one", step="100", artifact="meanpool")
    text = words_of(app)
    assert app.selectbox(key="vectors_step_one").value == "100"
    assert "<h2>meanpool, layer 30</h2>" in text
    assert "stay sealed" in text
    assert "Who is taken for whom" in text
    app.selectbox(key="vectors_step_one").set_value("400").run()
    assert words_of(app) != text
    assert open_page("vectors.py", run="one", step="<b>").selectbox(key="vectors_step_one").value == "400"
