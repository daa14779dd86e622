"""Fixtures of job tests. In: tiny model folders. Out: a temporary AUDIT_HOME, a target with its reference."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AUDIT_HOME", str(tmp_path / "runs"))
    return tmp_path


@pytest.fixture
def pair(tiny_folders, tmp_path) -> tuple[Path, Path]:
    from tests.tiny_models import build_folder

    return build_folder(tmp_path / "target", "llama", seed=5), tiny_folders["llama"]
