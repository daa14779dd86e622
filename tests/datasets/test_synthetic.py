"""The bundled data: reproducible, balanced, silent about race in words, and with a ceiling that is really one."""

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore.datasets import synthetic, synthetic_facts, synthetic_text
from auditcore.datasets.synthetic_bayes import bayes_accuracy, bayes_posterior, fact_sample
from auditcore.datasets.synthetic_notes import estimate_tokens
from auditcore.errors import DatasetError
from auditcore.spec import SPLITS

DATA = Path(__file__).parents[2] / "data"
NAMED = re.compile(
    r"\b(asian|black|hispanic|other|white|caucasian|african|latin[oax]|race|racial|ethnic\w*|female|male|woman|man)\b",
    re.IGNORECASE,
)
PRONOUN = re.compile(r"\b(he|she|his|her|him|hers)\b", re.IGNORECASE)
SOCIAL = re.compile(
    "|".join(
        re.escape(word)
        for word in [
            *synthetic_facts.NEIGHBORHOODS,
            *synthetic_facts.CLINICS,
            *synthetic_facts.LANGUAGE_OF.values(),
            *synthetic_facts.RELIGIONS[:-1],
            *(place for places in synthetic_text.sentences()["places"].values() for place in places),
            "nterpreter",
            "husband",
            "wife",
            "Medicare",
            "years old",
        ]
    )
)


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return pd.read_parquet(DATA / "notes.parquet")


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return fact_sample(12_000, seed=3)


def test_the_plan_has_the_promised_splits() -> None:
    plan = pd.DataFrame(synthetic.plan_notes())
    assert plan["split"].value_counts().to_dict() == {
        "train": 3240, "defence_fit": 1620, "bal_train": 1620, "bal_val": 1050, "bal_test": 3000,
    }  # fmt: skip
    assert set(plan["split"]) == set(SPLITS)
    for _, rows in plan.groupby("split"):
        assert rows.groupby(["race", "sex", "age_band"]).size().nunique() == 1
    assert (plan.groupby("subject")["split"].nunique() == 1).all()
    assert (plan[plan["split"].isin(["bal_val", "bal_test"])].groupby("subject").size() == 1).all()


def test_order_and_numbers_tell_no_label() -> None:
    plan = pd.DataFrame(synthetic.plan_notes())
    half = len(plan) // 2
    shares = plan["race"][:half].value_counts(normalize=True)
    assert (shares - 0.2).abs().max() < 0.02
    assert abs(np.corrcoef(plan["subject"], plan["race"] == "White")[0, 1]) < 0.04


