"""The loop that trains a mitigation. In: a task, labels, prompts. Out: adapters whose exported vector tells less.

Each step joins the gradient of the summaries with the one that adversaries send back turned (`turned`). Adversaries
have random streams, optimisers and clipping of their own, so that with lambda 0 every bit is that of plain LoRA.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditcore.lm.encode import Encoded
from auditcore.lm.forward import pad
from auditcore.lm.load import LM
from auditcore.lm.vectors import extract_vectors, watching, width
from auditcore.spec import SurfaceLoraSpec
from auditcore.training.adversaries import ADVERSARIES, Adversary, Bank, Block
from auditcore.training.batches import collate
from auditcore.training.prompts import UNKNOWN, Labels, Prompts
from auditcore.training.reversal import warmed_up
from auditcore.training.trainer import OnCheckpoint, Task, Trainer
from auditcore.training.turned import Cell, Turned
from auditcore.training.workers import Workers


def same_prompts(encoded: Encoded, exported: Encoded) -> np.ndarray:
    """Mask [n]: the prompt inside the row is the prompt that is exported, so that one pass gives both."""
    prompts = encoded.prompts().ids
    return np.array([np.array_equal(a, b) for a, b in zip(prompts, exported.ids, strict=True)], dtype=bool)


class SurfaceTrainer(Trainer):
    """The training loop with discriminators behind a gradient-reversal layer."""

    keeps_best = False  # which checkpoint is best is for the audit to say
    task: Task
    spec: SurfaceLoraSpec

    def __init__(
        self,
        task: Task,
        lm: LM,
        out: Path,
        autocast: str,
        labels: Labels,
        prompts: Prompts | None,
        layer: int,
        exported: Encoded,
        on_checkpoint: OnCheckpoint | None = None,
    ) -> None:
        super().__init__(task, lm, out, autocast, on_checkpoint, Workers(lm.device))
        self.exported, self.whole = exported, same_prompts(task.encoded, exported)
        self.prompts, self.layer, self.autocast = prompts, layer, autocast
        device = torch.device(lm.device)
        shape = self.spec.discriminator
        self.cells = [
            Cell(
                artifact,
                place,
                [
                    ADVERSARIES[name](width(lm, artifact), len(classes), shape, self.spec.seed + 7919 * number, device)
                    for number, name in enumerate(self.spec.adversary)
                ],
            )
            for artifact in self.spec.targets
            for place, classes in enumerate(labels.classes)
        ]
        self.bank = Bank(shape.bank_kept)
        self.window, self.drawn = -1, 0  # which window the bank is of, and how many prompts were drawn in it

    # --- one step ---

    def _gradients(self, step: int, parts: list[np.ndarray]) -> dict[str, Any]:
        active = self.prompts is not None and step >= self.spec.lambda_begin
        strength = self._strength(step)
        if active:
            self._prepare(step)
        turned = Turned(self, strength) if active else None
        more = turned.plan(parts) if turned is not None else []
        prompts = self.prompts
        scale = 1.0 / int(self.task.in_loss[np.concatenate(parts)].sum())
        value = 0.0
        for rows in parts:
            mine, hidden, mask = self.workers.share(rows), None, None
            if len(mine):
                with self._seeing() as seen:
                    loss, last = self.loss.with_hidden(collate(self.task.encoded, mine), scale)
                value += self._backward(loss, step, retain=turned is not None and strength > 0)
                hidden, mask = seen.get(self.layer, last), self._mask(mine, last.shape[1])
            if turned is not None:
                turned.add(hidden, mask, self.usable_codes(rows))
        for rows in more:
            assert turned is not None
            assert prompts is not None
            with self._own_stream(step, rows):
                mine = self.workers.share(rows)
                hidden, mask = self._prompts_only(mine) if len(mine) else (None, None)
                turned.add(hidden, mask, prompts.codes[rows])
        value = self._add_up(value)
        norm = self.clipped([p.grad for p in self.parameters.values() if p.grad is not None], step)
        row = {"lambda": strength, "lm_loss": value, "lora_grad_norm": norm, "grad_norm": norm}
        if turned is None:
            return row
        row |= turned.join(step)
        self._learn(step, turned.blocks)
        return row

    def _add_up(self, value: float) -> float:
        """Let every process hold the gradient of the whole step; returns the loss of the whole step."""
        if self.workers.count == 1:
            return value
        parameters = list(self.parameters.values())
        whole = self.workers.add_gradients([p.grad for p in parameters], parameters)
        for parameter, grad in zip(parameters, whole, strict=True):
            parameter.grad = grad
        return self.workers.add([value])[0]

    def _strength(self, step: int) -> float:
        over = self.spec.lambda_steps or self.task.total_steps - self.spec.lambda_begin
        return warmed_up(self.spec.strength, step, self.spec.lambda_begin, over)

    @contextmanager
    def _seeing(self) -> Iterator[dict[int, torch.Tensor]]:
        """Hidden states of the layer that is exported, where it is not the last one."""
        seen: dict[int, torch.Tensor] = {}
        with watching(self.causal.base_model, [self.layer], seen.__setitem__):
            yield seen

    def usable_codes(self, rows: np.ndarray) -> np.ndarray:
        """Codes [rows, attributes] of summarised rows; UNKNOWN where their vector is not to be turned against."""
        assert self.prompts is not None
        return np.where(self.whole[rows][:, None], self.prompts.turned(rows, self.window), UNKNOWN)

    def _mask(self, rows: np.ndarray, length: int) -> torch.Tensor:
        """True on the prompt's tokens, bool [rows, length]."""
        lengths = torch.from_numpy(self.task.encoded.prompt_lengths[rows])
        return (torch.arange(length)[None] < lengths[:, None]).to(self.loss.device)

    def _prompts_only(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states and mask of prompts without their targets."""
        batch = pad([self.exported.ids[i] for i in rows], self.lm.device)
        with self._seeing() as seen:
            last = self.loss.body(batch.ids, self.exported.prompt_lengths[rows])
        return seen.get(self.layer, last), batch.mask

    @contextmanager
    def _own_stream(self, step: int, rows: np.ndarray) -> Iterator[None]:
        """Dropout on the adversaries' prompts leaves the stream of the summarisation part alone."""
        seed = int(np.random.SeedSequence([self.spec.seed, step, int(rows[0])]).generate_state(1)[0])
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            torch.manual_seed(seed)
            yield

    # --- adversaries ---

    def _prepare(self, step: int) -> None:
        """Renew the bank where it is time, and let every adversary follow it."""
        window = (step - self.spec.lambda_begin) // self.spec.discriminator.bank_every
        renewed = window != self.window
        if renewed:
            assert self.prompts is not None
            for rows in self.prompts.refreshed(window):
                self.bank.refresh(self._extract(rows))
            self.window, self.drawn = window, 0
        for cell in self.cells:
            vectors, codes = self.bank.cell(cell.artifact, cell.attribute)
            for adversary in cell.adversaries if len(codes) else []:
                adversary.refit(vectors, codes, renewed)

    def _extract(self, rows: np.ndarray) -> Block:
        """Vectors of prompts as they would be exported now."""
        assert self.prompts is not None
        device = self.loss.device
        bf16 = torch.autocast(device.type, torch.bfloat16) if self.autocast == "bf16" else nullcontext()
        self.causal.eval()
        with bf16:
            found = extract_vectors(
                self.lm,  # whose layers carry the adapter
                self.exported.select(self.workers.share(rows)),
                self.spec.targets,
                [self.layer],
                batch_size=max(self.spec.batch_size, 16),
            )
        self.causal.train()
        mine = {a: torch.from_numpy(found[a, self.layer]).to(device) for a in self.spec.targets}
        vectors = {a: self.workers.joined(v) for a, v in mine.items()}
        return Block(vectors, torch.from_numpy(self.prompts.codes[rows]).to(device))

    def _learn(self, step: int, blocks: list[Block]) -> None:
        for block in blocks:
            self.bank.add(block)
        for number, cell in enumerate(self.cells):
            vectors, codes = self.bank.cell(cell.artifact, cell.attribute)
            for place, adversary in enumerate(cell.adversaries if len(codes) else []):
                rng = np.random.default_rng([self.spec.seed, step, number, place])
                adversary.learn(vectors, codes, rng)

    # --- what is saved ---

    def _about(self) -> dict[str, Any]:
        return {"kind": "surfacelora", "lambda": self.spec.strength, "targets": self.spec.targets, "layer": self.layer}

    def _extra(self) -> dict[str, torch.Tensor]:
        found = {f"bank/{name}": t for name, t in self.bank.tensors().items()}
        for prefix, adversary in self._named():
            found |= {f"{prefix}/{name}": t for name, t in adversary.tensors().items()}
        return found | {"counts": torch.tensor([self.window, self.drawn])}

    def _restore(self, extra: dict[str, torch.Tensor]) -> None:
        self.window, self.drawn = extra["counts"].tolist()
        self.bank.load(_below(extra, "bank"), self.loss.device)
        for prefix, adversary in self._named():
            adversary.load(_below(extra, prefix))

    def _named(self) -> Iterator[tuple[str, Adversary]]:
        for number, cell in enumerate(self.cells):
            for adversary in cell.adversaries:
                yield f"cell{number}/{adversary.name}", adversary


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(f"{prefix}/"): t for n, t in tensors.items() if n.startswith(f"{prefix}/")}
