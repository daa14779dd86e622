"""Which rows a vectors audit looks at. In: a spec, its data set. Out: rows by split, what is left out and why."""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs.defences import FIT, fit_rows, needs_fit
from auditcore.spec import VectorsSpec
from auditcore.words import counted

BAL = ("bal_train", "bal_val", "bal_test")


def audited_rows(spec: VectorsSpec, dataset: Any) -> tuple[Any, list[str], list[str]]:
    """Keep the rows this audit looks at: those of the bal_* splits, made here when the data has none.

    With defences those of defence_fit too, on which they are fitted. With them come notes on what was left out, and
    warnings where that is much.
    """
    from auditcore.datasets.splits import conflict_words, make_splits

    notes: list[str] = []
    warnings: list[str] = []
    splits = (FIT, *BAL) if needs_fit(spec) else BAL
    # Splits that the data brings are kept, after a look that no subject is in two of them.
    frame = make_splits(dataset.frame, spec.data.labels, spec.seed, defences=needs_fit(spec))
    if "split" not in spec.data.roles:
        counts = frame["split"].value_counts()
        notes.append(
            "The data has no split; subjects were assigned at random, stratified by label: "
            + ", ".join(f"{split} {int(counts.get(split, 0)):,} rows" for split in splits)
            + "."
        )
    keep = frame["split"].isin(splits).to_numpy(dtype=bool)
    if not keep.any():
        raise DatasetError(f"{spec.data.path}: no row is in bal_train, bal_val or bal_test; map the split role.")
    for split, n in frame.loc[~keep, "split"].dropna().value_counts().items():
        notes.append(f"{counted(n, 'row')} of {split} {_take(n)} no part in this audit.")
    notes += _without_split(spec, frame[frame["split"].isna()])
    mine = frame[keep | frame["split"].isna()] if "split" not in spec.data.roles else frame[keep]
    for label in spec.data.labels:
        if (said := conflict_words(mine, label, "group" in spec.data.roles)) is not None:
            (warnings if said[1] else notes).append(said[0])
    return dataset.select(np.flatnonzero(keep), frame=frame), notes, warnings


def _without_split(spec: VectorsSpec, rows: pd.DataFrame) -> list[str]:
    """Say why rows are in no split: the data gives them none, they have no label, or their subject has two."""
    if "split" in spec.data.roles:
        said = f"{counted(len(rows), 'row')} without a split {_take(len(rows))} no part in this audit."
        return [said] if len(rows) else []
    labels = " or ".join(f"'{label}'" for label in spec.data.labels)
    labelled = int(rows[list(spec.data.labels)].notna().any(axis=1).sum())
    reasons = {
        f"without a value of {labels}": len(rows) - labelled,
        f"of subjects with more than one value of {labels}": labelled,
    }
    return [f"{counted(n, 'row')} {why} {_take(n)} no part in this audit." for why, n in reasons.items() if n]


def _take(n: int) -> str:
    return "takes" if n == 1 else "take"


def used_rows(evaluated: dict[str, dict[str, np.ndarray]]) -> np.ndarray:
    """Positions (ascending) of the rows that at least one attribute is fitted or judged on."""
    return np.unique(np.concatenate([rows for one in evaluated.values() for rows in one.values()]))


def sum_note(found: int, usable: int, audited: int, used: int) -> str:
    """How the rows of a file become those that are used; all numbers of rows. usable: with a vector."""
    lost = {
        "without a usable vector": found - usable,
        "in no split of this audit": usable - audited,
        "left out by balancing classes": audited - used,
    }
    told = "".join(f", {n:,} {why}" for why, n in lost.items() if n)
    return f"Of {counted(found, 'row')} {used:,} are used{told}."


def evaluation_rows(frame: pd.DataFrame, attribute: str, seed: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Positions of the class-balanced rows of each bal_* split, and words for what balancing left out.

    Rows of defence_fit, where there are any, are not balanced: an eraser weighs classes as it finds them.
    """
    from auditcore.datasets.splits import balance_table, balanced

    rows = {split: balanced(frame, attribute, split, seed) for split in BAL}
    if frame["split"].eq(FIT).any():
        rows[FIT] = fit_rows(frame, attribute)
    _require_subjects(frame, attribute, rows)
    notes = []
    for split, part in balance_table(frame, attribute, seed).groupby("split", sort=False):
        left_out = int(part["rows"].sum() - part["rows_kept"].sum())
        if left_out:
            notes.append(
                f"{attribute}: {counted(left_out, 'row')} of {split} left out so that its classes are equally frequent."
            )
    return rows, notes


def _require_subjects(frame: pd.DataFrame, attribute: str, rows: dict[str, np.ndarray]) -> None:
    """Raise DatasetError for a class so rare that balancing would leave nothing to learn from or to judge on."""
    from auditcore.leakage.cells import FEWEST

    for split in ("bal_train", "bal_test"):
        kept = frame.iloc[rows[split]].groupby(attribute)["group"].nunique()
        if kept.min() >= FEWEST:
            continue
        inside = frame[frame["split"].eq(split)].groupby(attribute)["group"].nunique()
        raise DatasetError(
            f"label '{attribute}': class '{inside.idxmin()}' has {int(inside.min())} subject in {split}, and balancing "
            f"would cut every class to that; at least {FEWEST} are needed, a few hundred for a verdict. Merge it with "
            "another class, or leave its rows without a label."
        )
