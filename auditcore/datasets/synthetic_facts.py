"""Invented facts about invented subjects. In: a random source and a subject's attributes. Out: facts, hidden and shown.

The same tables draw the facts and give the Bayes posterior (synthetic_bayes), so the two cannot drift apart. The facts
fall into two blocks that are independent of each other:

race     -> origin (hidden) -> language -> interpreter, birthplace, relatives; origin and race -> religion;
            race -> neighborhood, clinic
sex, age -> pronoun, household, history; age -> stated age, work, insurance, condition

The text is written from the shown facts alone and never sees the attributes, so no reader of the text can do better on
average than the posterior given the shown facts. The probabilities are invented and say nothing about people.
"""

import random
from collections.abc import Mapping

from auditcore.datasets.synthetic_text import CONDITIONS

RACES = ("Asian", "Black", "Hispanic", "Other", "White")
SEXES = ("Female", "Male")
AGE_BANDS = ("18-44", "45-64", "65+")
ATTRIBUTES: dict[str, tuple[str, ...]] = {"recorded_race": RACES, "recorded_sex": SEXES, "age_band": AGE_BANDS}
AGE_RANGE = {"18-44": (18, 44), "45-64": (45, 64), "65+": (65, 90)}

# Hidden origin: percent by race, in the order of RACES; each column sums to 100.
ORIGIN_BY_RACE: dict[str, tuple[int, ...]] = {
    "South": (4, 40, 6, 10, 22),
    "Midwest": (7, 16, 5, 12, 32),
    "Southwest": (4, 4, 26, 10, 10),
    "West Coast": (20, 6, 12, 14, 12),
    "Northeast": (10, 12, 6, 8, 14),
    "Navajo Nation": (0, 0, 0, 8, 0),
    "China": (15, 0, 0, 0, 0),
    "Vietnam": (13, 0, 0, 0, 0),
    "Philippines": (10, 0, 1, 2, 0),
    "Korea": (8, 0, 0, 0, 0),
    "India": (8, 0, 0, 3, 0),
    "Samoa": (1, 0, 0, 7, 0),
    "Haiti": (0, 6, 0, 0, 0),
    "Jamaica": (0, 5, 0, 2, 0),
    "Ethiopia": (0, 4, 0, 0, 0),
    "Nigeria": (0, 4, 0, 0, 0),
    "Mexico": (0, 0, 20, 1, 0),
    "Puerto Rico": (0, 0, 9, 0, 0),
    "El Salvador": (0, 0, 8, 0, 0),
    "Dominican Republic": (0, 2, 6, 0, 0),
    "Brazil": (0, 1, 1, 7, 0),
    "Lebanon": (0, 0, 0, 9, 1),
    "Egypt": (0, 0, 0, 6, 0),
    "Poland": (0, 0, 0, 0, 3),
    "Russia": (0, 0, 0, 1, 3),
    "Ireland": (0, 0, 0, 0, 2),
    "Italy": (0, 0, 0, 0, 1),
}
ORIGINS = tuple(ORIGIN_BY_RACE)
HOME_REGIONS = ("South", "Midwest", "Southwest", "West Coast", "Northeast")

# The language that goes with an origin; spoken with LANGUAGE_KEPT, otherwise English.
LANGUAGE_OF = {
    "Navajo Nation": "Navajo", "China": "Mandarin", "Vietnam": "Vietnamese", "Philippines": "Tagalog",
    "Korea": "Korean", "India": "Gujarati", "Samoa": "Samoan", "Haiti": "Haitian Creole", "Ethiopia": "Amharic",
    "Nigeria": "Yoruba", "Mexico": "Spanish", "Puerto Rico": "Spanish", "El Salvador": "Spanish",
    "Dominican Republic": "Spanish", "Brazil": "Portuguese", "Lebanon": "Arabic", "Egypt": "Arabic",
    "Poland": "Polish", "Russia": "Russian", "Italy": "Italian",
    "Southwest": "Spanish",
}  # fmt: skip
LANGUAGE_KEPT = {"Southwest": 0.25, "Philippines": 0.6, "India": 0.6, "Nigeria": 0.5, "Navajo Nation": 0.6}
LANGUAGE_KEPT_ELSE = 0.8

