"""What training a mitigation and measuring its checkpoints would cost. In: a spec, its rows. Out: passes, bytes, words.

Counts are in forward passes of one token. Times are estimates for this machine; what dominates is said in the notes.
"""

from dataclasses import dataclass
from typing import Any

from auditcore.jobs.context import readable
from auditcore.spec import SurfaceLoraSpec


@dataclass(frozen=True)
class Cost:
    """Cost of a planned run."""

    seconds: float
    bytes: int
    notes: list[str]


def training_cost(
    spec: SurfaceLoraSpec, frame: Any, prompt_tokens: float, row_tokens: float, token_seconds: float
) -> Cost:
    """Cost of the training alone.

    frame: the rows that take part; prompt_tokens, row_tokens: mean per row, without and with the target; token_seconds:
    of one token forward through the model.
    """
    from auditcore.jobs.surfacelora import training_rows

    train, adversary = training_rows(spec, frame)
    shape = spec.discriminator
    summarised = spec.batch_size * spec.gradient_accumulation
    # With frozen weights a backward pass costs about as much as the forward one.
    passes = summarised * row_tokens * (3.0 if spec.activation_checkpointing else 2.0)
    bank = 0.0
    turned = spec.steps - spec.lambda_begin if spec.strength else 0
    if turned:
        more = max(shape.rows - summarised, 0)
        each = summarised * prompt_tokens + more * prompt_tokens * (3.0 if spec.activation_checkpointing else 2.0)
        windows = -(-turned // shape.bank_every)
        fold = len(adversary) / max(shape.bank_kept + 1, len(adversary) // shape.bank_rows)
        bank = (windows + shape.bank_kept - 1) * fold * prompt_tokens
        passes += each * turned / spec.steps
    seconds = token_seconds * (passes * spec.steps + bank)
    notes = [
        f"{len(train):,} rows to summarise, {len(adversary):,} prompts for the adversaries; about "
        f"{readable(seconds / spec.steps)} a step."
    ]
    seen = summarised * spec.steps / max(len(train), 1)
    notes.append(f"{spec.steps:,} steps of {summarised} summaries pass over the training rows {seen:.1f} times.")
    return Cost(seconds, 0, notes)
