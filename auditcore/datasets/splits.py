"""Disjoint groups of subjects, balanced classes inside them. In: the frame of a Dataset. Out: splits, row positions.

A subject counts for an attribute only when all its labelled rows name one class: a subject with two cannot be balanced,
is left out for that attribute, and is counted (`split_notes`, `balance_table`).
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pandas as pd

from auditcore.datasets.roles import require_disjoint_splits
from auditcore.errors import DatasetError
from auditcore.spec import SPLITS

SHARES = {"bal_train": 0.50, "bal_val": 0.15, "bal_test": 0.35}
SHARES_WITH_DEFENCES = {"defence_fit": 0.20, "bal_train": 0.35, "bal_val": 0.10, "bal_test": 0.35}
SHARES_WITH_TRAINING = {"train": 0.40, "bal_train": 0.25, "bal_val": 0.10, "bal_test": 0.25}
BALANCED = ("bal_train", "bal_val", "bal_test")
BANDS = 12  # different numbers from which a label looks like a measurement
MUCH = 0.05  # share of the labelled subjects from which leaving out those with two classes is a warning
JOINT = 20  # subjects in the smallest joint class from which several attributes are stratified together


def make_splits(frame: pd.DataFrame, labels: Sequence[str], seed: int, defences: bool) -> pd.DataFrame:
    """Return the frame with `split` filled: subjects drawn by label, bal_train 50, bal_val 15, bal_test 35 %.

    With defences: defence_fit 20, bal_train 35, bal_val 10, bal_test 35 %. Splits that the data brings are kept, after
    a look that the needed ones are there and share no subject. Rows without any usable label get no split. Several
    labels are stratified jointly when every combination has at least 20 subjects, else the first one is. The draw
    depends on the subjects' names and the seed, not on the order of the rows.
    Raises DatasetError: a class with fewer subjects than splits, a needed split without rows.
    """
    if frame["split"].notna().any():
        _require(frame, ("defence_fit", *BALANCED) if defences else BALANCED)
        require_disjoint_splits(frame)
        return frame.copy()
    return _drawn(frame, labels, seed, SHARES_WITH_DEFENCES if defences else SHARES)


def training_splits(frame: pd.DataFrame, labels: Sequence[str], seed: int) -> pd.DataFrame:
    """Return the frame with `split` filled for a mitigation that is trained: train 40, bal_train 25, bal_val 10,
    bal_test 25 %.

    Splits that the data brings are kept, after a look that train, bal_train and bal_val are there and share no subject.
    Rows of subjects without a label, which no probe can use, are all for training. Draw and errors as in `make_splits`.
    """
    if frame["split"].notna().any():
        _require(frame, ("train", "bal_train", "bal_val"))
        require_disjoint_splits(frame)
        return frame.copy()
    drawn = _drawn(frame, labels, seed, SHARES_WITH_TRAINING)
    unlabelled = drawn["split"].isna() & ~drawn["group"].isin(drawn.loc[drawn["split"].notna(), "group"])
    return drawn.assign(split=drawn["split"].mask(unlabelled, "train"))


def checkpoint_splits(frame: pd.DataFrame, labels: Sequence[str], seed: int, defences: bool = False) -> pd.DataFrame:
    """Return the frame with `split` filled for checkpoints that are there already, as in `make_splits`.

    Splits that the data brings are kept, after a look that bal_train and bal_val are there and share no subject.
    """
    if frame["split"].notna().any():
        _require(frame, ("bal_train", "bal_val"))
        require_disjoint_splits(frame)
        return frame.copy()
    return _drawn(frame, labels, seed, SHARES_WITH_DEFENCES if defences else SHARES)


def _drawn(frame: pd.DataFrame, labels: Sequence[str], seed: int, shares: dict[str, float]) -> pd.DataFrame:
    classes = pd.DataFrame({label: subject_classes(frame, label) for label in labels})
    if labels:
        classes = classes[classes.notna().any(axis=1)]
    else:
        classes = pd.DataFrame(index=pd.Index(frame["group"].unique(), name="group"))
    classes = classes.sort_index()
    rng = np.random.default_rng([seed % 2**32, crc32(b"make_splits")])
    split = pd.Series(_draw(_strata(classes), shares, rng), index=classes.index)
    for label in labels:
        _require_classes(classes[label], split, label, tuple(shares))
    usable = np.ones(len(frame), dtype=bool) if not labels else _usable(frame, classes, labels)
    filled = frame["group"].map(split).where(usable).astype("str")
    return frame.assign(split=filled)


def subject_classes(frame: pd.DataFrame, label: str) -> pd.Series:
    """Subject -> its class, missing when it has no labelled row or rows of two classes."""
    known = frame.loc[frame[label].notna(), ["group", label]].drop_duplicates()
    single = known[~known["group"].duplicated(keep=False)].set_index("group")[label]
    return single.reindex(pd.Index(frame["group"].unique(), name="group"))


def conflicting_subjects(frame: pd.DataFrame, label: str) -> list[str]:
    """Subjects whose rows name two or more classes of the label, sorted."""
    known = frame.loc[frame[label].notna(), ["group", label]].drop_duplicates()
    return sorted(known.loc[known["group"].duplicated(), "group"].unique())


def conflict_words(frame: pd.DataFrame, label: str, grouped: bool) -> tuple[str, bool] | None:
    """What a run says of subjects with more than one class, and whether they are so many that it must warn.

    grouped: the data has a group role; else rows with equal text are one subject. None without such a subject.
    """
    names = conflicting_subjects(frame, label)
    if not names:
        return None
    known = frame[frame[label].notna()]
    rows, subjects = int(known["group"].isin(names).sum()), int(known["group"].nunique())
    mine = sorted(str(one)[:40] for one in known.loc[known["group"] == names[0], label].unique())
    what = "name as group the column that says whose row it is"
    if not grouped:
        what = "name a group column: without one, rows of equal text are one subject"
    have, are, they = ("has", "is", "its") if len(names) == 1 else ("have", "are", "their")
    text = (
        f"{label}: {len(names):,} of {subjects:,} subjects ({rows:,} of {len(known):,} labelled rows) {have} more than "
        f"one value of '{label}' and {are} left out with {they} rows; first: '{str(names[0])[:40]}' "
        f"({', '.join(mine[:4])}). A subject needs one value: correct the labels, or {what}."
    )
    return text, len(names) >= MUCH * subjects


def balanced(frame: pd.DataFrame, label: str, split: str, seed: int) -> np.ndarray:
    """Row positions (int64, ascending) of as many subjects of each class as the rarest class has in the split.

    Whole subjects are drawn; rows of a subject stay together. Raises DatasetError when a class has no subject here.
    """
    everywhere = _classes_in(frame, label, BALANCED)
    classes = everywhere.reindex(frame.loc[_labelled(frame, label, split), "group"].unique()).dropna()
    counts = classes.value_counts()
    for name in sorted(everywhere.unique()):
        if name not in counts.index:
            raise DatasetError(f"label '{label}': no subject of class '{name}' is in {split}; it cannot be balanced.")
    if counts.empty:
        raise DatasetError(f"label '{label}': no labelled row is in {split}.")
    rng = np.random.default_rng([seed % 2**32, crc32(label.encode()), crc32(split.encode())])
    keep: set[str] = set()
    for name in sorted(counts.index):
        members = np.sort(classes.index[classes == name].to_numpy(dtype=object))
        keep.update(rng.choice(members, size=int(counts.min()), replace=False))
    chosen = frame["group"].isin(keep) & _labelled(frame, label, split)
    return np.flatnonzero(chosen.to_numpy(dtype=bool)).astype(np.int64)


def balance_table(frame: pd.DataFrame, label: str, seed: int) -> pd.DataFrame:
    """What balancing keeps, for each bal_* split and class: subjects, subjects_kept, rows, rows_kept."""
    lines = []
    for split in BALANCED:
        classes = _classes_in(frame, label, (split,))
        if classes.empty:
            continue
        inside = frame[_labelled(frame, label, split) & frame["group"].isin(classes.index)]
        kept = frame.iloc[balanced(frame, label, split, seed)]
        for name in sorted(classes.unique()):
            mine, drawn = inside[inside[label] == name], kept[kept[label] == name]
            lines.append((split, name, mine["group"].nunique(), drawn["group"].nunique(), len(mine), len(drawn)))
    return pd.DataFrame(lines, columns=["split", label, "subjects", "subjects_kept", "rows", "rows_kept"])


def split_notes(frame: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Sentences for a page: the size of each split, rows left out, subjects with two classes."""
    notes = []
    for split in SPLITS:
        rows = frame[frame["split"] == split]
        if len(rows):
            notes.append(f"{split}: {rows['group'].nunique():,} subjects, {len(rows):,} rows.")
    if left := int(frame["split"].isna().sum()):
        notes.append(f"{left:,} of {len(frame):,} rows are in no split.")
    for label in labels:
        if conflicts := conflicting_subjects(frame, label):
            subjects = "1 subject has" if len(conflicts) == 1 else f"{len(conflicts):,} subjects have"
            notes.append(f"{subjects} rows of more than one class of '{label}': left out of its audit.")
    return notes


