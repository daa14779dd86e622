"""One axis for texts and vectors, the table of summaries, marked meta-terms: numbers as in the rows, text escaped."""

import numpy as np
import pandas as pd

from auditcore import summary
from auditcore.figures.outputs import axis_figure, changes_table, marked_html, scores_table
from auditcore.findings.outputs import (
    axis_note,
    changes,
    changes_sentence,
    one_axis,
    outputs_finding,
    writing_sentence,
)
from auditcore.words import plain
from tests.fake_runs import vectors_run


def test_texts_and_vectors_stand_on_one_axis_in_the_order_of_the_run(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, defences=("none", "prompt:<b>"), summaries=40)
    rows = one_axis(run.read("output_metrics"), run.read("probe_metrics"), "recorded_race")
    assert rows["kind"].tolist() == ["text"] * 8 + ["probe"] * 4  # made before vectors were read in the same folds
    assert rows["what"].tolist()[:6:2] == ["the prompt", "the reference summary", "what the model writes"]
    assert rows["what"].iloc[6] == "what the model writes behind prompt:<b>"
    fig = axis_figure(rows)
    drawn = {t.name: list(t.x) for t in fig.data if t.mode == "markers"}
    assert len({t.marker.symbol for t in fig.data if t.mode == "markers"}) == 3
    np.testing.assert_allclose(drawn["text, by its words"], rows["accuracy"][:8:2])
    np.testing.assert_allclose(drawn["text, by its vectors"], rows["accuracy"][1:8:2])
    n = f"{run.read('probe_metrics')['n_train'].max():,}"
    open_name = f"exported vector, fitted on {n} rows: not comparable"
    np.testing.assert_allclose(drawn[open_name], rows["accuracy"][8:])
    assert next(t for t in fig.data if t.name == open_name).marker.symbol == "circle-open"
    assert not any("<b>," in str(t) for t in fig.layout.yaxis.ticktext)
    assert fig.layout.yaxis.ticktext[3] == "<b>what the model writes</b><br>behind prompt:&lt;b&gt;"
    assert "from the reference summary" in plain(outputs_finding(rows, "recorded_race"))
    assert "what texts tell is understated" in plain(outputs_finding(rows, "recorded_race"))
    assert "Open: fitted on all training rows" in axis_note(rows)


def test_what_the_words_tell_when_fitted_on_as_many_rows_stands_open_beside_the_prompt(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, summaries=40)
    where = {"attribute": "recorded_race", "baseline": "text", "n_subjects": 300, "n_train": 1620, "chance": 0.2}
    told = {"split": ["bal_val", "bal_test"], "accuracy": [0.5, 0.557], "accuracy_low": 0.53, "accuracy_high": 0.58}
    held = {**where, **told}
    some = (run.read("output_metrics"), run.read("probe_metrics"), "recorded_race")
    rows = one_axis(*some, pd.DataFrame(held))
    line = rows[rows["kind"] == "baseline"]
    assert line[["what", "accuracy", "n_fit"]].values.tolist() == [["the prompt", 0.557, 1620]]
    named = {t.name: t.marker.symbol for t in axis_figure(rows).data if t.mode == "markers"}
    assert named["text, by its words, fitted on 1,620 rows: not comparable"] == "square-open"
    assert "the prompt's own words name 56 of 100" in plain(outputs_finding(rows, "recorded_race"))


def _with_vectors(readings: pd.DataFrame) -> pd.DataFrame:
    """The exported vectors of the same rows, as the run reads them, in between the texts."""
    line = readings[(readings["attacker"] == "embedding") & (readings["source"] == "generated")]
    vectors = [
        line.assign(source=f"vector:{name}", accuracy=line["accuracy"] + more)
        for name, more in (("a<i>", 0.1), ("b", 0))
    ]
    return pd.concat([readings.iloc[:2], *vectors, readings.iloc[2:]], ignore_index=True)


def test_vectors_read_in_the_same_folds_replace_the_probes_and_are_no_texts(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, defences=("none", "prompt:neutral"), summaries=40)
    readings = _with_vectors(run.read("output_metrics"))
    rows = one_axis(readings, run.read("probe_metrics"), "recorded_race")
    assert rows["kind"].tolist() == ["text"] * 8 + ["vector"] * 4
    assert rows["what"].tolist()[8:] == [
        "vector a<i>", "vector a<i> behind prompt:neutral", "vector b", "vector b behind prompt:neutral"
    ]  # fmt: skip
    fig = axis_figure(rows)
    drawn = {t.name: t for t in fig.data if t.mode == "markers"}
    assert list(drawn) == ["text, by its words", "text, by its vectors", "exported vector"]
    assert drawn["exported vector"].marker.symbol == "circle"
    assert "<b>vector a&lt;i&gt;</b>" in fig.layout.yaxis.ticktext
    told = plain(outputs_finding(rows, "recorded_race"))
    assert "from vector a<i>" in told
    assert "Texts and vectors were read on the same rows of 40 subjects, in the same folds." in told
    assert "understated" not in told
    assert "Open" not in axis_note(rows)
    run.write("output_metrics", readings)
    assert any("from vector a<i>" in plain(s) for s in summary.text_findings(run))


def test_what_directives_change_is_told_with_its_interval_and_n(tmp_path) -> None:
    run = vectors_run(tmp_path / "v", rows=300, defences=("none", "prompt:<b>"), summaries=40)
    found = changes(_with_vectors(run.read("output_metrics")), "recorded_race")
    assert set(found["defence"]) == {"prompt:<b>"}
    html = changes_table(found)
    for part in ("what the model writes", "vector a&lt;i&gt;", "prompt:&lt;b&gt;", "−5.0", "−10.0 to +0.0"):
        assert part in html
    sentence = plain(changes_sentence(found))
    assert "−5.0 points (95 % interval −10.0 to +0.0, 40 subjects, paired by row)" in sentence
    assert sentence.endswith("not told apart from none.")
    assert changes_sentence(found.iloc[:0]) == []
    assert changes(run.read("output_metrics").drop(columns="change"), "recorded_race").empty  # an older run


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
