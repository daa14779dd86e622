"""Exported vectors. In: a model, encoded rows. Out: artifacts of any layers, float32, in data order.

Layer 0 holds the embeddings, layer L (also written -1) the output after the final norm. Prompt tokens only. All layers
and artifacts come from one pass of the body; a layer is pooled as it passes by, and never kept.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from auditcore.errors import ModelError, SpecError, did_you_mean
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.folded import folded
from auditcore.lm.forward import Side, arguments, check_ids, pad
from auditcore.lm.load import LM
from auditcore.lm.pooling import POOLS, pool

Layers = Sequence[int] | Literal["all"]
Allocate = Callable[[str, int, tuple[int, int]], np.ndarray]


def extract_vectors(
    lm: LM,
    encoded: Encoded,
    artifacts: Sequence[str],
    layers: Layers,
    *,
    last_k: int = 8,
    batch_size: int = 16,
    on_batch: Callable[[int, int], None] | None = None,
    padding_side: Side = "right",
    allocate: Allocate | None = None,
) -> dict[tuple[str, int], np.ndarray]:
    """Vectors of n prompts: {(artifact, layer): float32 [n, width]}, layers resolved, all from one pass of the body.

    A prompt of 0 tokens has no vector: its row is NaN. on_batch(done rows, rows with a prompt). The same vector comes
    out alone, in a batch, padded left or right. allocate(artifact, layer, (n, width)) gives the array to fill, such as
    a file on disk, so that a sweep over layers needs no more memory than one batch; by default it lies in memory.
    Raises SpecError for a layer or artifact that does not exist.
    """
    for artifact in artifacts:
        if artifact not in POOLS:
            raise SpecError(f"artifact '{artifact}' is unknown.{did_you_mean(artifact, POOLS)}")
    last = depth(lm)
    wanted = resolve_layers(layers, last, lm.source)
    prompts = encoded.prompts()
    check_ids(lm, prompts.ids)
    lengths = prompts.lengths
    make = allocate or (lambda artifact, layer, shape: np.empty(shape, dtype=np.float32))
    vectors = {(a, k): make(a, k, (len(lengths), width(lm, a))) for k in wanted for a in artifacts}
    for array in vectors.values():
        array[lengths == 0] = np.nan
    done, total = 0, int((lengths > 0).sum())
    body = lm.causal.base_model

    def keep(mask: torch.Tensor, rows: np.ndarray, layer: int, hidden: torch.Tensor) -> None:
        for artifact, values in pool(hidden, mask, artifacts, last_k).items():
            vectors[artifact, layer][rows] = values.cpu().numpy()

    with folded(lm), torch.inference_mode():
        for rows in batches(lengths, batch_size):
            batch = pad([prompts.ids[i] for i in rows], lm.device, padding_side)
            with watching(body, wanted, partial(keep, batch.mask, rows)):
                after = body(**arguments(body, batch)).last_hidden_state
            if last in wanted:
                keep(batch.mask, rows, last, after)
            done += len(rows)
            if on_batch is not None:
                on_batch(done, total)
    return vectors


def depth(lm: LM) -> int:
    """Number of layers, L."""
    return int(lm.causal.config.get_text_config().num_hidden_layers)


def width(lm: LM, artifact: str) -> int:
    """Numbers in one vector of `artifact`."""
    return int(lm.causal.config.get_text_config().hidden_size) * (2 if artifact == "concat" else 1)


def resolve_layers(layers: Layers, last: int, source: str) -> list[int]:
    """Layers from 0 to `last`, each once; -1 is the last, "all" every one. Raises SpecError naming the range."""
    found: list[int] = []
    for layer in range(last + 1) if layers == "all" else layers:
        if not -last - 1 <= layer <= last:
            raise SpecError(
                f"layers: {source} has no layer {layer}; choose 0 (embeddings) to {last} (after the final norm; "
                "also written -1)."
            )
        resolved = layer if layer >= 0 else last + 1 + layer
        if resolved not in found:
            found.append(resolved)
    return found


@contextmanager
def watching(body: Any, layers: Sequence[int], see: Callable[[int, torch.Tensor], None]) -> Iterator[None]:
    """Show the input of each chosen layer as it passes by, so that no layer's hidden states are kept."""
    blocks = blocks_of(body)

    def hook_of(layer: int) -> Callable[..., None]:
        def hook(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            see(layer, inputs[0] if inputs else named["hidden_states"])

        return hook

    inner = [layer for layer in layers if layer < len(blocks)]
    handles = [blocks[layer].register_forward_pre_hook(hook_of(layer), with_kwargs=True) for layer in inner]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def blocks_of(body: Any) -> torch.nn.ModuleList:
    """The layers of a model's body, in order. Raises ModelError where they cannot be found."""
    count = int(body.config.get_text_config().num_hidden_layers)
    for module in body.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(body).__name__}: its {count} layers cannot be found, so no vectors can be read from them.")
