"""The rows one probe is fitted and judged on. In: vectors, labels, subjects, split positions. Out: a checked Cell.

Refused here, with the reason: a subject on both sides of a split, a class that cannot be learnt or judged, vectors
with nothing finite in them. Left out and counted: rows with a NaN or infinite entry, rows without a label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.leakage.folds import subjects_per_class

FIT = "bal_train"
EVALUATED = ("bal_val", "bal_test")
FEWEST = 2  # subjects of each class, in every split


@dataclass(frozen=True)
class Part:
    """Rows of one split. positions: int64 [n] into the data; vectors: float32 [n, d]; codes: int64 [n]; groups: [n].

    groups are numbers of subjects, in the order of their names.
    """

    positions: np.ndarray
    vectors: np.ndarray
    codes: np.ndarray
    groups: np.ndarray

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class Cell:
    """What one probe sees: training rows, evaluated rows by split, class names by code, notes a page must show."""

    train: Part
    evaluated: dict[str, Part]
    classes: list[str]
    notes: list[str]


def check_disjoint(groups: Sequence[str] | np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
    """Raise DatasetError when two splits share a subject, naming both splits and one such subject.

    groups: [n] subject of every row; rows: split -> row positions. A defence or a probe that has seen a subject's rows
    must not be judged on that subject: an eraser fitted on the probe's own rows reads exactly chance and looks safe.
    """
    names = np.asarray(groups)
    seen = {split: set(names[np.asarray(at, dtype=np.int64)]) for split, at in rows.items()}
    for one, other in combinations(seen, 2):
        shared = seen[one] & seen[other]
        if shared:
            raise DatasetError(
                f"{len(shared)} subject{'s' if len(shared) > 1 else ''} in both {one} and {other} (for example "
                f"'{min(str(s) for s in shared)}'): what was fitted on a subject's rows cannot be judged on that "
                "subject. Give every row of a subject the same split, or leave the split role out to have subjects "
                "dealt anew."
            )


def make_cell(
    vectors: np.ndarray,
    labels: Sequence[object] | np.ndarray,
    groups: Sequence[object] | np.ndarray,
    rows: Mapping[str, np.ndarray],
    where: str = "",
) -> Cell:
    """Check and cut the rows of one probe.

    vectors: float [n, d]; labels: [n] text, missing where unknown; groups: [n]; rows: split -> positions, with
    `bal_train` and at least one of `bal_val`, `bal_test`; where: attribute and artifact, for messages. Rows are put
    in an order of their own (by subject) and classes are coded by first appearance there, so that neither the order
    of the data nor the names of the classes can change a result. Raises DatasetError, ValueError for lengths that
    disagree.
    """
    vectors, names = np.asarray(vectors), np.array([str(g) for g in groups])
    known = pd.Series(list(labels), dtype=object)
    if vectors.ndim != 2 or not len(vectors) == len(known) == len(names):
        raise ValueError(f"{vectors.shape} vectors, {len(known)} labels, {len(names)} subjects: one of each per row")
    rows = {split: np.asarray(at, dtype=np.int64) for split, at in rows.items()}
    check_disjoint(names, rows)
    subjects = np.unique(names, return_inverse=True)[1]
    missing = known.isna().to_numpy()
    about = f"{where}: " if where else ""
    notes: list[str] = []
    kept = {}
    for split in (FIT, *EVALUATED):
        at = rows.get(split, np.zeros(0, dtype=np.int64))
        finite = np.isfinite(vectors[at]).all(axis=1)
        if not finite.all():
            notes.append(
                f"{about}{int((~finite).sum())} of {len(at)} {split} rows left out: their vectors hold NaN or infinity."
            )
        at = at[finite & ~missing[at]]
        kept[split] = at[np.lexsort((vectors[at, 0], subjects[at]))]
    texts = np.array([str(label) for label in known])
    classes = list(dict.fromkeys(texts[kept[FIT]]))
    _check_classes(classes, {s: texts[at] for s, at in kept.items()}, about)
    code = {name: k for k, name in enumerate(classes)}
    parts = {
        split: Part(at, vectors[at], np.array([code[t] for t in texts[at]], dtype=np.int64), subjects[at])
        for split, at in kept.items()
    }
    train = parts.pop(FIT)
    _check_subjects(FIT, train, classes, about)
    evaluated = {}
    for split, part in parts.items():
        if not len(part.positions):
            continue
        if split == "bal_val" and len(parts["bal_test"].positions) and _too_few(part, classes):
            notes.append(f"{about}bal_val is not reported: it has fewer than {FEWEST} subjects of a class.")
            continue
        _check_subjects(split, part, classes, about)
        evaluated[split] = part
    if not evaluated:
        raise DatasetError(f"{about}no usable rows in bal_test or bal_val: nothing to judge the probe on.")
    return Cell(train, evaluated, classes, notes)


def _check_classes(classes: list[str], texts: dict[str, np.ndarray], about: str) -> None:
    if len(classes) < 2:
        what = f"one class only ('{classes[0]}')" if classes else "no usable rows"
        raise DatasetError(f"{about}{FIT} has {what}: a label needs at least two classes with finite vectors.")
    for split, found in texts.items():
        unknown = sorted(set(found) - set(classes))
        if unknown:
            raise DatasetError(
                f"{about}class '{unknown[0]}' is in {split} but not in {FIT}: no probe can learn it. "
                f"Give {FIT} at least {FEWEST} subjects of every class, or leave the class out."
            )


def _too_few(part: Part, classes: list[str]) -> bool:
    return bool(_counts(part, classes).min() < FEWEST)


def _counts(part: Part, classes: list[str]) -> np.ndarray:
    found = subjects_per_class(part.codes, part.groups)
    return np.pad(found, (0, len(classes) - len(found)))


def _check_subjects(split: str, part: Part, classes: list[str], about: str) -> None:
    counts = _counts(part, classes)
    fewest = int(counts.argmin())
    if counts[fewest] < FEWEST:
        raise DatasetError(
            f"{about}class '{classes[fewest]}' has {counts[fewest]} subject{'s' if counts[fewest] != 1 else ''} in "
            f"{split}; at least {FEWEST} of every class are needed (a few hundred for a verdict). Leave the class out "
            "or add rows."
        )
