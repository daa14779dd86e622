"""Uploads: kept when they can be read, gone when they cannot; errors use the user's own file name."""

from pathlib import Path

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
