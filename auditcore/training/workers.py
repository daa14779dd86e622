"""Processes that train together. In: a share of every batch. Out: sums and vectors of all shares, the same in each.

`accelerate launch` starts one process a device. Each passes over its share of every batch; gradients are added up and
vectors put back in order, so that all take the same step, the one that a single process would take. One process alone
exchanges nothing, and no bit of its work changes.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch

_PATIENCE = timedelta(hours=12)  # while the first process measures a checkpoint, the others wait


def launched() -> int:
    """How many processes were started together, 1 for a process alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Workers:
    """This process among those that train together."""

    def __init__(self, device: str | None = None) -> None:
        """device: of the model in this process, None for work it does alone. Waits for the other processes."""
        self.count, self.number = 1, 0
        if launched() > 1 and device is not None:
            from accelerate import PartialState

            state: Any = PartialState(cpu=torch.device(device).type == "cpu", timeout=_PATIENCE)
            self.count, self.number = state.num_processes, state.process_index

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and measures checkpoints."""
        return self.number == 0

    def share(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a batch that this process passes over: all of them in a process alone, else some or none."""
        return rows[self.number :: self.count] if self.count > 1 else rows

    def add(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all processes."""
        if self.count == 1:
            return list(numbers)
        return [sum(values) for values in zip(*self._everyone(list(numbers)), strict=True)]

    def add_gradients(self, tensors: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor]) -> list[Any]:
        """Sums over all processes; a tensor this process does not have counts as 0 (of the shape of `like`)."""
        if self.count == 1:
            return list(tensors)
        from accelerate.utils import reduce

        whole = [torch.zeros_like(shape) if t is None else t for t, shape in zip(tensors, like, strict=True)]
        return list(reduce(whole, reduction="sum"))

    def joined(self, mine: torch.Tensor) -> torch.Tensor:
        """One row for each row of a batch, in the batch's order; `mine`: those of `share`, on any device."""
        if self.count == 1:
            return mine
        parts = self._everyone(mine.detach().cpu())
        whole = mine.new_zeros((sum(len(p) for p in parts), *mine.shape[1:]))
        for number, part in enumerate(parts):
            whole[number :: self.count] = part.to(mine.device)
        return whole

    def told(self, value: Any) -> Any:
        """What the first process says, in all of them."""
        return self._everyone(value)[0] if self.count > 1 else value

    def _everyone(self, value: Any) -> list[Any]:
        from accelerate.utils import gather_object

        return list(gather_object([value]))
