"""Fine-tuning. In: a language model, encoded rows, a spec. Out: checkpoints `last` and `best`, and the training log.

Killed at any moment, the same call with the same folder continues at the last saved state and ends, on a CPU, with the
weights of an undisturbed training.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from auditcore.errors import DatasetError, ModelError, SpecError
from auditcore.lm.encode import Encoded
from auditcore.lm.load import LM
from auditcore.spec import FinetuneSpec, SurfaceLoraSpec, dump_spec
from auditcore.training.checkpoint import link, read_record, recover, seeded
from auditcore.training.loss import has_bfloat16_units
from auditcore.training.results import ended, log_table, row_notes
from auditcore.training.trainer import OnStep, Task, Trainer

# Fields of a spec that change no weight: names, and how checkpoints are measured.
NOT_DECIDING = {
    *("name", "data", "threads", "store_text", "audit", "probes", "seeds", "budget", "permutations", "n_boot"),
    *("select_on", "rouge_rows", "max_new_tokens", "membership_rows", "defences", "defence_options"),
}
LOG_COLUMNS = (
    "step",
    "epoch",
    "lambda",
    "lm_loss",
    "adversary_loss",
    "reversed_grad_norm",
    "lora_grad_norm",
    "grad_norm",
    "learning_rate",
    "validation_loss",
)


@dataclass(frozen=True)
class TrainingResult:
    """What a training made."""

    last: Path
    best: Path
    log: pd.DataFrame  # table training_log: LOG_COLUMNS, one row per optimiser step, losses in nats per token
    steps: int
    best_step: int
    best_validation_loss: float | None  # nats per token; None without validation rows
    last_validation_loss: float | None
    autocast: str  # bf16 | none: what was used
    resumed_from: int  # step of the state this call continued from; 0 = from the start
    notes: list[str]


def finetune(
    lm: LM,
    encoded: Encoded,
    train_rows: np.ndarray,
    validation_rows: np.ndarray,
    spec: FinetuneSpec,
    out: Path,
    on_step: OnStep | None = None,
    *,
    example_ids: Sequence[str] | None = None,
    text_hashes: Sequence[str] | None = None,
    validate_every: int | None = None,
    state_seconds: float = 90.0,
) -> TrainingResult:
    """Fine-tune `lm` and write out/checkpoints/last and out/checkpoints/best.

    train_rows, validation_rows: positions in `encoded`. Text rows are learnt on every token, rows with a target on the
    target's tokens, conversations on what the assistant writes; the loss of a step is the mean over its tokens. `best`
    has the lowest validation loss (float32, no autocast, mean over tokens), measured after every epoch and every
    `validate_every` steps; without validation rows it is `last`. example_ids, text_hashes: names and SHA-256 of all
    rows of `encoded`, recorded in each checkpoint as
    trained_on.parquet. Every spec.checkpoint_every steps and at the end, a checkpoint step-<number> is kept beside them
    and its validation loss measured. on_step(step, total_steps, log row) is called after every optimiser step. A state
    to resume from is written to out/state every `state_seconds`, or less often where writing would take more than 5 %
    of the time (0 = after every step).

    Full fine-tuning changes lm.model in place; LoRA leaves it as it was. Raises DatasetError (nothing to learn),
    SpecError, ModelError (out of memory, no such module) and RunError (loss not finite, disk full, foreign state).
    """
    out = Path(out)
    task = make_task(lm, encoded, train_rows, validation_rows, spec, example_ids, text_hashes)
    autocast, begun = precision(spec, lm), task.total_steps
    if not _finished(task, out / "checkpoints"):
        with prepared(spec):
            trainer = Trainer(task, lm, out, autocast)
            try:
                begun = trainer.run(on_step, validate_every, state_seconds)
            finally:
                trainer.close()
    recover(out / "state")
    shutil.rmtree(out / "state", ignore_errors=True)
    return _result(task, out / "checkpoints", autocast, begun)


def make_task(
    lm: LM,
    encoded: Encoded,
    train_rows: np.ndarray,
    validation_rows: np.ndarray,
    spec: FinetuneSpec | SurfaceLoraSpec,
    example_ids: Sequence[str] | None,
    text_hashes: Sequence[str] | None,
    more: bytes = b"",
) -> Task:
    """Check what a training is given and hash everything that decides its result (`more` with it)."""
    if hasattr(lm.model, "peft_config"):
        raise ModelError(
            f"{lm.source}: is an adapter; fine-tuning starts from a full model. Name its base ({lm.base}) as "
            "model.source, or merge the adapter into it first."
        )
    if lm.precision != "full":
        raise SpecError("model.precision: bf16 is for scoring only; use autocast: bf16 to train faster.")
    train, validation = np.asarray(train_rows, dtype=np.int64), np.asarray(validation_rows, dtype=np.int64)
    if np.intersect1d(train, validation).size:
        raise DatasetError("validation rows are also trained on; they could not tell which checkpoint is best.")
    settings = {k: v for k, v in dump_spec(spec).items() if k not in NOT_DECIDING}
    digest = hashlib.sha256(json.dumps([settings, lm.fingerprint, torch.__version__], sort_keys=True).encode())
    encoded.hash_into(digest)
    digest.update(train.tobytes() + b"|" + validation.tobytes() + more)
    names = None if example_ids is None or text_hashes is None else (example_ids, text_hashes)
    task = Task(encoded, train, validation, spec, digest.hexdigest(), names)
    if not len(task.learnt):
        raise DatasetError(
            f"nothing to train on: none of the {len(train):,} training rows has a token to learn "
            + (
                "(what the assistant writes, within max_length)."
                if encoded.learnt is not None
                else "(a target that fits into max_length)."
                if encoded.has_target
                else "(two tokens or more)."
            )
        )
    return task


def precision(spec: FinetuneSpec | SurfaceLoraSpec, lm: LM) -> str:
    """What autocast means on this device: bf16 or none."""
    if spec.autocast == "auto":
        return "bf16" if has_bfloat16_units(lm.device) else "none"
    return spec.autocast


@contextmanager
def prepared(spec: FinetuneSpec | SurfaceLoraSpec) -> Iterator[None]:
    """Threads and random streams of a training; an allocation that failed becomes a message with a way out."""
    with _threads(spec.threads), seeded(spec.seed), _memory(spec):
        yield


def _finished(task: Task, checkpoints: Path) -> bool:
    """Whether this very training has ended before; repairs a `best` that a kill kept from being written."""
    last, best = checkpoints / "last", checkpoints / "best"
    recover(best)
    record = ended(task, checkpoints)
    if record is None:
        return False
    if (read_record(best) or {}).get("step") != record["best_step"]:
        if record["best_step"] != record["step"]:
            return False
        link(last, best)
    return True


def _result(task: Task, checkpoints: Path, autocast: str, begun: int) -> TrainingResult:
    record = read_record(checkpoints / "last") or {}
    log = log_table(record["log"], LOG_COLUMNS)
    notes = row_notes(task, "max_steps ended the training before {rows} rows were used once.")
    if record["best_loss"] is None:
        notes.append("No validation rows: `best` is the same as `last`.")
    return TrainingResult(
        last=checkpoints / "last",
        best=checkpoints / "best",
        log=log,
        steps=record["step"],
        best_step=record["best_step"],
        best_validation_loss=record["best_loss"],
        last_validation_loss=record["validation_loss"],
        autocast=autocast,
        resumed_from=begun,
        notes=notes,
    )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _memory(spec: FinetuneSpec | SurfaceLoraSpec) -> Iterator[None]:
    """Turn an allocation that failed into a message with a way out."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_large(spec) from error
    except RuntimeError as error:
        if "not enough memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        raise _too_large(spec) from error


def _too_large(spec: FinetuneSpec | SurfaceLoraSpec) -> ModelError:
    smaller = max(spec.batch_size // 2, 1)
    more = spec.gradient_accumulation * 2
    adapter = ", activation_checkpointing: true" if not spec.activation_checkpointing else ""
    adapter += ", or method: lora" if spec.method == "full" else ""
    return ModelError(
        f"{spec.model.source}: training ran out of memory with batch_size {spec.batch_size} at max_length "
        f"{spec.max_length}. Try batch_size: {smaller} with gradient_accumulation: {more} (the same steps), a smaller "
        f"max_length{adapter}."
    )
