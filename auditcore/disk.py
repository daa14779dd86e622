"""Writing to disk. In: a path, content. Out: a file that is there whole or not at all, and is this user's alone.

Rows are private: folders and files made here have the rights 0700 and 0600, whatever a laxer umask would give; what a
stricter one withholds stays withheld.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd


def make_private(folder: Path) -> Path:
    """Make a folder, and those above it that are missing, for this user alone. One that is there stays as it is."""
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    return folder


def private(path: str, flags: int) -> int:
    """Opener of files for this user alone: open(path, "a", opener=disk.private)."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def all_private() -> Iterator[None]:
    """Whatever this process writes meanwhile is the user's alone, files of other libraries too.

    For a process of one job: the umask belongs to all of its threads.
    """
    before = os.umask(0o077)
    os.umask(before | 0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def atomic(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and rename it over `path`.

    shared: the file gets the rights that any new file gets, instead of being the user's alone.
    """
    # Not ending in the final suffix, so that no glob over *.parquet ever meets a half-written file.
    if shared:
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        make_private(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if not shared:
            os.chmod(temporary, temporary.stat().st_mode & 0o600)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as Parquet (zstd) atomically."""
    with atomic(path) as temporary:
        frame.to_parquet(temporary, index=False, compression="zstd")