RELIGIONS = ("Catholic", "Baptist", "Lutheran", "Pentecostal", "Buddhist", "Hindu", "Muslim", "Orthodox", "none")
# Percent by race, for origins in the country ...
RELIGION_BY_RACE: dict[str, tuple[int, ...]] = {
    "Asian": (16, 6, 4, 4, 30, 14, 4, 2, 20),
    "Black": (8, 50, 2, 18, 1, 0, 9, 2, 10),
    "Hispanic": (56, 6, 2, 20, 1, 0, 1, 1, 13),
    "Other": (14, 10, 6, 8, 5, 4, 22, 13, 18),
    "White": (20, 16, 26, 5, 2, 0, 1, 6, 24),
}
# ... and by origin for the rest (the faith named, with RELIGION_OF_ORIGIN_KEPT; otherwise as RELIGION_BY_RACE).
RELIGION_OF_ORIGIN = {
    "China": "Buddhist", "Vietnam": "Buddhist", "Philippines": "Catholic", "Korea": "Pentecostal", "India": "Hindu",
    "Haiti": "Catholic", "Ethiopia": "Orthodox", "Nigeria": "Muslim", "Mexico": "Catholic", "Puerto Rico": "Catholic",
    "El Salvador": "Pentecostal", "Dominican Republic": "Catholic", "Brazil": "Catholic", "Lebanon": "Orthodox",
    "Egypt": "Muslim", "Poland": "Catholic", "Russia": "Orthodox", "Ireland": "Catholic", "Italy": "Catholic",
    "Samoa": "Pentecostal", "Jamaica": "Baptist",
}  # fmt: skip
RELIGION_OF_ORIGIN_KEPT = 0.6

# Invented places: percent by race, in the order of RACES.
NEIGHBORHOODS: dict[str, tuple[int, ...]] = {
    "Harrow Hill": (50, 4, 6, 8, 4),
    "Lantern Court": (20, 3, 3, 5, 2),
    "Eastgate": (4, 48, 5, 6, 3),
    "Tannery Row": (2, 22, 4, 5, 3),
    "Palmetto Flats": (4, 4, 50, 6, 3),
    "Arroyo Park": (3, 2, 20, 6, 3),
    "Old Quay": (5, 6, 4, 50, 4),
    "Millbrook": (4, 3, 3, 5, 44),
    "Fenwick Green": (3, 3, 2, 4, 26),
    "Linden Park": (5, 5, 3, 5, 8),
}
CLINICS: dict[str, tuple[int, ...]] = {
    "Bayview Family Clinic": (48, 4, 4, 8, 5),
    "Carver Street Health Center": (5, 52, 6, 7, 4),
    "Valle Community Clinic": (4, 5, 54, 7, 3),
    "Crossroads Medical Group": (12, 9, 7, 50, 9),
    "Oakridge Physicians": (11, 10, 9, 10, 57),
    "County Primary Care": (20, 20, 20, 18, 22),
}

# How likely the text shows a fact. Language depends on its value, which makes silence about it informative.
SHOWN = {
    "birthplace": 0.45, "relatives": 0.30, "religion": 0.42, "neighborhood": 0.60, "clinic": 0.60,
    "pronoun": 0.45, "household": 0.36, "history": 0.40, "age": 0.24, "work": 0.28, "insurance": 0.20,
}  # fmt: skip
LANGUAGE_SHOWN = {"English": 0.08}
LANGUAGE_SHOWN_ELSE = 0.60
INTERPRETER = {"used": 0.35, "declined": 0.10}  # shown, for any language but English; otherwise silent
RELATIVES_AT_ORIGIN = 0.75  # otherwise in one of HOME_REGIONS, each equally likely

HOUSEHOLD_KINDS = ("spouse", "alone", "parents", "adult children", "roommates", "assisted living")
HOUSEHOLD_BY_AGE = {
    "18-44": (38, 14, 24, 0, 24, 0),
    "45-64": (58, 24, 4, 8, 5, 1),
    "65+": (44, 26, 0, 16, 1, 13),
}
SAME_SEX_SPOUSE = 0.06
# Sex-linked history: percent by sex and age ("none" is never written).
HISTORY_BY_SEX_AGE: dict[tuple[str, str], dict[str, int]] = {
    ("Female", "18-44"): {"cesarean delivery": 34, "fibroids": 10, "kidney stones": 8, "none": 48},
    ("Female", "45-64"): {"hysterectomy": 26, "fibroids": 12, "cesarean delivery": 10, "kidney stones": 8, "none": 44},
    ("Female", "65+"): {"hysterectomy": 34, "osteoporosis": 20, "kidney stones": 6, "none": 40},
    ("Male", "18-44"): {"vasectomy": 16, "hernia repair": 14, "kidney stones": 14, "none": 56},
    ("Male", "45-64"): {"enlarged prostate": 20, "vasectomy": 14, "hernia repair": 12, "kidney stones": 12, "none": 42},
    ("Male", "65+"): {"enlarged prostate": 40, "hernia repair": 14, "osteoporosis": 3, "kidney stones": 8, "none": 35},
}
WORK_BY_AGE: dict[str, dict[str, int]] = {
    "18-44": {"student": 22, "kitchen": 18, "warehouse": 18, "office": 20, "teacher": 10, "driver": 9, "disability": 3},
    "45-64": {"retired": 9, "kitchen": 9, "warehouse": 15, "office": 24, "teacher": 14, "driver": 16, "disability": 13},
    "65+": {"retired": 80, "office": 5, "teacher": 4, "driver": 5, "disability": 6},
}
INSURANCE_BY_AGE: dict[str, dict[str, int]] = {
    "18-44": {"Medicare": 3, "Medicaid": 31, "employer plan": 50, "uninsured": 16},
    "45-64": {"Medicare": 12, "Medicaid": 24, "employer plan": 54, "uninsured": 10},
    "65+": {"Medicare": 86, "Medicaid": 8, "employer plan": 5, "uninsured": 1},
}