def _usable(frame: pd.DataFrame, classes: pd.DataFrame, labels: Sequence[str]) -> np.ndarray:
    """Rows that count for at least one attribute."""
    usable = np.zeros(len(frame), dtype=bool)
    for label in labels:
        single = classes.index[classes[label].notna()]
        usable |= (frame[label].notna() & frame["group"].isin(single)).to_numpy(dtype=bool)
    return usable


def _strata(classes: pd.DataFrame) -> np.ndarray:
    """Code of the stratum of each subject: all attributes together when large enough, else the first one."""
    if classes.shape[1] == 0:
        return np.zeros(len(classes), dtype=np.int64)
    for columns in ([*classes.columns], [classes.columns[0]]):
        codes = classes[columns].fillna("").groupby(columns, sort=True).ngroup().to_numpy()
        if len(columns) == 1 or (len(codes) and np.bincount(codes).min() >= JOINT):
            break
    return codes


def _draw(strata: np.ndarray, shares: dict[str, float], rng: np.random.Generator) -> np.ndarray:
    """Name of the split of each subject: every stratum shuffled, then cut by the shares."""
    names, split = np.array(list(shares), dtype=object), np.empty(len(strata), dtype=object)
    for stratum in np.unique(strata):
        members = rng.permutation(np.flatnonzero(strata == stratum))
        split[members] = np.repeat(names, _sizes(len(members), np.array(list(shares.values()))))
    return split