def test_same_seed_same_rows_and_same_bytes(tmp_path: Path) -> None:
    first, second = synthetic.generate(30), synthetic.generate(30)
    pd.testing.assert_frame_equal(first, second)
    synthetic.write(first, tmp_path / "a.parquet")
    synthetic.write(second, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert not list(tmp_path.glob("*.part"))
    back = pd.read_parquet(tmp_path / "a.parquet")
    assert synthetic.content_hash(back) == synthetic.content_hash(first)


def test_another_seed_gives_other_notes() -> None:
    assert not set(synthetic.generate(20, seed=1)["prompt"]) & set(synthetic.generate(20)["prompt"])


def test_the_shipped_file_is_what_the_generator_writes(shipped: pd.DataFrame) -> None:
    fresh = synthetic.generate(150)
    assert synthetic.content_hash(shipped.head(150)) == synthetic.content_hash(fresh)
    assert tuple(shipped.columns) == synthetic.COLUMNS
    assert synthetic.content_hash(shipped) in (DATA / "README.md").read_text(encoding="utf-8")
    assert (DATA / "notes.parquet").stat().st_size < 3_000_000


def test_command_line_writes_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "notes.parquet"
    monkeypatch.setattr("sys.argv", ["synthetic", "--rows", "5", "--out", str(out)])
    synthetic.main()
    assert len(pd.read_parquet(out)) == 5
    assert "5 notes" in capsys.readouterr().out


def test_shipped_roles(shipped: pd.DataFrame) -> None:
    assert shipped["example_id"].is_unique
    assert not shipped["prompt"].duplicated().any()
    member = {split: set(rows.dropna()) for split, rows in shipped.groupby("split")["member"]}
    assert member["train"] == {True}
    assert member["defence_fit"] == {False}
    assert not shipped.loc[~shipped["split"].isin(["train", "defence_fit"]), "member"].notna().any()
    for split in ("bal_train", "bal_val", "bal_test"):
        assert shipped.loc[shipped["split"] == split, "recorded_race"].value_counts().nunique() == 1


def test_no_category_is_ever_written(shipped: pd.DataFrame) -> None:
    for column in ("prompt", "target"):
        found = shipped[column].str.extract(NAMED)[0].dropna()
        assert found.empty, found.head().to_dict()


def test_the_target_is_free_of_the_subject(shipped: pd.DataFrame) -> None:
    assert not [text for text in shipped["target"] if PRONOUN.search(text) or SOCIAL.search(text)]


def test_pronouns_only_where_the_facts_say_so(shipped: pd.DataFrame) -> None:
    for text, fact in zip(shipped["prompt"], shipped["fact_pronoun"], strict=True):
        used = {"she" if word.lower() in ("she", "her", "hers") else "he" for word in PRONOUN.findall(text)}
        assert used == (set() if pd.isna(fact) else {fact}), text


def test_what_is_shown_stands_in_the_text_and_nothing_else(shipped: pd.DataFrame) -> None:
    literal = {
        "neighborhood": list(synthetic_facts.NEIGHBORHOODS),
        "clinic": list(synthetic_facts.CLINICS),
        "language": sorted({"English", *synthetic_facts.LANGUAGE_OF.values()}),
        "religion": ["Catholic", "Baptist", "Lutheran", "Pentecostal", "Hindu", "Orthodox"],
    }
    rows = shipped.head(4000)
    for name, values in literal.items():
        for text, fact in zip(rows["prompt"], rows[f"fact_{name}"], strict=True):
            seen = {value for value in values if re.search(rf"\b{value}\b(?! Nation)", text)}
            if name == "religion":  # some phrases name a rite, not the faith
                assert seen <= {fact}, text
            else:
                assert seen == (set() if pd.isna(fact) else {fact}), text
    stated = rows[rows["fact_age"].notna()]
    assert all(re.search(rf"\b{age}\b", text) for age, text in zip(stated["fact_age"], stated["prompt"], strict=True))


def test_lengths_and_variety(shipped: pd.DataFrame) -> None:
    rows = shipped.head(2000)
    tokens = rows["prompt"].map(estimate_tokens)
    assert tokens.between(80, 160).mean() > 0.95
    assert rows["target"].is_unique
    sentences = rows["target"].str.count(r"[.](?: |$)") - rows["target"].str.count(r"\b(?:E|C|H)[.] ")
    assert sentences.between(2, 4).all()
    openings = Counter(" ".join(text.split()[:5]) for text in rows["prompt"])
    assert openings.most_common(1)[0][1] < 0.03 * len(rows)
    assert len(openings) > 0.4 * len(rows)


def test_grammar_choices_and_slots() -> None:
    rng = random.Random(0)
    seen = {synthetic_text.expand(rng, "[a|b [c|{x}]|]!", {"x": "[d|e]"}) for _ in range(200)}
    assert seen == {"a!", "b c!", "b d!", "b e!", "!"}
    with pytest.raises(KeyError):
        synthetic_text.expand(rng, "{unknown}", {})


def test_every_pattern_can_be_written() -> None:
    frame = synthetic.generate(250, seed=9)
    for column in ("prompt", "target"):
        assert not frame[column].str.contains(r"[\[\]{}|]|=>|  |\.\.|None|nan").any()


def test_tables_are_distributions() -> None:
    for table in (synthetic_facts.ORIGIN_BY_RACE, synthetic_facts.NEIGHBORHOODS, synthetic_facts.CLINICS):
        assert np.array(list(table.values())).sum(axis=0).tolist() == [100] * 5
    for rows in (synthetic_facts.RELIGION_BY_RACE, synthetic_facts.HOUSEHOLD_BY_AGE):
        assert {sum(row) for row in rows.values()} == {100}
    for named in (synthetic_facts.HISTORY_BY_SEX_AGE, synthetic_facts.WORK_BY_AGE, synthetic_facts.INSURANCE_BY_AGE):
        assert {sum(row.values()) for row in named.values()} == {100}
    for origin in synthetic_facts.ORIGINS:
        for weights in (synthetic_facts.language_given(origin), synthetic_facts.relatives_given(origin)):
            assert sum(weights.values()) == pytest.approx(1)
        for race in synthetic_facts.RACES:
            assert sum(synthetic_facts.religion_given(origin, race).values()) == pytest.approx(1)
    assert set(synthetic_text.sentences()["places"]) == set(synthetic_facts.ORIGINS)


@pytest.mark.parametrize("attribute", list(synthetic_facts.ATTRIBUTES))
def test_the_posterior_is_calibrated(sample: pd.DataFrame, attribute: str) -> None:
    posterior = bayes_posterior(attribute, sample)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    expected, realised = bayes_accuracy(attribute, sample), bayes_accuracy(attribute, sample, realised=True)
    assert realised == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(len(sample)))
    for category in posterior:
        stated = posterior[category].to_numpy()
        actual = (sample[attribute] == category).to_numpy()
        for low in (0.0, 0.2, 0.4, 0.6, 0.8):
            inside = (stated >= low) & (stated < low + 0.2)
            if inside.sum() > 200:
                error = 4.5 * np.sqrt(0.25 / inside.sum())
                assert actual[inside].mean() == pytest.approx(stated[inside].mean(), abs=error)


