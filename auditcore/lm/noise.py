"""Noise on what a model reads. In: a model and a seed. Out: the model with noise on its token embeddings, for a while.

The perturbation of SPV-MIA (arXiv 2311.06062) in the embedding domain: a copy of a row stands a small step away from
it, its twin the same step on the other side.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from auditcore.lm.load import LM


@dataclass(frozen=True)
class Noise:
    """One copy: which step, to which side, and how far."""

    seed: int
    number: int  # of the pair
    sign: int  # +1 or -1
    scale: float  # deviation of the noise over the root mean square of the model's embeddings


@contextmanager
def noisy(lm: LM, noise: Noise | None) -> Iterator[None]:
    """Add the noise to every token's embedding while the block lasts; None adds nothing.

    The step depends on the position in the row and on nothing else, so that rows do not depend on their batch; rows
    are padded on the right. Every model that shares a width gets the same step, in units of its own embeddings.
    """
    if noise is None:
        yield
        return
    module = lm.causal.get_input_embeddings()
    size = noise.scale * float(module.weight.detach().float().square().mean().sqrt())
    steps = np.empty((0, module.weight.shape[1]), dtype=np.float32)

    def add(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        if len(steps) < output.shape[1]:  # drawn row after row: the first positions do not change
            rng = np.random.default_rng([noise.seed, 6062, noise.number])
            steps = rng.standard_normal((output.shape[1], output.shape[2])).astype(np.float32)
        step = torch.from_numpy(steps[: output.shape[1]]).to(output.device, output.dtype)
        return output + noise.sign * size * step

    handle = module.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
