"""The files a run keeps its vectors in. In: a path, a shape. Out: a float32 matrix that is backed by the disk.

One safetensors file with one float32 tensor `vectors`, written and read in place, so that more vectors than fit into
memory can be worked on.
"""

import json
from pathlib import Path

import numpy as np

from auditcore.errors import DatasetError

HEADER = 1 << 20  # bytes of a header, at most


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
    return map_tensor(path, "vectors", ("F32",))


def map_tensor(path: Path, name: str, dtypes: tuple[str, ...] = ("F64", "F32", "F16", "BF16")) -> np.ndarray:
    """Return one tensor of a safetensors file as it lies on disk; bfloat16 as its upper halves, uint16.

    Raises DatasetError for a file that is broken or a tensor of another kind.
    """
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    try:
        start, tensors = read_header(path)
        known = tensors[name]
        if known["dtype"] not in dtypes:
            raise ValueError(f"it holds {known['dtype']}, not {' or '.join(dtypes)}")
        begin, end = known["data_offsets"]
        if begin == end:
            return np.zeros(known["shape"], dtype=kinds[known["dtype"]])
        shape = tuple(int(side) for side in known["shape"])
        return np.memmap(path, dtype=kinds[known["dtype"]], mode="r", offset=start + begin, shape=shape)
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{path}: the vectors cannot be read ({error}).") from None


def read_header(path: Path) -> tuple[int, dict]:
    """Where the data of a safetensors file begins, and what it says of its tensors. Raises ValueError, OSError."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > HEADER * 100:
            raise ValueError("not a safetensors file")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file")
    header.pop("__metadata__", None)
    return 8 + length, header
