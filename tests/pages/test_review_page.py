"""The page Review meeting, run by Streamlit's own test harness on fake runs: blind votes, decisions, warnings."""

from collections.abc import Callable

import pandas as pd

from auditcore import decisions, records, votes
from auditcore.jobs import lock
from tests.fake_surface import surfacelora_run
from tests.pages.conftest import words_of


def button(app, label: str):
    return next(b for b in app.button if b.label == label)


def test_it_sets_the_rules_choice_beside_the_best_summaries_and_says_what_is_sealed(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.005)
    app = open_page("review.py", run="one")
    text = words_of(app)
    assert len(app.multiselect(key="candidates_one").value) == 3
    assert "The test rows are sealed" in text
    assert text.count("judged on bal_val only") == 3
    assert "ROUGE-1" in text
    assert "the same 24 summaries" in text
    assert "95 % interval" in text
    assert "overlap" not in text
    assert "names no column of its data as member" in text
    assert "Remembered rows were not measured" in text
    assert "what chose a checkpoint cannot praise it" in text


def test_candidates_stand_in_the_address_also_those_of_another_run(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", leak=0.005)
    surfacelora_run(home / "two", strength=0.0, seed=1)
    query = {"with": "two", "candidates": "100,two~400,two~9,<b>"}
    app = open_page("review.py", run="one", **query)
    assert app.multiselect(key="candidates_one").value == [("one", 100), ("two", 400)]
    assert "step 400 of λ 0" in words_of(app)
    app.multiselect(key="candidates_one").set_value([("one", 100)]).run()
    assert "Choose two or three candidates" in words_of(app)


def test_names_are_shown_only_after_the_last_vote_and_every_vote_is_kept(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    app = open_page("review.py", run="one", candidates="100,400")
    assert not [b for b in app.button if b.label == "A is better"]
    app.text_input(key="who").set_value("Ada").run()
    for row in range(votes.ROWS):
        text = words_of(app)
        assert f"Row {row + 1} of 10" in text
        assert "sign test" not in text
        button(app, ("A is better", "B is better", "No difference")[row % 3]).click().run()
    text = words_of(app)
    assert "1 reviewer, 10 rows" in text
    assert "3 without a preference" in text
    assert "Exact sign test" in text
    assert "voted:" in text
    kept = records.read(run, "vote")
    assert [r["by"] for r in kept] == ["Ada"] * 10
    assert len({r["content"]["example_id"] for r in kept}) == 10
    app.text_input(key="who").set_value("Bo").run()  # the next reviewer votes blind too
    assert "Row 1 of 10" in words_of(app)
    assert "sign test" not in words_of(app)


def test_the_same_decision_is_never_edited_and_warns_where_nothing_was_tested(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    app = open_page("review.py", run="one", candidates="100,400")
    assert "nothing but the selection rows speaks" in words_of(app)
    assert button(app, "Record the decision").disabled
    app.text_input(key="who").set_value("Ada").run()
    app.radio(key="choice_one").set_value("reject").run()
    app.text_area(key="reason_one").set_value("<b>too</b> weak").run()
    assert "nothing but the selection rows speaks" not in words_of(app)
    button(app, "Record the decision").click().run()
    first = records.read(run, "decision")
    assert len(first) == 1
    assert {k: first[0]["content"][k] for k in ("choice", "step", "reason")} == {
        "choice": "reject", "step": 100, "reason": "<b>too</b> weak"
    }  # fmt: skip
    text = words_of(app)
    assert "decided: " in text
    assert "&lt;b&gt;too" in text
    app.radio(key="choice_one").set_value("accept").run()
    app.text_area(key="reason_one").set_value("changed our minds").run()
    button(app, "Record the decision").click().run()
    assert [r["content"]["choice"] for r in records.read(run, "decision")] == ["reject", "accept"]
    assert records.problems(run) == []


def test_after_the_reveal_the_card_carries_the_verdict_of_the_test_rows(home, open_page: Callable) -> None:
    run = surfacelora_run(home / "one", leak=0.005)
    chosen = lock.lock(run, decisions.declared(run), "Ada").selection.chosen
    table = run.read("checkpoints")
    mine = table[table["step"] == chosen["step"]]
    tested = mine.assign(split="bal_test", accuracy=0.31, signed_gap=0.11, signed_low90=0.09, signed_high90=0.13)
    run.write("checkpoints", pd.concat([table, tested], ignore_index=True))
    line = {"kind": "vectors", "attribute": "recorded_race", "artifact": "lasttok", "layer": 30, "defence": "none"}
    numbers = {"split": "bal_test", "budget": 0.025, "value": 0.11, "low": 0.09, "high": 0.13, "n_subjects": 3000}
    rows = [{**line, **numbers, "attacker": a, "verdict": "over budget"} for a in ("linear", "mlp", "all")]
    run.write("verdicts", pd.DataFrame(rows))
    records.append(run, "reveal", "Ada", chosen=chosen, verdict="over budget", test_split={"earlier_looks": 2})
    run.update(claim={"audited": "What was audited.", "not_audited": "What was not."})
    text = words_of(open_page("review.py", run="one", candidates=f"{chosen['step']},400"))
    assert "▲ over budget" in text
    assert "31.0" in text
    assert "1,050 subjects<br>LeakageGap (beyond guessing) 11.0 points, 90 % interval 9.0 to 13.0<br>bal_test" in text
    assert "Its verdict on the test rows is: over budget" in text
    assert "What was audited." in text
    text = words_of(open_page("frontier.py", run="one"))
    assert "On the sealed test rows" in text
    assert "2 other runs had looked at these rows before" in text


def test_hidden_or_missing_texts_leave_no_ballot(home, open_page: Callable) -> None:
    surfacelora_run(home / "one")
    assert "nothing to vote on" in words_of(open_page("review.py", run="one", state={"hide_text": True}))
    surfacelora_run(home / "two", text=False)
    assert "share no kept summaries" in words_of(open_page("review.py", run="two"))


def test_hostile_texts_and_names_are_shown_as_written(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", hostile=True)
    app = open_page("review.py", run="one", state={"who": "<img src=x>"})
    text = words_of(app)
    assert "<img" not in text
    assert "<script>alert" not in text
    button(app, "A is better").click().run()
    assert "<img" not in words_of(app)


def test_a_run_without_checkpoints_says_so(home, open_page: Callable) -> None:
    surfacelora_run(home / "one", stages=0, status="queued")
    assert "No checkpoint has been measured yet" in words_of(open_page("review.py", run="one"))
