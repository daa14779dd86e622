"""Vectors the user already has: the same matrix from every format, and clear words for what cannot be read."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from auditcore.datasets.vector_files import create_vectors, list_vectors, load_vectors, open_vectors, vector_notes
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
    refuse("ragged.parquet", "row 2 has 1 numbers, row 1 has 2")
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
    np.save(tmp_path / "brain.npy", X.view(np.uint16).view("V2"))
    refuse("brain.npy", "If these are bfloat16, save them as safetensors or float32")
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


def _load(path, ids=IDS, id_column="id", column=None) -> np.ndarray:
    return load_vectors(VectorFile(path=str(path), column=column), ids, id_column)


def test_every_number_format_becomes_float32(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for kind in (pa.float16(), pa.float32(), pa.float64(), pa.int32(), pa.uint8()):
        for shape in (pa.list_(kind), pa.large_list(kind), pa.list_(kind, 4)):
            cells = pa.array([X[i].astype(kind.to_pandas_dtype()) for i in range(3)], type=shape)
            pq.write_table(pa.table({"v": cells}), tmp_path / "v.parquet")
            got = _load(tmp_path / "v.parquet")
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, X)
    for dtype in (np.float16, np.float32, np.float64, np.int64):
        np.save(tmp_path / "v.npy", X.astype(dtype))
        np.testing.assert_array_equal(_load(tmp_path / "v.npy"), X)


def test_bfloat16_is_read_without_torch(tmp_path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    values = torch.tensor([[1.0, -2.5, 3.25e-3], [1e30, float("nan"), float("inf")]])
    save_torch({"v": values.bfloat16()}, tmp_path / "v.safetensors")
    got = _load(tmp_path / "v.safetensors", pd.Series(["a", "b"]))
    np.testing.assert_array_equal(got, values.bfloat16().float().numpy())
    (one,) = list_vectors(tmp_path / "v.safetensors")
    assert (one.name, one.rows, one.width, one.dtype) == ("v", 2, 3, "bfloat16")


def test_rows_without_a_vector_are_kept_in_their_place_and_counted(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [None, [1.0, 2.0], [3.0, None], None, [1e300, 5.0]]
    for shape in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2)):
        pq.write_table(pa.table({"v": pa.array(rows, type=shape)}), tmp_path / "v.parquet", row_group_size=2)
        got = _load(tmp_path / "v.parquet", pd.Series(list("abcde")))
        expected = np.array([[np.nan] * 2, [1, 2], [3, np.nan], [np.nan] * 2, [np.inf, 5]], dtype=np.float32)
        np.testing.assert_array_equal(got, expected)
    assert vector_notes(got, pd.Series(list("abcde"))) == [
        "4 of 5 vectors hold NaN or infinity (first: row 1, id 'a'; row 3, id 'c'; row 4, id 'd'); "
        "their rows are left out.",
        "2 of 2 dimensions are the same in every row and tell nothing.",
    ]
    assert vector_notes(X, IDS) == []


def test_batches_and_row_groups_do_not_matter(tmp_path, monkeypatch) -> None:
    from auditcore.datasets import vector_files

    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    ids = np.random.default_rng(1).permutation(50)
    pd.DataFrame({"row": ids, "a.b": list(values)}).to_parquet(tmp_path / "v.parquet", row_group_size=7)
    monkeypatch.setattr(vector_files, "BATCH", 4)
    got = _load(tmp_path / "v.parquet", pd.Series([str(i) for i in range(50)]), "row", "a.b")
    np.testing.assert_array_equal(got[ids], values)


def test_what_a_file_holds_is_told_from_its_header(tmp_path) -> None:
    frame = pd.DataFrame({"e": list(X), "tags": [["x"], ["y"], []], "n": [1, 2, 3], "f": list(X[:, :2])})
    frame.to_parquet(tmp_path / "v.parquet")
    assert [(v.name, v.rows, v.dtype) for v in list_vectors(tmp_path / "v.parquet")] == [
        ("e", 3, "float32"),
        ("f", 3, "float32"),
    ]
    with pytest.raises(DatasetError, match=r"has 2 list columns of numbers; name one as vectors\.column"):
        _load(tmp_path / "v.parquet")
    with pytest.raises(DatasetError, match="Did you mean 'f'"):
        _load(tmp_path / "v.parquet", column="F")
    save_file({"ids": np.arange(3), "v": X}, tmp_path / "v.safetensors")
    assert [v.name for v in list_vectors(tmp_path / "v.safetensors")] == ["v"]
    np.testing.assert_array_equal(_load(tmp_path / "v.safetensors"), X)
    save_file({"ids": np.arange(3)}, tmp_path / "none.safetensors")
    with pytest.raises(DatasetError, match="floating-point numbers of shape rows x width"):
        _load(tmp_path / "none.safetensors")
    frame[["n"]].to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DatasetError, match="has no list column of numbers"):
        _load(tmp_path / "none.parquet")
    pd.DataFrame({"e": [[], [], []]}).astype(object).assign(e=[np.zeros(0)] * 3).to_parquet(tmp_path / "zero.parquet")
    with pytest.raises(DatasetError, match="width 0"):
        _load(tmp_path / "zero.parquet")
    np.savez(tmp_path / "v.npz.npy", X)
    (tmp_path / "v.npz.npy.npz").rename(tmp_path / "zip.npy")
    with pytest.raises(DatasetError, match=r"rows x width|without unpickling"):
        _load(tmp_path / "zip.npy")
