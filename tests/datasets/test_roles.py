"""Roles: every value is understood or refused by name and row; what is left out is counted."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.datasets.guess import guess_roles
from auditcore.datasets.labels import parse_label
from auditcore.datasets.roles import load_dataset, parse_member, require_disjoint_splits
from auditcore.datasets.tables import open_table
from auditcore.errors import DatasetError
from auditcore.spec import DataSpec


@pytest.fixture
def load(tmp_path):
    def run(rows, roles, template="{text}", **options):
        path = tmp_path / "t.csv"
        pd.DataFrame(rows).to_csv(path, index=False)
        return load_dataset(DataSpec(path=str(path), roles=roles, **options), template)

    return run


def test_every_role(load):
    rows = {
        "note": ["n1", "n2", "n3", "n4"],
        "answer": ["t1", None, "t3", "t4"],
        "key": ["a", "b", "c", "d"],
        "who": ["p", " p ", "q", None],
        "part": ["train", "train", "test", None],
        "seen": ["1", "No", "TRUE", None],
        "sex": ["F", "M", None, " F"],
        "age": ["old", "old", "young", "young"],
    }
    roles = {"prompt": "note", "target": "answer", "id": "key", "group": "who", "split": "part", "member": "seen"}
    data = load(rows, {**roles, "label": ["sex", "age"]}, "<{prompt}>\n{age}:", split_map={"test": "bal_test"})
    frame = data.frame
    assert list(frame) == ["example_id", "group", "split", "member", "sex", "age"]
    assert frame["example_id"].tolist() == ["a", "b", "c", "d"]
    assert frame["group"].tolist() == ["p", "p", "q", "d"]
    assert frame["split"].fillna("").tolist() == ["train", "train", "bal_test", ""]
    assert frame["member"].dtype == "boolean"
    assert frame["member"].tolist() == [True, False, True, pd.NA]
    assert frame["sex"].fillna("").tolist() == ["F", "M", "", "F"]
    assert data.fields == {"prompt": rows["note"], "age": rows["age"]}
    assert data.target == ["t1", "", "t3", "t4"]
    assert data.texts()[:2] == ["<n1>\nold: t1", "<n2>\nold: "]
    assert data.labels == ("sex", "age")
    for part in ("no split", "unknown membership", "no label 'sex'", "no subject", "empty target"):
        assert any(part in note and note.startswith("1 of 4 rows") for note in data.notes), part
    picked = data.select(np.array([2, 0]))
    assert picked.frame["example_id"].tolist() == ["c", "a"]
    assert picked.texts() == [data.texts()[2], data.texts()[0]]


def test_defaults(load):
    """No id: the data row. No group: rows with equal text are one subject, named by the first of them."""
    data = load({"text": ["x", "y", "x", None, None]}, {"text": "text"})
    assert data.frame["example_id"].tolist() == ["1", "2", "3", "4", "5"]
    assert data.frame["group"].tolist() == ["1", "2", "1", "4", "4"]
    assert data.frame["split"].isna().all()
    assert data.frame["member"].isna().all()
    assert data.target is None
    assert data.texts() == ["x", "y", "x", "", ""]
    assert data.notes == [
        "2 of 5 rows repeat the text of an earlier row and count as the same subject.",
        "2 of 5 rows have an empty text.",
    ]


def test_a_made_up_subject_never_meets_a_real_one(load):
    data = load({"text": ["x", "y", "z"], "who": ["2", None, "2"]}, {"text": "text", "group": "who"})
    assert data.frame["group"].tolist() == ["2", "2 (no subject)", "2"]


def test_templates(load):
    rows = {"title": ["A", "B"], "text": ["wrong", "wrong"], "body": ["{x}", "y"]}
    data = load(rows, {"text": "body"}, "{{{title}}} {text}{text}")
    assert data.texts() == ["{A} {x}{x}", "{B} yy"]
    assert set(data.fields) == {"title", "text"}
    assert load(rows, {}, "{text}").texts() == ["wrong", "wrong"]
    with pytest.raises(DatasetError, match=r"the template names 'titel', which is neither .* Did you mean 'title'"):
        load(rows, {}, "{titel}")
    with pytest.raises(DatasetError, match="role prompt, which is not mapped"):
        load(rows, {"text": "body"}, "{prompt}")


def test_max_rows(load):
    data = load({"text": list("abc")}, {"text": "text"}, max_rows=2)
    assert data.texts() == ["a", "b"]
    assert data.notes == ["Only the first 2 of 3 rows are used (max_rows)."]


@pytest.mark.parametrize(
    ("rows", "roles", "message"),
    [
        ({"text": "ab"}, {"text": "txt"}, "no column 'txt' for the role text. Did you mean 'text'?"),
        ({"m": ["1", "maybe"]}, {"member": "m"}, "row 2, column 'm': 'maybe' says nothing about membership"),
        ({"m": ["0.5", "1"]}, {"member": "m"}, "row 1, column 'm': '0.5'"),
        ({"s": ["train", "tran"]}, {"split": "s"}, "row 2, column 's': 'tran' is not a split"),
        ({"s": ["train", "tran"]}, {"split": "s"}, "Did you mean 'train'?"),
        ({"i": ["a", "a"]}, {"id": "i"}, "rows 1 and 2 have the same id 'a' (column 'i')"),
        ({"i": ["a", None]}, {"id": "i"}, "row 2, column 'i' (id) is empty"),
        ({"l": ["F", "F"]}, {"label": "l"}, "label column 'l' has one class ('F') in 2 rows"),
        ({"l": [None, " "]}, {"label": "l"}, "label column 'l' has no values"),
        ({"split": ["F", "M"]}, {"label": "split"}, "may not be called 'split'"),
        ({"a": "FM", "A": "FM"}, {"label": ["a", "A"]}, "'a' and 'A'"),
        ({"g": "pp", "s": ["train", "bal_test"]}, {"group": "g", "split": "s"}, "'p' is in the splits train and bal_"),
        ({"g": "pp", "s": ["train", "bal_test"]}, {"group": "g", "split": "s"}, "rows 1, 2"),
    ],
)  # fmt: skip
def test_refused(load, rows, roles, message):
    rows = {"text": ["x", "y"], **{name: list(values) for name, values in rows.items()}}
    with pytest.raises(DatasetError) as caught:
        load(rows, {"text": "text", **roles})
    assert message in str(caught.value)


def test_a_split_map_needs_a_split(load):
    with pytest.raises(DatasetError, match="no column plays the role split"):
        load({"text": ["x"]}, {"text": "text"}, split_map={"test": "bal_test"})


def test_lists_are_refused_for_text(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "turns": ["x"]}\n')
    for roles, template in (({"text": "turns"}, "{text}"), ({}, "{turns}")):
        with pytest.raises(DatasetError, match="column 'turns' holds lists"):
            load_dataset(DataSpec(path=str(path), roles=roles), template)


WORDS = {True: ["1", "true", "True", "YES", "yes", "1.0", " 1"], False: ["0", "false", "FALSE", "no", "0.0"]}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([(w, k) for k, words in WORDS.items() for w in words] + [(None, None), ("", None)])))
def test_member_values(tmp_path_factory, pairs):
    column = pd.Series([value for value, _ in pairs], name="m", dtype="str")
    found = parse_member(column, tmp_path_factory.getbasetemp())
    assert [None if pd.isna(v) else bool(v) for v in found] == [known for _, known in pairs]


def test_disjoint_splits():
    frame = pd.DataFrame({"group": list("aabbc"), "split": ["train", "train", "bal_val", None, "bal_test"]})
    require_disjoint_splits(frame)
    frame.loc[3, "split"] = "train"
    with pytest.raises(DatasetError, match=r"subject 'b' .* bal_val and train .* 1 subject is in two"):
        require_disjoint_splits(frame)


def guesses(tmp_path, rows):
    pd.DataFrame(rows).to_csv(tmp_path / "g.csv", index=False)
    return guess_roles(open_table(tmp_path / "g.csv"))


def test_guess_by_name(tmp_path):
    n = 40
    found = guesses(
        tmp_path,
        {
            "Row ID": [f"r{i}" for i in range(n)],
            "patientId": [f"p{i // 2}" for i in range(n)],
            "dialogue": [f"doctor and patient talk about {i}" for i in range(n)],
            "summary": [f"the patient was seen for {i}" for i in range(n)],
            "patient_sex": ["female", "male"] * (n // 2),
            "site": ["north", "south"] * (n // 2),
            "split": ["train", "bal_test"] * (n // 2),
            "member": ["1", "0"] * (n // 2),
        },
    )
    assert {role: guess.column for role, guess in found.items()} == {
        "id": "Row ID",
        "group": "patientId",
        "member": "member",
        "split": "split",
        "label": "patient_sex",
        "target": "summary",
        "prompt": "dialogue",
    }
    assert found["id"].reason == "its name, and its 40 values all differ"
    assert found["member"].reason == "its name, and its values are 0, 1"
    assert found["label"].reason == "its name, and it has 2 different values"
    assert "characters long on average" in found["prompt"].reason


def test_guess_by_content(tmp_path):
    n = 40
    found = guesses(
        tmp_path,
        {
            "a": [f"k{i}" for i in range(n)],
            "b": [f"a longer piece of writing, number {i}" for i in range(n)],
            "c": ["x", "y", None, "z"] * (n // 4),
            "d": ["bal_train", "bal_test"] * (n // 2),
        },
    )
    assert {role: guess.column for role, guess in found.items()} == {"id": "a", "split": "d", "label": "c", "text": "b"}
    assert found["label"].reason == "it has only 3 different values: x, y, z"
    assert found["text"].reason.startswith("it holds the longest texts")


def test_a_name_alone_is_no_reason(tmp_path):
    """Columns with the right name and the wrong content are not taken."""
    found = guesses(
        tmp_path,
        {"id": list("aab"), "member": list("xyz"), "split": list("uvw"), "label": list("pqr"), "text": list("abc")},
    )
    assert not {"id", "member", "split", "label", "text"} & found.keys()


def test_what_the_recipient_holds_is_read_beside_the_frame(load):
    rows = {"text": ["a", "b", "c"], "ward": ["x ", "", None], "age": ["1", "2", "3"]}
    data = load(rows, {"text": "text", "metadata": ["ward", "age"]})
    assert list(data.frame) == ["example_id", "group", "split", "member"]
    assert data.metadata is not None
    assert data.metadata["ward"].fillna("-").tolist() == ["x", "-", "-"]
    some = data.select(np.array([2, 0])).metadata
    assert some is not None
    assert some["age"].tolist() == ["3", "1"]
    assert some.index.tolist() == [0, 1]
    assert load(rows, {"text": "text"}).metadata is None
    with pytest.raises(DatasetError, match=r"no column 'wards' for the role metadata\. Did you mean 'ward'"):
        load(rows, {"text": "text", "metadata": "wards"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "1.0", "2", "+2.00", "0.50", "-0.0"], ["1", "1", "2", "2", "0.5", "0"]),
        (["1e3", "1000", "1E-2", ".01", "3", "3."], ["1000", "1000", "0.01", "0.01", "3", "3"]),
        (["9" * 40, "9" * 39 + "8", "9" * 40 + ".0"], ["9" * 40, "9" * 39 + "8", "9" * 40]),
        (["007", "7", "7.0"], ["007", "7", "7.0"]),  # codes made of digits
        (["1", "1.0", "one"], ["1", "1.0", "one"]),
        (["nan", "1.0", "NaN", "2", "<NA>", "null"], ["", "1", "", "2", "", ""]),
        (["null", "F", "NULL", "M", " nan ", "-nan"], ["", "F", "", "M", "", ""]),
        (["NA", "N/A", "Nan", "none"], ["NA", "N/A", "Nan", "none"]),
    ],
)
def test_labels_are_numbers_words_or_missing(load, values, expected):
    data = load({"text": values, "l": values}, {"text": "text", "label": "l"})
    assert data.frame["l"].fillna("").tolist() == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_of_a_float_column_is_no_class_and_no_subject(tmp_path, dtype):
    """A NaN that is a number in the file, not a null: DuckDB writes it as nan or -nan."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    floats = np.array([0, 1, np.nan, -np.nan, 1, 0], dtype=dtype)
    member = np.array([0, 1, np.nan, 1, 1, 0], dtype=dtype)
    columns = {"l": pa.array(floats), "g": pa.array(floats), "m": pa.array(member), "text": list("abcdef")}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    roles = {"text": "text", "label": "l", "group": "g", "member": "m"}
    data = load_dataset(DataSpec(path=str(tmp_path / "t.parquet"), roles=roles), "{text}")
    assert data.frame["l"].fillna("").tolist() == ["0", "1", "", "", "1", "0"]
    assert data.frame["group"].nunique() == 4  # two rows without a subject are two subjects
    assert data.frame["member"].tolist() == [False, True, pd.NA, True, True, False]
    assert "2 of 6 rows have no label 'l' (1 is written 'nan', 1 is written '-nan')." in data.notes


