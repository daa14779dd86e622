"""Licensed sources on made-up files in their schemas: joins, recorded race, prompts without summaries, splits."""

import re

import pandas as pd
import pytest
import yaml

from auditcore.cli import main
from auditcore.datasets.clinical import RACE, SEX, deal, race_table, read_clinical
from auditcore.datasets.roles import load_dataset
from auditcore.errors import DatasetError, SpecError
from auditcore.spec import parse_data
from tests.clinical_files import discharge_me, mimic_iv_bhc

FIVE = {"Asian", "Black", "Hispanic", "Other", "White"}


def _data(path, source="discharge_me", **how):
    return parse_data({"path": str(path), "clinical": {"source": source, **{k: str(v) for k, v in how.items()}}})


def test_discharge_me_joins_its_tables_and_counts_what_is_lost(tmp_path):
    made = read_clinical(_data(discharge_me(tmp_path / "dm")))
    frame, notes = made.frame, "\n".join(made.notes)
    assert len(frame) == 200
    assert frame["note_id"].is_unique
    assert set(frame[RACE].dropna()) == FIVE
    assert set(frame[SEX].dropna()) == {"Female", "Male"}
    assert "train: 160 notes." in notes
    assert "valid: 40 notes." in notes
    assert "a recorded race that no category holds ('MARTIAN' 4)" in notes
    assert "train/edstays: no race was recorded on 4 of 152 stays." in notes
    assert "20 of 200 notes have no recorded race" in notes
    assert frame[RACE].isna().sum() == 20
    assert "administrative" in notes
    assert len(made.sha256) == 64


def test_no_summary_is_left_in_a_prompt(tmp_path):
    made = read_clinical(_data(discharge_me(tmp_path / "dm")))
    for row in made.frame.to_dict("records"):
        folded = " ".join(row["prompt"].split())
        assert row["target"] not in folded
        assert "History of Present Illness" in folded
        assert "Followup Instructions" in folded
    assert any("were cut out of 200 notes" in note for note in made.notes)


def test_prompts_that_still_hold_their_summary_are_dropped_or_kept_and_counted(tmp_path):
    folder = discharge_me(tmp_path / "dm")
    path = folder / "train" / "discharge.csv.gz"
    notes, targets = pd.read_csv(path), pd.read_csv(folder / "train" / "discharge_target.csv.gz")
    for i in range(3):  # the course stands in the history too
        notes.loc[i, "text"] = f"Seen before: {targets['brief_hospital_course'][i].upper()}.\n" + notes.loc[i, "text"]
    notes.to_csv(path, index=False)
    dropped = read_clinical(_data(folder))
    assert len(dropped.frame) == 197
    assert any("3 prompts still hold 13 words in a row" in n and "left out" in n for n in dropped.notes)
    kept = read_clinical(_data(folder, leftovers="keep"))
    assert len(kept.frame) == 200
    assert any("are kept" in n for n in kept.notes)


def test_mimic_iv_bhc_takes_race_from_the_stay_of_the_note_or_from_all_stays(tmp_path):
    paths = mimic_iv_bhc(tmp_path)
    by_stay = read_clinical(_data(paths["pairs"], "mimic_iv_bhc", admissions=paths["admissions"], notes=paths["notes"]))
    first = by_stay.frame[by_stay.frame["subject_id"] == "10000000"]
    assert first[RACE].tolist() == ["White", "Asian"]
    assert set(first["split"]) == {"train"}
    assert any("1 subjects have notes of two categories" in n for n in by_stay.notes)
    by_subject = read_clinical(_data(paths["pairs"], "mimic_iv_bhc", admissions=paths["admissions"]))
    assert by_subject.frame.loc[by_subject.frame["subject_id"] == "10000000", RACE].isna().all()
    assert any("1 subjects name two of race" in n for n in by_subject.notes)
    folder = read_clinical(_data(tmp_path, "mimic_iv_bhc", admissions=paths["admissions"]))
    pd.testing.assert_frame_equal(folder.frame, by_subject.frame)


