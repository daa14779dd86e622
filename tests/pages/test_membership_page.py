"""The page Remembered rows, run by Streamlit's own test harness on fake runs."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from auditcore.store import Run
from tests.fake_runs import membership_run, vectors_run

ROUTER = str(Path(__file__).resolve().parents[2] / "pages" / "_router.py")


def page(run: Run | None = None, **query: str) -> AppTest:
    at = AppTest.from_file(ROUTER, default_timeout=60)
    at.query_params.update({"run": run.id, **query} if run is not None else query)
    at.switch_page("membership.py")
    at.run()
    assert not at.exception
    return at


def html(at: AppTest) -> str:
    return "\n".join(part.proto.body for part in at.get("html"))


def make(home: Path, name: str = "one", **changes) -> Run:
    return membership_run(home / name, **changes)


def test_it_opens_with_the_finding_and_the_verdict(home: Path) -> None:
    text = html(page(make(home, rows=1600, tokens=12)))
    assert "At a threshold that falsely accuses 1 row in 100" in text
    assert "7,208 are needed" in text
    assert "over budget" in text
    assert "Rates over rows, not per person" in text


def test_the_numbers_behind_the_map_are_made_when_somebody_looks(home: Path) -> None:
    at = page(make(home), row="42")
    assert not any("p after" in frame.value.columns for frame in at.dataframe)
    at.session_state["numbers"] = True
    at.run()
    assert any("p after" in frame.value.columns for frame in at.dataframe)


def test_a_row_in_the_address_is_shown_token_by_token(home: Path) -> None:
    at = page(make(home), row="42", attack="reference")
    text = html(at)
    assert "Row <bdi>42</bdi>: reference" in text
    assert 'class="tk-map"' in text
    assert "after fine-tuning" in text


def test_papers_access_and_passes_of_every_attack_are_shown(home: Path) -> None:
    text = html(page(make(home)))
    for words in ("arXiv 2601.12104", "Yeom et al. 2018", "log-probabilities of target and reference"):
        assert words in text


def test_an_unknown_row_is_said(home: Path) -> None:
    text = html(page(make(home), row="no such row"))
    assert "This run has no row &#x27;no such row&#x27;" in text


def test_next_and_previous_walk_the_list(home: Path) -> None:
    at = page(make(home))
    button = next(b for b in at.button if b.label == "Next row")
    button.click().run()
    assert not at.exception
    second = at.session_state["row"]
    assert second
    next(b for b in at.button if b.label == "Next row").click().run()
    third = at.session_state["row"]
    next(b for b in at.button if b.label == "Previous row").click().run()
    assert at.session_state["row"] == second != third


def test_search_finds_names_and_texts_and_takes_no_sql(home: Path) -> None:
    run = make(home, rows=60)
    at = page(run)
    search = at.text_input(key="rows_search")
    search.set_value("17").run()
    assert not at.exception
    assert re.search(r"<b>Row \d+ of \d+</b> in this list", html(at))
    for hostile in ("' or 1=1 --", "%", "\\", "oracle"):
        at.text_input(key="rows_search").set_value(hostile).run()
        assert not at.exception
    at.text_input(key="rows_search").set_value("nothing of this kind").run()
    assert "No row fits this choice" in html(at)


def test_hostile_rows_are_shown_as_written(home: Path) -> None:
    run = make(home, hostile=True, rows=60)
    rows = run.read("examples")["example_id"].tolist()
    for row in (rows[0], rows[2], rows[4]):
        text = html(page(run, row=row))
        assert "<script>alert" not in text
        assert "<img" not in text
        assert 'class="tk-map"' in text


@pytest.mark.parametrize("store_text", ["none", "full"])
def test_no_text_of_a_row_is_shown_when_it_is_hidden(home: Path, store_text: str) -> None:
    run = make(home, store_text=store_text)
    words = [
        w.strip() for w in make(home, "same").read("token_stats", where="example_id = '42'")["token"] if len(w) > 6
    ]
    at = page(run, row="42")
    at.session_state["numbers"] = True
    at.run()
    if store_text == "full":
        assert all(w in html(at) for w in words)
        at.toggle(key="hide_text").set_value(True).run()
    assert not any(f"{w}</span>" in html(at) for w in words)
    assert not any("token" in frame.value.columns for frame in at.dataframe)
    assert "text is hidden" in html(at)


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_a_run_still_working_shows_what_is_there(home: Path, stages: int) -> None:
    text = html(page(make(home, status="queued", stages=stages, rows=40)))
    assert "still working" in text
    assert ('class="tk-map"' in text) == (stages >= 2)
    assert ("No token statistics yet" in text) == (stages < 2)
    assert ("No rate has been measured yet" in text) == (stages < 4)


@pytest.mark.parametrize(("members", "words"), [(0.0, "no rows known to be members"), (1.0, "known not to be members")])
def test_without_one_group_it_says_that_no_rate_exists(home: Path, members: float, words: str) -> None:
    assert words in html(page(make(home, members=members, unknown=0.0, rows=40)))


def test_rows_without_evidence_are_said_and_never_called_members(home: Path) -> None:
    run = make(home, rows=60)
    assert "This row has no tokens" in html(page(run, row="12"))
    text = html(page(run, row="11"))
    assert "No evidence" in text
    assert "Called a training row" not in text


def test_long_rows_are_shown_in_pages(home: Path) -> None:
    run = make(home, hostile=True, rows=30)
    row = run.read("examples")["example_id"].iloc[7]
    text = html(page(run, row=row))
    assert text.count("data-t=") == 600
    assert "5,000 tokens, 600 on each page" in text


def test_warnings_stand_at_the_top(home: Path) -> None:
    run = make(home, warnings=("The member column disagrees with the training rows: 12 rows.",))
    text = html(page(run))
    assert text.index("The member column disagrees") < text.index("What each attack finds")


def test_a_run_of_another_kind_or_none_says_what_to_do(home: Path) -> None:
    assert "New audit" in html(page())
    assert "New audit" in html(page(vectors_run(home / "v", rows=60)))


def test_a_click_in_the_scores_shows_the_row_and_turns_the_list_to_it(home: Path) -> None:
    run = make(home)
    at = page(run)
    at.session_state["scores"] = {"selection": {"points": [{"customdata": "137"}]}}
    at.run()
    assert "Row <bdi>137</bdi>" in html(at)
    assert at.session_state["row"] == "137"
    (names,) = [frame.value["row"].tolist() for frame in at.dataframe if "called" in frame.value]
    assert "137" in names
    at.session_state["row"] = "42"  # another one, typed or chosen in the table
    at.run()
    assert "Row <bdi>42</bdi>" in html(at)
    at.session_state["scores"] = {"selection": {"points": []}}  # the mark is taken back
    at.run()
    assert "Row <bdi>42</bdi>" in html(at)


def test_a_click_on_a_bar_shows_a_row_of_it(home: Path) -> None:
    run = make(home)
    scores = run.read("membership_scores", where="attack = 'reference' and member", order_by="score")
    middle = scores["score"].iloc[len(scores) // 2]
    at = page(run, attack="reference")
    bar = [12, 0.1, "words", "members", middle - 0.02, middle + 0.02]
    at.session_state["scores"] = {"selection": {"points": [{"customdata": bar}]}}
    at.run()
    row = at.session_state["row"]
    found = scores.set_index("example_id").loc[row, "score"]
    assert abs(found - middle) <= 0.02
    at.session_state["scores"] = {"selection": {"points": [{"customdata": [1, 1, "x", "drop table", 0, 1]}]}}
    at.run()
    assert not at.exception
    assert at.session_state["row"] == row


@pytest.mark.parametrize("attack", ["ez", "reference"])
def test_a_click_on_rows_placed_at_the_top_shows_one_of_them(home: Path, attack: str) -> None:
    run = make(home)
    at = page(run, attack=attack)
    at.session_state["scores"] = {"selection": {"points": [{"customdata": [3, 0.1, "x", "members", None, None]}]}}
    at.run()
    assert not at.exception
    if attack == "ez":
        chosen = run.read(
            "membership_scores", where="attack = 'ez' and example_id = ?", params=[at.session_state["row"]]
        )
        assert chosen["status"].iloc[0] in ("no_errors", "n_zero")


def test_subjects_are_shown_where_rows_share_them_and_their_rows_can_be_listed(home: Path) -> None:
    run = make(home, rows=1600, tokens=12, per_subject=4)
    at = page(run, attack="reference")
    text = html(at)
    assert "Subjects with the most rows found" in text
    assert "subjects with rows in training" in text
    assert "falsely accused by at least one row" in text
    (table,) = [frame.value for frame in at.dataframe if "training rows" in frame.value]
    assert (table["found"] <= table["training rows"]).all()
    subject = table["subject"].iloc[0]
    at.text_input(key="subject").set_value(subject).run()
    (rows,) = [frame.value for frame in at.dataframe if "called" in frame.value]
    wanted = run.read("examples", ["example_id"], '"group" = ?', [subject])["example_id"]
    assert set(rows["row"]) == set(wanted)
    assert (rows["called"] == "training row").sum() == table["found"].iloc[0]
    at.text_input(key="subject").set_value("nobody' or 1=1 --").run()
    assert not at.exception
    assert "No row fits this choice" in html(at)


def test_subjects_are_not_spoken_of_where_every_row_is_its_own(home: Path) -> None:
    at = page(make(home, rows=1600, tokens=12))
    assert "Subjects with" not in html(at)
    assert not [field for field in at.text_input if field.label == "Subject"]


def test_without_a_threshold_subjects_cannot_be_judged(home: Path) -> None:
    assert "no threshold at the chosen rate" in html(page(make(home, per_subject=4), fpr="0.1"))