RACE_FACTS = ("language", "interpreter", "birthplace", "relatives", "religion", "neighborhood", "clinic")
SEX_AGE_FACTS = ("pronoun", "household", "history", "age", "work", "insurance", "condition")
FACTS = RACE_FACTS + SEX_AGE_FACTS
FACT_COLUMNS = tuple(f"fact_{name}" for name in FACTS)


def pick(rng: random.Random, weights: Mapping[str, float]) -> str:
    """Draw one key in proportion to its weight; uses rng.random() only, which every Python version repeats."""
    point = rng.random() * sum(weights.values())
    for name, weight in weights.items():
        point -= weight
        if point < 0:
            return name
    return next(name for name in reversed(list(weights)) if weights[name] > 0)


def draw_subject(rng: random.Random, race: str, sex: str, age_band: str) -> dict[str, str]:
    """Draw what stays the same over a subject's notes: every fact but the condition, hidden ones included."""
    origin = pick(rng, {o: p[RACES.index(race)] for o, p in ORIGIN_BY_RACE.items()})
    low, high = AGE_RANGE[age_band]
    return {
        "language": pick(rng, language_given(origin)),
        "birthplace": origin,
        "relatives": pick(rng, relatives_given(origin)),
        "religion": pick(rng, religion_given(origin, race)),
        "neighborhood": pick(rng, {n: p[RACES.index(race)] for n, p in NEIGHBORHOODS.items()}),
        "clinic": pick(rng, {c: p[RACES.index(race)] for c, p in CLINICS.items()}),
        "pronoun": "she" if sex == "Female" else "he",
        "household": pick(rng, household_given(sex, age_band)),
        "history": pick(rng, HISTORY_BY_SEX_AGE[sex, age_band]),
        "age": str(low + int(rng.random() * (high - low + 1))),
        "work": pick(rng, WORK_BY_AGE[age_band]),
        "insurance": pick(rng, INSURANCE_BY_AGE[age_band]),
    }


def draw_shown(rng: random.Random, subject: Mapping[str, str], age_band: str) -> dict[str, str]:
    """Draw what one note shows: fact name -> value, "" where the text is silent; the condition is always shown."""
    shown = {"condition": pick(rng, condition_given(age_band))}
    foreign = subject["language"] != "English"
    shown_language = LANGUAGE_SHOWN.get(subject["language"], LANGUAGE_SHOWN_ELSE)
    shown["language"] = subject["language"] if rng.random() < shown_language else ""
    silent = 1 - sum(INTERPRETER.values())
    shown["interpreter"] = pick(rng, {**INTERPRETER, "": silent}) if foreign else ""
    for name, probability in SHOWN.items():
        value = subject[name] if rng.random() < probability else ""
        shown[name] = "" if name == "history" and value == "none" else value
    return {name: shown[name] for name in FACTS}


def language_given(origin: str) -> dict[str, float]:
    """P(language | origin)."""
    if origin not in LANGUAGE_OF:
        return {"English": 1.0}
    kept = LANGUAGE_KEPT.get(origin, LANGUAGE_KEPT_ELSE)
    return {LANGUAGE_OF[origin]: kept, "English": 1 - kept}


def relatives_given(origin: str) -> dict[str, float]:
    """P(where the relatives who help live | origin)."""
    weights = {region: (1 - RELATIVES_AT_ORIGIN) / len(HOME_REGIONS) for region in HOME_REGIONS}
    weights[origin] = weights.get(origin, 0.0) + RELATIVES_AT_ORIGIN
    return weights


def religion_given(origin: str, race: str) -> dict[str, float]:
    """P(religion | origin, race)."""
    kept = RELIGION_OF_ORIGIN_KEPT if origin in RELIGION_OF_ORIGIN else 0.0
    weights = {r: (1 - kept) * p / 100 for r, p in zip(RELIGIONS, RELIGION_BY_RACE[race], strict=True)}
    if kept:
        weights[RELIGION_OF_ORIGIN[origin]] += kept
    return weights


def household_given(sex: str, age_band: str) -> dict[str, float]:
    """P(household | sex, age band), in percent; the spouse is written as husband or wife."""
    weights = dict(zip(HOUSEHOLD_KINDS, map(float, HOUSEHOLD_BY_AGE[age_band]), strict=True))
    spouse = weights.pop("spouse")
    usual, rarer = ("husband", "wife") if sex == "Female" else ("wife", "husband")
    return {usual: spouse * (1 - SAME_SEX_SPOUSE), rarer: spouse * SAME_SEX_SPOUSE, **weights}


def condition_given(age_band: str) -> dict[str, float]:
    """P(condition | age band), unnormalised."""
    return {name: condition.age[AGE_BANDS.index(age_band)] for name, condition in CONDITIONS.items()}
