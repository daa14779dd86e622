"""Which model is meant. In: what the user wrote (folder, adapter folder, GGUF file, hub id, short name). Out: a Source
and a fingerprint made from the files alone. Imports no torch.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditcore.errors import ModelError, did_you_mean
from auditcore.spec import SHORT_NAMES

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
# Adapters that leave every weight as it is. Measured without its vectors such a model would look like its base.
IN_FRONT = ("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HOW_TO_CONVERT = (
    "Pickled weights can run code when they are opened, so they are never loaded. Convert them once, on a machine "
    "where you trust the file: model = AutoModelForCausalLM.from_pretrained(FOLDER); model.save_pretrained(NEW_FOLDER, "
    "safe_serialization=True); then name the new folder."
)
_WAY_OUT = "Name a local folder that holds config.json, *.safetensors and tokenizer.json."


@dataclass(frozen=True)
class Source:
    """Where a model lies. `path` is None for a hub id; `base` is set for adapters only."""

    text: str  # as the user wrote it
    kind: str  # folder | adapter | gguf | hub | short
    path: Path | None
    base: "Source | None" = None

    def __str__(self) -> str:
        return self.text


def models_home() -> Path:
    """Folder of fetched and converted models: AUDIT_MODELS, else models/ beside the package."""
    named = os.environ.get("AUDIT_MODELS")
    return Path(named).expanduser() if named else Path(__file__).resolve().parents[2] / "models"


def resolve(source: str | Path, base: str | Path | None = None) -> Source:
    """Say what `source` is, without reading weights.

    base: the base model of an adapter, when its own config does not find it.
    Raises ModelError for a missing path, an empty folder, pickled weights, or an adapter without a base.
    """
    text = str(source)
    if text in SHORT_NAMES:
        return Source(text, "short", models_home() / text)
    path = Path(text).expanduser()
    if path.is_file():
        return Source(text, "gguf", path) if _is_gguf_file(path) else _refuse_file(path)
    if path.is_dir():
        if (path / "adapter_config.json").is_file():
            return _resolve_adapter(text, path, base)
        _check_folder(path)
        return Source(text, "folder", path)
    if _HUB_ID.fullmatch(text) and path.suffix.lower() not in (".gguf", ".safetensors", *PICKLED):
        return Source(text, "hub", None)
    way_out = _training_of(path) or f"{_WAY_OUT}{did_you_mean(text, SHORT_NAMES)}"
    raise ModelError(f"{text}: no such file or folder. {way_out}")


def _training_of(path: Path) -> str:
    """How a missing checkpoint of a run (FOLDER/checkpoints/NAME) is made; "" for any other path."""
    if path.parent.name != "checkpoints":
        return ""
    run = path.parent.parent
    if command := making(run):
        return f"It is made by a fine-tuning run: {command}"
    return f"It is a checkpoint that a fine-tuning run writes: run that first, with --out {run}."


def making(run: Path) -> str:
    """The command that makes a run of this name from a spec behind the shipped studies; "" where none has the name."""
    recipe = Path("studies") / f"{run.name}.yaml"
    there = (Path(__file__).resolve().parents[2] / recipe).is_file()
    return f"python -m auditcore run {recipe} --out {run}" if there else ""


def changes_biases(adapter: Source) -> bool:
    """Whether an adapter holds new values for biases of its base, which neither switching it off nor unloading undoes.

    Raises ModelError when its config cannot be read.
    """
    assert adapter.path is not None
    return read_json(adapter.path / "adapter_config.json").get("bias") not in (None, "none")


def fingerprint(source: str | Path | Source, base: str | Path | None = None) -> str:
    """Hash of everything that decides what the model computes: weights, config, tokenizer, and the base of an adapter.

    Returns 64 hexadecimal digits. Same files, same fingerprint, wherever they lie. Raises ModelError like `resolve`.
    """
    found = source if isinstance(source, Source) else resolve(source, base)
    digest = hashlib.sha256()
    if found.kind == "gguf":
        assert found.path is not None
        digest.update(f"gguf {file_sha256(found.path)}".encode())
        return digest.hexdigest()
    for file in _deciding_files(local_folder(found)):
        digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    if found.base is not None:
        digest.update(f"base {fingerprint(found.base)}".encode())
    return digest.hexdigest()


def local_folder(source: Source) -> Path:
    """Folder with the files of a folder, adapter, hub id or short name; fetches the last two when they are not there.

    Raises ModelError when they cannot be fetched; the message says how to name a local folder.
    """
    if source.kind == "short":
        from auditcore.lm.bundled import ensure_bundled

        return ensure_bundled(source.text)
    if source.kind == "hub":
        return _hub_folder(source.text)
    assert source.path is not None
    return source.path


def tokenizer_file(source: str | Path, base: str | Path | None = None) -> Path | None:
    """Path of the tokenizer.json that `source` uses, or None when it has none on disk yet."""
    found = resolve(source, base)
    for place in (found, found.base):
        if place is not None and place.path is not None and (place.path / "tokenizer.json").is_file():
            return place.path / "tokenizer.json"
    return None


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, remembered by path, size and modification time."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _HASHES:
        with path.open("rb") as file:
            _HASHES[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _HASHES[key]


# A memory of pure results, keyed by everything they depend on: not state that anyone can see.
_HASHES: dict[tuple[str, int, int], str] = {}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error}).") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: holds no JSON object.")
    return value


def _deciding_files(folder: Path) -> list[Path]:
    names = {"config.json", "adapter_config.json", *TOKENIZER_FILES}
    return sorted(f for f in folder.iterdir() if f.is_file() and (f.name in names or f.suffix == ".safetensors"))


def _is_gguf_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _refuse_file(path: Path) -> Source:
    if path.suffix.lower() in PICKLED:
        raise ModelError(f"{path}: pickled weights. {_HOW_TO_CONVERT}")
    if path.suffix.lower() == ".gguf":
        raise ModelError(f"{path}: not a GGUF file (its first four bytes are not 'GGUF'); fetch it again.")
    if path.suffix.lower() == ".safetensors":
        raise ModelError(f"{path}: name the folder that holds this file, its config.json and its tokenizer.")
    raise ModelError(f"{path}: not a model. {_WAY_OUT}")


def _check_folder(path: Path) -> None:
    if any(path.glob("*.safetensors")):
        if not (path / "config.json").is_file():
            raise ModelError(f"{path}: has weights but no config.json.")
        return
    pickled = sorted(f.name for f in path.iterdir() if f.suffix.lower() in PICKLED)
    if pickled:
        raise ModelError(f"{path}: holds only pickled weights ({', '.join(pickled[:3])}). {_HOW_TO_CONVERT}")
    gguf = sorted(f.name for f in path.glob("*.gguf"))
    if gguf:
        raise ModelError(f"{path}: name the GGUF file itself, as in {path / gguf[0]}.")
    what = "no *.safetensors in it" if any(path.iterdir()) else "an empty folder"
    raise ModelError(f"{path}: {what}. {_WAY_OUT}")


def _resolve_adapter(text: str, path: Path, base: str | Path | None) -> Source:
    if not (path / "adapter_model.safetensors").is_file():
        pickled = sorted(f.name for f in path.iterdir() if f.suffix.lower() in PICKLED)
        if pickled:
            raise ModelError(f"{path}: the adapter is pickled ({', '.join(pickled[:3])}). {_HOW_TO_CONVERT}")
        raise ModelError(f"{path}: adapter_config.json but no adapter_model.safetensors.")
    config = read_json(path / "adapter_config.json")
    if config.get("peft_type") in IN_FRONT:
        raise ModelError(
            f"{path}: an adapter of type {config['peft_type']} puts learnt vectors in front of every row, which an "
            "audit of the model's own weights would pass by; audit adapters that change weights (LoRA, IA3, OFT ...)."
        )
    named = config.get("base_model_name_or_path")
    wanted = base if base is not None else named
    if not wanted:
        raise ModelError(f"{path}: adapter_config.json names no base model; give it as model.base.")
    # A relative base is meant from the working directory first, then from the adapter's own folder.
    beside = path / str(wanted)
    if base is None and not Path(str(wanted)).expanduser().exists() and beside.is_dir():
        wanted = beside
    try:
        found = resolve(wanted)
    except ModelError as error:
        raise ModelError(f"{path}: base model of the adapter: {error} Or give it as model.base.") from None
    if found.kind == "adapter":
        raise ModelError(f"{path}: its base {found} is an adapter too; merge that one into its own base first.")
    return Source(text, "adapter", path, found)


def _hub_folder(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = ["*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", *TOKENIZER_FILES]
    patterns.append("chat_template.jinja")  # only rows of messages read it, and they hash it themselves
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        if any(folder.glob("*.safetensors")):
            return folder
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns))
    except (OSError, ValueError, RuntimeError) as error:  # offline, unknown name, gated, disk full, bad name
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name}: no local folder of this name, and it cannot be fetched from the model hub ({cause}). "
            f"{_WAY_OUT}{did_you_mean(name, SHORT_NAMES)}"
        ) from None
    _check_folder(folder)
    return folder
