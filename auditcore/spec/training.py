"""Fine-tuning. In: mappings. Out: specs of one training, and of a sweep over several."""

from typing import Any, Literal

from pydantic import Field, field_validator

from auditcore.spec.audit import Audit, validation_rows
from auditcore.spec.membership import Attacks
from auditcore.spec.names import Fraction, SplitName
from auditcore.spec.parts import ModelSpec, Part
from auditcore.spec.recipes import LoraSpec


class Training(Audit):
    """How adapters or weights are learnt."""

    model: ModelSpec
    lora: LoraSpec = Field(default_factory=LoraSpec)
    learning_rate: float = Field(default=5e-5, gt=0)
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1)
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    gradient_accumulation: int = Field(default=1, ge=1)
    activation_checkpointing: bool = False  # layers are computed again in the backward pass: less memory, more time
    # bf16: matrix products in bfloat16, weights stay float32. auto: bf16 where the hardware has units for it (CUDA,
    # AMX), none elsewhere, where float32 is faster.
    autocast: Literal["auto", "bf16", "none"] = "auto"
    train_splits: tuple[SplitName, ...] = ("train",)  # used when there is no member role


class FinetuneSpec(Training):
    """Fine-tune a model: full or LoRA. Makes the targets that membership audits need."""

    kind: Literal["finetune"] = "finetune"
    method: Literal["full", "lora"] = "full"
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)  # steps; None keeps `last` and `best` only
    # Rows that choose `best`: a share of the training subjects, the rows of unknown membership, or a split. 0 = none.
    validation: float | Literal["unknown", "defence_fit", "bal_train", "bal_val"] = 0.1

    _validation = field_validator("validation", mode="before")(validation_rows)

    def total_steps(self, per_epoch: int) -> int:
        """Optimiser steps of the whole training."""
        steps = per_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)


class VariantSpec(Part):
    """Ways to fine-tune in a sweep: where a field holds a list, every combination of the lists is one variant."""

    method: Literal["full", "lora"]
    rank: list[int] = Field(default_factory=lambda: [16], min_length=1)  # LoRA only; alpha is twice the rank
    learning_rate: list[float] = Field(min_length=1)
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    target_modules: list[str] | None = None

    @field_validator("rank", "learning_rate", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    @field_validator("rank", "learning_rate")
    @classmethod
    def _positive(cls, value: list[float]) -> list[float]:
        if any(v <= 0 for v in value) or len(set(value)) != len(value):
            raise ValueError(f"{value}: each value must be above 0 and named once")
        return value


class SweepSpec(Audit):
    """Does the fine-tuning method decide? Several trainings on the same rows, each of their checkpoints audited."""

    kind: Literal["sweep"] = "sweep"
    model: ModelSpec  # the model before fine-tuning: every variant starts from it and is compared with it
    variants: list[VariantSpec] = Field(min_length=1)
    checkpoints_per_epoch: int = Field(default=1, ge=1)
    validation: float | Literal["unknown", "defence_fit", "bal_train", "bal_val"] = 0.1
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    autocast: Literal["auto", "bf16", "none"] = "auto"
    attacks: Attacks = Field(default_factory=lambda: ["ez", "loss", "reference"])
    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True
    score: Literal["target", "all"] = "target"
    target_fprs: list[Fraction] = Field(default_factory=lambda: [0.01, 0.1], min_length=1)
    n_boot: int = Field(default=2000, ge=100)
    tolerance: float = Field(default=0.02, gt=0)  # nats per token: how near two validation losses must be to match
    on_duplicates: Literal["warn", "exclude"] = "warn"

    _validation = field_validator("validation", mode="before")(validation_rows)
