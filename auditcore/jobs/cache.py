"""Results of the expensive stages, keyed by content: nothing is computed twice, and nothing is mixed up."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from auditcore import disk, store


def key(**parts: Any) -> str:
    """SHA-256 of the parts as canonical JSON (32 hex digits): model, data, template, layer, truncation, dtype ..."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def load(stage: str, name: str) -> dict[str, np.ndarray] | None:
    """Return the arrays kept under this key, or None. A damaged file counts as absent."""
    path = _path(stage, name)
    try:
        from safetensors.numpy import load_file

        return load_file(path) if path.exists() else None
    except Exception:  # whatever is wrong with a cache file, the cure is to compute again
        path.unlink(missing_ok=True)
        return None


def save(stage: str, name: str, arrays: dict[str, np.ndarray]) -> None:
    """Keep arrays under this key, atomically."""
    from safetensors.numpy import save_file

    with disk.atomic(_path(stage, name)) as temporary:
        save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, temporary)


def folder(stage: str, name: str) -> Path:
    """Folder for results under this key that are written one by one, each atomically."""
    return store.cache() / stage / name


def _path(stage: str, name: str) -> Path:
    return store.cache() / stage / f"{name}.safetensors"
