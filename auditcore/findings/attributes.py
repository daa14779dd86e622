"""Several labels in one run. In: `probe_metrics`. Out: rows of the matrix label by artifact, what is corrected for.

Every attacker on every label, artifact and layer is one test. A test's own word comes from its own 90 % interval; what
is said of a label or of the run is said after Holm's correction over all tests of the run (leakage_verdicts does so
too), since among many tests some are over budget by luck.
"""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.findings.common import records
from auditcore.findings.vectors import baseline
from auditcore.verdict import ALPHA, OVER, SYMBOLS, WITHIN, combine, holm
from auditcore.words import Strong, count, counted, known, listed, number, percent


def every_test(metrics: pd.DataFrame, split: str = "bal_test", defence: str | None = None) -> pd.DataFrame:
    """Every test of one split and defence (None: `baseline`), seeds averaged, with p_adjusted (Holm) and survives.

    survives: `over budget` by itself and still so after the correction over all of these rows.
    """
    defence = baseline(metrics) if defence is None else defence
    rows = metrics[metrics["seed"].isna() & (metrics["split"] == split) & (metrics["defence"] == defence)]
    p = rows["p_over"].astype(float).to_numpy() if "p_over" in rows else np.full(len(rows), np.nan)
    adjusted = holm(p.tolist()) if len(rows) else p
    survives = (rows["verdict"] == OVER).to_numpy(dtype=bool) & np.less_equal(np.nan_to_num(adjusted, nan=1.0), ALPHA)
    return rows.assign(p_adjusted=adjusted, survives=survives)


def matrix(found: pd.DataFrame) -> pd.DataFrame:
    """One row per label, artifact and probe: of several layers the one that tells most. found: of `every_test`."""
    ranked = found.sort_values("signed_gap", ascending=False, kind="stable", na_position="last")
    best = ranked.drop_duplicates(["attribute", "artifact", "probe"])
    return best.sort_index(kind="stable")


def attribute_verdicts(found: pd.DataFrame) -> dict[str, str]:
    """Label -> verdict over all attackers on it, corrected over all tests of the run; none before the test rows."""
    said = {}
    for attribute, mine in found.groupby("attribute", sort=False):
        words = mine["verdict"].tolist()
        if all(word in SYMBOLS for word in words):
            said[str(attribute)] = combine(words, mine["p_adjusted"].tolist())
    return said


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
    said, parts = attribute_verdicts(found), []
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
