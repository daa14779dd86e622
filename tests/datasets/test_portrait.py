"""What a data set looks like: counts by split, lengths, words that tell classes apart by a likelihood ratio."""

import numpy as np
import pandas as pd
import pytest

from auditcore.cli import main
from auditcore.datasets.portrait import NO_SPLIT, likelihood_z, portrait, telling_words
from auditcore.datasets.roles import load_dataset
from auditcore.datasets.splits import make_splits
from auditcore.spec import DataSpec, parse_data
from tests.clinical_files import discharge_me


def _file(tmp_path, n=120, **columns):
    rng = np.random.default_rng(0)
    sex = np.array(["F", "M"])[np.arange(n) % 2]
    hint = np.where(sex == "F", "pregnancy", "prostate")
    text = [f"{' '.join(rng.choice(['cough', 'fever', 'home', 'pain'], 5))} {h}. Seen 12" for h in hint]
    frame = pd.DataFrame({"note": text, "sex": sex, "who": [f"p{i}" for i in range(n)], **columns})
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    return str(path)


def _spec(path, **roles):
    return DataSpec(path=path, roles={"prompt": "note", "label": "sex", "group": "who", **roles})


def test_proxies_come_first_and_are_marked_common_words_are_not(tmp_path):
    found = portrait(_spec(_file(tmp_path)), "{prompt}")
    words = found.words.set_index("class")
    first = words.groupby(level=0)["word"].first()
    assert first.to_dict() == {"F": "pregnancy", "M": "prostate"}
    marked = found.words[found.words["marked"]]
    assert set(marked["word"]) == {"pregnancy", "prostate"}
    assert (marked["share"] == 1).all()
    assert (marked["share_rest"] == 0).all()
    assert "12" not in found.words["word"].tolist()
    assert found.compared == {"sex": 7}
    assert found.unit == "words"
    assert len(found.lengths) == 120


def test_subjects_and_classes_are_counted_by_split_in_the_order_of_the_splits(tmp_path):
    split = np.resize(["bal_test", "bal_train", "bal_train", ""], 120)
    found = portrait(_spec(_file(tmp_path, split=split), split="split"), "{prompt}")
    assert found.splits["split"].tolist() == ["bal_train", "bal_test", NO_SPLIT]
    assert found.splits["subjects"].tolist() == [60, 30, 30]
    assert found.balance["subjects"].sum() == 120
    assert found.balance["split"].drop_duplicates().tolist() == ["bal_train", "bal_test", NO_SPLIT]


def test_a_subject_counts_once_however_much_it_writes():
    frame = pd.DataFrame({"group": [f"s{i}" for i in range(40)] + ["s0"] * 500, "sex": ["F", "M"] * 20 + ["F"] * 500})
    held = {f"s{i}": {"word", *(["often"] if i < 20 else [])} for i in range(40)}
    table, n, notes = telling_words(held, frame, "sex")
    assert n == 2
    assert notes == []
    assert not table["marked"].any()
    assert (table.loc[table["word"] == "often", "z"].abs() < 0.1).all()


def test_z_agrees_with_a_likelihood_ratio_test_and_turns_with_the_sides():
    from scipy.stats import chi2_contingency

    here, there = np.array([30.0, 5.0, 20.0, 50.0]), np.array([10.0, 5.0, 0.0, 40.0])
    z = likelihood_z(here, 50, there, 60)
    for k in range(4):
        cells = [[here[k], 50 - here[k]], [there[k], 60 - there[k]]]
        g = chi2_contingency(cells, correction=False, lambda_="log-likelihood").statistic
        assert abs(z[k]) == pytest.approx(np.sqrt(g))
    np.testing.assert_allclose(likelihood_z(there, 60, here, 50), -z)
    assert likelihood_z(np.array([7.0]), 7, np.array([9.0]), 9)[0] == 0


