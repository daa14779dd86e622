"""New audit: the form builds a valid spec, says what it will show, and starts it."""

import html
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from auditcore import jobs, store
from auditcore.errors import AuditError
from auditcore.leakage.prompting import shipped
from auditcore.spec import dump_spec, parse_spec
from pages import _data as data
from pages._form_files import short
from tests.clinical_files import discharge_me, mimic_iv_bhc
from tests.fake_runs import vectors_run
from tests.pages.conftest import button, open_form, words_of


def test_check_plan_and_start(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    text = words_of(app)
    assert "CSV, 60 rows, 4 columns" in text
    assert "Guessed: its name" in text
    assert not [b for b in app.button if b.label == "Start the audit"]  # not before the plan
    button(app, "Check and plan").click().run()
    text = words_of(app)
    assert "4,294 subjects" in text
    assert "for all 2 tests (attacker × vector), counted as independent; one alone takes 3,480" in text
    assert "about 42 seconds on this machine" in text
    button(app, "Start the audit").click().run()
    spec = started[0]
    assert spec.kind == "vectors"
    assert spec.model.source == "smollm2-135m"
    assert spec.data.roles == {"prompt": "note", "label": "sex", "group": "patient_id"}
    assert spec.template == "{prompt}"
    assert (spec.artifacts, spec.layers, spec.probes) == (["lasttok", "meanpool"], [-1], ["linear", "mlp"])
    assert parse_spec(dump_spec(spec)) == spec
    assert app.sidebar.selectbox[0].value == store.list_runs()["run_id"][0]  # the new run is the one shown


def test_several_labels_and_every_layer_become_one_run(open_page, rows: Path, started: list) -> None:
    frame = pd.read_csv(rows)
    frame["band"] = ["young", "middle", "old"] * (len(frame) // 3)
    frame.to_csv(rows, index=False)
    app = open_form(open_page, rows)
    next(box for box in app.multiselect if box.label == "Sensitive labels").set_value(["sex", "band"]).run()
    app.get_by_key("setup_layers").set_value("all")
    app.run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    assert started[0].data.labels == ("sex", "band")
    assert started[0].layers == "all"


def test_a_change_after_the_plan_asks_for_a_new_one(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    button(app, "Check and plan").click().run()
    app.get_by_key("setup_budget").set_value(0.05)
    app.run()
    assert "Something was changed since the last plan" in words_of(app)
    assert not [b for b in app.button if b.label == "Start the audit"]


def test_membership_asks_for_a_fine_tuned_model_and_says_what_it_can_show(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows, "membership")
    assert "compares a model before and after fine-tuning" in words_of(app)
    assert "Name the model first" in words_of(app)
    app.get_by_key("setup_model_membership").set_value("smollm2-135m")
    app.run()
    assert "Both are the same model" in words_of(app)
    button(app, "Check and plan").click().run()
    assert "718 are needed" in words_of(app)
    button(app, "Start the audit").click().run()
    assert started[0].kind == "membership"
    assert started[0].model.reference == "smollm2-135m"
    assert started[0].data.roles == {"text": "note", "member": "member", "group": "patient_id"}


def test_checkpoints_without_a_folder_are_not_planned(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows, "frontier")
    assert "Name the folder of adapters first" in words_of(app)
    assert button(app, "Check and plan").disabled
    app.get_by_key("setup_adapters").set_value("adapters")
    app.run()
    assert "Name the folder of adapters first" not in words_of(app)


def test_finetune_options_reach_the_spec(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows, "finetune")
    app.get_by_key("setup_method").set_value("lora")
    app.run()
    app.get_by_key("setup_rank").set_value(8)
    app.run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    spec = started[0]
    assert (spec.kind, spec.method, spec.lora.r, spec.lora.alpha) == ("finetune", "lora", 8, 16)
    assert spec.learning_rate == pytest.approx(1e-4)


def test_copies_shadows_and_the_kind_of_reference_reach_the_spec(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows, "membership")
    app.get_by_key("setup_model_membership").set_value("smollm2-135m")
    app.get_by_key("setup_attacks").set_value(["ez", "neighbourhood", "spv", "lira"])
    app.get_by_key("setup_compare_with").set_value("distillation")
    app.run()
    for key, value in (("neighbours", 4), ("pairs", 3), ("texts", 50), ("shadows", 6)):
        app.get_by_key(f"setup_{key}").set_value(value)
    app.run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    spec = started[0]
    assert (spec.neighbours.count, spec.spv.pairs, spec.self_prompt.texts, spec.shadows.count) == (4, 3, 50, 6)
    assert spec.reference.kind == "distillation"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("setup_data", "/nowhere/rows.csv", "no such file"),
        ("setup_role_vectors_label_{}", [], "data.roles.label is missing"),
        ("setup_layers", "last", "layers"),
        ("setup_model_vectors", "/nowhere/model", "no such file or folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_notice(
    open_page, rows: Path, started: list, key: str, value: str, said: str
) -> None:
    state = {"setup_data": str(rows), key.format(short(str(rows))): value}
    app = open_page("setup.py", state=state)
    assert not app.exception
    assert said in words_of(app)


def test_an_error_of_the_plan_is_shown_and_nothing_can_start(open_page, rows: Path, started: list, monkeypatch) -> None:
    def refuse(spec):
        raise AuditError("rows.csv: row 3 is <bad>.")

    monkeypatch.setattr(jobs, "plan", refuse)
    app = open_form(open_page, rows)
    button(app, "Check and plan").click().run()
    assert "row 3 is &lt;bad&gt;" in words_of(app)
    assert not [b for b in app.button if b.label == "Start the audit"]


def vectors_form(open_page, path: Path):
    """The form with vectors uploaded earlier: AppTest cannot type a new option into a select box."""
    app = open_page("setup.py", state={"setup_have_vectors": True})
    app.get_by_key("setup_vector_path").set_value(str(path)).run()
    assert not app.exception, app.exception
    return app


def test_ready_made_vectors_need_no_model(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    app.get_by_key("setup_have_vectors").set_value(True)
    app.run()
    assert "No vectors chosen yet" in words_of(app)
    frame = pd.DataFrame({"sex": ["f", "m"] * 30, "a": [[0.5, 1.0]] * 60, "b": [[2.0]] * 60})
    frame = frame.assign(ward=["x", "y", "z"] * 20, words=[f"note {i}" for i in range(60)])
    path = rows.parent / "v.parquet"
    frame.to_parquet(path)
    app = vectors_form(open_page, path)
    text = words_of(app)
    assert "60 vectors, float64" in text
    assert "Parquet, 60 rows" in text  # the labels are looked for in the same file
    assert not [box for box in app.multiselect if box.label == "Vectors to audit"]
    next(box for box in app.selectbox if box.label.startswith("Column or tensor")).set_value("b").run()
    next(box for box in app.multiselect if box.label == "Sensitive labels").set_value(["sex"]).run()
    next(box for box in app.multiselect if box.label.startswith("What the recipient holds")).set_value(["ward"])
    next(box for box in app.selectbox if box.label == "Text it was made from (optional)").set_value("words")
    app.get_by_key("setup_curve").set_value(True).run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception
    spec = started[0]
    assert spec.data.metadata == ("ward",)
    assert spec.data.roles["prompt"] == "words"
    assert spec.curve.times == 10
    assert (spec.model, spec.vectors.column, spec.data.labels) == (None, "b", ("sex",))
    assert spec.vectors.path == spec.data.path == str(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("v.parquet", b"PAR1 nothing", "not a Parquet file that can be read"),
        ("v.pkl", b"x", "are read from .parquet, .npy or .safetensors"),
        ("v.npy", b"x", "cannot be read without unpickling"),
        ("missing $x$.npy", None, "no such file"),
    ],
)
def test_a_file_of_vectors_that_cannot_be_used_is_said_at_once(
    open_page, rows, started, tmp_path, name, content, words
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    state = {"setup_have_vectors": True, "setup_vector_path": str(tmp_path / name)}
    app = open_page("setup.py", state=state)
    assert not app.exception
    assert words in words_of(app)


def test_conversations_are_found_and_need_no_template(open_page, home: Path, started: list) -> None:
    path = home / "uploads" / "chats.jsonl"
    path.parent.mkdir()
    chat = [{"role": "user", "content": "a <b>"}, {"role": "assistant", "content": "$x$"}]
    path.write_text("".join(json.dumps({"messages": chat, "note": f"n {k}", "member": k % 2}) + "\n" for k in range(9)))
    app = open_form(open_page, path, "finetune")
    assert "its name, and it holds lists" in words_of(app)
    assert "own chat template" in words_of(app)
    assert not [area for area in app.text_area if area.label == "Template"]
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    spec = started[0]
    assert spec.data.roles == {"messages": "messages", "member": "member"}
    assert spec.template is None
    assert spec.max_length == 128


def test_raw_text_can_be_hidden(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    assert len(app.dataframe) == 1
    app.get_by_key("hide_text").set_value(True)
    app.run()
    assert len(app.dataframe) == 0
    assert "Raw text is hidden" in words_of(app)


def test_a_working_run_is_shown_with_its_stages_and_can_be_cancelled(open_page, home: Path, monkeypatch) -> None:
    run = vectors_run(home / "busy", rows=60, status="queued", stages=0)
    run.event("vectors", 24, 60, 90.0)
    cancelled: list[str] = []

    def cancel(which, patience=10.0):
        cancelled.append(which.id)
        which.update(status="cancelled", message="Cancelled.")

    monkeypatch.setattr(jobs, "cancel", cancel)
    app = open_page("setup.py")
    assert "24 of 60, 2 minutes left" in words_of(app)
    app.get_by_key("cancel_busy").click().run()
    assert cancelled == ["busy"]
    text = words_of(app)
    assert "Working now" not in text
    assert "Cancelled." in text


def test_the_spec_can_be_taken_along(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    text = yaml.safe_dump(dump_spec(started[0]), sort_keys=False, allow_unicode=True)
    assert parse_spec(yaml.safe_load(text)) == started[0]


def test_the_data_is_shown_before_the_audit_when_asked_for(open_page, home: Path, started: list) -> None:
    path = home / "uploads" / "proxies.csv"
    path.parent.mkdir(exist_ok=True)
    lines = [f"p{i},patient {'she' if i % 2 else 'he'} came with a cough <b>x</b> {i},{'FM'[i % 2]}" for i in range(60)]
    path.write_text("patient_id,note,sex\n" + "\n".join(lines) + "\n")
    app = open_form(open_page, path)
    assert "Words that tell classes apart" not in words_of(app)
    app.get_by_key("setup_portrait").set_value(True).run()
    assert not app.exception, app.exception
    text = words_of(app)
    assert "are proxies</b> of sex, before any model reads them: “" in text
    assert "▲ proxy" in text
    assert "2 classes of sex; the smallest cell is" in text
    assert "the audit will deal subjects at random, by label: bal_train 30, bal_val " in text
    assert "Half of the rows have at most" in text
    assert "<b>x</b>" not in text
    app.get_by_key("hide_text").set_value(True).run()
    assert "Words of the rows are hidden" in words_of(app)
    assert "▲ proxy" not in words_of(app)


def test_defences_and_summaries_stand_in_the_spec(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows)
    app.get_by_key("setup_defences").set_value(["prompt", "leace"])
    app.get_by_key("setup_generate").set_value(40)
    app.run()
    assert not app.exception, app.exception
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert started[-1].defences == ["none", "prompt", "leace"]
    assert started[-1].generate.rows == 40


@pytest.mark.usefixtures("started")
def test_a_link_chooses_the_question_once(home: Path, open_page) -> None:
    app = open_page("setup.py", kind="surfacelora")
    assert app.session_state["setup_kind"] == "surfacelora"
    assert "kind" not in app.query_params
    app.run()
    assert app.session_state["setup_kind"] == "surfacelora"
    assert not app.warning
    assert open_page("setup.py", kind="nonsense").session_state["setup_kind"] == "vectors"


def test_uploaded_vectors_are_kept_offered_and_called_as_the_user_called_them(
    open_page, rows: Path, home: Path, started: list, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"sex": ["f", "m"] * 30, "v": [[0.5, 1.0]] * 60})
    frame.to_parquet(tmp_path / "mine.parquet")
    app = open_form(open_page, rows)
    app.get_by_key("setup_have_vectors").set_value(True).run()
    upload = app.get_by_key("setup_upload_vectors")
    upload.upload("mine.parquet", (tmp_path / "mine.parquet").read_bytes(), "application/octet-stream").run()
    assert not app.exception, app.exception
    assert "60 vectors, float64" in words_of(app)
    kept = app.get_by_key("setup_vector_path").value
    assert Path(kept).parent == store.home() / "uploads"
    assert data.uploads(vectors=True) == {kept: "uploaded: mine.parquet"}


def test_the_rows_of_ready_made_vectors_are_checked_like_any_rows(open_page, rows, started) -> None:
    sex = ["f", "m"] * 30
    sex[0] = "nan"
    sex[1] = "NA"
    pd.DataFrame({"sex": sex, "v": [[0.5, 1.0]] * 60}).to_parquet(rows.parent / "v.parquet")
    app = vectors_form(open_page, rows.parent / "v.parquet")
    next(box for box in app.multiselect if box.label == "Sensitive labels").set_value(["sex"]).run()
    button(app, "Check and plan").click().run()
    text = html.unescape(words_of(app))
    assert "1 of 60 rows have no label 'sex'" in text
    assert "'NA' is taken as a label of 1 row" in text
    assert "Class 'NA' of 'sex' has only 1 subject" in text


def test_directives_and_numbers_of_defences_are_edited_where_the_defence_is_chosen(
    open_page, rows: Path, started: list
) -> None:
    app = open_form(open_page, rows)
    assert not [area for area in app.text_area if area.label.startswith("Directive")]
    app.get_by_key("setup_defences").set_value(["prompt", "pca", "noise", "truncate"]).run()
    assert not app.exception, app.exception
    areas = [area for area in app.text_area if area.label.startswith("Directive")]
    assert {area.label.removeprefix("Directive ") for area in areas} == set(shipped().directives)
    assert [area.value for area in areas] == list(shipped().directives.values())
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert (started[0].directives, started[0].meta_terms) == (None, None)  # unchanged: those shipped
    first, second, _ = shipped().directives
    app.get_by_key(f"setup_directive_{first}").set_value("Write {nothing} about sex.")
    app.get_by_key(f"setup_directive_{second}").set_value("  ")
    app.get_by_key("setup_meta_terms").set_value("sex, gender\n,neutral")
    app.get_by_key("setup_dimensions").set_value(3)
    app.get_by_key("setup_noise").set_value(0.25)
    app.get_by_key("setup_keep").set_value(0.75).run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    spec = started[1]
    kept = {name: text for name, text in shipped().directives.items() if name != second}
    assert spec.directives == {**kept, first: "Write {nothing} about sex."}
    assert spec.meta_terms == ["sex", "gender", "neutral"]
    assert (spec.defence_options.dimensions, spec.defence_options.noise, spec.defence_options.keep) == (3, 0.25, 0.75)


def test_a_folder_of_licensed_notes_leads_to_its_importer(open_page, home: Path, started: list) -> None:
    folder = discharge_me(home / "uploads" / "dm", 80)  # stands in the list, since AppTest cannot type a path
    app = open_form(open_page, folder)
    assert "Discharge Me!" in app.get_by_key("setup_clinical_discharge_me").options[0]
    assert "cannot be used" not in words_of(app)
    app.get_by_key("setup_clinical_labels").set_value(["recorded_race", "recorded_sex"]).run()
    app.get_by_key("setup_portrait").set_value(True).run()
    assert not app.exception, app.exception
    assert "Words that tell classes apart" in words_of(app)
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    spec = started[0].data
    assert (spec.path, spec.clinical.source, spec.labels) == (
        str(folder),
        "discharge_me",
        ("recorded_race", "recorded_sex"),
    )


def test_pairs_of_mimic_ask_for_the_admissions(open_page, home: Path, started: list) -> None:
    files = mimic_iv_bhc(home / "uploads", 60)
    app = open_form(open_page, next(path for path in files.values() if path.name.startswith("mimic-iv-bhc")))
    assert "name that file" in words_of(app)
    admissions = str(next(path for path in files.values() if path.name.startswith("admissions")))
    app.get_by_key("setup_clinical_admissions.csv.gz").set_value(admissions).run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    assert not app.exception, app.exception
    assert started[0].data.clinical.admissions == admissions
