"""How a model is fine-tuned. In: mappings. Out: the shape of an adapter, a recipe for a model of an attack."""

from typing import Literal

from pydantic import Field

from auditcore.spec.parts import Part


class LoraSpec(Part):
    """Adapter shape (peft.LoraConfig)."""

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    # None: the attention projections of the architecture; all-linear: every linear map but the head
    target_modules: list[str] | Literal["all-linear"] | None = None
    upper_layers: int | None = Field(default=None, ge=1)  # adapt the uppermost so many layers; None: all


class SurfaceShape(LoraSpec):
    """The same for `surfacelora`, whose adversaries gain from more maps to pull at."""

    # Dropout would hide from the adversaries what an exported vector, which has none, still shows.
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] | Literal["all-linear"] | None = "all-linear"


class RecipeSpec(Part):
    """How the reference is fine-tuned for an attack that needs a model of its own."""

    method: Literal["full", "lora"] = "lora"
    lora: LoraSpec = Field(default_factory=LoraSpec)
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    batch_size: int = Field(default=16, ge=1)
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    autocast: Literal["auto", "bf16", "none"] = "auto"
