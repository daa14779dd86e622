"""Which prompts adversaries learn from, and which they are turned against. In: labelled rows. Out: positions by step.

NumPy only. Subjects are dealt into folds; a bank holds a few of them, and rows outside it are the ones turned against:
an adversary knows the rows it was fitted on by heart and says nothing useful about them. At every refresh the next fold
replaces the oldest, so that every prompt has its turn on both sides. All follows from the seed and the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.spec import DiscriminatorSpec

UNKNOWN = -1  # code of a row without a label


@dataclass(frozen=True)
class Labels:
    """Sensitive attributes as codes. Rows outside the adversaries' splits are UNKNOWN, whatever their label is."""

    names: tuple[str, ...]
    codes: np.ndarray  # int64 [n, attributes]
    classes: tuple[tuple[str, ...], ...]  # of each attribute, by code


def label_codes(frame: pd.DataFrame, labels: Sequence[str], rows: np.ndarray) -> Labels:
    """Code the label columns of `frame` (text or missing) on the rows an adversary may read (positions).

    Raises DatasetError when a label has fewer than two classes there.
    """
    codes = np.full((len(frame), len(labels)), UNKNOWN, dtype=np.int64)
    classes = []
    for place, label in enumerate(labels):
        known = frame[label].iloc[rows]
        found = sorted(known.dropna().unique())
        if len(found) < 2:
            raise DatasetError(
                f"label '{label}': the rows that the adversaries read have {len(found)} class"
                f"{'es' if len(found) != 1 else ''}; two or more are needed. Name more splits as adversary_splits."
            )
        codes[rows, place] = pd.Categorical(known, categories=found).codes
        classes.append(tuple(found))
    return Labels(tuple(labels), codes, tuple(classes))


class Prompts:
    """Labelled prompts, dealt into folds."""

    def __init__(self, labels: Labels, groups: Sequence[str], usable: np.ndarray, spec: DiscriminatorSpec, seed: int):
        """labels: of n rows; groups: [n] subjects; usable: bool [n], rows with a prompt. Raises DatasetError."""
        self.spec, self.seed = spec, seed
        self.codes = np.where(usable[:, None], labels.codes, UNKNOWN)
        self.rows = np.flatnonzero((self.codes != UNKNOWN).any(axis=1))
        subjects, where = np.unique(np.asarray(groups, dtype=str)[self.rows], return_inverse=True)
        self.n_folds = max(spec.bank_kept + 1, len(self.rows) // spec.bank_rows)
        if len(subjects) < self.n_folds:
            raise DatasetError(
                f"{len(subjects)} labelled subjects are too few for adversaries: {self.n_folds} are the least, some "
                "hundreds are sensible. Name more splits as adversary_splits, or set lambda: 0."
            )
        rng = np.random.default_rng([seed, 0x5EED])
        self.fold = np.full(len(self.codes), -1, dtype=np.int64)
        self.fold[self.rows] = rng.permutation(np.arange(len(subjects)) % self.n_folds)[where]

    def refreshed(self, window: int) -> list[np.ndarray]:
        """Rows whose vectors are made anew as a window begins, a list of blocks: a whole bank first, then one fold."""
        kept = self.spec.bank_kept
        folds = range(kept) if window == 0 else [(window + kept - 1) % self.n_folds]
        return [np.flatnonzero(self.fold == k) for k in folds]

    def held(self, window: int) -> np.ndarray:
        """Mask [n] of the rows in the bank's folds during a window."""
        return np.isin(self.fold, (np.arange(self.spec.bank_kept) + window) % self.n_folds)

    def turned(self, rows: np.ndarray, window: int) -> np.ndarray:
        """Codes [len(rows), attributes] of rows as the turned gradient may use them; UNKNOWN in the bank's folds."""
        hidden = self.held(window)[rows] & self.spec.held_out
        return np.where(hidden[:, None], UNKNOWN, self.codes[rows])

    def draw(self, window: int, start: int, count: int) -> np.ndarray:
        """`count` rows to turn against, from place `start` in the window's order on; it begins again at its end."""
        pool = self.rows[~self.held(window)[self.rows]] if self.spec.held_out else self.rows
        order = np.random.default_rng([self.seed, 0xD3A3, window]).permutation(pool)
        return order[(start + np.arange(count)) % len(order)]