@pytest.mark.parametrize("source", ["discharge_me", "mimic_iv_bhc"])
def test_a_subject_has_one_split_and_bal_parts_are_balanced(tmp_path, source):
    if source == "discharge_me":
        data = _data(discharge_me(tmp_path / "dm", 400))
    else:
        paths = mimic_iv_bhc(tmp_path, 400)
        data = _data(paths["pairs"], source, admissions=paths["admissions"], notes=paths["notes"])
    frame = read_clinical(data).frame
    assert (frame.groupby("subject_id")["split"].nunique() == 1).all()
    assert set(frame["split"]) == {"train", "defence_fit", "bal_train", "bal_val", "bal_test"}
    for part in ("bal_train", "bal_val", "bal_test"):
        counts = frame[frame["split"] == part].groupby(RACE)["subject_id"].nunique()
        assert set(counts.index) == FIVE
        assert counts.nunique() == 1
    assert frame["split"].equals(read_clinical(data).frame["split"])
    other = frame["split"].ne(deal(frame, 5)[0])
    assert 0.1 < other.mean() < 0.9


def test_the_table_of_race_is_editable_and_checked(tmp_path):
    shipped = race_table(None)
    assert {v for v in shipped.values() if v} == FIVE
    assert len(shipped) == 33
    assert shipped["WHITE - RUSSIAN"] == "White"
    assert shipped["UNKNOWN"] is None
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump({"Asian or other": ["asian -  chinese", "OTHER", "Martian"], "White": ["WHITE"]}))
    made = read_clinical(_data(discharge_me(tmp_path / "dm"), race_table=mine))
    assert set(made.frame[RACE].dropna()) == {"Asian or other", "White"}
    assert any("no category holds ('BLACK/AFRICAN AMERICAN'" in n for n in made.notes)
    for text, words in (
        ("- a", "expected categories"),
        ("A: [x]\nB: [X]", "two categories"),
        ("a: [", "cannot be read"),
    ):
        mine.write_text(text)
        with pytest.raises(DatasetError, match=words):
            race_table(str(mine))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DatasetError, match="none of the folders train, valid"):
        read_clinical(_data(tmp_path))
    folder = discharge_me(tmp_path / "dm")
    (folder / "valid" / "edstays.csv.gz").unlink()
    with pytest.raises(DatasetError, match=re.escape("there is no edstays.csv.gz here; it is part of Discharge Me!")):
        read_clinical(_data(folder))
    one = parse_data({"path": str(folder), "clinical": {"source": "discharge_me", "parts": ["train"]}})
    assert len(read_clinical(one).frame) == 160
    stays = folder / "train" / "edstays.csv.gz"
    pd.read_csv(stays).rename(columns={"race": "ethnicity"}).to_csv(stays, index=False)
    with pytest.raises(DatasetError, match="has no column race"):
        read_clinical(one)
    paths = mimic_iv_bhc(tmp_path)
    with pytest.raises(DatasetError, match="admissions table; name it"):
        read_clinical(_data(paths["pairs"], "mimic_iv_bhc"))
    twice = pd.concat([pd.read_csv(paths["pairs"])] * 2)
    twice.to_csv(paths["pairs"], index=False)
    with pytest.raises(DatasetError, match="stands there twice"):
        read_clinical(_data(paths["pairs"], "mimic_iv_bhc", admissions=paths["admissions"]))


def test_roles_are_brought_and_only_the_label_is_chosen(tmp_path):
    folder = discharge_me(tmp_path / "dm")
    raw = {"path": str(folder), "clinical": {"source": "discharge_me"}}
    dataset = load_dataset(parse_data({**raw, "roles": {"label": ["recorded_race", "recorded_sex"]}}), "{prompt}")
    assert dataset.labels == ("recorded_race", "recorded_sex")
    assert dataset.target is not None
    assert set(dataset.frame["split"]) >= {"train", "bal_test"}
    held = load_dataset(parse_data({**raw, "roles": {"metadata": "recorded_sex"}}), "{prompt}").metadata
    assert held is not None
    assert set(held["recorded_sex"].dropna()) == {"Female", "Male"}
    few = load_dataset(parse_data({**raw, "max_rows": 50}), "{prompt}")
    assert len(few.frame) == 50
    with pytest.raises(SpecError, match="of roles only label"):
        parse_data({**raw, "roles": {"prompt": "text"}})
    with pytest.raises(SpecError, match="of roles only label"):
        parse_data({**raw, "split_map": {"a": "train"}})
    with pytest.raises(SpecError, match="Did you mean 'discharge_me'"):
        parse_data({**raw, "clinical": {"source": "discharge-me"}})


def test_the_command_line_reports_and_copies_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = discharge_me(tmp_path / "dm")
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", "discharge_me", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "200 rows. In a spec:" in out
    assert "clinical: {source: discharge_me}" in out
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["import", "discharge_me", str(folder), "--out", "rows.parquet"]) == 2
    assert "licensed notes are not copied" in capsys.readouterr().err
