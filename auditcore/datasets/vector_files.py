"""Vectors the user already has. In: a Parquet, npy or safetensors file, and its rows' ids. Out: a float32 matrix.

Nothing is unpickled, and no model is needed. Also the files a run keeps its own vectors in: one safetensors file with
one float32 tensor `vectors`, written and read in place, so that more of them than fit into memory can be worked on.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, did_you_mean
from auditcore.spec import VectorFile


def load_vectors(file: VectorFile, example_ids: pd.Series, id_column: str | None = None) -> np.ndarray:
    """Read vectors float32 [n, width], one per example, in the order of `example_ids`.

    Parquet: `column` is a list column (or the only one); rows are joined by `id_column` when the file has it, else they
    are taken in order. npy (never pickled) and safetensors (`column` names the tensor, or the only one): in order.
    Raises DatasetError: missing file or column, rows of different width, another number of rows, ids without a vector.
    """
    path = Path(file.path)
    if not path.is_file():
        raise DatasetError(f"{path}: no such file.")
    readers = {".parquet": _parquet, ".npy": _npy, ".safetensors": _safetensors}
    if path.suffix.lower() not in readers:
        raise DatasetError(f"{path}: vectors are read from .parquet, .npy or .safetensors files.")
    vectors, ids = readers[path.suffix.lower()](path, file.column, id_column)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number):
        raise DatasetError(f"{path}: expected numbers of shape rows x width, found {vectors.dtype} {vectors.shape}.")
    if not vectors.shape[1]:
        raise DatasetError(f"{path}: vectors of width 0 hold nothing to read a label from.")
    if ids is not None:
        place = pd.Series(np.arange(len(ids)), index=ids)
        if place.index.has_duplicates:
            raise DatasetError(f"{path}: id '{place.index[place.index.duplicated()][0]}' stands there twice.")
        found = place.reindex(example_ids.astype(str))
        if found.isna().any():
            missing = found.index[found.isna()]
            raise DatasetError(
                f"{path}: no vector for {len(missing):,} of {len(found):,} rows, first id '{missing[0]}'."
            )
        vectors = vectors[found.to_numpy(dtype=np.int64)]
    elif len(vectors) != len(example_ids):
        raise DatasetError(
            f"{path}: {len(vectors):,} vectors for {len(example_ids):,} rows; give both an id column, or equal numbers."
        )
    return np.ascontiguousarray(vectors, dtype=np.float32)


def create_vectors(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Make the file and return its tensor to be filled, float32 [n, width], backed by the disk."""
    end = 4 * shape[0] * shape[1]
    header = json.dumps({"vectors": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, end]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    if not end:
        return np.zeros(shape, dtype=np.float32)
    return np.memmap(path, dtype="<f4", mode="r+", offset=8 + len(header), shape=shape)


def open_vectors(path: Path) -> np.ndarray:
    """Return the tensor of a file made by `create_vectors`, read-only, backed by the disk. Raises DatasetError."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            known = json.loads(file.read(min(length, 1 << 20)))["vectors"]
        if known["dtype"] != "F32" or known["data_offsets"][0] != 0:
            raise ValueError("not a float32 tensor")
        if not known["data_offsets"][1]:
            return np.zeros(known["shape"], dtype=np.float32)
        return np.memmap(path, dtype="<f4", mode="r", offset=8 + length, shape=tuple(known["shape"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, MemoryError) as error:
        raise DatasetError(f"{path}: the vectors cannot be read ({error}).") from None


def _parquet(path: Path, column: str | None, id_column: str | None) -> tuple[np.ndarray, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        lists = [f.name for f in schema if pa.types.is_list(f.type) or pa.types.is_fixed_size_list(f.type)]
        name = _choose(path, column, lists, "list column")
        wanted = [name, *([id_column] if id_column in schema.names else [])]
        table = pq.read_table(path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: not a Parquet file that can be read ({error}).") from None
    cells = table[name].combine_chunks()
    if cells.null_count:
        raise DatasetError(f"{path}, column '{name}': {cells.null_count:,} rows have no vector.")
    values = cells.flatten().to_numpy(zero_copy_only=False)
    width = len(values) // max(len(cells), 1)
    lengths = np.full(len(cells), width) if pa.types.is_fixed_size_list(cells.type) else _lengths(cells)
    if (lengths != width).any():
        row = int(np.flatnonzero(lengths != lengths[0])[0])
        raise DatasetError(
            f"{path}, column '{name}': row {row + 1:,} has {lengths[row]:,} numbers, row 1 has {lengths[0]:,}."
        )
    ids = table[id_column].to_pandas().astype(str) if id_column in table.column_names else None
    return values.reshape(len(cells), width), ids


def _lengths(cells: Any) -> np.ndarray:
    return np.diff(cells.offsets.to_numpy(zero_copy_only=False))


def _npy(path: Path, column: str | None, id_column: str | None) -> tuple[np.ndarray, Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), None
    except ValueError as error:
        raise DatasetError(f"{path}: cannot be read without unpickling ({error}).") from None


def _safetensors(path: Path, column: str | None, id_column: str | None) -> tuple[np.ndarray, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as tensors:
            return tensors.get_tensor(_choose(path, column, list(tensors.keys()), "tensor")), None
    except (SafetensorError, TypeError) as error:
        raise DatasetError(f"{path}: cannot be read ({error}); bfloat16 must be saved as float32 first.") from None


def _choose(path: Path, wanted: str | None, known: list[str], what: str) -> str:
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted is None:
        raise DatasetError(f"{path}: has {len(known)} {what}s; name one as vectors.column.{did_you_mean('', known)}")
    if wanted not in known:
        raise DatasetError(f"{path}: has no {what} '{wanted}'.{did_you_mean(wanted, known)}")
    return wanted
