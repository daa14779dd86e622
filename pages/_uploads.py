"""What uploaded files are called. In: a name of the user's, words with a path. Out: the words with the user's name."""

import json
import re
from pathlib import Path

from auditcore import disk, store

KEPT = re.compile(r"[0-9a-f]{24}\.")  # how the name of a kept file begins: its content's hash


def folder() -> Path:
    """Where uploads are kept, each under a name made of its content."""
    return store.home() / "uploads"


def names() -> dict[str, str]:
    """Name of a kept file -> what the user called it."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(kept): str(called) for kept, called in found.items()} if isinstance(found, dict) else {}


def remember(path: Path, name: str) -> None:
    """Note what the user called a file that is kept; what was deleted meanwhile is forgotten."""
    known = {kept: called for kept, called in names().items() if (folder() / kept).exists()}
    disk.write_json(_file(), {**known, path.name: name})


def in_user_names(text: str) -> str:
    """The same words with uploaded files called as the user called them, not by the path they are kept under."""
    if not KEPT.search(text):  # said of every card and error: the list is read only where a kept name stands
        return text
    for kept, called in names().items():
        if kept in text:
            text = text.replace(str(folder() / kept), called).replace(kept, called)
    return text


def _file() -> Path:
    return store.home() / "upload-names.json"
