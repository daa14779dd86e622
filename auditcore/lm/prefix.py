"""The lower layers of a model that training leaves alone. In: rows of ids. Out: their hidden states, computed once.

Where only the upper layers carry an adapter, what goes into the lowest of them never changes: it is computed row by
row, alone and unpadded (so that it is the same whichever batch asks), and kept. A later pass of the body starts there.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditcore.lm.vectors import blocks_of

_SHARD_BYTES = 128 * 2**20  # states in memory before they are written to a file


class Kept:
    """Hidden states float32 [length, width] by row, in files below `folder`, or in memory alone where that is None."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.fresh: dict[str, np.ndarray] = {}
        self.size = 0  # bytes of `fresh`
        self.files: dict[str, Any] = {}  # row -> open file that holds it
        for path in sorted(folder.glob("*.safetensors")) if folder is not None else []:
            self._open(path)

    def get(self, name: str) -> np.ndarray | None:
        """The states of a row, or None where they are not known yet."""
        if name in self.fresh:
            return self.fresh[name]
        return self.files[name].get_tensor(name) if name in self.files else None

    def put(self, name: str, states: np.ndarray) -> None:
        """Keep the states of a row; they are on disk after the next `flush`, which comes by itself now and then."""
        self.fresh[name] = states
        self.size += states.nbytes
        if self.folder is not None and self.size >= _SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is not on disk yet, as one more file."""
        from safetensors.numpy import save_file

        if self.folder is None or not self.fresh:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{uuid.uuid4().hex}.safetensors"
        temporary = path.with_suffix(".tmp")
        save_file(self.fresh, temporary)
        os.replace(temporary, path)
        self.fresh, self.size = {}, 0
        self._open(path)

    def _open(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            file = safe_open(path, framework="numpy")
        except (SafetensorError, OSError):  # a damaged file counts as absent
            path.unlink(missing_ok=True)
            return
        self.files |= dict.fromkeys(file.keys(), file)


def may_keep(causal: Any, below: int) -> bool:
    """Whether the input of layer `below` follows from the ids alone: float32, no adapter and no dropout before it."""
    blocks = blocks_of(causal.base_model)
    if not 0 < below < len(blocks) or causal.get_input_embeddings().weight.dtype != torch.float32:
        return False
    upper = {id(m) for block in blocks[below:] for m in block.modules()}
    lower = [m for m in causal.base_model.modules() if id(m) not in upper]
    if any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in lower):
        return False
    if getattr(causal.config.get_text_config(), "attention_dropout", 0.0):
        return False
    return not any("lora_" in name for block in blocks[:below] for name, _ in block.named_modules())


class Prefix:
    """Stands in for the layers below `below` of a causal model, for as long as the model lives.

    Passes that it cannot serve run as ever: with a cache of keys and values (generation), padded on the left, under
    autocast, or without a mask where nobody has said how long the rows are.
    """

    def __init__(self, causal: Any, below: int, kept: Kept) -> None:
        assert may_keep(causal, below)
        self.body, self.below, self.kept = causal.base_model, below, kept
        self.blocks = blocks_of(self.body)
        self.lengths: Sequence[int] | None = None
        self.states: torch.Tensor | None = None  # of the pass that is under way
        self.busy, self.as_tuple = False, False
        self.computed = 0  # rows that went through the lower layers
        self.body.register_forward_pre_hook(self._begin, with_kwargs=True)
        for number, block in enumerate(self.blocks[:below]):
            block.forward = partial(self._layer, number, block.forward)
        self.body.frozen_prefix = self

    def _begin(self, _module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.busy:
            return
        self.states = None
        ids = inputs[0] if inputs else named.get("input_ids")
        if ids is None or named.get("use_cache") is not False or torch.is_autocast_enabled(ids.device.type):
            return
        lengths = _lengths(named.get("attention_mask"), self.lengths)
        if lengths is not None:
            self.states = self._gather(ids, lengths)

    def _gather(self, ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """States that go into layer `below`, [rows, length, width]; zeros on padding, which no real token sees."""
        found = []
        for row, length in zip(ids.cpu().numpy(), lengths, strict=True):
            real = np.ascontiguousarray(row[:length])
            name = hashlib.sha256(real.tobytes()).hexdigest()[:32]
            states = self.kept.get(name)
            if states is None:
                states = self._compute(torch.from_numpy(real).to(ids.device))
                self.kept.put(name, states)
            found.append(states)
        padded = np.zeros((len(found), ids.shape[1], found[0].shape[1]), dtype=np.float32)
        for place, states in enumerate(found):
            padded[place, : len(states)] = states
        return torch.from_numpy(padded).to(ids.device)

    @torch.no_grad()
    def _compute(self, row: torch.Tensor) -> np.ndarray:
        seen: list[np.ndarray] = []

        def stop(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            seen.append((inputs[0] if inputs else named["hidden_states"])[0].cpu().numpy().copy())
            raise _Enough

        def look(_module: Any, _inputs: Any, output: Any) -> None:
            self.as_tuple = isinstance(output, tuple)

        self.busy, self.states = True, None
        self.computed += 1
        handles = [
            self.blocks[self.below].register_forward_pre_hook(stop, with_kwargs=True),
            self.blocks[self.below - 1].register_forward_hook(look),
        ]
        try:
            self.body(input_ids=row[None], use_cache=False)
        except _Enough:
            pass
        finally:
            self.busy = False
            for handle in handles:
                handle.remove()
        return seen[0]

    def _layer(self, number: int, original: Any, *inputs: Any, **named: Any) -> Any:
        if self.states is None:
            return original(*inputs, **named)
        hidden = inputs[0] if inputs else named["hidden_states"]
        out = self.states if number == self.below - 1 else hidden
        return (out,) if self.as_tuple else out


@contextmanager
def told(causal: Any, lengths: Sequence[int]) -> Iterator[None]:
    """Say how long the rows of the next pass are, padded on the right, where the pass itself has no mask."""
    prefix = getattr(causal.base_model, "frozen_prefix", None)
    if prefix is None:
        yield
        return
    prefix.lengths = lengths
    try:
        yield
    finally:
        prefix.lengths = None


class _Enough(Exception):
    """The lower layers have run."""


def _lengths(mask: torch.Tensor | None, known: Sequence[int] | None) -> Sequence[int] | None:
    """Tokens of each row, where they stand on the left without a gap and there is at least one."""
    if mask is None:
        return known
    if mask.dim() != 2:
        return None
    lengths = mask.sum(dim=1)
    straight = torch.arange(mask.shape[1], device=mask.device)[None] < lengths[:, None]
    if not torch.equal(mask.bool(), straight) or int(lengths.min()) == 0:
        return None
    return lengths.tolist()
