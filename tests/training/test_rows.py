"""Which rows are trained on, and how a member column is held against a checkpoint."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.errors import DatasetError, ModelError
from auditcore.spec import FinetuneSpec
from auditcore.training.rows import agreement, load_trained_on, select_rows, text_hashes, trained_on_table


def spec(**changes):
    raw = {"model": {"source": "smollm2-135m"}, "data": {"path": "rows.csv"}, "validation": 0, **changes}
    return FinetuneSpec.model_validate(raw)


def frame(n, *, member=None, split=None, group=None):
    ids = [f"r{i}" for i in range(n)]
    return pd.DataFrame(
        {
            "example_id": pd.Series(ids, dtype="str"),
            "group": pd.Series(ids if group is None else group, dtype="str"),
            "split": pd.Series([None] * n if split is None else split, dtype="str"),
            "member": pd.Series([None] * n if member is None else member, dtype="boolean"),
        }
    )


def test_members_are_trained_on_where_the_data_says_who_is_one():
    train, validation = select_rows(frame(4, member=[True, False, None, True], split=["train"] * 4), spec())
    assert train.tolist() == [0, 3]
    assert validation.tolist() == []


def test_a_mapped_member_role_without_members_is_an_error():
    roles = {"path": "rows.csv", "roles": {"member": "m"}}
    with pytest.raises(DatasetError, match="none has member = true"):
        select_rows(frame(3), spec(data=roles))


def test_splits_choose_where_there_is_no_member():
    rows = frame(4, split=["train", "bal_val", "train", "bal_test"])
    train, validation = select_rows(rows, spec(validation="bal_val"))
    assert train.tolist() == [0, 2]
    assert validation.tolist() == [1]
    with pytest.raises(DatasetError, match="none is in split defence_fit"):
        select_rows(rows, spec(train_splits=["defence_fit"]))


def test_all_rows_are_trained_on_otherwise():
    assert select_rows(frame(3), spec())[0].tolist() == [0, 1, 2]


def test_training_on_a_named_split_of_nonmembers_is_an_error():
    rows = frame(3, member=[True, False, False], split=["train", "defence_fit", "defence_fit"])
    with pytest.raises(DatasetError, match="2 rows to train on have member = false, first 'r1'"):
        select_rows(rows, spec(train_splits=["defence_fit"]))


def test_rows_of_unknown_membership_can_validate():
    rows = frame(4, member=[True, None, False, None])
    train, validation = select_rows(rows, spec(validation="unknown"))
    assert (train.tolist(), validation.tolist()) == ([0], [1, 3])
    with pytest.raises(DatasetError, match="give a share"):
        select_rows(frame(2, member=[True, False]), spec(validation="unknown"))
    with pytest.raises(DatasetError, match="no row is in that split"):
        select_rows(rows, spec(validation="bal_val"))


@given(
    subjects=st.lists(st.integers(0, 8), min_size=4, max_size=40).filter(lambda s: len(set(s)) > 1),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_a_share_takes_whole_subjects_and_leaves_some(subjects, share, seed):
    rows = frame(len(subjects), group=[str(s) for s in subjects])
    train, validation = select_rows(rows, spec(validation=share, seed=seed))
    assert len(train)
    assert len(validation)
    assert sorted([*train, *validation]) == list(range(len(subjects)))
    assert not {subjects[i] for i in train} & {subjects[i] for i in validation}
    again = select_rows(rows, spec(validation=share, seed=seed))
    assert np.array_equal(again[1], validation)


def test_one_subject_cannot_be_divided():
    with pytest.raises(DatasetError, match="set validation: 0"):
        select_rows(frame(3, group=["a"] * 3), spec(validation=0.5))


def test_agreement_counts_what_is_called_wrongly():
    texts = ["trained", "left out", "chose", "trained too", "unknown"]
    table = trained_on_table(list("abc"), text_hashes(["trained", "trained too", "chose"]), np.array([0, 1]), [2])
    member = pd.Series([True, True, True, False, None], dtype="boolean", index=[7, 8, 9, 10, 11])
    found = agreement(member, text_hashes(texts), table)
    assert found.trained.tolist() == [True, False, False, True, False]
    assert found.validation.tolist() == [False, False, True, False, False]
    assert found.member_not_trained.tolist() == [False, True, False, False, False]
    assert found.nonmember_trained.tolist() == [False, False, False, True, False]
    assert found.n_validation == 1
    assert found.messages == [
        "1 of 3 rows called member were not trained on (data rows 2).",
        "1 of 1 rows called non-member were trained on (data rows 4).",
    ]
    assert not found.agrees


def test_agreement_is_silent_when_nothing_is_wrong():
    hashes = text_hashes(["a", "b", "c"])
    table = trained_on_table(["1", "2"], hashes[:2], np.array([0]), np.array([1]))
    found = agreement(pd.Series([True, None, False], dtype="boolean"), hashes, table)
    assert found.agrees
    assert agreement(pd.Series([None, None], dtype="boolean"), text_hashes(["x", "y"]), table).agrees


def test_agreement_recognises_another_data_set():
    table = trained_on_table(["1"], text_hashes(["a"]), np.array([0]), np.array([], dtype=int))
    found = agreement(pd.Series([True, False], dtype="boolean"), text_hashes(["x", "y"]), table)
    assert found.messages == [
        "None of these texts was trained on: is it another checkpoint, another file or another template?"
    ]


def test_trained_on_is_read_back_or_missing_or_broken(tmp_path):
    assert load_trained_on(tmp_path) is None
    table = trained_on_table(["1", "2"], text_hashes(["a", "b"]), np.array([1]), np.array([0]))
    table.to_parquet(tmp_path / "trained_on.parquet", index=False)
    back = load_trained_on(tmp_path)
    assert back.to_dict("list") == {
        "example_id": ["2", "1"],
        "text_sha256": text_hashes(["b", "a"]),
        "used": ["train", "validation"],
    }
    (tmp_path / "trained_on.parquet").write_bytes(b"not parquet")
    with pytest.raises(ModelError, match="cannot be read"):
        load_trained_on(tmp_path)


def test_rows_are_chosen_without_torch():
    import subprocess
    import sys

    code = "import sys, auditcore.training.rows; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
