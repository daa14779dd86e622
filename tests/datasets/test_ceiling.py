"""The Bayes ceiling of the bundled notes: the card's numbers, and none where nothing is known of the making."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore.datasets.ceiling import ceilings
from auditcore.datasets.synthetic import DEFAULT_PATH
from auditcore.spec import DataSpec

ROLES = {"prompt": "prompt", "label": "recorded_sex", "group": "subject_id", "split": "split", "id": "example_id"}
TEMPLATE = "{prompt}\nBrief Hospital Course:"


@pytest.fixture(scope="module")
def notes() -> pd.DataFrame:
    return pd.read_parquet(DEFAULT_PATH).rename(columns={"subject_id": "group"})


def positions(notes: pd.DataFrame, *attributes: str) -> dict:
    splits = {s: np.flatnonzero(notes["split"] == s) for s in ("bal_train", "bal_val", "bal_test")}
    return dict.fromkeys(attributes, splits)


def test_the_ceilings_are_those_of_the_data_card(notes: pd.DataFrame) -> None:
    spec = DataSpec(path=str(DEFAULT_PATH), roles=ROLES)
    found = ceilings(spec, TEMPLATE, notes, positions(notes, "recorded_race", "recorded_sex", "age_band"))
    assert found["split"].unique().tolist() == ["bal_val", "bal_test"]  # what a probe is fitted on has none
    card = (DEFAULT_PATH.parent / "README.md").read_text(encoding="utf-8")
    for row in found[found["split"] == "bal_test"].to_dict("records"):
        line = next(text for text in card.splitlines() if text.startswith(f"| {row['attribute']} | 0"))
        assert f"| {row['ceiling']:.3f} | {row['hits']:.3f} |" in line
        assert (row["n_eval"], row["n_subjects"]) == (3000, 3000)
        assert abs(row["hits"] - row["ceiling"]) < 3 * row["standard_error"]
    assert found["n_classes"].tolist() == [5, 5, 2, 2, 3, 3]
    # Other attributes and vectors of unknown making beside the known ones.
    more = ceilings(spec, None, notes, {**positions(notes, "age_band"), "shoe_size": {}})
    pd.testing.assert_frame_equal(more, found[found["attribute"] == "age_band"].reset_index(drop=True))


def test_rows_are_found_by_number_where_no_column_names_them(notes: pd.DataFrame, tmp_path: Path) -> None:
    some = notes.sample(400, random_state=1).reset_index(drop=True)
    some.to_csv(tmp_path / "some.csv", index=False)
    roles = {"prompt": "prompt", "label": "recorded_sex"}
    by_number = some.assign(example_id=[str(i + 1) for i in range(len(some))])
    one = ceilings(DataSpec(path=str(tmp_path / "some.csv"), roles=roles), "{prompt}", by_number,
                   {"recorded_sex": {"bal_test": np.arange(0, 400, 2)}})  # fmt: skip
    two = ceilings(DataSpec(path=str(DEFAULT_PATH), roles=ROLES), "{prompt}", some,
                   {"recorded_sex": {"bal_test": np.arange(0, 400, 2)}})  # fmt: skip
    pd.testing.assert_frame_equal(one, two)
    assert one["ceiling"].between(0.7, 0.9).all()


def test_fewer_classes_are_easier(notes: pd.DataFrame) -> None:
    spec = DataSpec(path=str(DEFAULT_PATH), roles=ROLES)
    two = notes[(notes["split"] == "bal_test") & notes["recorded_race"].isin(["Asian", "White"])].reset_index(drop=True)
    found = ceilings(spec, TEMPLATE, two, {"recorded_race": {"bal_test": np.arange(len(two))}})
    assert found["n_classes"].item() == 2
    assert found["ceiling"].item() > 0.85
    assert abs(found["hits"].item() - found["ceiling"].item()) < 3 * found["standard_error"].item()


def test_nothing_is_claimed_where_the_making_is_not_known(notes: pd.DataFrame, tmp_path: Path) -> None:
    spec = DataSpec(path=str(DEFAULT_PATH), roles=ROLES)
    at = positions(notes, "recorded_sex")
    assert ceilings(spec, "{recorded_sex}: {prompt}", notes, at).empty  # the model reads the label itself
    assert ceilings(spec, "{fact_age} {prompt} {target}", notes, at).shape[0] == 2  # what the note says anyway
    assert ceilings(spec, TEMPLATE, notes, {"shoe_size": at["recorded_sex"]}).empty
    strange = notes.assign(recorded_sex="unknown")
    assert ceilings(spec, TEMPLATE, strange, at).empty
    notes.drop(columns=["fact_age"]).to_parquet(tmp_path / "no.parquet")
    assert ceilings(DataSpec(path=str(tmp_path / "no.parquet"), roles={}), TEMPLATE, notes, at).empty
    odd = notes.assign(fact_history="Atlantis")
    odd.to_parquet(tmp_path / "odd.parquet")
    assert ceilings(DataSpec(path=str(tmp_path / "odd.parquet"), roles={"id": "example_id"}), TEMPLATE, notes, at).empty
