"""The adversaries' part of a step. In: hidden states of its prompts, batch by batch. Out: the turned gradient, vectors.

Discriminators read the exported vector through a gradient-reversal layer (arXiv 2605.26433). Their gradient is kept,
clipped and logged apart from the summaries' own: Adam would else hide how large each one is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from auditcore.lm.encode import batches
from auditcore.lm.pooling import pool
from auditcore.lm.vectors import width
from auditcore.training.adversaries import Adversary, Block
from auditcore.training.prompts import UNKNOWN
from auditcore.training.reversal import reverse

if TYPE_CHECKING:
    from auditcore.training.surface_trainer import SurfaceTrainer


@dataclass(frozen=True)
class Cell:
    """The adversaries of one artifact and one attribute."""

    artifact: str
    attribute: int
    adversaries: list[Adversary]


class Turned:
    """The turned gradient of one step, gathered batch by batch."""

    def __init__(self, trainer: "SurfaceTrainer", strength: float) -> None:
        self.trainer, self.strength = trainer, strength
        self.lora = list(trainer.parameters.values())
        self.discriminators = [p for cell in trainer.cells for a in cell.adversaries for p in a.parameters()]
        self.grads: list[torch.Tensor | None] = [None] * len(self.lora)
        self.blocks: list[Block] = []
        self.loss, self.right, self.judged = 0.0, 0.0, 0.0
        self.totals = np.zeros(0)

    def plan(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """Count the rows of the step, and choose the prompts that join the summarised ones, in batches."""
        trainer, prompts = self.trainer, self.trainer.prompts
        assert prompts is not None
        codes = trainer.usable_codes(np.concatenate(parts))
        more: list[np.ndarray] = []
        count = trainer.spec.discriminator.rows - int((codes != UNKNOWN).any(axis=1).sum())
        if count > 0 and self.strength > 0:
            rows = prompts.draw(trainer.window, trainer.drawn, count)
            trainer.drawn += count
            codes = np.concatenate([codes, prompts.codes[rows]])
            lengths = trainer.exported.prompt_lengths[rows]
            more = [rows[part] for part in batches(lengths, trainer.spec.batch_size)]
        self.totals = (codes != UNKNOWN).sum(axis=0)
        return more

    def add(self, hidden: torch.Tensor | None, mask: torch.Tensor | None, usable: np.ndarray) -> None:
        """Take the hidden states [rows, length, width] and mask of this process's share of a batch, None for no row.

        usable: codes [rows of the batch, attributes]; rows without any are left out.
        """
        trainer, workers = self.trainer, self.trainer.workers
        every = torch.from_numpy(usable).to(trainer.loss.device)
        if not (every != UNKNOWN).any():
            return
        codes = torch.from_numpy(workers.share(usable)).to(trainer.loss.device)
        known = (codes != UNKNOWN).any(dim=1)
        vectors: dict[str, torch.Tensor] = {}
        if hidden is not None and mask is not None and known.any():
            vectors = pool(hidden[known], mask[known], trainer.spec.targets)
            loss = self._loss(vectors, codes[known])
            self.loss += float(loss.detach())
            if self.strength > 0:
                self._backward(loss)
        self.blocks.append(self._block({name: v.detach() for name, v in vectors.items()}, known, every))

    def _block(self, mine: dict[str, torch.Tensor], known: torch.Tensor, every: torch.Tensor) -> Block:
        """Vectors and codes of the batch's usable rows, in its order, from the shares of all processes."""
        trainer, workers = self.trainer, self.trainer.workers
        usable = (every != UNKNOWN).any(dim=1)
        if workers.count == 1:
            return Block(mine, every[usable])
        whole = {}
        for name in trainer.spec.targets:
            padded = torch.zeros(len(known), width(trainer.lm, name), device=every.device)
            if name in mine:
                padded[known] = mine[name]
            whole[name] = workers.joined(padded)[usable]
        return Block(whole, every[usable])

    def _loss(self, vectors: dict[str, torch.Tensor], codes: torch.Tensor) -> torch.Tensor:
        cells = self.trainer.cells
        return sum((self._cell(cell, vectors[cell.artifact], codes) for cell in cells), torch.zeros(()))

    def _cell(self, cell: Cell, vectors: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Loss of one artifact and attribute: mean over its rows in the whole step, and over its adversaries."""
        mine = codes[:, cell.attribute]
        known = mine != UNKNOWN
        total = vectors.new_zeros(())
        if not known.any():
            return total
        share = 1.0 / (int(self.totals[cell.attribute]) * len(cell.adversaries))
        behind = reverse(vectors[known], self.strength)
        for adversary in cell.adversaries:
            losses, right = adversary.losses(behind, mine[known])
            total = total + losses.sum() * share
            if right is not None:
                self.right, self.judged = self.right + int(right.sum()), self.judged + len(right)
        return total

    def _backward(self, loss: torch.Tensor) -> None:
        found = torch.autograd.grad(loss, [*self.lora, *self.discriminators], allow_unused=True)
        for i, grad in enumerate(found[: len(self.lora)]):
            if grad is not None:
                mine = self.grads[i]
                self.grads[i] = grad if mine is None else mine.add_(grad)
        for parameter, grad in zip(self.discriminators, found[len(self.lora) :], strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)

    def join(self, step: int) -> dict[str, Any]:
        """Clip the turned gradient and add it to the other one; returns what the log says of it."""
        workers = self.trainer.workers
        self.loss, self.right, self.judged = workers.add([self.loss, self.right, self.judged])
        if self.strength > 0:
            self.grads = workers.add_gradients(self.grads, self.lora)
            learnt = workers.add_gradients([p.grad for p in self.discriminators], self.discriminators)
            for parameter, grad in zip(self.discriminators, learnt, strict=True):
                parameter.grad = grad
        row: dict[str, Any] = {
            "adversary_loss": self.loss / len(self.trainer.cells),
            "adversary_accuracy": self.right / self.judged if self.judged else None,
        }
        pairs = [(p, g) for p, g in zip(self.lora, self.grads, strict=True) if g is not None]
        if not pairs:
            return row
        row["reversed_grad_norm"] = self.trainer.clipped(
            [g for _, g in pairs], step, self.trainer.spec.max_reversed_norm
        )
        for parameter, grad in pairs:
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        row["grad_norm"] = float(torch.nn.utils.get_total_norm([p.grad for p in self.lora if p.grad is not None]))
        return row
