"""Folders of adapters. In: a folder, a base model. Out: which adapters fit that base, and why the others do not.

Asked of files alone: no torch, no weights read. What only loading can tell, `lm.load.with_adapter` says later.
"""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditcore.errors import ModelError
from auditcore.lm.sources import Source, changes_biases, fingerprint, local_folder, read_json, resolve, tokenizer_file
from auditcore.spec import SHORT_NAMES

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_LORA = re.compile(r"(.+)\.lora_(A|B)(?:\.[^.]+)?\.weight")


@dataclass(frozen=True)
class Candidate:
    """One folder that may hold an adapter."""

    name: str
    path: Path
    reason: str | None  # why it cannot be used; None: as far as its files tell, it fits


def find_adapters(folder: str | Path, base: str, check_base: bool = True) -> list[Candidate]:
    """Look at every folder inside `folder`, in natural order of their names, `last` and `best` behind.

    base: the model they should belong to. check_base: refuse an adapter whose config names another one. An adapter
    equal to an earlier one is named as such. Raises ModelError when there is no such folder or it holds no folders.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ModelError(f"checkpoints.folder: there is no folder {place}.")
    if (place / _CONFIG).is_file():
        raise ModelError(f"checkpoints.folder: {place} is an adapter itself; name the folder that holds it.")
    inside = [p for p in place.iterdir() if p.is_dir() and not p.name.startswith(".")]
    # Trainers keep copies under these names: the original's own name says more.
    folders = sorted(inside, key=lambda p: (p.name in ("last", "best"), natural(p.name)))
    if not folders:
        raise ModelError(f"checkpoints.folder: {place} holds no folders; each adapter needs one of its own.")
    target = resolve(base)
    if target.kind == "adapter":
        raise ModelError(f"checkpoints.base: {base} is an adapter itself; name the model it belongs to.")
    shapes = _shapes(target)
    found, seen = [], dict[str, str]()
    for path in folders:
        reason = _misfit(path, target, shapes, check_base)
        if reason is None:
            print_ = fingerprint(path, base)
            reason = f"the same adapter as '{seen[print_]}'" if print_ in seen else None
            seen.setdefault(print_, path.name)
        found.append(Candidate(path.name, path, reason))
    return found


def natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key: numbers by their value, so that step-2 comes before step-10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.findall(r"\d+|\D+", name)]


def _misfit(path: Path, base: Source, shapes: dict[str, tuple[int, ...]] | None, check_base: bool) -> str | None:
    if not (path / _CONFIG).is_file():
        return f"no {_CONFIG} in it"
    try:
        config = read_json(path / _CONFIG)
        biased = changes_biases(resolve(path, base.text))
        header = _header(path / _WEIGHTS)
    except ModelError as error:
        return str(error)
    named = str(config.get("base_model_name_or_path") or "")
    if check_base and named and not _same_base(named, path, base):
        return f"it names another base, {named}; with check_base: false it is taken if it fits"
    if biased:
        return "it changes biases of the base too, which would stay changed for the adapters behind it; audit it alone"
    return _wrong_shape(header, shapes) or _wrong_tokenizer(path, base)


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor in a safetensors file. Raises ModelError when the file is damaged."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > path.stat().st_size:
                raise ValueError("its header is cut")
            entries: dict[str, Any] = json.loads(file.read(length))
        found = {name: e for name, e in entries.items() if name != "__metadata__"}
        end = max((int(e["data_offsets"][1]) for e in found.values()), default=0)
        if not found or 8 + length + end != path.stat().st_size:
            raise ValueError("its length is not what its header says")
        return {name: tuple(int(n) for n in e["shape"]) for name, e in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(f"{path.name} is damaged ({error})") from None


def _same_base(named: str, path: Path, base: Source) -> bool:
    """Whether a config's base is this one: by name, or by content where it lies on this machine."""
    if _bare(named) in {_bare(base.text), *_aliases(base)}:
        return True
    for place in (named, str(path / named)):
        if Path(place).expanduser().exists() or place in SHORT_NAMES:
            try:
                return fingerprint(place) == fingerprint(base)
            except ModelError:
                return False
    return False


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.rstrip("/").rsplit("/", 1)[-1].lower())


def _aliases(base: Source) -> set[str]:
    """Other names of a bundled model: the first word of what it is called."""
    return {_bare(SHORT_NAMES[base.text].split()[0])} if base.text in SHORT_NAMES else set()


def _shapes(base: Source) -> dict[str, tuple[int, ...]] | None:
    """Name -> shape of the base's weights; None where they cannot be read without loading them."""
    if base.kind == "gguf":
        return None
    found: dict[str, tuple[int, ...]] = {}
    for file in local_folder(base).glob("*.safetensors"):
        found |= _header(file)
    return found


def _wrong_shape(header: dict[str, tuple[int, ...]], shapes: dict[str, tuple[int, ...]] | None) -> str | None:
    lora = list(_lora_maps(header))
    if not lora:
        return "it holds no LoRA weights"
    if shapes is None:
        return None
    # Bases differ in how their files prefix a name ("model.", "transformer."); the rest of it is the module's own.
    known = {name.removesuffix(".weight"): shape for name, shape in shapes.items() if name.endswith(".weight")}
    for module, side, size in lora:
        shape = next((known[n] for n in _spellings(module) if n in known), None)
        if shape is None:
            return f"the base has no module {module}"
        if size not in shape:  # some architectures store their maps transposed
            what = "reads" if side == "A" else "writes"
            return f"it {what} {size} numbers at {module}, where the base has {' x '.join(map(str, shape))}"
    return None


def _lora_maps(header: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, str, int]]:
    for name, shape in header.items():
        match = _LORA.fullmatch(name.removeprefix(_PREFIX))
        if match and len(shape) == 2:
            yield match[1], match[2], shape[1] if match[2] == "A" else shape[0]


def _spellings(module: str) -> Iterator[str]:
    yield module
    _, _, rest = module.partition(".")
    if rest:
        yield rest
    yield f"model.{module}"
    yield f"transformer.{module}"


def _wrong_tokenizer(path: Path, base: Source) -> str | None:
    """Rows are cut into tokens once, for every adapter: one that cuts otherwise would be given another text."""
    own, theirs = path / "tokenizer.json", tokenizer_file(base.text)
    if not own.is_file() or theirs is None:
        return None
    try:
        one, two = read_json(own), read_json(theirs)
    except ModelError as error:
        return str(error)
    # Truncation and padding are settings of whoever saved it, and a further token (for padding, say) cuts no text.
    same = all(_plain(one.get(k)) == _plain(two.get(k)) for k in ("model", "pre_tokenizer", "normalizer"))
    same = same and _added(two) <= _added(one)
    return None if same else "it has a tokenizer of its own that differs from the base's"


def _plain(part: Any) -> Any:
    """Without what is off anyway, and merges in one of the two ways in which files write them."""
    if isinstance(part, dict):
        kept = {k: _plain(v) for k, v in part.items() if k != "merges" and v not in (None, False, "", [])}
        return kept | {"merges": [m if isinstance(m, str) else " ".join(m) for m in part.get("merges") or []]}
    return part


def _added(tokenizer: dict[str, Any]) -> set[tuple[int, str]]:
    return {(int(t["id"]), str(t["content"])) for t in tokenizer.get("added_tokens") or []}