def _sizes(n: int, shares: np.ndarray) -> np.ndarray:
    """Whole numbers that add up to n in the given shares, none 0 where n allows: largest remainders first."""
    least = 1 if n >= len(shares) else 0
    wanted = np.maximum(n * shares - least, 0)
    wanted *= (n - least * len(shares)) / wanted.sum() if wanted.sum() else 0
    sizes = np.floor(wanted + 1e-9).astype(int)
    order = np.argsort(-(wanted - sizes), kind="stable")
    sizes[order[: n - least * len(shares) - sizes.sum()]] += 1
    return sizes + least


def _require_classes(classes: pd.Series, split: pd.Series, label: str, names: tuple[str, ...]) -> None:
    table = pd.crosstab(classes, split).reindex(columns=list(names), fill_value=0)
    short = table.index[(table == 0).any(axis=1)]
    if len(table) < 2:
        raise DatasetError(f"label '{label}': fewer than two classes are left among subjects with one class each.")
    if len(short):
        n = int(table.loc[short[0]].sum())
        what = "merge it with another class or leave its rows without a label."
        if len(table) > BANDS and pd.to_numeric(pd.Series(table.index), errors="coerce").notna().all():
            what = f"it holds {len(table):,} different numbers: group them into a few bands first."
        raise DatasetError(
            f"label '{label}': class '{short[0]}' has {n} subject{'' if n == 1 else 's'}, too few for the splits "
            f"{', '.join(names)}; {what}"
        )


def _require(frame: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Raise DatasetError naming the splits that are missing, those that are there, and what to do."""
    there = frame["split"].value_counts()
    missing = [name for name in names if name not in there.index]
    if not missing:
        return
    has = ", ".join(f"{name} ({count:,})" for name, count in there.sort_index().items())
    why, otherwise = "", ""
    if "defence_fit" in missing:
        why, otherwise = " Defences are fitted on subjects that no probe sees.", ", or audit no defence"
    raise DatasetError(
        f"the split column has no rows of {' and '.join(missing)}; it has rows of {has}. This audit needs "
        f"{', '.join(names)}.{why} Map the file's own names to ours (split_map: {{validation: bal_val}}), give some "
        f"subjects the missing split, leave the split role out to have subjects dealt anew{otherwise}."
    )


def _labelled(frame: pd.DataFrame, label: str, *splits: str) -> pd.Series:
    """Rows of the splits that have the label, as a mask."""
    return frame["split"].isin(splits) & frame[label].notna()


def _classes_in(frame: pd.DataFrame, label: str, splits: Sequence[str]) -> pd.Series:
    """Subject -> class for the usable subjects with a labelled row in the splits."""
    here = frame.loc[_labelled(frame, label, *splits), "group"].unique()
    return subject_classes(frame, label).reindex(here).dropna()
