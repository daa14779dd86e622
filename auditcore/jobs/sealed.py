"""Test rows that wait for a declaration. In: data sets and runs. Out: a refusal, or an entry in the ledger.

A run that trains or compares checkpoints seals its bal_test rows. Until that run is locked (what is promised is on
record), no run extracts vectors of these rows or generates from them; every run that looks afterwards is entered in a
ledger, keyed by the hash of the rows, so that a reader can count how often a test set was used.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore import disk, records, store
from auditcore.errors import RunError
from auditcore.jobs import cache
from auditcore.store import Run
from auditcore.words import counted

TEST = "bal_test"


def row_prints(dataset: Any) -> list[str]:
    """SHA-256 of each row's longest text, blanks folded: the same row under any template, role or file name.

    dataset: `datasets.roles.Dataset`. A row without any text (its vector comes from a file) is named by its id.
    """
    ids = dataset.frame["example_id"].astype("str").tolist()
    longest = [max(texts, key=len) for texts in zip(*dataset.fields.values(), strict=True)] or [""] * len(ids)
    folded = [" ".join(text.split()) for text in longest]
    return [_hash(text or f"id {name}") for text, name in zip(folded, ids, strict=True)]


def split_key(prints: Sequence[str]) -> str:
    """The name of a set of test rows in the ledger."""
    return cache.key(rows=sorted(prints))


def seal(run: Run, dataset: Any) -> str:
    """Seal the bal_test rows of `dataset` (splits assigned) for `run`; returns their key. May be called again."""
    test = np.flatnonzero(dataset.frame["split"].eq(TEST).to_numpy(dtype=bool))
    prints = row_prints(dataset)
    frame = pd.DataFrame(
        {
            "example_id": dataset.frame["example_id"].iloc[test].astype("str").to_numpy(),
            "print": [prints[i] for i in test],
            "data": dataset.sha256,
            "run": str(run.path.absolute()),
        }
    )
    key, file = split_key(frame["print"].tolist()), file_of(run)
    _set_aside(file, key)
    disk.write_parquet(file, frame)
    return key


def _set_aside(file: Path, key: str) -> None:
    """Keep what an earlier run in the same folder, or this one on other rows, had sealed."""
    if not file.exists():
        return
    old = pd.read_parquet(file)
    before = split_key(old["print"].tolist())
    if before != key and len(old):
        aside = file.with_name(f"{file.stem}-{before[:12]}.parquet")
        disk.write_parquet(aside, old.assign(run=f"{old['run'].iloc[0]} (before)"))
        if _opened(file).exists():
            os.replace(_opened(file), _opened(aside))


def mark_open(run: Run, record: dict[str, Any]) -> None:
    """Note beside its seal that `run` is locked (its lock record), for when its folder is gone."""
    disk.write_json(_opened(file_of(run)), {k: record[k] for k in ("number", "time", "by", "hash") if k in record})


def _opened(file: Path) -> Path:
    return file.with_suffix(".opened.json")


def file_of(run: Run) -> Path:
    """Where the rows that `run` sealed are listed: columns example_id, print, data (sha256), run (folder)."""
    return _folder() / f"{run.id}-{_hash(str(run.path.absolute()))[:12]}.parquet"


def sealed_rows(run: Run) -> pd.DataFrame:
    """The rows that `run` sealed, opened since or not; none where it never did."""
    path = file_of(run)
    return pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=["example_id", "print", "data", "run"])


def require_open(dataset: Any, positions: np.ndarray | None = None, own: Run | None = None) -> None:
    """Raise RunError when one of these rows is sealed by a run that is not locked yet.

    positions: rows whose vectors are extracted or which are generated from; None for all. own: the run that asks; of
    the rows it sealed itself it is told by id, since a row it may read can repeat the text of one it may not. Called
    before any model meets the rows, by every job that does either, whatever the rows' split is called there.
    """
    waiting = _waiting()
    if not waiting:
        return
    prints = pd.Series(row_prints(dataset))
    ids = dataset.frame["example_id"].astype("str").reset_index(drop=True)
    if positions is not None:
        prints, ids = prints.iloc[positions], ids.iloc[positions]
    for frame in waiting:
        mine = own is not None and frame["run"].iloc[0] == str(own.path.absolute())
        met = np.zeros(len(ids), dtype=bool) if mine else prints.isin(frame["print"]).to_numpy()
        if mine or frame["data"].iloc[0] == dataset.sha256:
            met = met | ids.isin(frame["example_id"]).to_numpy()
        if met.any():
            folder = Path(frame["run"].iloc[0])
            first = ids.iloc[int(met.argmax())]
            way_out = (
                f"Lock it first (python -m auditcore reveal {folder.name}, or the page Checkpoint frontier), or leave "
                "its test rows out."
                if (folder / store.MANIFEST).exists()
                else "Its folder is gone, which opens nothing: the rows open when another run that sealed the same "
                "ones is locked. Leave them out until then."
            )
            raise RunError(
                f"{counted(int(met.sum()), 'row')} (first '{first}') of the test rows that run {folder.name} keeps "
                f"sealed until its choice of a checkpoint is declared would be read. {way_out}"
            )


def enter_ledger(run: Run, prints: Sequence[str]) -> dict[str, Any]:
    """Note that `run` looks at these test rows; returns their hash and how many other runs looked before."""
    key = split_key(prints)
    return {"hash": key, "earlier_looks": store.enter_ledger(store.home() / "ledger.jsonl", key, run.id)}


def _folder() -> Path:
    return store.home() / "sealed"


def _waiting() -> list[pd.DataFrame]:
    """The rows that are sealed still, run by run. Raises RunError where that cannot be read."""
    closed, opened, orphans = [], set(), []
    for path in sorted(_folder().glob("*.parquet")):
        frame = _read(path)
        if frame.empty:
            continue
        folder = Path(frame["run"].iloc[0])
        if not (folder / store.MANIFEST).exists():
            orphans.append((path, frame))
        elif records.read(Run(folder), "lock"):
            opened.add(split_key(frame["print"].tolist()))
        else:
            closed.append(frame)
    for path, frame in orphans:
        if _opened(path).exists():
            opened.add(split_key(frame["print"].tolist()))
    return closed + [frame for _, frame in orphans if split_key(frame["print"].tolist()) not in opened]


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors derive from ValueError
        raise RunError(f"{path}: cannot be read ({error}); it says which test rows are sealed. Remove it.") from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
