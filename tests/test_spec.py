"""Specs: every mistake gets one message that names the field and the nearest known name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore.errors import SpecError, did_you_mean
from auditcore.spec import KINDS, dump_spec, load_spec, parse_spec, parse_template

MEMBERSHIP = {
    "kind": "membership",
    "model": {"source": "a", "reference": "b"},
    "data": {"path": "rows.csv", "roles": {"text": "text", "member": "member"}},
}
VECTORS = {
    "kind": "vectors",
    "model": {"source": "a"},
    "data": {"path": "rows.csv", "roles": {"prompt": "p", "label": ["sex", "age"]}},
}
FINETUNE = {"kind": "finetune", "model": {"source": "a"}, "data": {"path": "rows.csv"}}


@pytest.mark.parametrize("raw", [MEMBERSHIP, VECTORS, FINETUNE], ids=lambda r: r["kind"])
def test_defaults_are_written_out_and_read_back(raw: dict) -> None:
    spec = parse_spec(raw)
    assert parse_spec(dump_spec(spec)) == spec
    assert dump_spec(spec)["seed"] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "membrship"}, "Did you mean 'membership'?"),
        ({"kind": None}, "'kind' is missing"),
        ({"atacks": ["ez"]}, "unknown key 'atacks'. Did you mean 'attacks'?"),
        ({"model": {"source": "a", "refrence": "b"}}, "unknown key 'refrence' in model. Did you mean 'reference'?"),
        ({"attacks": ["ez", "los"]}, "attack 'los' is unknown. Did you mean 'loss'?"),
        ({"attacks": ["ez", "ez"]}, "named twice"),
        ({"attacks": []}, "attacks"),
        ({"data": {"path": "x", "roles": {"txt": "t"}}}, "'txt' is not a role. Did you mean 'text'?"),
        ({"data": {"path": "x", "roles": {"text": ["a", "b"]}}}, "takes one column"),
        ({"data": {"roles": {}}}, "'data.path' is missing"),
        ({"max_length": "long"}, "max_length"),
        ({"max_length": 1}, "max_length"),
        ({"membership_budget": 2}, "membership_budget"),
        ({"target_fprs": [0.1]}, "must hold 0.01"),
        ({"template": "no column"}, "names no column"),
        ({"template": "{text"}, "template"),
        ({"template": "{text!r}"}, "nothing else inside the braces"),
        ({"model": {"source": "a", "device": "gpu"}}, "'gpu' is not a device"),
        ({"model": {"source": " ", "reference": "b"}}, "model.source: is empty"),
        ({"model": {"source": "a", "reference": ""}}, "model.reference: is empty"),
        ({"data": {"path": "", "roles": {}}}, "data.path: is empty"),
    ],
)
def test_mistakes_are_named(change: dict, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**MEMBERSHIP, **change}, "audit.yaml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("audit.yaml: ")


def test_vectors_need_a_label_and_one_source() -> None:
    with pytest.raises(SpecError, match=r"data\.roles\.label is missing"):
        parse_spec({**VECTORS, "data": {"path": "x", "roles": {"prompt": "p"}}})
    with pytest.raises(SpecError, match="either a model"):
        parse_spec({**VECTORS, "vectors": {"path": "v.parquet"}})


def test_an_empty_folder_is_not_the_working_directory() -> None:
    raw = {
        "kind": "frontier",
        "checkpoints": {"folder": "", "base": "smollm2-135m"},
        "data": {"path": "x", "roles": {"prompt": "p", "label": "sex"}},
        "rouge_rows": 0,
    }
    with pytest.raises(SpecError, match=r"checkpoints\.folder: is empty"):
        parse_spec(raw)
    assert parse_spec({**raw, "checkpoints": {"folder": ".", "base": "smollm2-135m"}}).checkpoints.folder == "."


def test_a_file_is_one_document(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: finetune\nmodel: {source: a}\ndata: {path: x}\n---\nkind: finetune\n")
    with pytest.raises(SpecError, match="2 documents"):
        load_spec(path)
    path.write_text("kind: [\n")
    with pytest.raises(SpecError, match="not valid YAML"):
        load_spec(path)
    path.write_bytes(b"kind: \xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8"):
        load_spec(path)
    with pytest.raises(SpecError, match="no such file"):
        load_spec(tmp_path / "b.yaml")
    path.write_text('{"kind": "finetune", "model": {"source": "a"}, "data": {"path": "x"}}')
    assert load_spec(path).kind == "finetune"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING)
def test_nothing_but_a_spec_error_comes_out_of_nonsense(raw) -> None:
    for kind in KINDS:
        candidate = {**raw, "kind": kind} if isinstance(raw, dict) else raw
        with pytest.raises(SpecError):
            parse_spec(candidate)


def test_templates_are_split_into_literals_and_columns() -> None:
    assert parse_template("{a}. {b}!") == [("", "a"), (". ", "b"), ("!", None)]
    literals = "".join(literal for literal, _ in parse_template("{{x}} {a}"))
    assert literals == "{x} "


def test_did_you_mean() -> None:
    assert did_you_mean("lasttoken", ["lasttok", "meanpool"]) == " Did you mean 'lasttok'?"
    assert did_you_mean("zzz", ["lasttok", "meanpool"]) == " Known: lasttok, meanpool."
    assert did_you_mean("x", []) == ""


SURFACE = {
    "kind": "surfacelora",
    "model": {"source": "a"},
    "data": {"path": "rows.csv", "roles": {"prompt": "note", "target": "summary", "label": "sex"}},
}


def test_lambda_goes_by_its_own_name_everywhere() -> None:
    spec = parse_spec({**SURFACE, "lambda": 0.5})
    assert dump_spec(spec)["lambda"] == 0.5
    assert "strength" not in dump_spec(spec)
    assert parse_spec(dump_spec(spec)) == spec
    with pytest.raises(SpecError, match="Did you mean 'lambda'"):
        parse_spec({**SURFACE, "lamda": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"path": "r", "roles": {"prompt": "n", "target": "s"}}}, "label is missing"),
        ({"data": {"path": "r", "roles": {"prompt": "n", "label": "l"}}}, "target is missing"),
        ({"adversary": ["mlp", "rigde"]}, "Did you mean 'ridge'"),
        ({"adversary": []}, "adversary"),
        ({"targets": ["lasttoken"]}, "Did you mean 'lasttok'"),
        ({"audit": ["meanpool"]}, "audit leaves out 'lasttok'"),
        ({"checkpoint_every": 500}, "more than steps"),
        ({"lambda_begin": 400}, "below steps"),
        ({"lambda": -1}, "lambda"),
        ({"train_splits": ["train", "bal_val"]}, "bal_val is for the audit"),
        ({"membership_rows": 5}, "needs data.roles.member"),
        ({"discriminator": {"ridge": 0}}, "ridge must be above 0, or auto"),
        ({"discriminator": {"bank": 3}}, "unknown key 'bank' in discriminator"),
        ({"lora": {"target_modules": "all"}}, "lora"),
    ],
)
def test_a_mitigation_that_cannot_be_trained_is_refused_with_its_field(change, message) -> None:
    with pytest.raises(SpecError, match=message):
        parse_spec({**SURFACE, **change})


def test_a_shape_that_is_partly_given_keeps_the_other_defaults_of_its_kind() -> None:
    spec = parse_spec({**SURFACE, "lora": {"r": 4}})
    assert (spec.lora.r, spec.lora.dropout, spec.lora.target_modules) == (4, 0.0, "all-linear")


def test_two_shadows_show_no_spread():
    with pytest.raises(SpecError, match=r"shadows\.count.*greater than or equal to 4"):
        parse_spec({**MEMBERSHIP, "shadows": {"count": 2}})
