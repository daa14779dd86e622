"""From hidden states to one vector per row. In: hidden [rows, length, width], a mask. Out: float32 [rows, width].

One function per name in `spec.ARTIFACTS`. Padding may stand on either side and hold anything, NaN included; sums run in
float32 whatever the model's dtype. Every function is differentiable, so that training can use the exported artifact.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from auditcore.spec import ARTIFACTS


class _Hidden:
    """Hidden states of a batch and what several artifacts need of them, made once."""

    def __init__(self, hidden: torch.Tensor, mask: torch.Tensor, last_k: int) -> None:
        self.hidden, self.mask, self.last_k = hidden, mask, last_k

    @cached_property
    def real(self) -> torch.Tensor:
        """float32, 0 on padding. where, not a product: a padding position may hold anything."""
        return torch.where(self.mask[..., None], self.hidden.float(), 0.0)

    @cached_property
    def number(self) -> torch.Tensor:
        """Number of each real token in its row, from 1; 0 on padding. float32 [rows, length]."""
        return (self.mask.cumsum(dim=1) * self.mask).float()

    def at(self, number: torch.Tensor) -> torch.Tensor:
        """The token with this number in each row."""
        place = (self.number == number[:, None]).float().argmax(dim=1)
        return self.hidden[torch.arange(len(self.hidden), device=self.hidden.device), place].float()

    def weighted(self, weights: torch.Tensor) -> torch.Tensor:
        """Mean with weights [rows, length], 0 on padding."""
        return (weights[:, None] @ self.real)[:, 0] / weights.sum(dim=1, keepdim=True)

    @cached_property
    def lasttok(self) -> torch.Tensor:
        return self.at(self.number.amax(dim=1))

    @cached_property
    def meanpool(self) -> torch.Tensor:
        return self.real.sum(dim=1) / self.mask.sum(dim=1, keepdim=True)


def _maxpool(h: _Hidden) -> torch.Tensor:
    return torch.where(h.mask[..., None], h.hidden.float(), -torch.inf).amax(dim=1)


def _last_k_mean(h: _Hidden) -> torch.Tensor:
    first = h.number.amax(dim=1, keepdim=True) - h.last_k
    return h.weighted((h.mask & (h.number > first)).float())


POOLS: dict[str, Callable[[_Hidden], torch.Tensor]] = {
    "lasttok": lambda h: h.lasttok,
    "meanpool": lambda h: h.meanpool,
    "concat": lambda h: torch.cat([h.lasttok, h.meanpool], dim=1),
    "firsttok": lambda h: h.at(torch.ones_like(h.number[:, 0])),
    "maxpool": _maxpool,
    "weighted_mean": lambda h: h.weighted(h.number),  # SGPT (arXiv 2202.08904): weights 1, 2 ... n over their sum
    "last_k_mean": _last_k_mean,
}
assert POOLS.keys() == ARTIFACTS.keys()


def pool(
    hidden: torch.Tensor, mask: torch.Tensor, artifacts: Sequence[str], last_k: int = 8
) -> dict[str, torch.Tensor]:
    """Return {artifact: float32 [rows, width]}, twice as wide for `concat`.

    hidden: [rows, length, width] of any float dtype; mask: bool [rows, length], at least one true per row; last_k: how
    many of the last tokens `last_k_mean` takes, all of them where a row has fewer.
    """
    states = _Hidden(hidden, mask, last_k)
    return {artifact: POOLS[artifact](states) for artifact in artifacts}
