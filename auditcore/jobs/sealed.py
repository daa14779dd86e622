"""Test rows that wait for a declaration. In: data sets and runs. Out: a refusal, or an entry in the ledger.

A run that trains or compares checkpoints seals its bal_test rows. Until that run is locked (what is promised is on
record), no run extracts vectors of these rows or generates from them; every run that looks afterwards is entered in a
ledger, keyed by the hash of the rows, so that a reader can count how often a test set was used.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore import records, store
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
    store.write_parquet(file_of(run), frame)
    return split_key(frame["print"].tolist())


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
    waiting = [frame for frame in map(_read, sorted(_folder().glob("*.parquet"))) if frame is not None]
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
            name = Path(frame["run"].iloc[0]).name
            first = ids.iloc[int(met.argmax())]
            raise RunError(
                f"{counted(int(met.sum()), 'row')} (first '{first}') of the test rows that run {name} keeps sealed "
                f"until its choice of a checkpoint is declared would be read. Lock it first (python -m auditcore "
                f"reveal {name}, or the page Checkpoint frontier), delete that run, or leave its test rows out."
            )


def enter_ledger(run: Run, prints: Sequence[str]) -> dict[str, Any]:
    """Note that `run` looks at these test rows; returns their hash and how many other runs looked before."""
    key = split_key(prints)
    return {"hash": key, "earlier_looks": store.enter_ledger(store.home() / "ledger.jsonl", key, run.id)}


def _folder() -> Path:
    return store.home() / "sealed"


def _read(path: Path) -> pd.DataFrame | None:
    """Rows that are still sealed by one run; None when it is locked or gone, or has no test rows."""
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors derive from ValueError
        raise RunError(f"{path}: cannot be read ({error}); it says which test rows are sealed. Remove it.") from None
    if frame.empty or not (Path(frame["run"].iloc[0]) / store.MANIFEST).exists():
        return None
    return None if records.read(Run(Path(frame["run"].iloc[0])), "lock") else frame


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
