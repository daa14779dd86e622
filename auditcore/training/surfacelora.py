"""SurfaceLoRA. In: a language model, encoded rows, labels, a spec. Out: adapters whose exported vector tells less.

The loss is the summaries' cross-entropy plus that of discriminators which read the exported vector through a
gradient-reversal layer (arXiv 2605.26433); adapters and discriminators are all that learns. The paper leaves base
model, layer, lambda and the discriminators' training open: the choices here are ours. The vector is the artifact as it
will be exported (prompt tokens only, same layer and pooling), from the forward pass that makes the summarisation loss;
more prompts of the training split, without their summaries, join it.

The two gradients are made, clipped and logged apart: Adam would else hide how large each one is. Discriminators have
random streams, optimisers and clipping of their own, so that with lambda 0 every bit is that of plain LoRA.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from auditcore.errors import SpecError
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.forward import pad
from auditcore.lm.load import LM
from auditcore.lm.pooling import pool
from auditcore.lm.vectors import depth, extract_vectors, resolve_layers, watching, width
from auditcore.spec import SurfaceLoraSpec
from auditcore.training.adversaries import ADVERSARIES, UNKNOWN, Adversary, Bank, Block
from auditcore.training.batches import collate
from auditcore.training.checkpoint import link, read_record, recover
from auditcore.training.finetune import make_task, precision, prepared
from auditcore.training.prompts import Labels, Prompts
from auditcore.training.reversal import reverse, warmed_up
from auditcore.training.trainer import OnCheckpoint, OnStep, Task, Trainer

LOG_COLUMNS = (
    "step",
    "epoch",
    "lambda",
    "lm_loss",
    "adversary_loss",
    "adversary_accuracy",
    "reversed_grad_norm",
    "lora_grad_norm",
    "grad_norm",
    "learning_rate",
)


@dataclass(frozen=True)
class SurfaceResult:
    """What a training made."""

    checkpoints: dict[int, Path]  # step -> adapter folder
    log: pd.DataFrame  # table training_log: LOG_COLUMNS, one row per optimiser step
    autocast: str  # bf16 | none: what was used
    resumed_from: int  # step of the state this call continued from; 0 = from the start
    notes: list[str]


def surfacelora(
    lm: LM,
    encoded: Encoded,
    train_rows: np.ndarray,
    labels: Labels,
    groups: Sequence[str],
    spec: SurfaceLoraSpec,
    out: Path,
    on_step: OnStep | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    *,
    example_ids: Sequence[str] | None = None,
    text_hashes: Sequence[str] | None = None,
    exported: Encoded | None = None,
    state_seconds: float = 90.0,
) -> SurfaceResult:
    """Train adapters on `lm` and write out/checkpoints/step-<number> every spec.checkpoint_every steps and at the end.

    train_rows: positions in `encoded` whose targets are learnt; labels: codes of all n rows, UNKNOWN where no adversary
    may look; groups: [n] subjects; exported: the prompts as their vectors are exported, by default those of `encoded`.
    Where the two differ (a prompt is cut to leave room for its target), the vector of the summarisation pass is not the
    exported one: adversaries then read that prompt alone. on_step(step, steps, log row) follows every optimiser step;
    on_checkpoint(step, folder, model) every checkpoint, with the model in memory in evaluation mode; what it does moves
    no random stream. Killed at any moment, the same call continues at the last saved state, which every checkpoint is.
    `lm` is left as it was found. example_ids, text_hashes, state_seconds and errors are those of `finetune`.
    """
    out = Path(out)
    empty = np.zeros(0, dtype=np.int64)
    more = labels.codes.tobytes()
    exported = encoded.prompts() if exported is None else exported
    if not same_prompts(encoded, exported).all():
        digest = hashlib.sha256()
        exported.hash_into(digest)
        more += digest.digest()
    task = make_task(lm, encoded, train_rows, empty, spec, example_ids, text_hashes, more)
    usable = exported.prompt_lengths > 0
    prompts = Prompts(labels, groups, usable, spec.discriminator, spec.seed) if spec.strength else None
    layer = resolve_layers([spec.layer], depth(lm), lm.source)[0]
    if layer == 0:
        raise SpecError("layer: 0 holds the embeddings, which no adapter changes; choose 1 or more, or -1.")
    autocast, begun = precision(spec, lm), task.total_steps
    if not _finished(task, out / "checkpoints"):
        with prepared(spec):
            trainer = SurfaceTrainer(task, lm, out, autocast, labels, prompts, layer, exported, on_checkpoint)
            try:
                begun = trainer.run(on_step, None, state_seconds)
            finally:
                trainer.close()
    recover(out / "state")
    shutil.rmtree(out / "state", ignore_errors=True)
    return _result(task, out / "checkpoints", autocast, begun, exported)


def same_prompts(encoded: Encoded, exported: Encoded) -> np.ndarray:
    """Mask [n]: the prompt inside the row is the prompt that is exported, so that one pass gives both."""
    prompts = encoded.prompts().ids
    return np.array([np.array_equal(a, b) for a, b in zip(prompts, exported.ids, strict=True)], dtype=bool)


@dataclass(frozen=True)
class Cell:
    """The adversaries of one artifact and one attribute."""

    artifact: str
    attribute: int
    adversaries: list[Adversary]


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
        super().__init__(task, lm, out, autocast, on_checkpoint)
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
        turned = _Turned(self, strength) if active else None
        more = turned.plan(parts) if turned is not None else []
        batches_here = [collate(self.task.encoded, rows) for rows in parts]
        scale = 1.0 / sum(len(batch.labels) for batch in batches_here)
        value = 0.0
        for batch, rows in zip(batches_here, parts, strict=True):
            with self._seeing() as seen:
                loss, last = self.loss.with_hidden(batch, scale)
            value += self._backward(loss, step, retain=turned is not None and strength > 0)
            if turned is not None:
                turned.add(seen.get(self.layer, last), self._mask(rows, last.shape[1]), self._codes(rows))
        for rows in more:
            with self._own_stream(step, rows):
                hidden, mask = self._prompts_only(rows)
                turned.add(hidden, mask, self.prompts.codes[rows])  # type: ignore[union-attr]
        norm = self._clip([p.grad for p in self.parameters.values() if p.grad is not None], step)
        row = {"lambda": strength, "lm_loss": value, "lora_grad_norm": norm, "grad_norm": norm}
        if turned is None:
            return row
        row |= turned.join(step)
        self._learn(step, turned.blocks)
        return row

    def _strength(self, step: int) -> float:
        over = self.spec.lambda_steps or self.task.total_steps - self.spec.lambda_begin
        return warmed_up(self.spec.strength, step, self.spec.lambda_begin, over)

    @contextmanager
    def _seeing(self) -> Iterator[dict[int, torch.Tensor]]:
        """Hidden states of the layer that is exported, where it is not the last one."""
        seen: dict[int, torch.Tensor] = {}
        with watching(self.causal.base_model, [self.layer], seen.__setitem__):
            yield seen

    def _codes(self, rows: np.ndarray) -> np.ndarray:
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
                self.exported.select(rows),
                self.spec.targets,
                [self.layer],
                batch_size=max(self.spec.batch_size, 16),
            )
        self.causal.train()
        vectors = {a: torch.from_numpy(found[a, self.layer]).to(device) for a in self.spec.targets}
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


class _Turned:
    """The turned gradient of one step, gathered part by part."""

    def __init__(self, trainer: SurfaceTrainer, strength: float) -> None:
        self.trainer, self.strength = trainer, strength
        self.lora = list(trainer.parameters.values())
        self.discriminators = [p for cell in trainer.cells for a in cell.adversaries for p in a.parameters()]
        self.grads: list[torch.Tensor | None] = [None] * len(self.lora)
        self.blocks: list[Block] = []
        self.loss, self.right, self.judged = 0.0, 0, 0
        self.totals = np.zeros(0)

    def plan(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """Count the rows of the step, and choose the prompts that join the summarised ones, in batches."""
        trainer, prompts = self.trainer, self.trainer.prompts
        assert prompts is not None
        codes = trainer._codes(np.concatenate(parts))
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

    def add(self, hidden: torch.Tensor, mask: torch.Tensor, usable: np.ndarray) -> None:
        """Take hidden states [rows, length, width] and codes [rows, attributes]; rows without any are left out."""
        trainer = self.trainer
        codes = torch.from_numpy(usable).to(hidden.device)
        known = (codes != UNKNOWN).any(dim=1)
        if not known.any():
            return
        vectors = pool(hidden[known], mask[known], trainer.spec.targets)
        codes = codes[known]
        self.blocks.append(Block({name: v.detach() for name, v in vectors.items()}, codes))
        loss = sum((self._cell(cell, vectors[cell.artifact], codes) for cell in trainer.cells), torch.zeros(()))
        self.loss += float(loss.detach())
        if self.strength > 0:
            self._backward(loss)

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
        row: dict[str, Any] = {
            "adversary_loss": self.loss / len(self.trainer.cells),
            "adversary_accuracy": self.right / self.judged if self.judged else None,
        }
        pairs = [(p, g) for p, g in zip(self.lora, self.grads, strict=True) if g is not None]
        if not pairs:
            return row
        row["reversed_grad_norm"] = self.trainer._clip([g for _, g in pairs], step, self.trainer.spec.max_reversed_norm)
        for parameter, grad in pairs:
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        row["grad_norm"] = float(torch.nn.utils.get_total_norm([p.grad for p in self.lora if p.grad is not None]))
        return row


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(f"{prefix}/"): t for n, t in tensors.items() if n.startswith(f"{prefix}/")}


def _finished(task: Task, checkpoints: Path) -> bool:
    """Whether this very training has ended before; repairs a last checkpoint that a kill kept from being linked."""
    last = checkpoints / "last"
    recover(last)
    record = read_record(last)
    if not record or record["key"] != task.key or record["step"] != task.total_steps:
        return False
    folder = checkpoints / f"step-{task.total_steps:06d}"
    if (read_record(folder) or {}).get("key") != task.key:
        link(last, folder)
    return True


def _result(task: Task, checkpoints: Path, autocast: str, begun: int, exported: Encoded) -> SurfaceResult:
    record = read_record(checkpoints / "last") or {}
    assert isinstance(task.spec, SurfaceLoraSpec)
    notes = []
    silent = len(task.train) - len(task.learnt)
    if silent:
        notes.append(f"{silent:,} of {len(task.train):,} training rows have no token in the loss.")
    unseen = len(task.train) - len(task.seen(task.total_steps))
    if unseen:
        notes.append(f"The steps end before {unseen:,} of {len(task.train):,} training rows were summarised once.")
    cut = int((~same_prompts(task.encoded, exported)[task.train]).sum())
    if cut:
        notes.append(
            f"{cut:,} of {len(task.train):,} training rows have a prompt that is cut to leave room for its summary: "
            "the adversaries read such prompts alone, as their vectors are exported."
        )
    folders = {step: checkpoints / f"step-{step:06d}" for step in task.spec.checkpoint_steps}
    return SurfaceResult(folders, log_table(record.get("log", [])), autocast, begun, notes)


def log_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Table training_log from the rows of the log so far."""
    log = pd.DataFrame(rows).reindex(columns=list(LOG_COLUMNS))
    return log.astype({name: "int64" if name == "step" else "float64" for name in LOG_COLUMNS})
