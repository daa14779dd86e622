"""A run in; which model and which data it speaks of, out. Two runs are about one thing only where both agree.

A model is known by its fingerprint (its weights), data by the hash of their file; names are for reading only.
"""

from dataclasses import dataclass
from pathlib import Path

from auditcore.store import Run
from auditcore.words import shorten


@dataclass(frozen=True)
class Subject:
    """What an audit is about. Two are equal where model and data are the same; the names do not count."""

    model_key: str
    data_key: str
    model: str  # as a reader knows it
    data: str

    @property
    def key(self) -> tuple[str, str]:
        """Equal where numbers may be said of one model on one data set."""
        return self.model_key, self.data_key

    @property
    def line(self) -> str:
        """Model and data in one line, for a card."""
        return f"{self.model} · {self.data}"


def of(run: Run) -> Subject:
    """Say what a run is about. A run that trains a mitigation speaks of its own model, never of the one it began with.

    Given vectors whose model nobody named are a model of their own.
    """
    manifest = run.manifest
    spec, prints = manifest["spec"], manifest.get("fingerprints") or {}
    path = str(spec["data"]["path"])
    data_key = str(prints.get("data") or (manifest.get("data") or {}).get("sha256") or path)
    given = (spec.get("vectors") or {}).get("path")
    source = (spec.get("model") or {}).get("source") or (spec.get("checkpoints") or {}).get("base")
    key = str(prints.get("model") or source)
    model = shorten(source or "a model", 48)
    if given:
        model, key = f"given vectors {shorten(Path(given).name, 40)}, model not named", f"vectors {given}"
    elif spec["kind"] in ("surfacelora", "frontier"):
        how = "further training"
        if spec["kind"] == "surfacelora":
            how = "SurfaceLoRA" if spec["lambda"] else "plain LoRA"  # lambda 0 pulls at no vector
        model, key = f"{model} after {how} ({shorten(spec.get('name') or run.id, 40)})", f"{key} trained in {run.id}"
    return Subject(key, data_key, model, shorten(Path(path).name, 40))
