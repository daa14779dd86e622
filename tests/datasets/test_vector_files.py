"""Vectors the user already has: the same matrix from every format, and clear words for what cannot be read."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from auditcore.datasets.vector_files import create_vectors, load_vectors, open_vectors
from auditcore.errors import DatasetError
from auditcore.spec import VectorFile

IDS = pd.Series(["a", "b", "c"])
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_every_format_gives_the_same_matrix(tmp_path) -> None:
    pd.DataFrame({"id": ["c", "a", "b"], "e": list(X[[2, 0, 1]])}).to_parquet(tmp_path / "v.parquet")
    np.save(tmp_path / "v.npy", X.astype(np.float64))
    save_file({"vectors": X.astype(np.float16)}, tmp_path / "v.safetensors")
    for name in ("v.parquet", "v.npy", "v.safetensors"):
        got = load_vectors(VectorFile(path=str(tmp_path / name)), IDS, "id")
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, X)


def test_what_cannot_be_read_is_said(tmp_path) -> None:
    def refuse(name: str, words: str, column: str | None = None, ids: pd.Series = IDS) -> None:
        with pytest.raises(DatasetError, match=words):
            load_vectors(VectorFile(path=str(tmp_path / name), column=column), ids, "id")

    pd.DataFrame({"id": ["a", "b", "c"], "e": [[1.0, 2.0], [1.0], [1.0, 2.0]]}).to_parquet(tmp_path / "ragged.parquet")
    refuse("ragged.parquet", "row 2 has 1 numbers")
    pd.DataFrame({"id": ["a", "b", "b"], "e": list(X)}).to_parquet(tmp_path / "twice.parquet")
    refuse("twice.parquet", "stands there twice")
    pd.DataFrame({"id": ["a", "b", "x"], "e": list(X)}).to_parquet(tmp_path / "other.parquet")
    refuse("other.parquet", "no vector for 1 of 3 rows, first id 'c'")
    refuse("other.parquet", "no list column 'f'", column="f")
    np.save(tmp_path / "pickled.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    refuse("pickled.npy", "unpickling")
    np.save(tmp_path / "short.npy", X[:2])
    refuse("short.npy", "2 vectors for 3 rows")
    np.save(tmp_path / "flat.npy", X[0])
    refuse("flat.npy", "shape rows x width")
    np.save(tmp_path / "empty.npy", X[:, :0])
    refuse("empty.npy", "width 0")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    refuse("broken.parquet", "not a Parquet file")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing at all")
    refuse("broken.safetensors", "cannot be read")
    refuse("missing.npy", "no such file")
    (tmp_path / "v.pkl").write_bytes(b"x")
    refuse("v.pkl", "are read from")


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4)])
def test_a_runs_own_file_is_plain_safetensors(tmp_path, shape) -> None:
    from safetensors.numpy import load_file

    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    array = create_vectors(tmp_path / "v.safetensors", shape)
    array[:] = values
    if isinstance(array, np.memmap):
        array.flush()
    np.testing.assert_array_equal(load_file(tmp_path / "v.safetensors")["vectors"], values)
    np.testing.assert_array_equal(open_vectors(tmp_path / "v.safetensors"), values)
    save_file({"vectors": values}, tmp_path / "other.safetensors")
    np.testing.assert_array_equal(open_vectors(tmp_path / "other.safetensors"), values)


@pytest.mark.parametrize("content", [b"", b"nothing at all", b"\xff" * 64], ids=["empty", "text", "ff"])
def test_a_broken_file_of_a_run_is_said(tmp_path, content) -> None:
    (tmp_path / "v.safetensors").write_bytes(content)
    with pytest.raises(DatasetError, match="cannot be read"):
        open_vectors(tmp_path / "v.safetensors")
