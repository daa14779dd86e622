"""Vectors the user already has. In: a vectors spec and its rows. Out: the rows with a usable vector; one artifact."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs.rows import Rows
from auditcore.spec import VectorsSpec


def usable(spec: VectorsSpec, dataset: Any) -> tuple[Any, np.ndarray | None, list[str]]:
    """The rows whose vector holds finite numbers only, their vectors float32 [n, width], and words for the others.

    Left out here, before subjects are dealt into splits: a split counts what is used. A spec with a model keeps every
    row, and has no vectors yet (None).
    """
    if spec.vectors is None:
        return dataset, None, []
    from auditcore.datasets.vector_files import load_vectors, vector_notes

    array = load_vectors(spec.vectors, dataset.frame["example_id"], spec.data.column("id"))
    notes = [
        f"{len(array):,} vectors of {array.shape[1]:,} numbers.",
        *vector_notes(array, dataset.frame["example_id"]),
    ]
    finite = np.isfinite(array).all(axis=1)
    if not finite.any():
        raise DatasetError(f"{spec.vectors.path}: every one of {len(array):,} vectors holds NaN or infinity.")
    if not finite.all():
        dataset, array = dataset.select(np.flatnonzero(finite)), array[finite]
    return dataset, array, notes


def artifact(spec: VectorsSpec, array: np.ndarray, ids: pd.Series, rows: Rows) -> dict[tuple[str, int], np.ndarray]:
    """The vectors of the rows that take part, as the only artifact, layer 0. ids: example_id of every row of array."""
    assert spec.vectors is not None
    place = pd.Series(np.arange(len(array)), index=ids)
    name = spec.vectors.column or Path(spec.vectors.path).stem
    return {(name, 0): array[place.loc[rows.frame["example_id"]].to_numpy()]}
