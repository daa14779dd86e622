"""Vectors the user already has. In: a Parquet, npy or safetensors file, and its rows' ids. Out: a float32 matrix.

Nothing is unpickled, and no model is needed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.datasets.vector_store import create_vectors, map_tensor, open_vectors, read_header
from auditcore.errors import DatasetError, did_you_mean
from auditcore.spec import VectorFile

__all__ = [
    "Vectors",
    "choose_vectors",
    "create_vectors",
    "list_vectors",
    "load_vectors",
    "open_vectors",
    "vector_notes",
]

SUFFIXES = (".parquet", ".npy", ".safetensors")
BATCH = 8192  # rows of a Parquet file in memory at once, beside the matrix


@dataclass(frozen=True)
class Vectors:
    """One set of vectors in a file, as its header tells: column or tensor name, rows, width (0 = not told), dtype."""

    name: str | None
    rows: int
    width: int
    dtype: str


def list_vectors(path: str | Path) -> list[Vectors]:
    """Say what a file holds that could be vectors, without reading them. Raises DatasetError for a file of no use."""
    path = Path(path)
    if not path.is_file():
        raise DatasetError(f"{path}: no such file.")
    if path.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{path}: vectors are read from .parquet, .npy or .safetensors files.")
    readers = {".parquet": _list_parquet, ".npy": _list_npy, ".safetensors": _list_safetensors}
    return readers[path.suffix.lower()](path)


def choose_vectors(path: str | Path, column: str | None) -> Vectors:
    """The set of vectors a spec means: `column`, or the only one. Raises DatasetError ("did you mean")."""
    found = list_vectors(path)
    known = [v.name for v in found if v.name is not None]
    what = "list column" if Path(path).suffix.lower() == ".parquet" else "tensor"
    if not found:
        raise DatasetError(f"{path}: has no {what} of numbers.")
    if found[0].name is None or (column is None and len(found) == 1):
        return found[0]
    if column is None:
        raise DatasetError(
            f"{path}: has {len(found)} {what}s of numbers; name one as vectors.column.{did_you_mean('', known)}"
        )
    for one in found:
        if one.name == column:
            return one
    raise DatasetError(f"{path}: has no {what} '{column}'.{did_you_mean(column, known)}")


def load_vectors(file: VectorFile, example_ids: pd.Series, id_column: str | None = None) -> np.ndarray:
    """Read vectors float32 [n, width], one per example, in the order of `example_ids`.

    Parquet: `column` is a list column (or the only one); rows are joined by `id_column` when the file has it, else they
    are taken in order. npy (never pickled) and safetensors (`column` names the tensor, or the only one): in order.
    float64, float16, bfloat16 and whole numbers become float32; a row without a vector, or with a number that is
    missing, becomes NaN or infinite there, and is left out (and counted) by whoever reads a label from it.
    Raises DatasetError: missing file or column, rows of different width, another number of rows, ids without a vector.
    """
    path = Path(file.path)
    chosen = choose_vectors(path, file.column)
    if path.suffix.lower() == ".parquet":
        vectors, ids = _read_parquet(path, chosen, id_column)
    else:
        vectors, ids = _read_array(path, chosen), None
    if not vectors.shape[1]:
        raise DatasetError(f"{path}: vectors of width 0 hold nothing to read a label from.")
    if ids is not None:
        return vectors[_places(path, ids, example_ids)]
    if len(vectors) != len(example_ids):
        raise DatasetError(
            f"{path}: {len(vectors):,} vectors for {len(example_ids):,} rows; give both an id column, or equal numbers."
        )
    return vectors


def vector_notes(vectors: np.ndarray, example_ids: pd.Series) -> list[str]:
    """What a page must say of a matrix of vectors: rows that hold no number (the first by name), constant columns."""
    finite = np.isfinite(vectors).all(axis=1)
    notes = []
    if not finite.all():
        bad = np.flatnonzero(~finite)
        which = "; ".join(f"row {at + 1:,}, id '{str(example_ids.iloc[at])[:40]}'" for at in bad[:3])
        rest = f"{'first: ' if len(bad) > 3 else ''}{which}"
        hold, theirs = ("holds", "its row is") if len(bad) == 1 else ("hold", "their rows are")
        notes.append(f"{len(bad):,} of {len(vectors):,} vectors {hold} NaN or infinity ({rest}); {theirs} left out.")
    some = vectors[finite]
    constant = int((some.min(axis=0) == some.max(axis=0)).sum()) if len(some) else 0
    if constant:
        notes.append(f"{constant:,} of {vectors.shape[1]:,} dimensions are the same in every row and tell nothing.")
    return notes


def _places(path: Path, ids: pd.Series, example_ids: pd.Series) -> np.ndarray:
    place = pd.Series(np.arange(len(ids)), index=pd.Index(ids))
    if place.index.has_duplicates:
        raise DatasetError(f"{path}: id '{place.index[place.index.duplicated()][0]}' stands there twice.")
    found = place.reindex(example_ids.astype(str))
    if found.isna().any():
        missing = found.index[found.isna()]
        raise DatasetError(f"{path}: no vector for {len(missing):,} of {len(found):,} rows, first id '{missing[0]}'.")
    return found.to_numpy(dtype=np.int64)


def _single(values: np.ndarray) -> np.ndarray:
    """float32; what is too large for it becomes infinite, and is counted with the rest that is not finite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


