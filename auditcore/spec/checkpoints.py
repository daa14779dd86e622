"""Mitigation and choice. In: mappings. Out: specs of SurfaceLoRA and of checkpoints that are there already."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from auditcore.spec.audit import Audit
from auditcore.spec.exported import Added, Artifacts, DefenceSpec, Probes
from auditcore.spec.names import ADVERSARIES
from auditcore.spec.parts import ModelSpec, Part, Place, choices
from auditcore.spec.recipes import SurfaceShape
from auditcore.spec.training import Training


class CheckpointAudit(Audit):
    """What is measured of every checkpoint: leakage by fresh probes on bal_val, summaries, membership."""

    audit: Artifacts = Field(default_factory=lambda: ["lasttok", "meanpool", "concat"])
    layer: int = -1  # -1 = after the final norm
    probes: Probes = Field(default_factory=lambda: ["linear", "mlp"])
    # On the exported vectors of every checkpoint, fitted on defence_fit: told beside it, and never chosen by the rule.
    defences: Added = Field(default_factory=list)
    defence_options: DefenceSpec = Field(default_factory=DefenceSpec)
    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    budget: float = Field(default=0.025, gt=0, lt=1)
    select_on: Literal["point", "upper"] = "point"  # which end of a gap must meet the budget
    permutations: int = Field(default=0, ge=0)  # a null band for every checkpoint costs more than its training
    n_boot: int = Field(default=2000, ge=100)
    rouge_rows: int = Field(default=200, ge=0)  # bal_val rows that are summarised; the same ones for every checkpoint
    max_new_tokens: int | None = Field(default=None, ge=1)  # None: as many as the longest of their targets has
    membership_rows: int = Field(default=0, ge=0)  # members, and as many others, for attack `ez`; 0 = not measured

    @model_validator(mode="after")
    def _roles(self) -> Self:
        if not self.data.labels:
            raise ValueError("data.roles.label is missing: which column holds the sensitive label?")
        if self.rouge_rows and "target" not in self.data.roles:
            raise ValueError(
                "data.roles.target is missing: which column holds the summary? Without one set rouge_rows: 0"
            )
        if self.membership_rows and "member" not in self.data.roles:
            raise ValueError("membership_rows needs data.roles.member: which column says what was trained on?")
        return self


class DiscriminatorSpec(Part):
    """The adversaries of `surfacelora`, and the bank of vectors they are fitted on."""

    rows: int = Field(default=32, ge=1)  # prompts a step that the turned gradient comes from, summarised ones first
    held_out: bool = True  # turn against prompts that the bank does not hold: others are known by heart
    bank_rows: int = Field(default=640, ge=2)  # training prompts whose vectors are made anew ...
    bank_every: int = Field(default=25, ge=1)  # ... every so many steps; batches join in between
    bank_kept: int = Field(default=2, ge=1)  # refreshes in the bank
    ridge: float | Literal["auto"] = "auto"  # share of a standardised column's variance; auto: by rows left out
    hidden: int = Field(default=256, ge=1)  # of mlp, as is everything below
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=10.0, ge=0)  # AdamW's: 1 % of a weight a step, or it learns the bank by heart
    batch_size: int = Field(default=1024, ge=2)
    max_grad_norm: float = Field(default=1.0, gt=0)
    restart: bool = True  # begin anew at every refresh ...
    start_updates: int = Field(default=60, ge=0)  # ... with so many steps on the bank
    updates: int = Field(default=2, ge=0)  # steps on the bank for every step of the model

    @field_validator("ridge")
    @classmethod
    def _ridge(cls, value: Any) -> Any:
        if value == "auto" or value > 0:
            return value
        raise ValueError(f"ridge must be above 0, or auto (got {value})")


class SurfaceLoraSpec(CheckpointAudit, Training):
    """Train the mitigation: a summarisation adapter whose exported vector tells less about a label."""

    kind: Literal["surfacelora"] = "surfacelora"
    targets: Artifacts = Field(default_factory=lambda: ["lasttok"])
    strength: float = Field(default=2.0, ge=0, alias="lambda")  # 0: utility-only LoRA
    lambda_begin: int = Field(default=0, ge=0)  # steps without a turned gradient at the beginning
    lambda_steps: int | None = Field(default=None, ge=1)  # in which lambda rises; None: all that follow
    adversary: Annotated[list[str], Field(min_length=1), choices("adversary", ADVERSARIES)] = Field(
        default_factory=lambda: ["mlp", "ridge"]
    )
    discriminator: DiscriminatorSpec = Field(default_factory=DiscriminatorSpec)
    adversary_splits: tuple[Literal["train", "defence_fit"], ...] = ("train",)  # prompts the adversaries learn from
    max_reversed_norm: float = Field(default=3.0, gt=0)  # of the turned gradient; max_grad_norm is the other part's
    steps: int = Field(default=400, ge=1)
    checkpoint_every: int = Field(default=50, ge=1)
    batch_size: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0)
    warmup_ratio: float = Field(default=0.05, ge=0, lt=1)
    lora: SurfaceShape = Field(default_factory=SurfaceShape)

    @model_validator(mode="after")
    def _training(self) -> Self:
        if "target" not in self.data.roles:
            raise ValueError("data.roles.target is missing: which column holds the summary to learn?")
        left_out = [name for name in self.targets if name not in self.audit]
        if left_out:
            raise ValueError(f"audit leaves out '{left_out[0]}', which is targeted; what is not audited is not known")
        if self.checkpoint_every > self.steps:
            raise ValueError(f"checkpoint_every {self.checkpoint_every} is more than steps {self.steps}")
        if self.lambda_begin >= self.steps:
            raise ValueError(f"lambda_begin {self.lambda_begin} must be below steps {self.steps}")
        fitted = [s for s in (*self.train_splits, *self.adversary_splits) if s == self.defence_options.fit_on]
        if self.defences and fitted:
            raise ValueError(f"defences are fitted on {fitted[0]}, which is trained on: leave one of the two out")
        audited = [split for split in self.train_splits if split.startswith("bal_")]
        if audited:
            raise ValueError(f"train_splits: {audited[0]} is for the audit; what was trained on its rows says nothing")
        return self

    @property
    def method(self) -> Literal["lora"]:
        """How weights are learnt: adapters only."""
        return "lora"

    @property
    def checkpoint_steps(self) -> list[int]:
        """Steps at which a checkpoint is kept and measured."""
        return [*range(self.checkpoint_every, self.steps, self.checkpoint_every), self.steps]

    def total_steps(self, per_epoch: int) -> int:
        """Optimiser steps of the whole training."""
        return self.steps


class CheckpointFolder(Part):
    """Adapters the user already has, each in a folder of its own, and the model they belong to."""

    folder: Place
    base: Place
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    precision: Literal["full", "bf16"] = "full"
    device: str = "auto"
    check_base: bool = True  # skip an adapter that names another base; off: take whatever fits


class FrontierSpec(CheckpointAudit):
    """The same measurements for checkpoints that are there already."""

    kind: Literal["frontier"] = "frontier"
    checkpoints: CheckpointFolder

    @property
    def model(self) -> ModelSpec:
        """The base model."""
        c = self.checkpoints
        return ModelSpec(source=c.base, dtype=c.dtype, precision=c.precision, device=c.device)
