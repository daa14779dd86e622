"""The page Exported vectors, run by Streamlit's own test harness on fake runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from auditcore.store import Run
from tests.fake_runs import membership_run, vectors_run
from tests.job_specs import run_spec

ROUTER = str(Path(__file__).resolve().parents[2] / "pages" / "_router.py")


def page(run: Run | None = None, **query: str) -> AppTest:
    at = AppTest.from_file(ROUTER, default_timeout=60)
    at.query_params.update({"run": run.id, **query} if run is not None else query)
    at.switch_page("vectors.py")
    at.run()
    assert not at.exception
    return at


def html(at: AppTest) -> str:
    return "\n".join(part.proto.body for part in at.get("html"))


def test_it_opens_with_the_finding_the_verdict_and_what_the_test_could_show(home: Path) -> None:
    text = html(page(vectors_run(home / "one", rows=900)))
    assert "An attacker holding <b>meanpool</b> names recorded_race correctly for" in text
    assert "over all 4 declared attackers" in text
    assert "test subjects</b> would let a leak-free vector pass" in text
    assert "point rule" in text
    assert "V-information" in text


def test_an_attacker_over_by_itself_alone_is_told_from_one_that_no_attacker_settles(home: Path) -> None:
    run = vectors_run(home / "corrected")
    verdicts = run.read("verdicts")
    each = verdicts["attacker"] != "all"
    verdicts.loc[each, "verdict"] = "over budget"
    verdicts.loc[~each, "verdict"] = "not resolved"
    run.write("verdicts", verdicts)
    text = html(page(run))
    n = int(each.sum())
    assert f"{n} of {n} attackers are over budget alone" in text
    assert "reaches across the budget" not in text


def test_the_address_restores_attribute_artifact_and_layer(home: Path) -> None:
    run = vectors_run(home / "one", rows=300, layers=(0, 30), attributes=("race", "sex"))
    text = html(page(run, attribute="sex", artifact="lasttok", layer="0"))
    assert "names sex correctly" in text
    assert "<h2>lasttok, layer 0</h2>" in text


def test_a_value_in_the_address_that_does_not_exist_is_ignored(home: Path) -> None:
    run = vectors_run(home / "one", rows=200)
    assert "<h2>meanpool, layer 30</h2>" in html(page(run, artifact="<b>", layer="99", attribute="none"))


def test_hostile_names_of_attributes_and_classes_are_shown_as_written(home: Path) -> None:
    run = vectors_run(home / "one", hostile=True, attributes=("$x$ <img src=x>", "b"))
    text = html(page(run))
    assert "&lt;img src=x&gt;" in text
    assert "<img" not in text
    assert "<script>alert" not in text


@pytest.mark.parametrize("stages", [0, 1, 2])
def test_a_run_still_working_shows_what_is_there(home: Path, stages: int) -> None:
    text = html(page(vectors_run(home / "one", status="queued", stages=stages)))
    assert "still working" in text
    assert ("No probe has finished yet" in text) == (stages < 2)


def test_vectors_that_were_not_kept_or_are_broken_are_said(home: Path) -> None:
    run = vectors_run(home / "one", keep_vectors=False)
    assert "were not kept with the run" in html(page(run))
    points = run.read("examples", limit=40)[["example_id", "split"]]
    where = {"artifact": "meanpool", "layer": 30, "x": 0.5, "y": range(40), "share_x": 0.2, "share_y": 0.1}
    run.write("projection", points.assign(**where))
    assert "40 test vectors. These two directions hold 30" in html(page(run))
    broken = vectors_run(home / "two")
    (broken.path / "vectors" / "meanpool-layer30.safetensors").write_bytes(b"no vectors")
    assert "the vectors cannot be read" in html(page(broken))


def test_too_few_subjects_are_not_resolved_and_say_how_many_would_do(home: Path) -> None:
    text = html(page(vectors_run(home / "one", rows=400, gap=0.0, classes=("F", "M"))))
    assert "not resolved" in text
    assert "cannot tell on which side" in text


def test_what_an_audit_left_out_is_counted_at_the_end_of_the_page(home: Path) -> None:
    labels = ["f", "m", None, "f", "m"] * 60
    vectors = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    vectors[:, 1], vectors[6, 0], vectors[8] = 0.25, np.inf, np.nan
    pd.DataFrame({"sex": labels, "v": list(vectors)}).to_parquet(home / "v.parquet")
    spec = {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.parquet")},
        "data": {"path": str(home / "v.parquet"), "roles": {"label": "sex"}},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 100,
    }
    text = html(page(run_spec(spec, home / "one")))
    assert "Counted while the rows were read" in text
    for told in (
        "60 of 300 rows have no label",
        "60 rows without a value of &#x27;sex&#x27; take no part",
        "2 of 300 vectors hold NaN or infinity (row 7, id &#x27;7&#x27;; row 9, id &#x27;9&#x27;); their rows are left",
        "1 of 5 dimensions are the same in every row and tell nothing.",
    ):
        assert told in text


def test_forty_classes_are_drawn(home: Path) -> None:
    run = vectors_run(home / "one", rows=3000, classes=tuple(f"class {k:02d}" for k in range(40)))
    text = html(page(run))
    assert "40 classes share 6 colours and signs" in text


def test_a_run_of_another_kind_or_none_says_what_to_do(home: Path) -> None:
    assert "New audit" in html(page())
    assert "New audit" in html(page(membership_run(home / "m", rows=40)))


def test_a_vector_against_what_is_held_anyway(home: Path) -> None:
    run = vectors_run(home / "one", rows=900, baselines=("text", "metadata"))
    text = html(page(run))
    assert "Does a vector tell more or less than what its recipient already holds?" in text
    assert "Without any vector the prompt&#x27;s own words name recorded_race correctly for" in text
    assert "tells most: <b>" in text
    assert "more than the metadata alone" in text
    assert "over the metadata alone, points" in text
    assert "no verdict counts a baseline" in text


def test_without_baselines_the_page_says_which_columns_would_make_them(home: Path) -> None:
    text = html(page(vectors_run(home / "one", rows=200)))
    assert "This run read no baseline." in text
    assert "roles: {metadata: [COLUMN, ...]}" in text
    some = vectors_run(home / "two", rows=300, baselines=("text",))
    assert "Not compared with the metadata alone" in html(page(some))
    (some.path / "baseline_differences.parquet").unlink()
    assert "The differences are computed after the probes." in html(page(some))


def test_baselines_of_a_hostile_run_are_shown_as_written(home: Path) -> None:
    run = vectors_run(home / "one", hostile=True, attributes=("$x$ <img src=x>",), baselines=("text",))
    text = html(page(run))
    assert "Does a vector tell more or less" in text
    assert "<img" not in text


def test_a_sweep_over_layers_has_a_heat_map_that_leads_the_pickers(home: Path) -> None:
    run = vectors_run(home / "one", rows=300, layers=tuple(range(10)), ceiling=0.73)
    at = page(run, artifact="lasttok", layer="3")
    text = html(at)
    assert "How deep it can be read" in text
    assert "of 10 layers is picked on the rows that judge it" in text
    assert "<h2>lasttok, layer 3</h2>" in text
    assert text.count("df-cell") >= 20  # every number of the picture stands in the table
    assert at.selectbox(key="layer").value == "3"  # so many layers are a list
    assert "Bayes ceiling of this data: <b>73.0" in text
    # A click arrives as the chart's selection; the callback puts it into the pickers before they are drawn.
    script = (
        "import streamlit as st\nfrom pages import _vectors_layers as depth\n"
        "st.session_state['layers'] = {'selection': {'points': [{'customdata': ['meanpool', 7, 'x']}]}}\n"
        "depth.pick()\nst.text(st.session_state['artifact'] + ' ' + st.session_state['layer'])\n"
        "st.session_state['layers'] = {'selection': {'points': []}}\ndepth.pick()\n"
    )
    picked = AppTest.from_string(script, default_timeout=60).run()
    assert not picked.exception
    assert picked.text[0].value == "meanpool 7"
    at.session_state["artifact"], at.session_state["layer"] = "meanpool", "7"
    assert "<h2>meanpool, layer 7</h2>" in html(at.run())
    assert not at.exception


def test_one_probe_can_be_followed_through_the_layers(home: Path) -> None:
    run = vectors_run(home / "one", rows=300, layers=(0, 1, 2, 3))
    at = page(run, depth="linear")
    assert "Named correctly, % (linear)" in html(at)
    assert "the strongest of linear and mlp in each place" in html(page(run))


def test_several_labels_make_a_matrix_and_the_correction_is_said(home: Path) -> None:
    run = vectors_run(home / "one", rows=900, attributes=("race", "sex", "age"), ceiling=0.8)
    text = html(page(run, attribute="sex"))
    assert "Every label, every vector" in text
    for k in (5, 4, 3):
        assert f"{k} classes, guessing {round(100 / k)}" in text
    assert "12 tests (3 labels × 2 vectors × 2 attackers)" in text
    assert "Holm&#x27;s correction" in text
    assert "names sex correctly" in text
    one = html(page(vectors_run(home / "two", rows=200)))
    assert "Every label, every vector" not in one
    assert "How deep it can be read" not in one
    assert "Bayes ceiling" not in one


def test_an_attacker_with_more_rows_is_named_an_extrapolation(home: Path) -> None:
    text = html(page(vectors_run(home / "one", rows=300, curve="extrapolated"), artifact="lasttok"))
    assert "An attacker with more rows" in text
    assert "lasttok read by" in text
    assert "10 times the rows" in text
    assert "an extrapolation, not a measurement" in text
    assert "Fitted without all rows the law foretold" in text
    assert "100 of them" in text


def test_a_curve_that_determines_nothing_is_refused_in_words(home: Path) -> None:
    text = html(page(vectors_run(home / "one", rows=300, curve="nothing is <read> yet")))
    assert "Not extrapolated to 10 times the rows" in text
    assert "nothing is &lt;read&gt; yet" in text
    assert "not a measurement" not in text


def test_a_curve_still_to_come_is_said_and_one_not_asked_for_is_not(home: Path) -> None:
    run = vectors_run(home / "one", rows=200, status="queued", curve="extrapolated")
    (run.path / "sample_curve.parquet").unlink()
    assert "sample-size curve is measured after the probes" in html(page(run))
    assert "An attacker with more rows" not in html(page(vectors_run(home / "two", rows=200)))