# --- Parquet ---


def _list_parquet(path: Path) -> list[Vectors]:
    import pyarrow as pa

    file = _open_parquet(path)
    found = []
    for field in file.schema_arrow:
        kind = field.type
        fixed = pa.types.is_fixed_size_list(kind)
        if not (fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            continue
        inner = kind.value_type
        if pa.types.is_floating(inner) or pa.types.is_integer(inner):
            width = kind.list_size if fixed else 0
            dtype = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(inner), str(inner))
            found.append(Vectors(field.name, file.metadata.num_rows, width, dtype))
    return found


def _open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: not a Parquet file that can be read ({error}).") from None


def _read_parquet(path: Path, chosen: Vectors, id_column: str | None) -> tuple[np.ndarray, pd.Series | None]:
    """Fill the matrix batch by batch: beside it stands no second copy of the column."""
    import pyarrow as pa

    file = _open_parquet(path)
    with_ids = id_column is not None and id_column in file.schema_arrow.names
    wanted = [str(chosen.name), *([str(id_column)] if with_ids else [])]
    vectors, ids, done = np.zeros((0, 0), dtype=np.float32), [], 0
    try:
        for batch in file.iter_batches(BATCH, columns=wanted):
            numbers, held = _rows_of(path, chosen, batch.column(chosen.name), done)
            if held.any() and not vectors.size:
                vectors = np.full((chosen.rows, numbers.shape[1]), np.nan, dtype=np.float32)
            if held.any() and numbers.shape[1] != vectors.shape[1]:
                row = done + int(np.flatnonzero(held)[0]) + 1
                raise DatasetError(
                    f"{path}, column '{chosen.name}': row {row:,} has {numbers.shape[1]:,} numbers, earlier rows have "
                    f"{vectors.shape[1]:,}."
                )
            if held.any():
                vectors[done : done + len(held)][held] = numbers
            if with_ids:
                ids.append(batch.column(id_column).to_pandas().astype(str))
            done += len(held)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: not a Parquet file that can be read ({error}).") from None
    if not vectors.size:
        raise DatasetError(f"{path}, column '{chosen.name}': vectors of width 0, or none at all, hold no label.")
    return vectors, pd.concat(ids, ignore_index=True) if ids else None


def _rows_of(path: Path, chosen: Vectors, cells: Any, before: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers float32 [rows with a vector, width], and bool [rows]: which rows have one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    held = pc.is_valid(cells).to_numpy(zero_copy_only=False).astype(bool)
    values = _single(pc.list_flatten(cells).to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_list(cells.type):
        lengths = np.full(int(held.sum()), cells.type.list_size)
    else:
        lengths = pc.list_value_length(cells).drop_null().to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        at = np.flatnonzero(held)[int(np.flatnonzero(lengths != width)[0])]
        first = np.flatnonzero(held)[0]
        raise DatasetError(
            f"{path}, column '{chosen.name}': row {before + at + 1:,} has "
            f"{int(lengths[np.flatnonzero(lengths != width)[0]]):,} numbers, row {before + first + 1:,} has {width:,}."
        )
    return values.reshape(int(held.sum()), width), held


# --- npy, safetensors ---


def _list_npy(path: Path) -> list[Vectors]:
    array = _open_npy(path)
    return [Vectors(None, array.shape[0], array.shape[1], str(array.dtype))]


def _open_npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DatasetError(f"{path}: cannot be read without unpickling ({error}).") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        shape, dtype = getattr(array, "shape", ""), getattr(array, "dtype", type(array).__name__)
        # npy has no name for bfloat16: it is stored as two bytes of nothing in particular.
        hint = " If these are bfloat16, save them as safetensors or float32." if str(dtype) == "|V2" else ""
        raise DatasetError(f"{path}: expected numbers of shape rows x width, found {dtype} {shape}.{hint}")
    return array


def _list_safetensors(path: Path) -> list[Vectors]:
    try:
        tensors = read_header(path)[1]
        found = [(name, t["dtype"], list(t["shape"])) for name, t in tensors.items()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: cannot be read ({error}).") from None
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    usable = [(n, d, s) for n, d, s in found if len(s) == 2 and d in names]
    if not usable and found:
        name, dtype, shape = found[0]
        raise DatasetError(
            f"{path}: expected floating-point numbers of shape rows x width, found {dtype} {tuple(shape)} in '{name}'."
        )
    return [Vectors(n, int(s[0]), int(s[1]), names[d]) for n, d, s in usable]


def _read_array(path: Path, chosen: Vectors) -> np.ndarray:
    if path.suffix.lower() == ".npy":
        return _single(_open_npy(path))
    tensor = map_tensor(path, str(chosen.name))
    if chosen.dtype != "bfloat16":
        return _single(tensor)
    # The upper half of a float32: its lower half is 0.
    return (np.asarray(tensor).astype(np.uint32) << 16).view(np.float32)
