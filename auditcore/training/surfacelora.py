"""SurfaceLoRA. In: a language model, encoded rows, labels, a spec. Out: adapters whose exported vector tells less.

The loss is the summaries' cross-entropy plus that of discriminators which read the exported vector through a
gradient-reversal layer (arXiv 2605.26433); adapters and discriminators are all that learns. The paper leaves base
model, layer, lambda and the discriminators' training open: the choices here are ours. The vector is the artifact as it
will be exported (prompt tokens only, same layer and pooling), from the forward pass that makes the summarisation loss;
more prompts of the training split, without their summaries, join it.

Started by `accelerate launch` in several processes, with the same arguments in each, they train one model together.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.errors import SpecError
from auditcore.lm.encode import Encoded
from auditcore.lm.load import LM
from auditcore.lm.vectors import depth, resolve_layers
from auditcore.spec import SurfaceLoraSpec
from auditcore.training.checkpoint import link, read_record, recover
from auditcore.training.finetune import make_task, precision, prepared
from auditcore.training.prompts import Labels, Prompts
from auditcore.training.results import ended, log_table, row_notes
from auditcore.training.surface_trainer import SurfaceTrainer, same_prompts
from auditcore.training.trainer import OnCheckpoint, OnStep, Task
from auditcore.training.workers import Workers

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
    workers = Workers(lm.device)
    if not workers.told(workers.main and _finished(task, out / "checkpoints")):
        with prepared(spec):
            trainer = SurfaceTrainer(task, lm, out, autocast, labels, prompts, layer, exported, on_checkpoint)
            try:
                begun = trainer.run(on_step, None, state_seconds)
            finally:
                trainer.close()
    if workers.main:
        recover(out / "state")
        shutil.rmtree(out / "state", ignore_errors=True)
    return _result(task, out / "checkpoints", autocast, begun, exported)


def _finished(task: Task, checkpoints: Path) -> bool:
    """Whether this very training has ended before; repairs a last checkpoint that a kill kept from being linked."""
    if ended(task, checkpoints) is None:
        return False
    folder = checkpoints / f"step-{task.total_steps:06d}"
    if (read_record(folder) or {}).get("key") != task.key:
        link(checkpoints / "last", folder)
    return True


def _result(task: Task, checkpoints: Path, autocast: str, begun: int, exported: Encoded) -> SurfaceResult:
    record = read_record(checkpoints / "last") or {}
    assert isinstance(task.spec, SurfaceLoraSpec)
    notes = row_notes(task, "The steps end before {rows} training rows were summarised once.")
    cut = int((~same_prompts(task.encoded, exported)[task.train]).sum())
    if cut:
        notes.append(
            f"{cut:,} of {len(task.train):,} training rows have a prompt that is cut to leave room for its summary: "
            "the adversaries read such prompts alone, as their vectors are exported."
        )
    folders = {step: checkpoints / f"step-{step:06d}" for step in task.spec.checkpoint_steps}
    return SurfaceResult(folders, log_table(record.get("log", []), LOG_COLUMNS), autocast, begun, notes)
