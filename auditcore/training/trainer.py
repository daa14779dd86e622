"""The training loop. In: a task (rows, order, settings) and a model. Out: checkpoints, log rows, a
state to resume from.

Everything random follows from the seed and the saved random states, so that a resumed loop does what an undisturbed
one would have done.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditcore.errors import RunError
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.load import LM
from auditcore.spec import FinetuneSpec, SurfaceLoraSpec
from auditcore.training.batches import collate, plan_epoch, tokens_in_loss
from auditcore.training.checkpoint import State, link, load_state, read_record, save_checkpoint, save_state, seeded
from auditcore.training.lora import add_adapter
from auditcore.training.loss import NextTokenLoss
from auditcore.training.rows import trained_on_table
from auditcore.training.workers import Workers

OnStep = Callable[[int, int, dict[str, Any]], None]
OnCheckpoint = Callable[[int, Path, LM], None]  # step, adapter folder, the model as it is in memory

_WRITING_SHARE = 0.05  # of the time that may go into states
_KEEP_LAST_EVERY = 60.0  # seconds between copies of `last` that a failure later on would fall back to


@dataclass(frozen=True)
class Task:
    """What is trained on what, and for how long."""

    encoded: Encoded
    train: np.ndarray  # int64: rows to train on
    validation: np.ndarray  # int64: rows that choose `best`
    spec: FinetuneSpec | SurfaceLoraSpec
    key: str  # hash of everything that decides the result
    names: tuple[Sequence[str], Sequence[str]] | None  # example ids and text hashes of all rows

    @cached_property
    def in_loss(self) -> np.ndarray:
        """Tokens in the loss of every row of `encoded`, int64."""
        return tokens_in_loss(self.encoded)

    @cached_property
    def learnt(self) -> np.ndarray:
        """Training rows with at least one token in the loss."""
        return self.train[self.in_loss[self.train] > 0]

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one epoch."""
        return math.ceil(math.ceil(len(self.learnt) / self.spec.batch_size) / self.spec.gradient_accumulation)

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the whole training."""
        return self.spec.total_steps(self.steps_per_epoch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """The steps of one epoch, each a list of batches."""
        plan = plan_epoch(self.encoded.lengths, self.learnt, self.spec.batch_size, self.spec.seed, number)
        width = self.spec.gradient_accumulation
        return [plan[i : i + width] for i in range(0, len(plan), width)]

    def seen(self, step: int) -> np.ndarray:
        """Training rows that the first `step` steps have used (rows with nothing in the loss count as used)."""
        if step >= self.steps_per_epoch:
            return self.train
        used = [rows for batches in self.epoch(0)[:step] for rows in batches]
        unused = np.setdiff1d(self.learnt, np.concatenate(used) if used else [])
        return np.setdiff1d(self.train, unused)

    def learning_rate(self, step: int) -> float:
        """Learning rate of the 0-based step: linear warm-up, then linear or cosine decay to 0, or constant."""
        warm = math.ceil(self.spec.warmup_ratio * self.total_steps)
        if step < warm:
            return self.spec.learning_rate * (step + 1) / warm
        done = (step - warm) / max(self.total_steps - warm, 1)
        factor = {"linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done)), "constant": 1.0}
        return self.spec.learning_rate * factor[self.spec.schedule]


class Trainer:
    """Runs a task on a model and keeps its folders."""

    keeps_best = True  # whether `best` is kept beside `last`

    def __init__(
        self,
        task: Task,
        lm: LM,
        out: Path,
        autocast: str,
        on_checkpoint: OnCheckpoint | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.workers = workers or Workers()
        self.task, self.lm, self.spec, self.on_checkpoint = task, lm, task.spec, on_checkpoint
        self.last, self.best = out / "checkpoints" / "last", out / "checkpoints" / "best"
        self.state = out / "state"
        self.model = _trainable(lm, task.spec)
        self.causal = self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model
        self.parameters = {name: p for name, p in self.causal.named_parameters() if p.requires_grad}
        self.optimizer = _optimizer(self.parameters, task.spec, lm.device)
        self.loss = NextTokenLoss(self.causal, lm.device, bf16=autocast == "bf16")
        self.progress: dict[str, Any] = {"log": [], "best_loss": None, "best_step": 0}
        self.saved_at = time.monotonic()
        self.kept_step, self.kept_at = 0, time.monotonic()
        self.write_seconds = 0.0

    def run(self, on_step: OnStep | None, validate_every: int | None, state_seconds: float) -> int:
        """Train to the end; returns the step of the state it continued from (0 = from the start)."""
        state = load_state(self.state, self.task.key, self.parameters, self.optimizer)
        begun = state.step if state else 0
        if state:
            self.progress = state.progress
            self._restore(state.extra)
            self.kept_step = int((read_record(self.last) or {}).get("step", 0))
        total, per_epoch = self.task.total_steps, self.task.steps_per_epoch
        self.causal.train()
        steps: list[list[np.ndarray]] = []
        for step in range(begun, total):
            epoch, place = divmod(step, per_epoch)
            if not steps or place == 0:
                steps = self.task.epoch(epoch)
            row = self._step(step, steps[place])
            ended = place + 1 == per_epoch or step + 1 == total
            every = self.spec.checkpoint_every
            kept = every is not None and ((step + 1) % every == 0 or step + 1 == total)
            if ended or kept or (validate_every and (step + 1) % validate_every == 0):
                row["validation_loss"] = self._validate(step + 1)
            self.progress["log"].append(row)
            if not self.workers.main:
                continue
            if ended or kept or row["validation_loss"] is not None:
                self._keep(step + 1, row["validation_loss"], total, always=kept)
            if kept:
                link(self.last, self.kept_folder(step + 1))
            shown = kept and self.on_checkpoint is not None
            if step + 1 < total:
                self._save_state(step + 1, 0.0 if shown else state_seconds)
            if shown:
                self._show(step + 1)
            if on_step:
                on_step(step + 1, total, dict(row))
        return begun

    def close(self) -> None:
        """Leave the model ready to be asked; after LoRA as it was found."""
        for parameter in self.parameters.values():
            parameter.grad = None
        if self.spec.activation_checkpointing:
            self.lm.model.gradient_checkpointing_disable()
        if self.model is not self.lm.model:
            self.model.unload()
        self.lm.model.eval()

    def kept_folder(self, step: int) -> Path:
        """Folder of the checkpoint of this step, with spec.checkpoint_every."""
        return self.last.parent / f"step-{step:06d}"

    def _step(self, step: int, parts: list[np.ndarray]) -> dict[str, Any]:
        row = self._gradients(step, parts)
        rate = self.task.learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {
            "step": step + 1,
            "epoch": (step + 1) / self.task.steps_per_epoch,
            "learning_rate": rate,
            "validation_loss": None,
            **row,
        }

    def _gradients(self, step: int, parts: list[np.ndarray]) -> dict[str, Any]:
        """Leave the clipped gradient of the step on the parameters; returns what the log says of it."""
        batches_here = [collate(self.task.encoded, rows) for rows in parts]
        scale = 1.0 / sum(len(batch.labels) for batch in batches_here)
        value = 0.0
        for batch in batches_here:
            value += self._backward(self.loss(batch, scale), step)
        norm = self.clipped([p.grad for p in self.parameters.values() if p.grad is not None], step)
        return {"lm_loss": value, "lora_grad_norm": norm if self.spec.method == "lora" else None, "grad_norm": norm}

    def _backward(self, loss: torch.Tensor, step: int, retain: bool = False) -> float:
        """Add the gradient of a part of the loss; returns its value."""
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._not_finite("loss", step + 1)
        loss.backward(retain_graph=retain)
        return value

    def clipped(self, grads: list[torch.Tensor], step: int, most: float | None = None) -> float:
        """Scale a gradient in place to a norm of at most `most` (max_grad_norm); returns the norm it had."""
        limit = self.spec.max_grad_norm if most is None else most
        norm = float(torch.nn.utils.get_total_norm(grads))
        if not math.isfinite(norm):
            raise self._not_finite("gradient", step + 1)
        if norm > limit:
            torch._foreach_mul_(grads, limit / norm)
        return norm

    def _show(self, step: int) -> None:
        """Hand a checkpoint over in evaluation mode; what is done with it moves no random stream of the training."""
        assert self.on_checkpoint is not None
        with seeded(self.spec.seed):
            self.causal.eval()
            self.on_checkpoint(step, self.kept_folder(step), replace(self.lm, model=self.model))
            self.causal.train()

    def _extra(self) -> dict[str, torch.Tensor]:
        """What a state holds beside weights, optimiser and random streams."""
        return {}

    def _restore(self, extra: dict[str, torch.Tensor]) -> None:
        """Take back what `_extra` gave."""

    def _validate(self, step: int) -> float | None:
        tokens = self.task.in_loss
        rows = self.task.validation[tokens[self.task.validation] > 0]
        if not len(rows):
            return None
        self.causal.eval()
        total = 0.0
        for part in batches(self.task.encoded.lengths[rows], self.spec.batch_size):
            total += self.loss.evaluate(collate(self.task.encoded, rows[part]))
        self.causal.train()
        value = total / float(tokens[rows].sum())
        if not math.isfinite(value):
            raise self._not_finite("validation loss", step)
        return value

    def _keep(self, step: int, validation_loss: float | None, total: int, always: bool = False) -> None:
        best = self.progress["best_loss"]
        improved = validation_loss is not None and (best is None or validation_loss < best)
        if improved or (step == total and validation_loss is None):
            self.progress.update(best_loss=validation_loss, best_step=step)
        if not (improved or always) and step < total and time.monotonic() - self.kept_at < _KEEP_LAST_EVERY:
            return
        names = self.task.names
        table = None if names is None else trained_on_table(*names, self.task.seen(step), self.task.validation)
        record = {
            "key": self.task.key,
            "method": self.spec.method,
            "base": self.spec.model.source,
            "step": step,
            "total_steps": total,
            "validation_loss": validation_loss,
            **self._about(),
            **(self.progress if step == total else {}),
        }
        save_checkpoint(self.last, self.model, self.lm.tokenizer, record, table)
        self.kept_step, self.kept_at = step, time.monotonic()
        if self.keeps_best and self.progress["best_step"] == step:
            link(self.last, self.best)

    def _about(self) -> dict[str, Any]:
        """What else the record of a checkpoint says."""
        return {}

    def _save_state(self, step: int, state_seconds: float) -> None:
        now = time.monotonic()
        wait = max(state_seconds, self.write_seconds / _WRITING_SHARE) if state_seconds > 0 else 0.0
        if now - self.saved_at < wait:
            return
        save_state(
            self.state, self.task.key, State(step, self.progress, self._extra()), self.parameters, self.optimizer
        )
        self.saved_at = time.monotonic()
        self.write_seconds = self.saved_at - now

    def _not_finite(self, what: str, step: int) -> RunError:
        kept = (
            f"The checkpoint of step {self.kept_step} is kept in {self.last}."
            if self.kept_step
            else "No checkpoint had been written yet."
        )
        return RunError(
            f"training: the {what} is not a number at step {step} of {self.task.total_steps}, so training stopped. "
            f"{kept} Lower learning_rate or max_grad_norm, add warmup_ratio, or set autocast: none."
        )


def _trainable(lm: LM, spec: FinetuneSpec | SurfaceLoraSpec) -> Any:
    lm.model.requires_grad_(False)
    if spec.activation_checkpointing:
        lm.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if spec.method == "lora":
        return add_adapter(lm.model, spec.lora, spec.model.source)
    return lm.model.float().requires_grad_(True)


def _optimizer(
    parameters: dict[str, torch.nn.Parameter], spec: FinetuneSpec | SurfaceLoraSpec, device: str
) -> torch.optim.AdamW:
    # Biases and norms are not decayed, as usual.
    matrices = [p for p in parameters.values() if p.ndim >= 2]
    vectors = [p for p in parameters.values() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": spec.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    fused = torch.device(device).type in ("cpu", "cuda")
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=spec.learning_rate, fused=fused)
