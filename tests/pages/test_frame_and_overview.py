"""The router and the overview: which run is shown, what is said, nothing heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from auditcore import store
from tests.fake_runs import HOSTILE, membership_run, vectors_run
from tests.pages.conftest import ROUTER, words_of

ROOT = Path(__file__).resolve().parents[2]


def named(run: store.Run, name: str, minute: int = 0) -> store.Run:
    run.update(spec={**run.manifest["spec"], "name": name}, created=f"2026-11-30T01:{minute:02d}:00+00:00")
    return run


@pytest.fixture
def runs(home: Path) -> None:
    named(membership_run(home / "lora", rows=1600, tokens=8, lift=0.1, seed=2), "notes · LoRA", 1)
    named(vectors_run(home / "vectors", rows=900, seed=3), "notes · vectors", 2)
    named(membership_run(home / "full", rows=1600, tokens=8, lift=2.5, seed=1), "notes · full", 3)


def test_without_runs_the_overview_says_how_to_start(open_page) -> None:
    app = open_page()
    assert "No audit has finished yet" in words_of(app)
    assert [link.proto.page for link in app.get("page_link")] == ["setup"]
    assert not app.sidebar.selectbox


@pytest.mark.usefixtures("runs")
def test_overview_answers_both_questions_from_the_newest_runs(open_page) -> None:
    app = open_page()
    text = words_of(app)
    assert app.sidebar.selectbox[0].value == "full"
    assert "falsely accuses 1 row in 100" in text
    assert "names recorded_race correctly" in text
    assert text.count("ac-card-number") == 4
    assert "over budget" in text
    assert "What these models give away" in text  # three fingerprints
    assert "3 models on 3 data sets" in text
    assert "notes · LoRA gives away about" in text
    assert "fewer rows than notes · full" in text
    assert len(app.get("plotly_chart")) == 2


def about(run: store.Run, model: str, data: str) -> None:
    run.update(fingerprints={**run.manifest["fingerprints"], "model": model, "data": data})


def test_only_audits_of_one_model_and_one_data_set_are_said_of_this_model(open_page, home: Path) -> None:
    rows = named(membership_run(home / "rows", rows=1600, tokens=8, lift=2.5), "its rows", 1)
    vectors = named(vectors_run(home / "vectors", rows=300), "its vectors", 2)
    about(rows, "m1", "d1")
    about(vectors, "m1", "d1")
    text = words_of(open_page())
    assert "<h1>What this model gives away</h1>" in text
    assert "<h2>smollm2-135m" not in text
    about(vectors, "m1", "d2")
    assert "What this model gives away, on 2 data sets" in words_of(open_page())
    about(vectors, "m2", "d1")
    text = words_of(open_page())
    assert "What these models give away" in text
    assert text.index("<h2>smollm2-135m</h2>") < text.index("<h2>runs/ft/checkpoints/last</h2>")
    assert "smollm2-135m · notes.parquet" in text  # on the card
    assert "runs/ft/checkpoints/last · rows.csv" in text


def test_vectors_of_a_model_that_nobody_named_replace_no_other_audit(open_page, home: Path) -> None:
    named(vectors_run(home / "study", rows=300), "the study", 1)
    toy = named(vectors_run(home / "toy", rows=60, seed=1), "the toy", 2)
    spec = toy.manifest["spec"]
    toy.update(spec={**spec, "model": None, "vectors": {"path": "/x/emb.parquet"}}, fingerprints={"data": "d9"})
    text = words_of(open_page())
    assert "given vectors emb.parquet, model not named" in text
    assert "the study" in text
    assert text.count("ac-card-number") == 4


def test_a_mitigation_stands_there_with_the_verdict_of_its_test_rows(open_page, home: Path, monkeypatch) -> None:
    monkeypatch.setattr(store, "studies", lambda: ROOT / "data" / "studies")
    text = words_of(open_page())
    assert "SurfaceLoRA (bundled notes, lasttok-2)" in text
    assert "On the sealed test rows, step 200 is " in text
    assert "✓ within budget" in text
    assert "95 % interval 20.1 to 22.7" in text


def test_models_for_which_there_is_no_room_are_named(open_page, home: Path) -> None:
    for i in range(6):
        named(vectors_run(home / f"v{i}", rows=60, seed=i), f"run {i}", i)
    text = words_of(open_page())
    assert "Not shown here, but on Runs and reports: run 1, run 0." in text


@pytest.mark.usefixtures("runs")
def test_the_address_chooses_the_run_and_a_bad_one_is_said(open_page) -> None:
    assert open_page(run="vectors").sidebar.selectbox[0].value == "vectors"
    app = open_page(run="../../etc")
    assert app.sidebar.selectbox[0].value == "full"
    assert "There is no run &#x27;../../etc&#x27;" in words_of(app)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(("page", "shown"), [("membership.py", "full"), ("vectors.py", "vectors"), ("runs.py", "full")])
def test_every_page_says_which_run_is_not_there_and_shows_one_that_it_can(page: str, shown: str) -> None:
    app = AppTest.from_file(ROUTER, default_timeout=60)
    app.query_params["run"] = "gone"
    app.switch_page(page)
    for _ in range(2):  # until another is chosen
        app.run()
        assert not app.exception
        assert "There is no run &#x27;gone&#x27;. Shown instead: " in words_of(app)
        assert "answers another question" not in words_of(app)
        assert app.sidebar.selectbox[0].value == shown


@pytest.mark.usefixtures("runs")
def test_the_picker_changes_every_page_and_a_deleted_run_falls_back(open_page, home: Path) -> None:
    app = open_page()
    app.sidebar.selectbox[0].select("lora").run()
    assert app.session_state["run"] == "lora"
    app.switch_page("runs.py").run()
    assert "<h2><bdi>notes · LoRA</bdi></h2>" in words_of(app)
    store.Run(home / "lora").delete()
    app.run()
    assert app.sidebar.selectbox[0].value == "full"
    assert "There is no run" in words_of(app)


@pytest.mark.usefixtures("runs")
def test_coming_to_a_findings_page_chooses_a_run_it_can_show(open_page) -> None:
    app = open_page(run="lora")
    app.switch_page("vectors.py").run()
    assert app.session_state["run"] == "vectors"
    app.sidebar.selectbox[0].select("lora").run()  # the user's own choice on that page is kept
    assert app.session_state["run"] == "lora"


def test_a_run_that_works_or_failed_is_said(open_page, home: Path) -> None:
    named(membership_run(home / "half", rows=60, tokens=8, stages=1, status="failed"), "half")
    store.Run(home / "half").update(message="Out of memory. <b>x</b>")
    text = words_of(open_page(run="half"))
    assert "This run failed." in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_names_that_attack_are_escaped_everywhere(open_page, home: Path) -> None:
    name = f"{HOSTILE[0]} $x$ *b* :red[r]"
    run = named(membership_run(home / "bad", rows=1500, tokens=8, hostile=True), name)
    run.update(warnings=[HOSTILE[0]])
    for page in ("overview.py", "runs.py", "setup.py"):
        app = open_page(page)
        text = words_of(app)
        assert "<script" not in text
        assert "<img" not in text
        for group in (app.markdown, app.caption, app.error, app.warning, app.info):
            assert all(HOSTILE[0] not in element.value for element in group)


def test_a_broken_run_folder_does_not_break_the_pages(open_page, home: Path) -> None:
    (home / "broken").mkdir()
    (home / "broken" / "run.json").write_text("{not json")
    assert "No audit has finished yet" in words_of(open_page())
    assert "none with a verdict yet" in words_of(open_page("runs.py"))


def test_no_page_imports_torch_and_the_first_one_imports_little(home: Path) -> None:
    membership_run(home / "m", rows=300, tokens=8)
    vectors_run(home / "v", rows=300)
    script = f"""
import sys
from streamlit.testing.v1 import AppTest
app = AppTest.from_file({ROUTER!r}, default_timeout=60).run()
assert not app.exception, app.exception
slow = {{"scipy", "sklearn", "torch", "transformers"}} & set(sys.modules)
assert not slow, f"the first page imports {{slow}}"
for page, run in (("setup.py", "m"), ("runs.py", "m"), ("membership.py", "m"), ("vectors.py", "v")):
    app.session_state["run"] = run
    app.switch_page(page).run()
    assert not app.exception, app.exception
heavy = {{"torch", "transformers", "peft", "accelerate"}} & set(sys.modules)
assert not heavy, f"a page imports {{heavy}}"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
