"""Splits share no subject, keep the shares and the classes, and depend on names and seed only."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.datasets.splits import (
    SHARES,
    SHARES_WITH_DEFENCES,
    balance_table,
    balanced,
    conflicting_subjects,
    make_splits,
    split_notes,
    subject_classes,
)
from auditcore.errors import DatasetError


def frame_of(groups, split=None, **labels):
    n = len(groups)
    frame = pd.DataFrame({"example_id": [str(i) for i in range(n)], "group": pd.Series(groups, dtype="str")})
    frame["split"] = pd.Series([None] * n if split is None else split, dtype="str")
    frame["member"] = pd.Series([pd.NA] * n, dtype="boolean")
    return frame.assign(**{name: pd.Series(values, dtype="str") for name, values in labels.items()})


def subjects(n, classes="FM", rows=2):
    groups = [f"s{i:05d}" for i in range(n) for _ in range(rows)]
    return frame_of(groups, sex=[classes[i % len(classes)] for i in range(n) for _ in range(rows)])


@pytest.mark.parametrize(("defences", "shares"), [(False, SHARES), (True, SHARES_WITH_DEFENCES)])
def test_shares_by_class(defences, shares):
    frame = make_splits(subjects(1000), ["sex"], seed=0, defences=defences)
    by = frame.drop_duplicates("group").groupby(["sex", "split"]).size()
    for name in "FM":
        assert by[name].to_dict() == {split: round(500 * share) for split, share in shares.items()}
    assert frame.groupby("group")["split"].nunique().max() == 1


def test_the_draw_depends_on_names_and_seed_only():
    frame = subjects(200)
    first = make_splits(frame, ["sex"], seed=3, defences=True)
    again = make_splits(frame.sample(frac=1, random_state=0), ["sex"], seed=3, defences=True).sort_index()
    pd.testing.assert_frame_equal(first, again)
    other = make_splits(frame, ["sex"], seed=4, defences=True)
    assert (first["split"] != other["split"]).any()
    assert frame["split"].isna().all()  # the frame given is left as it was


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["F", "M", None])), min_size=60, max_size=150),
    st.integers(-3, 2**40),
    st.booleans(),
)
def test_any_table(rows, seed, defences):
    frame = frame_of([f"g{g}" for g, _ in rows], sex=[sex for _, sex in rows])
    counts = subject_classes(frame, "sex").value_counts()
    parts = SHARES_WITH_DEFENCES if defences else SHARES
    if len(counts) < 2 or counts.min() < len(parts):
        with pytest.raises(DatasetError):
            make_splits(frame, ["sex"], seed, defences)
        return
    made = make_splits(frame, ["sex"], seed, defences)
    conflicts = conflicting_subjects(frame, "sex")
    inside = frame["sex"].notna() & ~frame["group"].isin(conflicts)
    assert (made["split"].notna() == inside).all()
    assert made[inside].groupby("group")["split"].nunique().max() == 1
    for split in ("bal_train", "bal_val", "bal_test"):
        positions = balanced(made, "sex", split, seed)
        kept = made.iloc[positions]
        assert (np.diff(positions) > 0).all()
        assert set(kept["split"]) == {split}
        per_class = kept.groupby("sex")["group"].nunique()
        assert per_class.nunique() == 1
        assert per_class.iloc[0] == counts_in(made, split).min()
        whole = made[(made["split"] == split) & made["group"].isin(kept["group"])]
        assert len(whole) == len(kept)


def counts_in(frame, split):
    return frame[frame["split"] == split].drop_duplicates("group")["sex"].value_counts()


def test_several_labels():
    n = 400
    frame = frame_of(
        [f"s{i:03d}" for i in range(n)], sex=[["F", "M", None][i % 3] for i in range(n)], age=list("abcd") * (n // 4)
    )
    made = make_splits(frame, ["sex", "age"], seed=0, defences=False)
    assert made["split"].notna().all()  # every row has an age
    joint = made.assign(sex=made["sex"].fillna("")).groupby(["sex", "age", "split"]).size()
    assert joint.groupby(["sex", "age"]).nunique().size == 12
    assert joint.min() >= 4
    alone = make_splits(frame, ["sex"], seed=0, defences=False)
    assert (alone["split"].isna() == frame["sex"].isna()).all()
    rare = frame.assign(age=pd.Series(["z"] * 12 + ["y"] * (n - 12), dtype="str"))
    assert make_splits(rare, ["sex", "age"], seed=0, defences=False)["split"].notna().all()


def test_subjects_with_two_classes():
    frame = subjects(40)
    frame.loc[1, "sex"] = "M"  # s00000 has one row of each class
    made = make_splits(frame, ["sex"], seed=0, defences=False)
    assert conflicting_subjects(made, "sex") == ["s00000"]
    assert made["split"].isna().tolist()[:3] == [True, True, False]
    assert split_notes(made, ["sex"])[-2:] == [
        "2 of 80 rows are in no split.",
        "1 subject has rows of more than one class of 'sex': left out of its audit.",
    ]
    given = made.assign(split=made["split"].fillna("bal_test"))
    assert "s00000" not in set(given.iloc[balanced(given, "sex", "bal_test", 0)]["group"])


def test_splits_of_the_data_are_kept_and_checked():
    short = subjects(4).assign(split=["bal_train"] * 4 + ["bal_test"] * 4)
    with pytest.raises(DatasetError, match=r"no rows of bal_val; it has rows of bal_test \(4\), bal_train \(4\)"):
        make_splits(short, ["sex"], seed=0, defences=False)
    frame = subjects(6).assign(split=["bal_train"] * 4 + ["bal_val"] * 4 + ["bal_test"] * 4)
    pd.testing.assert_frame_equal(make_splits(frame, ["sex"], seed=0, defences=False), frame)
    with pytest.raises(DatasetError, match=r"no rows of defence_fit; it has rows of bal_test .*or audit no defence"):
        make_splits(frame, ["sex"], seed=0, defences=True)
    frame.loc[0, "split"] = "bal_test"
    with pytest.raises(DatasetError, match="subject 's00000' is in the splits bal_test and bal_train"):
        make_splits(frame, ["sex"], seed=0, defences=False)


def test_classes_too_small():
    frame = subjects(60)
    frame.loc[:3, "sex"] = "X"
    with pytest.raises(DatasetError, match="class 'X' has 2 subjects, too few for the splits bal_train, bal_val"):
        make_splits(frame, ["sex"], seed=0, defences=False)
    made = make_splits(subjects(60), ["sex"], seed=0, defences=False)
    made.loc[(made["split"] == "bal_val") & (made["sex"] == "F"), "sex"] = pd.NA
    with pytest.raises(DatasetError, match="no subject of class 'F' is in bal_val"):
        balanced(made, "sex", "bal_val", 0)


def test_balance_table():
    made = make_splits(subjects(100, classes="FFM"), ["sex"], seed=0, defences=False)
    table = balance_table(made, "sex", 0)
    assert list(table) == ["split", "sex", "subjects", "subjects_kept", "rows", "rows_kept"]
    assert len(table) == 6
    assert (table["rows_kept"] == 2 * table["subjects_kept"]).all()
    assert table.groupby("split")["subjects_kept"].nunique().max() == 1
    assert table["subjects"].sum() == 100


def test_no_label():
    made = make_splits(subjects(20), [], seed=0, defences=False)
    assert made["split"].notna().all()
    assert made.drop_duplicates("group")["split"].value_counts().to_dict() == {
        "bal_train": 10,
        "bal_test": 7,
        "bal_val": 3,
    }
