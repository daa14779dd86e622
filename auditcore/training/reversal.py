"""Gradient reversal. In: a vector on its way into a discriminator. Out: the same; its gradient comes back turned.

Ganin and Lempitsky, "Unsupervised Domain Adaptation by Backpropagation" (2015). The layer stands between the vector and
the discriminator: the discriminator learns from its plain gradient, the model from the same one times -lambda.
"""

import math
from typing import Any

import torch


def reverse(vectors: torch.Tensor, strength: float) -> torch.Tensor:
    """Return `vectors` unchanged; in the backward pass their gradient is multiplied by -strength."""
    return _Reverse.apply(vectors, strength)


def warmed_up(strength: float, step: int, begin: int, over: int) -> float:
    """Lambda of the 0-based step: 0 up to `begin`, then strength x (2 / (1 + exp(-10 p)) - 1), p from 0 to 1.

    over: number of steps in which p goes from 0 to 1; afterwards it stays there.
    """
    p = min(max(step - begin, 0) / max(over, 1), 1.0)
    return strength * (2.0 / (1.0 + math.exp(-10.0 * p)) - 1.0)


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, strength: float) -> torch.Tensor:
        ctx.strength = strength
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * -ctx.strength, None
