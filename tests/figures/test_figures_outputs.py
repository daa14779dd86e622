"""One axis for texts and vectors, the table of summaries, marked meta-terms: numbers as in the rows, text escaped."""

import numpy as np
import pandas as pd

from auditcore.figures.outputs import axis_figure, marked_html, scores_table
from auditcore.findings.outputs import one_axis, outputs_finding, writing_sentence
from auditcore.words import plain
from tests.fake_runs import vectors_run


def test_texts_and_vectors_stand_on_one_axis_in_the_order_of_the_run(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, defences=("none", "prompt:<b>"), summaries=40)
    rows = one_axis(run.read("output_metrics"), run.read("probe_metrics"), "recorded_race")
    assert rows["kind"].tolist() == ["text"] * 8 + ["vector"] * 4
    assert rows["what"].tolist()[:6:2] == ["the prompt", "the reference summary", "what the model writes"]
    assert rows["what"].iloc[6] == "what the model writes behind prompt:<b>"
    fig = axis_figure(rows)
    drawn = {t.name: list(t.x) for t in fig.data if t.mode == "markers"}
    assert len({t.marker.symbol for t in fig.data if t.mode == "markers"}) == 3
    np.testing.assert_allclose(drawn["text, by its words"], rows["accuracy"][:8:2])
    np.testing.assert_allclose(drawn["text, by its vectors"], rows["accuracy"][1:8:2])
    np.testing.assert_allclose(drawn["exported vector, strongest probe"], rows["accuracy"][8:])
    assert not any("<b>," in str(t) for t in fig.layout.yaxis.ticktext)
    assert fig.layout.yaxis.ticktext[3] == "<b>what the model writes</b><br>behind prompt:&lt;b&gt;"
    assert "from the reference summary" in plain(outputs_finding(rows, "recorded_race"))


def test_no_reading_has_words() -> None:
    empty = pd.DataFrame(columns=["attribute"])
    assert plain(outputs_finding(one_axis(empty, None, "sex"), "sex")) == "No text was read yet."


def test_the_table_of_summaries_holds_scores_shares_and_changes(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, defences=("none", "prompt:neutral"), summaries=60)
    scores = run.read("generation_metrics")
    html = scores_table(scores)
    for part in ("ROUGE-L", "33.3", "+33.3", "prompt:neutral", "as it is", "60 subjects"):
        assert part in html
    assert "Behind prompt:neutral 33.3" in plain(writing_sentence(scores))
    alone = scores[scores["defence"] == "none"].drop(columns=["rouge1", "rouge2", "rougeL"])
    assert "ROUGE" not in scores_table(alone)
    assert plain(writing_sentence(alone)).endswith("of 60 summaries hold a meta-term.")


def test_terms_are_marked_and_the_rest_is_escaped() -> None:
    html = marked_html("<i>Race</i> is no embrace of a\n social  group", ["race", "social group"])
    assert html == ("&lt;i&gt;<mark>Race</mark>&lt;/i&gt; is no embrace of a\n <mark>social  group</mark>")
    assert marked_html("a" * 700, ["race"]).endswith(" …")
    assert marked_html("<x>", []) == "&lt;x&gt;"