def test_the_bound_holds_on_words_that_say_nothing():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"group": [f"s{i}" for i in range(300)], "sex": ["F", "M"] * 150})
    marked = 0
    for _ in range(20):
        use = rng.random((300, 60)) < rng.random(60)
        held = {f"s{i}": {f"w{j}" for j in np.flatnonzero(use[i])} for i in range(300)}
        marked += bool(telling_words(held, frame, "sex")[0]["marked"].any())
    assert marked <= 3  # 5 % of 20 is 1


def test_rare_words_subjects_with_two_classes_and_many_classes_are_left_out(tmp_path):
    names, classes = [f"s{i}" for i in range(60)], [f"c{i % 15}" for i in range(60)]
    frame = pd.DataFrame({"group": [*names, "s0"], "k": [*classes, "c9"]})
    held = {f"s{i}": {"common", f"name{i}"} for i in range(60)}
    table, n, notes = telling_words(held, frame, "k")
    assert n == 1
    assert "1 subjects name two classes" in notes[0]
    assert "12 most frequent of 15 classes" in notes[1]
    assert set(table["word"]) <= {"common"}


def test_without_a_label_members_are_compared(tmp_path):
    path = _file(tmp_path, member=np.arange(120) % 2)
    found = portrait(DataSpec(path=path, roles={"text": "note", "member": "member", "group": "who"}), "{text}")
    assert set(found.words["class"]) == {"member", "non-member"}
    assert found.words["marked"].any()
    nothing = portrait(DataSpec(path=path, roles={"text": "note"}), "{text}")
    assert nothing.words.empty
    assert nothing.balance.empty


def test_the_command_line_shows_it(tmp_path, capsys):
    path = _file(tmp_path)
    arguments = ["check", path, "--role", "prompt=note", "--role", "label=sex", "--role", "group=who"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "words that tell classes apart" in out
    assert "sex F: pregnancy (100%, 0% elsewhere)" in out


def test_rows_without_a_text_have_classes_and_splits(tmp_path):
    found = portrait(DataSpec(path=_file(tmp_path), roles={"label": "sex", "group": "who"}), None)
    assert found.balance["subjects"].tolist() == [60, 60]
    assert found.words.empty
    assert len(found.lengths) == 0


def test_licensed_notes_are_drawn_from_where_they_lie(tmp_path):
    folder = str(discharge_me(tmp_path / "dm", 80))
    found = portrait(parse_data({"path": folder, "clinical": {"source": "discharge_me"}}), "{prompt}")
    assert set(found.balance["attribute"]) == {"recorded_race"}
    assert "bal_test" in set(found.splits["split"])
    assert len(found.lengths) == int(found.splits["rows"].sum()) > 50
    assert (found.lengths > 60).all()  # 40 words of history, 30 of the summary


@pytest.mark.parametrize("defences", [False, True])
def test_without_a_split_those_are_shown_that_the_audit_will_deal(tmp_path, defences):
    spec = _spec(_file(tmp_path))
    expected = make_splits(load_dataset(spec, "{prompt}").frame, spec.labels, 3, defences)
    found = portrait(spec, "{prompt}", deal=lambda frame: make_splits(frame, spec.labels, 3, defences))
    counts = expected.groupby("split")["group"].nunique()
    assert found.splits.set_index("split")["subjects"].to_dict() == counts.to_dict()
    assert (
        f"the audit will deal subjects at random, by label: {'defence_fit 24' if defences else 'bal_train 60'}"
        in found.dealt
    )
    classes = found.balance[found.balance["split"] == "bal_test"]
    assert classes["subjects"].tolist() == [21, 21]


def test_too_few_subjects_to_deal_is_said_and_own_splits_are_kept(tmp_path):
    spec = _spec(_file(tmp_path, n=4))
    deal = lambda frame: make_splits(frame, spec.labels, 0, True)  # noqa: E731
    found = portrait(spec, "{prompt}", deal=deal)
    assert found.splits["split"].tolist() == [NO_SPLIT]
    assert found.dealt.startswith("The data has no split, and none can be dealt: ")
    own = _spec(_file(tmp_path, split=np.repeat(["bal_train", "bal_test"], 60)), split="split")
    assert portrait(own, "{prompt}", deal=deal).dealt == ""
