"""The ceiling no probe may beat. In: a frame with the columns fact_*. Out: exact posteriors of the recorded attributes.

The posterior sums the hidden origin and the hidden language out of the tables of synthetic_facts. A fact column that
is named counts also where it is silent (null), because silence can tell; a fact left out of `facts` counts for nothing.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from auditcore.datasets import synthetic_facts as tables
from auditcore.datasets.synthetic_facts import AGE_BANDS, ATTRIBUTES, FACTS, ORIGINS, RACE_FACTS, RACES, SEXES
from auditcore.datasets.synthetic_text import choose
from auditcore.errors import DatasetError, did_you_mean


def bayes_posterior(attribute: str, frame: pd.DataFrame, facts: Sequence[str] | None = None) -> pd.DataFrame:
    """Return P(category | shown facts): float64, one row per row of `frame`, one column per category.

    `facts` restricts the evidence to these fact names (without the prefix `fact_`). The prior is uniform, as in every
    split. Raises DatasetError for an unknown attribute or fact, a missing column or a value outside the tables.
    """
    if attribute not in ATTRIBUTES:
        raise DatasetError(f"attribute '{attribute}' is unknown.{did_you_mean(attribute, ATTRIBUTES)}")
    chosen = FACTS if facts is None else tuple(facts)
    for name in chosen:
        if name not in FACTS:
            raise DatasetError(f"fact '{name}' is unknown.{did_you_mean(name, FACTS)}")
        if f"fact_{name}" not in frame.columns:
            raise DatasetError(f"column 'fact_{name}' is missing: the posterior needs it, or leave '{name}' out.")
    if attribute == "recorded_race":
        likelihood = _race_likelihood(frame, chosen)
    else:
        joint = _sex_age_likelihood(frame, chosen)  # [n, sex, age]
        likelihood = joint.sum(axis=2 if attribute == "recorded_sex" else 1)
    total = likelihood.sum(axis=1, keepdims=True)
    if len(frame) and not (total > 0).all():
        row = int(np.flatnonzero(total[:, 0] <= 0)[0])
        raise DatasetError(f"row {row + 1}: these facts cannot occur together under the tables of the generator.")
    return pd.DataFrame(likelihood / total, index=frame.index, columns=list(ATTRIBUTES[attribute]))


def bayes_accuracy(
    attribute: str, frame: pd.DataFrame, *, facts: Sequence[str] | None = None, realised: bool = False
) -> float:
    """Return the Bayes-optimal accuracy on these rows: the mean of the largest posterior.

    With `realised` it is the share of rows whose recorded attribute is the most probable one, which scatters around
    the expected value. Raises DatasetError as bayes_posterior does.
    """
    posterior = bayes_posterior(attribute, frame, facts)
    if not realised:
        return float(posterior.to_numpy().max(axis=1).mean())
    best = posterior.columns.to_numpy()[posterior.to_numpy().argmax(axis=1)]
    return float(np.mean(best == frame[attribute].to_numpy()))


def fact_sample(n_rows: int, seed: int) -> pd.DataFrame:
    """Return shown facts of `n_rows` fresh subjects with uniform attributes, no text: for expected ceilings."""
    rng = random.Random(f"facts/{seed}")
    rows = []
    for _ in range(n_rows):
        race, sex, age = choose(rng, RACES), choose(rng, SEXES), choose(rng, AGE_BANDS)
        shown = tables.draw_shown(rng, tables.draw_subject(rng, race, sex, age), age)
        rows.append((race, sex, age, *(value or None for value in shown.values())))
    return pd.DataFrame(rows, columns=[*ATTRIBUTES, *tables.FACT_COLUMNS])


def _lookup(frame: pd.DataFrame, name: str, given: Callable[[str], np.ndarray]) -> np.ndarray:
    """Apply `given` (shown value, "" when silent -> array of likelihoods) to every row: [n, ...]."""
    values = frame[f"fact_{name}"].astype(object)
    codes, unique = pd.factorize(values.where(values.notna(), "").astype(str))
    table = np.stack([given(str(value)) for value in unique]) if len(unique) else np.ones((1, 1, 1))
    return table[codes]


def _race_likelihood(frame: pd.DataFrame, facts: Sequence[str]) -> np.ndarray:
    """[n, race]: the sum over the hidden origin of P(origin | race) times the product over the facts."""
    prior = np.array([tables.ORIGIN_BY_RACE[origin] for origin in ORIGINS], dtype=float) / 100
    likelihood = np.repeat(prior[None], len(frame), axis=0)  # [n, origin, race]
    chosen = [name for name in RACE_FACTS if name in facts]
    if {"language", "interpreter"} & set(chosen):
        likelihood = likelihood * _speech(frame, chosen)
    for name in chosen:
        if name not in ("language", "interpreter"):
            likelihood = likelihood * _lookup(frame, name, lambda value, name=name: _shown(name, value))  # type: ignore[misc]
    return likelihood.sum(axis=1)


def _speech(frame: pd.DataFrame, chosen: Sequence[str]) -> np.ndarray:
    """[n, origin, 1]: P(what is shown of language and interpreter | origin), the true language summed out."""
    languages = sorted({"English", *tables.LANGUAGE_OF.values()})
    spoken = np.array([[tables.language_given(o).get(lang, 0.0) for lang in languages] for o in ORIGINS])
    told = np.array([tables.LANGUAGE_SHOWN.get(lang, tables.LANGUAGE_SHOWN_ELSE) for lang in languages])
    english = np.array([lang == "English" for lang in languages])

    def language(value: str) -> np.ndarray:
        return 1 - told if value == "" else told * (np.array(languages) == value)

    def interpreter(value: str) -> np.ndarray:
        silent = 1 - sum(tables.INTERPRETER.values())
        foreign = silent if value == "" else tables.INTERPRETER.get(value, 0.0)
        return np.where(english, float(value == ""), foreign)

    seen = np.ones((len(frame), len(languages)))
    if "language" in chosen:
        seen = seen * _lookup(frame, "language", language)
    if "interpreter" in chosen:
        seen = seen * _lookup(frame, "interpreter", interpreter)
    return (seen @ spoken.T)[:, :, None]


def _shown(name: str, value: str) -> np.ndarray:
    """[origin, race]: P(the text shows `value` of fact `name` | origin, race)."""
    if value == "":
        return np.full((len(ORIGINS), len(RACES)), 1 - tables.SHOWN[name])
    if name == "birthplace":
        column = np.array([[float(origin == value)] for origin in ORIGINS])
    elif name == "relatives":
        column = np.array([[tables.relatives_given(origin).get(value, 0.0)] for origin in ORIGINS])
    elif name == "religion":
        column = np.array([[tables.religion_given(o, race).get(value, 0.0) for race in RACES] for o in ORIGINS])
    else:
        places = tables.NEIGHBORHOODS if name == "neighborhood" else tables.CLINICS
        column = np.array([places.get(value, (0,) * len(RACES))], dtype=float) / 100
    return tables.SHOWN[name] * np.broadcast_to(column, (len(ORIGINS), len(RACES)))


def _sex_age_likelihood(frame: pd.DataFrame, facts: Sequence[str]) -> np.ndarray:
    """[n, sex, age]: the product over the facts that depend on sex or age."""
    likelihood = np.ones((len(frame), len(SEXES), len(AGE_BANDS)))
    for name in tables.SEX_AGE_FACTS:
        if name in facts:
            likelihood = likelihood * _lookup(frame, name, lambda value, name=name: _shown_sex_age(name, value))  # type: ignore[misc]
    return likelihood


def _shown_sex_age(name: str, value: str) -> np.ndarray:
    """[sex, age]: P(the text shows `value` of fact `name` | sex, age band)."""
    return np.array([[_shown_given(name, value, sex, age) for age in AGE_BANDS] for sex in SEXES])


def _shown_given(name: str, value: str, sex: str, age: str) -> float:
    if name == "condition":
        return _share(tables.condition_given(age), value)
    shown = tables.SHOWN[name]
    if name == "history":
        told = {**tables.HISTORY_BY_SEX_AGE[sex, age]}
        none = told.pop("none") / 100
        return 1 - shown * (1 - none) if value == "" else shown * told.get(value, 0) / 100
    if value == "":
        return 1 - shown
    if name == "pronoun":
        return shown * float(value == ("she" if sex == "Female" else "he"))
    if name == "age":
        low, high = tables.AGE_RANGE[age]
        return shown * float(low <= int(value) <= high) / (high - low + 1)
    if name == "household":
        return shown * _share(tables.household_given(sex, age), value)
    return shown * _share(tables.WORK_BY_AGE[age] if name == "work" else tables.INSURANCE_BY_AGE[age], value)


def _share(weights: dict[str, float] | dict[str, int], value: str) -> float:
    return weights.get(value, 0) / sum(weights.values())
