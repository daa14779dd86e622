"""Uploads: kept when they can be read, gone when they cannot; errors use the user's own file name."""

import io
from pathlib import Path

import numpy as np
import pytest

from auditcore import store
from auditcore.errors import DatasetError
from pages import _data as data
from pages._form import default_name
from pages._uploads import in_user_names


def files(home: Path) -> list[str]:
    return sorted(p.name for p in (home / "uploads").iterdir())


def test_a_refused_upload_is_not_kept_and_is_named_as_the_user_named_it(home: Path) -> None:
    with pytest.raises(DatasetError, match=r"my notes\.csv.*It was not kept") as caught:
        data.keep_upload("my notes.csv", b'a,b\n1,"never closed\n')
    assert "uploads" not in str(caught.value)
    assert files(home) == []


def test_an_upload_is_kept_for_the_user_alone_under_a_name_of_its_own(home: Path) -> None:
    path = data.keep_upload("my notes.csv", b"text,sex\nhello,F\nworld,M\n")
    assert files(home) == [Path(path).name]
    assert data.uploads() == {path: "uploaded: my notes.csv"}  # known in a later session too
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert (store.home() / "uploads").stat().st_mode & 0o777 == 0o700
    assert in_user_names(f"{path}: row 3 is wrong") == "my notes.csv: row 3 is wrong"
    spec = {"model": {"source": "smollm2-135m"}, "data": {"path": path}}
    assert default_name("vectors", spec) == "my notes · smollm2-135m · vectors"
    Path(path).unlink()
    data.keep_upload("other.csv", b"text,sex\nhi,F\nall,M\n")
    assert in_user_names(path) == path  # forgotten with its file


def test_vectors_are_kept_apart_from_rows_and_refused_when_they_are_none(home: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 2), dtype=np.float32))
    path = data.keep_upload("mine.NPY", file.getvalue(), vectors=True)
    assert data.uploads(vectors=True) == {path: "uploaded: mine.NPY"}
    assert data.uploads() == {}
    with pytest.raises(DatasetError, match=r"mine\.npy: cannot be read without unpickling .*It was not kept"):
        data.keep_upload("mine.npy", b"x", vectors=True)
    with pytest.raises(DatasetError, match=r"upload vectors as a \.parquet, \.npy or \.safetensors"):
        data.keep_upload("mine.csv", b"a,b\n1,2\n", vectors=True)
    assert files(home) == [Path(path).name]
