"""One pass through a model. In: unpadded ids. Out: hidden states of the body, and float32 logits of chosen positions.

The body runs without the language-model head; the head is applied to the positions that are needed, in chunks, so a
batch x length x vocabulary array never exists.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from auditcore.errors import ModelError
from auditcore.lm.load import LM

Side = Literal["right", "left"]
Block = tuple[int, torch.Tensor]
# Logits held at once: one block of 1024 x 4096 float32 (16 MiB) stays in the cache while it is measured, and both sides
# are long enough for the matrix product's full speed.
POSITIONS = 1024
VOCABULARY = 4096
BODY_TOKENS = 512  # tokens in the body at once on a CPU: enough for full speed there


@dataclass(frozen=True)
class Batch:
    """A padded batch on the model's device. Which positions are padding is known from `mask` alone."""

    ids: torch.Tensor  # int64 [rows, length]
    mask: torch.Tensor  # bool [rows, length], true on real tokens
    positions: torch.Tensor | None  # int64 [rows, length]; None where the model's own count (0, 1, 2 ...) is right

    def rows(self, some: slice) -> "Batch":
        """Some of the rows, as wide as they are here."""
        positions = None if self.positions is None else self.positions[some]
        return Batch(self.ids[some], self.mask[some], positions)


def pad(rows: Sequence[np.ndarray], device: str, side: Side = "right") -> Batch:
    """Pad rows of ids to the longest one. Padding holds id 0: its value is never looked at."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    ids = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=bool)
    for i, row in enumerate(rows):
        real = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, real], mask[i, real] = row, True
    positions = None
    if side == "left":
        positions = torch.from_numpy(np.maximum(mask.cumsum(axis=1) - 1, 0)).to(device)
    return Batch(torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device), positions)


def arguments(module: Any, batch: Batch) -> dict[str, Any]:
    """Keyword arguments for the body or the whole model."""
    wanted: dict[str, Any] = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    names = inspect.signature(module.forward).parameters
    if batch.positions is not None and "position_ids" in names:
        wanted["position_ids"] = batch.positions
    if "use_cache" in names:
        wanted["use_cache"] = False
    return wanted


def run_body(lm: LM, batch: Batch) -> torch.Tensor:
    """Hidden states after the final norm, [rows, length, width], in the body's dtype."""
    body = lm.causal.base_model
    return body(**arguments(body, batch)).last_hidden_state


def check_ids(lm: LM, ids: Sequence[np.ndarray]) -> None:
    """Raise ModelError when a row is longer than the model's positions, or holds an id it does not embed."""
    config = getattr(lm.causal, "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    longest = max((len(row) for row in ids), default=0)
    if isinstance(limit, int) and longest > limit:
        raise ModelError(f"{lm.source}: rows of {longest} tokens, but it has {limit} positions; lower max_length.")
    embeddings = lm.causal.get_input_embeddings()
    rows = getattr(embeddings, "num_embeddings", None)
    highest = max((int(row.max()) for row in ids if len(row)), default=0)
    if isinstance(rows, int) and highest >= rows:
        raise ModelError(f"{lm.source}: token id {highest}, but it embeds {rows} tokens; the tokenizer is not its own.")


class Head:
    """The language-model head: hidden states [n, width] -> float32 logits, in blocks that are used and forgotten."""

    def __init__(self, lm: LM) -> None:
        self.module = lm.causal.get_output_embeddings()
        self.weight: torch.Tensor | None = None
        self.bias: torch.Tensor | None = None
        if type(self.module) is torch.nn.Linear:
            # Upcast once: logits are never rounded to a smaller type, whatever the weights are stored in.
            self.weight = self.module.weight.detach().float()
            self.bias = None if self.module.bias is None else self.module.bias.detach().float()

    def parts(self, hidden: torch.Tensor) -> Iterator[tuple[slice, Iterator[Block]]]:
        """Yield (positions, blocks): chunks over positions, and for each the logits in blocks over the vocabulary.

        A block is (first token id, logits [positions, block]); the caller may overwrite it, and the next one will.
        """
        step = POSITIONS if self.weight is not None else 256
        for start in range(0, len(hidden), step):
            part = slice(start, min(start + step, len(hidden)))
            if self.weight is None:  # a head with an adapter on it, or of an unusual kind
                yield part, in_blocks(self.module(hidden[part]).float())
            else:
                yield part, self._blocks(hidden[part].float(), self.weight)

    def _blocks(self, hidden: torch.Tensor, weight: torch.Tensor) -> Iterator[Block]:
        buffer = torch.empty(len(hidden) * min(VOCABULARY, len(weight)), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(weight), VOCABULARY):
            rows = weight[start : start + VOCABULARY]
            logits = buffer[: len(hidden) * len(rows)].view(len(hidden), len(rows))
            torch.mm(hidden, rows.t(), out=logits)
            if self.bias is not None:
                logits += self.bias[start : start + VOCABULARY]
            yield start, logits


def in_blocks(logits: torch.Tensor) -> Iterator[Block]:
    """Blocks over the vocabulary of logits [positions, vocabulary]."""
    for start in range(0, logits.shape[1], VOCABULARY):
        yield start, logits[:, start : start + VOCABULARY]


def can_split(lm: LM, ids: np.ndarray) -> bool:
    """True when the model is exactly body, then head: no scaling or capping of the logits, no reshaping in between.

    Tried on one short row: what the head receives must be the body's output, what the model returns the head's.
    """
    causal = lm.causal
    head = causal.get_output_embeddings()
    if head is None or causal.base_model is causal:
        return False
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    handle = head.register_forward_hook(lambda _module, inputs, output: seen.append((inputs[0], output)))
    batch = pad([ids], lm.device)
    try:
        logits = causal(**arguments(causal, batch)).logits
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0][1].shape != logits.shape:
        return False
    hidden = run_body(lm, batch)
    received, returned = seen[0]
    return received.shape == hidden.shape and _close(received, hidden) and _close(returned, logits)


def _close(one: torch.Tensor, two: torch.Tensor) -> bool:
    one, two = one.float(), two.float()
    return bool(torch.allclose(one, two, rtol=1e-4, atol=1e-4, equal_nan=True))
