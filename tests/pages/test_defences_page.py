"""The page Defences on fake runs: what works is said first, linear-only protection is seen, no state is blank."""

import re
from pathlib import Path

import pytest

from tests.fake_runs import membership_run, vectors_run
from tests.pages.conftest import words_of

TRIED = ("none", "pca", "leace", "noise")


def test_it_opens_with_the_best_defence_and_that_only_linear_falls(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=900, defences=TRIED)
    text = words_of(open_page("defences.py", run=run.id))
    assert "an attacker holding meanpool names recorded_race correctly for" in text
    assert "Linear falls, mlp does not" in text
    assert "behind pca and leace the linear probe is no longer over budget" in text
    assert text.count("▲ only linear falls") == 4  # two artifacts, two erasers
    assert "points of accuracy (95 % interval" in text
    assert "Fitted on 20 rows of 20 subjects that no probe sees; erasers remove 4 of 24 directions" in text
    assert "Fewer rows than directions" in text


def test_the_address_restores_label_and_artifact(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, layers=(0, 30), attributes=("race", "sex"), defences=TRIED)
    text = words_of(open_page("defences.py", run=run.id, attribute="sex", artifact="lasttok", layer="0"))
    assert "names sex correctly" in text
    assert "<h2>lasttok, layer 0</h2>" in text
    assert "<h2>meanpool, layer" in words_of(open_page("defences.py", run=run.id, artifact="<b>", layer="99"))


def test_a_run_without_defences_says_how_to_try_some(home: Path, open_page) -> None:
    text = words_of(open_page("defences.py", run=vectors_run(home / "one", rows=200).id))
    assert "no defence was asked for" in text
    assert "choose some under “Defences to try as well”" in text
    assert "<dt>leace</dt>" in text
    assert "defence_fit" not in text


def test_a_run_of_another_kind_or_none_says_what_to_do(home: Path, open_page) -> None:
    assert "There is no run yet" in words_of(open_page("defences.py"))
    run = membership_run(home / "m", rows=40)
    text = words_of(open_page("defences.py", run=run.id))
    assert "answers another question (Remembered rows)" in text
    assert "[none, pca" not in text  # nobody has to know the words of a spec


@pytest.mark.parametrize("stages", [0, 2])
def test_a_run_still_working_shows_what_is_there(home: Path, open_page, stages: int) -> None:
    run = vectors_run(home / "one", status="queued", stages=stages, defences=TRIED)
    text = words_of(open_page("defences.py", run=run.id))
    assert "still working" in text
    assert ("No probe has finished yet" in text) == (stages < 2)


def test_costs_that_are_not_there_yet_are_said(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, defences=TRIED)
    (run.path / "defence_costs.parquet").unlink()
    (run.path / "defence_effects.parquet").unlink()
    assert "Its cost" not in words_of(open_page("defences.py", run=run.id))


def test_defences_alone_are_shown_without_a_line_to_compare_with(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, defences=("leace",))
    text = words_of(open_page("defences.py", run=run.id))
    assert "Behind <b>leace</b>" in text
    assert "without it" not in text
    assert "An attacker holding" in words_of(open_page("vectors.py", run=run.id))


def test_hostile_names_are_shown_as_written(home: Path, open_page) -> None:
    run = vectors_run(home / "one", hostile=True, attributes=("$x$ <img src=x>", "b"), defences=TRIED)
    text = words_of(open_page("defences.py", run=run.id))
    assert "&lt;img src=x&gt;" in text
    assert "<img" not in text


def test_coming_from_another_page_opens_a_run_that_tried_defences(home: Path, open_page) -> None:
    vectors_run(home / "tried", rows=200, defences=TRIED)
    vectors_run(home / "plain", rows=200)
    run = membership_run(home / "rows", rows=40)
    at = open_page("overview.py", run=run.id)
    at.switch_page("defences.py").run()
    assert "Behind <b>" in words_of(at)


