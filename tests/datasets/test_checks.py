"""The check report: counts that can be recounted by hand, and no finding lost to another."""

import json

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from auditcore.datasets import lengths
from auditcore.datasets.checks import check
from auditcore.errors import DatasetError
from auditcore.spec import DataSpec


@pytest.fixture
def words(tmp_path):
    """A tokenizer of one token a word."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(2)  # must not hide long texts
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def run(tmp_path):
    def go(rows, roles, template="{text}", max_length=8, tokenizer_file=None, **options):
        path = tmp_path / "t.parquet"
        pd.DataFrame(rows).to_parquet(path)
        return check(DataSpec(path=str(path), roles=roles, **options), template, max_length, tokenizer_file)

    return go


def said(report, severity):
    return [finding.text for finding in report.findings if finding.severity == severity]


def has(texts, *parts):
    return any(all(part in text for part in parts) for text in texts)


def test_clean_data(run):
    n = 60
    rows = {"text": [f"text {i}" for i in range(n)], "sex": ["F", "M"] * (n // 2)}
    report = run(rows, {"text": "text", "label": "sex"})
    assert report.n_rows == n
    assert not report.errors
    assert not said(report, "warning")
    assert has(said(report, "info"), "No text occurs twice")
    assert has(said(report, "info"), "'sex' has 2 classes, from 30 to 30 subjects")
    assert set(report.tables) == {"columns", "classes", "lengths"}
    assert report.tables["columns"].to_dict("list")["role"] == ["text", "label"]
    assert f"{n} rows" in report.to_text()


def test_duplicates_across_splits_and_members(run):
    rows = {
        "text": ["a", "b", "a", "c", "c", "c", "", " ", "d"],
        "target": ["1", "2", "9", "3", "3", "4", "5", "6", "7"],
        "split": ["train", "train", "bal_test", "train", "train", "train", "train", "train", "bal_test"],
        "seen": ["1", "1", "1", "1", "0", None, "1", "0", "0"],
    }
    report = run(rows, {"text": "text", "target": "target", "split": "split", "member": "seen"})
    warnings = said(report, "warning")
    assert has(warnings, "3 of 9 rows repeat the text of an earlier row (2 texts", "1 of them with the same target")
    assert has(warnings, "1 text is in more than one split")
    assert has(warnings, "1 text is both in member and in non-member rows")
    assert has(warnings, "2 of 9 rows have an empty text (first: row 7)")
    assert not report.errors  # without a label, equal texts across splits forbid nothing
    assert report.tables["duplicates"].to_dict("list") == {
        "times": [3, 2],
        "rows": ["4, 5, 6", "1, 3"],
        "split": ["train", "bal_test, train"],
        "member": ["False, True", "True"],
    }
    assert report.tables["splits"].to_dict("list") == {
        "split": ["train", "bal_test"],
        "subjects": [5, 2],
        "rows": [7, 2],
    }
    assert report.tables["members"].set_index("membership")["rows"].to_dict() == {
        "member": 5,
        "non-member": 3,
        "unknown": 1,
    }


def test_subjects_in_two_splits(run):
    rows = {
        "text": [f"t{i}" for i in range(40)],
        "who": ["p", "p", *(f"s{i}" for i in range(38))],
        "split": ["bal_train", "bal_test"] * 20,
        "sex": ["F", "M", "F", "F"] * 10,
    }
    report = run(rows, {"text": "text", "group": "who", "split": "split", "label": "sex"})
    assert has(report.errors, "1 subject is in more than one split (first: 'p' in bal_train and bal_test)")
    assert has(said(report, "warning"), "1 subject has more than one class of 'sex' (first: 'p')")
    assert has(said(report, "warning"), "Class 'M' of 'sex' has only 0 subjects in bal_train")
    classes = report.tables["classes"]
    assert classes["rows"].sum() == 40
    assert set(classes["split"]) == {"bal_train", "bal_test"}


def test_equal_texts_in_two_splits_stop_a_label_audit(run):
    rows = {"text": ["a", "a", "b", "c"], "split": ["bal_train", "bal_test"] * 2, "sex": list("FFMM")}
    assert has(
        run(rows, {"text": "text", "split": "split", "label": "sex"}).errors, "1 subject is in more than one split"
    )


def test_broken_roles_are_all_reported(run):
    rows = {"text": ["a", "b"], "i": ["x", "x"], "m": ["1", "maybe"], "s": ["train", "test"], "l": ["F", "F"]}
    report = run(rows, {"text": "text", "id": "i", "member": "m", "split": "s", "label": "l"})
    for parts in (("same id 'x'",), ("row 2, column 'm'",), ("row 2, column 's'",), ("one class ('F')",)):
        assert has(report.errors, *parts)
    assert len(report.errors) == 4
    assert report.to_text().count("error:") == 4
    with pytest.raises(DatasetError, match="Did you mean 'text'"):
        run(rows, {"text": "texd"})


def test_label_in_the_template_and_many_classes(run):
    rows = {"text": [f"t{i}" for i in range(30)], "l": [str(i) for i in range(30)]}
    warnings = said(run(rows, {"text": "text", "label": "l"}, template="{text} {l}"), "warning")
    assert has(warnings, "writes the label column 'l' into the text")
    assert has(warnings, "30 classes; is it a label?")


def test_one_sided_membership_and_missing_labels(run):
    rows = {"text": [f"t{i}" for i in range(30)], "m": ["1"] * 29 + [None], "sex": ["F", "M", None] * 10}
    report = run(rows, {"text": "text", "member": "m", "label": "sex"})
    assert has(said(report, "warning"), "No row is a non-member")
    assert has(said(report, "info"), "10 of 30 rows have no label 'sex'")


def test_token_lengths(run, words):
    rows = {"text": ["x " * k for k in range(1, 11)], "target": ["y y"] * 10}
    report = run(rows, {"text": "text"}, template="{text}", tokenizer_file=words)
    assert has(said(report, "warning"), "2 of 10 rows (20.0%) are longer than 8 tokens")
    assert report.tables["lengths"]["tokens"].tolist() == [1, 1, 5, 10, 10]
    # The target counts two tokens and the end of sequence, the template one.
    report = run(rows, {"prompt": "text", "target": "target"}, template="{prompt}\nSummary:", tokenizer_file=words)
    assert report.tables["lengths"]["tokens"].tolist() == [5, 5, 9, 14, 14]
    report = run(rows, {"text": "text"}, max_length=99, tokenizer_file=words)
    assert has(said(report, "info"), "No text in 10 rows is longer than 99 tokens")
    with pytest.raises(DatasetError, match=r"not a usable tokenizer\.json"):
        run(rows, {"text": "text"}, tokenizer_file=words.parent / "none.json")


def test_sample_is_even_and_said_to_be_one(run, words, monkeypatch):
    monkeypatch.setattr(lengths, "SAMPLE", 10)
    rows = {"text": ["x " * (1 + k // 10) for k in range(100)]}
    report = run(rows, {"text": "text"}, max_length=5, tokenizer_file=words)
    assert has(said(report, "warning"), "5 of a sample of 10 of 100 rows (50.0%)")
    assert report.tables["lengths"]["rows counted"].unique().tolist() == [10]


def test_words_without_a_tokenizer(run):
    report = run({"text": ["a b c", "", "d\ne"]}, {"text": "text"})
    assert report.tables["lengths"]["words"].tolist() == [0, 0, 2, 3, 3]
    assert has(said(report, "info"), "words were counted", "truncation at 8 is not known")


def test_max_rows(run):
    report = run({"text": ["a", "b", "a"]}, {"text": "text"}, max_rows=2)
    assert report.n_rows == 2
    assert has(said(report, "info"), "Only the first 2 of 3 rows", "max_rows")
    assert "duplicates" not in report.tables


def test_no_text_reaches_the_report(run):
    secret = "a secret sentence"
    report = run({"text": [secret, secret, "b"]}, {"text": "text"})
    assert secret not in report.to_text()
    assert secret not in json.dumps([table.to_dict("list") for table in report.tables.values()], default=str)


def test_a_hundred_thousand_rows(run):
    n = 100_000
    rng = np.random.default_rng(0)
    rows = {
        "text": [f"patient {i % 99_000} came with pain and was sent home" for i in range(n)],
        "sex": np.array(["F", "M"])[rng.integers(0, 2, n)],
        "m": (np.arange(n) < 50_000).astype(int),
        "who": [f"s{i % 99_000}" for i in range(n)],
    }
    report = run(rows, {"text": "text", "label": "sex", "member": "m", "group": "who"})
    warnings = said(report, "warning")
    assert has(warnings, "1,000 of 100,000 rows repeat the text of an earlier row (1,000 texts")
    assert has(warnings, "1,000 texts are both in member and in non-member rows")
    assert has(warnings, "1,000 subjects have both member and non-member rows")
    assert report.tables["members"]["rows"].tolist() == [50_000, 50_000]
    assert len(report.tables["duplicates"]) == 20
