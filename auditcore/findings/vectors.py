"""What an audit of exported vectors says. In: `probe_metrics`, a confusion matrix, counts. Out: sentences."""

import json
from typing import Any

import pandas as pd

from auditcore.findings import corrected
from auditcore.findings.common import TEST_SPLITS, baseline, judging_split, records, share, short
from auditcore.verdict import BELOW, MEANINGS, NOT_RESOLVED, OVER, SYMBOLS, WITHIN, power_basis, wilson
from auditcore.words import NONE, Strong, count, counted, interval, known, listed, number, percent, percent_interval


def strongest(
    metrics: pd.DataFrame, attribute: str, split: str = "bal_test", defence: str | None = None
) -> pd.DataFrame:
    """Seed-averaged rows of `probe_metrics`: the probe with the highest gap per artifact and layer, strongest first."""
    rows = pooled(metrics, attribute, split, defence).sort_values("signed_gap", ascending=False, kind="stable")
    return rows.drop_duplicates(["artifact", "layer"])


def leakiest(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per attribute and artifact: the probe and layer with the largest signed gap on the split that judges."""
    rows = metrics[metrics["seed"].isna() & (metrics["defence"] == baseline(metrics))]
    if rows["split"].isin(TEST_SPLITS).any():
        rows = rows[rows["split"] == judging_split(rows)]
    ranked = rows.sort_values("signed_gap", ascending=False, na_position="last", kind="stable")
    best = ranked.drop_duplicates(["attribute", "artifact"])
    return best.sort_values(["attribute", "signed_gap"], ascending=[True, False], kind="stable", ignore_index=True)


def pooled(metrics: pd.DataFrame, attribute: str, split: str = "bal_test", defence: str | None = None) -> pd.DataFrame:
    """Rows of `probe_metrics` in which seeds are averaged, of one attribute, split and defence (None: `baseline`)."""
    defence = baseline(metrics) if defence is None else defence
    chosen = (metrics["attribute"] == attribute) & (metrics["split"] == split) & (metrics["defence"] == defence)
    return metrics[chosen & metrics["seed"].isna()]


def vectors_finding(metrics: pd.DataFrame | None, attribute: str, budget: float, split: str = "bal_test") -> list[str]:
    """Say how often an attacker holding each artifact names the attribute, beside guessing, and what that means.

    metrics: table `probe_metrics`, or None while there is none.
    """
    rows = None if metrics is None else strongest(metrics, attribute, split)
    if metrics is None or rows is None or rows.empty:
        return ["Nothing has been measured yet: this run has no finished probe."]
    several = rows["layer"].nunique() > 1
    rows = rows.drop_duplicates("artifact")  # of each artifact the layer that tells most
    every = artifact_verdicts(metrics, attribute, split)
    rows = rows.assign(verdict=rows["artifact"].map(every))
    best = rows.iloc[0]
    told = Strong(f"{share(best['accuracy'])} subjects")
    parts: list[str] = ["An attacker holding ", Strong(artifact_words(best, several)), f" names {attribute} correctly "]
    parts += ["for ", told]
    others = [f"holding {artifact_words(row, several)} for {short(row['accuracy'])}" for row in records(rows[1:3])]
    parts.append("".join(f", {other}" for other in others))
    more = len(rows) - 3
    parts.append(f" ({counted(more, 'weaker artifact')} below)" if more > 0 else "")
    parts.append(f"; guessing gives {short(best['chance'])}. ")
    return [*parts, *_verdict_words(rows, budget, several)]


def artifact_words(row: Any, with_layer: bool) -> str:
    """Name an artifact, with its layer when the run has several."""
    return f"{row['artifact']} at layer {int(row['layer'])}" if with_layer else str(row["artifact"])


def _verdict_words(rows: pd.DataFrame, budget: float, several: bool) -> list[str]:
    found = list(dict.fromkeys(rows["verdict"].dropna()))
    which = {1: "It is", 2: "Both are"}.get(len(rows), "All are")
    if len(found) == 1 and found[0] in (OVER, WITHIN):
        return [f"{which} ", Strong(f"{found[0].replace('budget', 'the budget')} of {budget:g}"), "."]
    if found == ["not resolved"]:
        n = count(rows["n_subjects"].min())
        return [Strong("Not resolved"), f": {n} test subjects cannot tell on which side of {budget:g} that lies."]
    parts: list[str] = []
    for verdict in found:
        names = listed([artifact_words(r, several) for r in records(rows[rows["verdict"] == verdict])])
        against = f" ({budget:g})" if "budget" in verdict else ""
        parts += [Strong(verdict[0].upper() + verdict[1:]), f"{against}: {names}. "]
    return [*parts[:-1], parts[-1].rstrip()] if parts else ["No verdict yet."]


def artifact_verdicts(metrics: pd.DataFrame, attribute: str, split: str = "bal_test") -> dict[str, str]:
    """Artifact -> verdict over every attacker that holds it, on all layers, corrected over all tests of the run."""
    found = corrected.every_test(metrics, split)
    return corrected.verdicts(found[found["attribute"] == attribute], "artifact")


def together(verdicts: pd.Series) -> str | None:
    """The verdict over every attacker that holds an artifact: within budget only if all are."""
    found = set(verdicts.dropna())
    return next((v for v in (OVER, BELOW, NOT_RESOLVED, WITHIN) if v in found), None)


def accuracy_sentence(rows: pd.DataFrame) -> list[str]:
    """Caption of the accuracy picture. rows: attackers, strongest first."""
    best = rows.iloc[0]
    spread = percent_interval(best["accuracy_low"], best["accuracy_high"])
    text = f"{best['artifact']}, {best['probe']}: {percent(best['accuracy'])}, 95 % interval {spread}, "
    text += f"{counted(int(best['n_subjects']), 'subject')}; guessing gives {percent(best['chance'], 0)}. "
    return [text, "Grey: what the same probe reaches on permuted labels, up to its 95th percentile."]


def null_sentence(rows: pd.DataFrame) -> str:
    """Say how the null bands were made: permutations, refits and rows by attacker; empty where it is not known.

    rows: of `probe_metrics`, seeds averaged.
    """
    if "null_refits" not in rows or rows["null_refits"].isna().all():
        return ""
    rows = rows[rows["null_refits"].notna()]
    made: dict[str, list[str]] = {}
    for probe, mine in rows.groupby("probe", sort=False):
        wanted, refits = int(mine["permutations"].max()), int(mine["null_refits"].min())
        few, of = int(mine["null_rows"].min()), int(mine["n_train"].max())
        where = f"on {count(few)} of {count(of)} training rows" if few < of else f"on all {count(of)} training rows"
        how = "refitted for each" if refits == wanted else f"refitted {count(refits)} times"
        made.setdefault(f"{how} {where}", []).append(str(probe))
    each = "; ".join(f"{listed(probes)} {how}" for how, probes in made.items())
    short_cut = any(" of " in how or "times" in how for how in made)
    permuted = counted(int(rows["permutations"].max()), "permutation")
    rest = NULL_SHORT if short_cut else ""
    return f"Null band: {permuted} of the labels by subject, of training rows and of rows judged: {each}.{rest}"


# Measured by benchmarks/null_band.py: on 8,000 rows in five classes, with 1 and with 4 notes a subject.
NULL_SHORT = " Compared with refits on all rows, such a band was 0.99 to 1.35 times as wide where that was measured."


def projection_sentence(drawn: int, total: int, broken: int, width: int, explained: tuple[float, float]) -> list[str]:
    """Honest caption of the projection: how much is shown, and that it proves nothing. width 0: not known."""
    part = f"A sample of {count(drawn)} of {count(total)}" if drawn + broken < total else count(drawn)
    left = f" {counted(broken, 'vector')} with a value that is not finite left out." if broken else ""
    of = f"Two of {count(width)} directions" if width else "These two directions"
    return [
        f"{part} test vectors. {of} hold {percent(sum(explained), 0)} of the variance: ",
        Strong("classes that mix here may still be told apart"),
        f", and the probes above decide.{left}",
    ]


def gap_sentence(row: Any) -> list[str]:
    """One attacker's LeakageGap in words: value, interval, n, verdict and what the verdict means."""
    symbol = f"{SYMBOLS[row['verdict']]} {row['verdict']}" if row["verdict"] in SYMBOLS else "no verdict"
    n = counted(int(row["n_subjects"]), "subject")
    ends = interval(row["signed_low90"], row["signed_high90"])
    head = f"{row['artifact']}, {row['probe']}: {number(row['signed_gap'])}, 90 % interval {ends} (thick), {n}: "
    return [head, Strong(symbol), f", {MEANINGS.get(row['verdict'], 'no interval')}."]


POINT_RULE = (
    "Estimate alone: would it pass if only the estimate had to lie within the budget, whatever its interval (the "
    "paper's point rule)? It is shown because it is in use; it ignores how many subjects stand behind the number and "
    "decides nothing here."
)


def power_sentence(
    p_within: float,
    smallest: float | None,
    needed: int,
    needed_by_one: int,
    subjects: int,
    budget: float,
    tests: int,
) -> list[str]:
    """What tests of this size could have shown, and how many subjects would do. Numbers: `leakage.power.power`."""
    if known(smallest):
        least = f"; the smallest gap one attacker can tell from 0 is about {number(smallest)}."
    else:
        least = "; so few subjects can tell no gap from 0."
    parts = [
        f"With {counted(subjects, 'test subject')}, a vector that leaks nothing is called within {budget:g} ",
        Strong(f"with probability {number(p_within, 2)}"),
        f" ({power_basis(tests, needed_by_one)}){least}",
    ]
    if needed > subjects:
        parts += [
            " ",
            Strong(f"About {count(needed)} test subjects"),
            " would let a leak-free vector pass 4 times in 5.",
        ]
    return parts


def confident_sentence(row: Any) -> list[str]:
    """How many subjects are named with near certainty, which an average can hide."""
    if not known(row["confident_share"]):
        return ["Confident inferences were not measured."]
    certain, n, right = row["confident_share"], row.get("n_subjects"), row.get("confident_precision")
    of = f", of {counted(int(n), 'subject')}" if known(n) else ""
    parts: list[str] = [
        Strong(f"{percent(certain)} of subjects"),
        f" ({percent_interval(*confident_interval(row))}, 95 % interval{of}) are named with near certainty: the "
        "attacker sets a threshold on other subjects, above which 9 of 10 of its names are right.",
    ]
    if known(right) and float(certain) > 0:
        spread = percent_interval(*wilson(right, float(certain) * float(n)), 0) if known(n) else NONE
        again = f" ({spread}, 95 % interval)" if spread != NONE else ""
        parts.append(f" On these subjects {percent(right, 0)} of them were{again}.")
    parts.append(" An average can hide such giveaways.")
    least = row.get("confident_least")  # none in a run made before it was kept
    if known(least) and float(certain) == 0:
        few = f"; fewer than in {percent(least)} of subjects would more likely than not have been missed"
        parts[-1] = f" An average can hide such giveaways{few if float(least) < 1 else '; so few subjects show none'}."
    elif known(least):
        parts.append(" By class, only who is named so rightly:")
    return parts


def confident_interval(row: Any) -> tuple[object, object]:
    """95 % interval of the share that is named with near certainty: the run's own, else Wilson's over its subjects."""
    if known(row.get("confident_low")):
        return row["confident_low"], row["confident_high"]
    if not known(row.get("n_subjects")):
        return None, None
    return wilson(float(row["confident_share"]), float(row["n_subjects"]))


def confident_by_class(row: Any) -> list[tuple[str, float]]:
    """Share of each class's subjects that are named with near certainty, largest first; empty when not stored.

    Rightly, that is; in a run that has no `confident_least`, rightly or not.
    """
    try:
        shares = json.loads(row.get("confident_by_class") or "{}")
    except (TypeError, ValueError):
        return []
    return sorted(((str(k), float(v)) for k, v in shares.items() if known(v)), key=lambda pair: -pair[1])


def confusion_sentence(counts: pd.DataFrame) -> list[str]:
    """Name the class most often given away and the commonest mix-up. counts: actual × predicted, numbers."""
    cells = {(str(a), str(p)): float(n) for a, row in counts.iterrows() for p, n in row.items()}
    totals = {str(a): float(n) for a, n in counts.sum(axis=1).items() if n > 0}
    recalls = {a: cells.get((a, a), 0.0) / n for a, n in totals.items()}
    if not recalls:
        return ["No predictions to show."]
    top = max(recalls, key=lambda a: recalls[a])
    parts = [Strong(top), f" is named most often when it is true ({percent(recalls[top], 0)})"]
    mixed = {(a, p): n / totals[a] for (a, p), n in cells.items() if a != p and a in totals and n > 0}
    if mixed:
        actual, predicted = max(mixed, key=lambda pair: mixed[pair])
        parts.append(f"; the commonest mix-up takes {actual} for {predicted} ({percent(mixed[actual, predicted], 0)})")
    return [*parts, ". Each row of the picture is one true class, in whole per cents."]
