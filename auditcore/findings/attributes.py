"""Several labels in one run. In: rows of `corrected.every_test`. Out: rows of the matrix label by artifact, words."""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.findings import corrected
from auditcore.findings.common import records
from auditcore.verdict import OVER, SYMBOLS, WITHIN
from auditcore.words import Strong, count, counted, known, listed, number, percent


def matrix(found: pd.DataFrame) -> pd.DataFrame:
    """Rows of `corrected.every_test`, one per label, artifact and probe: of several layers the one that tells most."""
    ranked = found.sort_values("signed_gap", ascending=False, kind="stable", na_position="last")
    best = ranked.drop_duplicates(["attribute", "artifact", "probe"])
    return best.sort_index(kind="stable")


def family(found: pd.DataFrame) -> str:
    """How many tests there are, and of what: "12 tests (2 labels × 3 vectors × 2 attackers)"."""
    layers = found.groupby(["attribute", "artifact"])["layer"].nunique().max() if len(found) else 0
    sizes = [(found["attribute"].nunique(), "label"), (found["artifact"].nunique(), "vector")]
    sizes += [(int(layers), "layer")] if layers > 1 else []
    sizes += [(found["probe"].nunique(), "attacker")]
    product = int(np.prod([n for n, _ in sizes]))
    what = " × ".join(counted(int(n), one) for n, one in sizes)
    return f"{counted(len(found), 'test')}" + (f" ({what})" if product == len(found) else "")


def family_sentence(found: pd.DataFrame) -> list[str]:
    """What is corrected, over how many tests, and what the correction changes."""
    n, over = len(found), int((found["verdict"] == OVER).sum())
    if n < 2:
        return ["One test was declared: nothing is corrected."]
    kept = int(found["survives"].sum())
    parts = [Strong(family(found)), " were declared. Each one's word comes from its own 90 % interval. "]
    if not found["verdict"].isin(list(SYMBOLS)).any():
        return [*parts, "The reserved test rows were not read, so nothing is judged yet."]
    parts.append("Over budget is said of a label or of the run only after Holm's correction: the smallest p-value ")
    parts.append(f"counts {count(n)} times, the next {count(n - 1)} times, and so on. ")
    if over:
        parts += [Strong(f"{count(kept)} of {count(over)} over budget by themselves are so after it"), ". "]
    parts.append(f"Within budget needs no correction: it is said only if all {count(n)} are within.")
    return parts


def attributes_finding(found: pd.DataFrame) -> list[str]:
    """Name each label with what the strongest attacker reaches, in its own classes, and its corrected verdict."""
    said, parts = corrected.verdicts(found, "attribute"), []
    for attribute, mine in found.groupby("attribute", sort=False):
        best = records(mine.sort_values("signed_gap", ascending=False, kind="stable"))[0]
        word = said.get(str(attribute), "no verdict")
        value = f": {percent(best['accuracy'])} from {best['artifact']}, guessing {percent(best['chance'], 0)}, "
        parts += ["; ", Strong(str(attribute)), value, Strong(f"{SYMBOLS.get(word, '')} {word}".strip())]
    within = [a for a, word in said.items() if word == WITHIN]
    end = f". All attackers together; within budget: {listed(within)}." if within else ". All attackers together."
    return [*parts[1:], end]


def cell_words(row: dict[Any, Any]) -> tuple[str, str]:
    """A test's word, and what the correction does to it ("" where nothing)."""
    word = str(row["verdict"]) if row["verdict"] in SYMBOLS else "no verdict"
    taken_back = word == OVER and not row["survives"]
    p = f" (p {number(row['p_adjusted'])})" if known(row["p_adjusted"]) else ""
    return word, f"not after the correction{p}" if taken_back else ""