def test_a_code_that_may_mean_missing_is_kept_and_said(load):
    data = load({"text": list("abc"), "race": ["NA", "NA", "W"]}, {"text": "text", "label": "race"})
    assert data.frame["race"].tolist() == ["NA", "NA", "W"]
    said = "'NA' is taken as a label of 2 rows in column 'race'; if it means missing, leave those cells empty."
    assert data.notes == [said]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, unique=True))
@settings(max_examples=60, deadline=None)
def test_as_many_classes_as_numbers(numbers):
    """However a number is written, it is one class; two numbers are two."""
    written = [text for number in numbers for text in (repr(number), f"{Decimal(repr(number)):f}", f" {number!r}")]
    if len(set(numbers)) == 1:
        return
    label = parse_label(pd.Series(written, name="l"), "t.csv")
    assert label.nunique() == len({Decimal(repr(n)) for n in numbers})
    assert (label.to_numpy().reshape(-1, 3) == label.to_numpy().reshape(-1, 3)[:, :1]).all()


def test_a_word_for_missing_that_is_mapped_to_a_split_is_one(load):
    rows = {"text": list("abc"), "part": ["null", "nan", "x"]}
    data = load(rows, {"text": "text", "split": "part"}, split_map={"null": "train", "x": "bal_test"})
    assert data.frame["split"].fillna("").tolist() == ["train", "", "bal_test"]
