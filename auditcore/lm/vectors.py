"""Exported vectors. In: a model, encoded rows. Out: lasttok, meanpool or concat of any layers, float32, in data order.

Layer 0 holds the embeddings, layer L (also written -1) the output after the final norm. Prompt tokens only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from auditcore.errors import ModelError, SpecError, did_you_mean
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.forward import Side, arguments, check_ids, pad
from auditcore.lm.load import LM
from auditcore.spec import ARTIFACTS


def extract_vectors(
    lm: LM,
    encoded: Encoded,
    artifacts: Sequence[str],
    layers: Sequence[int],
    *,
    batch_size: int = 16,
    on_batch: Callable[[int, int], None] | None = None,
    padding_side: Side = "right",
) -> dict[tuple[str, int], np.ndarray]:
    """Vectors of n prompts: {(artifact, layer): float32 [n, width]}, layers resolved, all from one pass of the body.

    A prompt of 0 tokens has no vector: its row is NaN. on_batch(done rows, rows with a prompt). The same vector comes
    out alone, in a batch, padded left or right. Raises SpecError for a layer or artifact that does not exist.
    """
    for artifact in artifacts:
        if artifact not in POOLS:
            raise SpecError(f"artifact '{artifact}' is unknown.{did_you_mean(artifact, POOLS)}")
    wanted = resolve_layers(lm, layers)
    prompts = encoded.prompts()
    check_ids(lm, prompts.ids)
    lengths = prompts.lengths
    vectors: dict[tuple[str, int], np.ndarray] = {}
    done, total = 0, int((lengths > 0).sum())
    body = lm.causal.base_model
    with torch.inference_mode(), lm.active():
        for rows in batches(lengths, batch_size):
            batch = pad([prompts.ids[i] for i in rows], lm.device, padding_side)
            with _pooling(body, wanted, batch.mask) as pooled:
                last = body(**arguments(body, batch)).last_hidden_state
                if depth(lm) in wanted:
                    pooled[depth(lm)] = pool(last, batch.mask)
            for layer in wanted:
                for artifact in artifacts:
                    values = POOLS[artifact](*pooled[layer]).cpu().numpy()
                    if (artifact, layer) not in vectors:
                        vectors[artifact, layer] = np.full((len(lengths), values.shape[1]), np.nan, dtype=np.float32)
                    vectors[artifact, layer][rows] = values
            done += len(rows)
            if on_batch is not None:
                on_batch(done, total)
    for layer in wanted:  # no row had a single token
        for artifact in artifacts:
            vectors.setdefault((artifact, layer), np.full((len(lengths), width(lm, artifact)), np.nan, np.float32))
    return vectors


# One function per name in spec.ARTIFACTS: (last token, mean), each float32 [rows, width] -> the artifact.
POOLS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "lasttok": lambda last, mean: last,
    "meanpool": lambda last, mean: mean,
    "concat": lambda last, mean: torch.cat([last, mean], dim=1),
}
assert POOLS.keys() == ARTIFACTS.keys()


def depth(lm: LM) -> int:
    """Number of layers, L."""
    return int(lm.causal.config.get_text_config().num_hidden_layers)


def width(lm: LM, artifact: str) -> int:
    """Numbers in one vector of `artifact`."""
    return int(lm.causal.config.get_text_config().hidden_size) * (2 if artifact == "concat" else 1)


def resolve_layers(lm: LM, layers: Sequence[int]) -> list[int]:
    """Layers counted from 0 to L, each once; -1 is L. Raises SpecError naming the range."""
    last = depth(lm)
    found: list[int] = []
    for layer in layers:
        if not -last - 1 <= layer <= last:
            raise SpecError(
                f"layers: {lm.source} has no layer {layer}; choose 0 (embeddings) to {last} (after the final norm; "
                "also written -1)."
            )
        resolved = layer if layer >= 0 else last + 1 + layer
        if resolved not in found:
            found.append(resolved)
    return found


def pool(hidden: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Last real token and mean over real tokens of hidden [rows, length, width], both float32 [rows, width].

    mask: bool [rows, length], at least one true per row, on either side.
    """
    position = torch.arange(mask.shape[1], device=mask.device)
    last = (position * mask).amax(dim=1)
    # where, not a product: a padding position may hold anything, NaN included.
    real = torch.where(mask[..., None], hidden.float(), 0.0)
    mean = real.sum(dim=1) / mask.sum(dim=1, keepdim=True)
    return hidden[torch.arange(len(hidden), device=hidden.device), last].float(), mean


@contextmanager
def _pooling(
    body: Any, layers: Sequence[int], mask: torch.Tensor
) -> Iterator[dict[int, tuple[torch.Tensor, torch.Tensor]]]:
    """Pool the input of each chosen layer as it passes by, so that no layer's hidden states are kept."""
    pooled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    blocks = _blocks(body)

    def keep(layer: int) -> Callable[..., None]:
        def hook(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            pooled[layer] = pool(inputs[0] if inputs else named["hidden_states"], mask)

        return hook

    inner = [layer for layer in layers if layer < len(blocks)]
    handles = [blocks[layer].register_forward_pre_hook(keep(layer), with_kwargs=True) for layer in inner]
    try:
        yield pooled
    finally:
        for handle in handles:
            handle.remove()


def _blocks(body: Any) -> torch.nn.ModuleList:
    count = int(body.config.get_text_config().num_hidden_layers)
    for module in body.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"{type(body).__name__}: its {count} layers cannot be found, so no vectors can be read from them.")
