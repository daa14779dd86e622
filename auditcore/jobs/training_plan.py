"""What fine-tuning would cost. In: a finetune or sweep spec, its rows. Out: rows that are trained on, time, bytes."""

from typing import Any

from auditcore.jobs.estimate import Plan
from auditcore.jobs.plan import operating_point, token_lengths
from auditcore.jobs.work import TRAINING
from auditcore.spec import FinetuneSpec, SweepSpec


def finetune_plan(spec: FinetuneSpec, dataset: Any, token_seconds: float, weights: int, notes: list[str]) -> Plan:
    """Plan of one training: rows and tokens are those of one epoch, the time is that of all of them.

    token_seconds: of one token forward through the model; weights: how many numbers it has.
    """
    from auditcore.training.rows import select_rows

    train, validation = select_rows(dataset.frame, spec)
    tokens = int(token_lengths(spec, dataset.select(train)).mean() * len(train))
    steps, epochs = _length(spec, len(train))
    checked = tokens * len(validation) / len(train)  # after every epoch
    seconds = token_seconds * (TRAINING * tokens + checked) * epochs
    size = (2 * 4 * weights) if spec.method == "full" else 20_000_000
    rest = len(dataset.frame) - len(train) - len(validation)
    notes = [
        *notes,
        f"{len(train):,} rows to train on, {len(validation):,} to choose the best checkpoint; {rest:,} of "
        f"{len(dataset.frame):,} rows take no part. {steps:,} steps make {epochs:.3g} epochs.",
    ]
    return Plan("finetune", len(train), tokens, seconds + 20, size, [], [], notes)


def sweep_plan(
    spec: SweepSpec, dataset: Any, tokens: int, token_seconds: float, weights: int, notes: list[str]
) -> Plan:
    """Plan of several trainings, each of whose checkpoints reads all rows (tokens of them)."""
    from auditcore.jobs.evidence import needs
    from auditcore.jobs.sweep import trainings
    from auditcore.training.rows import select_rows

    variants, rows = trainings(spec), len(dataset.frame)
    train, validation = select_rows(dataset.frame, next(iter(variants.values())))
    share, held = len(train) / max(rows, 1), len(validation) / max(rows, 1)
    per_checkpoint = held + 1.0 + ("lowercase" in needs(spec.attacks))
    passes, checkpoints, size = 1.0, 0, 0
    for training in variants.values():
        kept = training.epochs * spec.checkpoints_per_epoch
        checkpoints += kept
        passes += TRAINING * share * _length(training, len(train))[1] + kept * per_checkpoint
        size = max(size, 4 * weights * (kept + 3) if training.method == "full" else 20_000_000)
    n_nonmember = int((~dataset.frame["member"].astype("boolean")).fillna(False).sum())
    points = [operating_point(f, n_nonmember) for f in spec.target_fprs]
    notes.append(
        f"{len(variants)} variants and {checkpoints} checkpoints; {len(train):,} rows to train on, "
        f"{len(validation):,} that only measure the validation loss."
    )
    seconds = passes * token_seconds * tokens + 20
    return Plan("sweep", rows, tokens, seconds, size + tokens * 20 * checkpoints, [], points, notes)


def _length(spec: FinetuneSpec, rows: int) -> tuple[int, float]:
    """Optimiser steps of a training on so many rows, and the epochs they make: max_steps may end it early."""
    per_epoch = -(-rows // (spec.batch_size * spec.gradient_accumulation))
    steps = spec.total_steps(per_epoch)
    return steps, steps / per_epoch