@pytest.mark.parametrize(
    ("facts", "values"),
    [
        (["neighborhood"], {"fact_neighborhood": "Old Quay"}),
        (["language", "interpreter"], {"fact_language": None, "fact_interpreter": "used"}),
        (["language", "interpreter"], {"fact_language": "Spanish", "fact_interpreter": None}),
        (["birthplace", "relatives"], {"fact_birthplace": None, "fact_relatives": "Northeast"}),
        (["religion", "clinic"], {"fact_religion": "Catholic", "fact_clinic": None}),
    ],
)
def test_the_posterior_matches_counting(sample: pd.DataFrame, facts: list[str], values: dict[str, str | None]) -> None:
    match = np.ones(len(sample), bool)
    for column, value in values.items():
        match &= (sample[column].isna() if value is None else sample[column] == value).to_numpy()
    counted = sample.loc[match, "recorded_race"].value_counts(normalize=True)
    posterior = bayes_posterior("recorded_race", sample[match].head(1), facts).iloc[0]
    error = 4.5 * np.sqrt(0.25 / match.sum())
    for race in synthetic_facts.RACES:
        assert counted.get(race, 0.0) == pytest.approx(posterior[race], abs=error)


def test_no_facts_leave_the_prior_and_more_facts_never_hurt(sample: pd.DataFrame) -> None:
    assert bayes_accuracy("recorded_race", sample, facts=[]) == pytest.approx(0.2)
    facts: list[str] = []
    before = 0.2
    for name in synthetic_facts.RACE_FACTS:
        facts.append(name)
        now = bayes_accuracy("recorded_race", sample, facts=facts)
        assert now > before - 1e-3
        before = now
    assert bayes_accuracy("recorded_race", sample, facts=synthetic_facts.SEX_AGE_FACTS) == pytest.approx(0.2)


def test_ceilings_of_the_shipped_test_split(shipped: pd.DataFrame) -> None:
    rows = shipped[shipped["split"] == "bal_test"]
    card = (DATA / "README.md").read_text(encoding="utf-8")
    assert 0.70 <= bayes_accuracy("recorded_race", rows) <= 0.80
    for attribute in synthetic_facts.ATTRIBUTES:
        expected, realised = bayes_accuracy(attribute, rows), bayes_accuracy(attribute, rows, realised=True)
        assert realised == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(len(rows)))
        assert f"{expected:.3f}" in card
        assert f"{realised:.3f}" in card


def test_bayes_errors_name_what_is_wrong(sample: pd.DataFrame) -> None:
    with pytest.raises(DatasetError, match="Did you mean 'recorded_race'"):
        bayes_posterior("recorded_rac", sample)
    with pytest.raises(DatasetError, match="Did you mean 'language'"):
        bayes_posterior("recorded_race", sample, ["langauge"])
    with pytest.raises(DatasetError, match="'fact_clinic' is missing"):
        bayes_posterior("recorded_race", sample.drop(columns="fact_clinic"))
    strange = sample.head(2).assign(fact_birthplace=pd.Series([None, "Atlantis"], dtype=object))
    with pytest.raises(DatasetError, match="row 2"):
        bayes_posterior("recorded_race", strange)


def test_empty_strings_read_as_silence(sample: pd.DataFrame) -> None:
    rows = sample.head(50)
    pd.testing.assert_frame_equal(bayes_posterior("age_band", rows), bayes_posterior("age_band", rows.fillna("")))


def test_repeated_prompts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "write_note", lambda *_: "the same note")
    with pytest.raises(DatasetError, match="row 2"):
        synthetic.generate(3)