PROMPTED = ("none", "prompt:neutral", "prompt:blind")


def test_what_the_model_writes_stands_on_one_axis_with_offending_summaries_marked(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, defences=PROMPTED, summaries=60)
    text = words_of(open_page("defences.py", run=run.id))
    assert re.search(r"named correctly for <b>60 of 100 subjects</b> \(\d+\.\d.* to \d+\.\d.*\) from the prompt", text)
    assert "what texts tell is understated beside vectors" in text
    assert "from what the model writes" in text
    assert "Behind prompt:neutral <b>33.3" in text
    assert "+33.3 points (95 % interval" in text
    assert text.count("<mark>race</mark>") == 5
    assert "5 of 20 shown" in text
    assert "ROUGE-L" in text
    assert "What directives change in how well the label is read" in text
    assert "Largest change behind a directive: <b>−5.0 points</b>" in text
    assert text.count("The same row without a directive:") == 5
    plain = run.read("generations").query("defence == 'none'").set_index("example_id")["generated"]
    marked = run.read("generations").query("defence == 'prompt:neutral' and meta_terms != ''")["example_id"]
    assert all(plain[i] in text for i in marked.head(5))


def test_summaries_are_hidden_when_text_is(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, defences=PROMPTED, summaries=60)
    text = words_of(open_page("defences.py", run=run.id, state={"hide_text": True}))
    assert "Raw text is hidden in this session" in text
    assert "<mark>" not in text
    kept = vectors_run(home / "two", rows=300, defences=PROMPTED, summaries=60, store_text="none")
    assert "This run kept no text" in words_of(open_page("defences.py", run=kept.id))


def test_summaries_without_any_defence_are_shown_too(home: Path, open_page) -> None:
    text = words_of(open_page("defences.py", run=vectors_run(home / "one", rows=300, summaries=60).id))
    assert "no defence was asked for" in text
    assert "What the model writes" in text


def test_a_hostile_summary_is_shown_as_written(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=300, hostile=True, defences=PROMPTED, summaries=60)
    text = words_of(open_page("defences.py", run=run.id))
    assert "&lt;img src=x" in text
    assert "<img" not in text
    assert "<mark>race</mark>" in text


def test_no_summary_says_how_to_get_some(home: Path, open_page) -> None:
    text = words_of(open_page("defences.py", run=vectors_run(home / "one", rows=200, defences=TRIED).id))
    assert "generate: {rows: 200}" in text


def test_certain_giveaways_behind_a_defence_and_earlier_looks_are_said(home: Path, open_page) -> None:
    run = vectors_run(home / "one", rows=900, defences=TRIED)
    metrics = run.read("probe_metrics")
    behind = (metrics["defence"] == "leace") & (metrics["probe"] == "linear")
    sure = {"confident_share": 0.021, "confident_low": 0.015, "confident_high": 0.03, "confident_precision": 0.95}
    changed = metrics.assign(confident_share=0.0, confident_p=1.0)
    changed.loc[behind, list(sure)] = list(sure.values())
    changed.loc[behind, "confident_p"] = 1e-12
    changed.loc[behind & (metrics["split"] == "bal_test") & metrics["seed"].isna(), "verdict"] = "within budget"
    run.write("probe_metrics", changed)
    run.update(test_split={"hash": "x", "earlier_looks": 3})
    text = words_of(open_page("defences.py", run=run.id))
    assert "hides certain giveaways" in text
    assert "behind leace by linear" in text
    assert "named with near certainty</small>" in text
    assert "3 other runs had read these test rows before this one" in text
    assert "chosen among 3 defences on the selection rows" in text
    there = words_of(open_page("vectors.py", run=run.id))
    assert "behind leace by linear" in there
    assert "3 other runs had read these test rows before this one" in there
    assert "behind leace by linear" in words_of(open_page("overview.py", run=run.id))
