"""Which training rows does the model remember? In: a mapping. Out: a membership spec."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from auditcore.spec.audit import Audit
from auditcore.spec.names import ATTACKS, Fraction, LiraVariant
from auditcore.spec.parts import ModelSpec, Part, choices
from auditcore.spec.recipes import RecipeSpec

Attacks = Annotated[list[str], Field(min_length=1), choices("attack", ATTACKS)]


class ShadowSpec(RecipeSpec):
    """Shadow models of the attack `lira`: how many, and how the reference is fine-tuned into each of them."""

    count: int = Field(default=8, ge=4)  # two on each side of a row are the least that show a spread
    variant: LiraVariant = "online"


class SpvSpec(RecipeSpec):
    """The attack `spv`: pairs of altered copies per row, and how the reference is fine-tuned on the target's texts."""

    pairs: int = Field(default=10, ge=1)  # two copies each; 10 pairs make the paper's 42 passes
    domain: Literal["words", "embeddings"] = "words"  # other words, or noise on the embeddings to either side
    noise: float = Field(default=0.3, gt=0)  # embeddings: deviation over the root mean square of the embeddings; ours
    epochs: int = Field(default=2, ge=1)  # the authors' own, as the rate is
    learning_rate: float = Field(default=5e-5, gt=0)


class ReferenceSpec(RecipeSpec):
    """What attacks compare the target with: model.reference as it is (base), or fine-tuned for the purpose.

    sft: on known non-members, which leave the evaluation; distillation: on texts that the target writes.
    """

    kind: Literal["base", "sft", "distillation"] = "base"
    nonmembers: Fraction = 0.5  # sft: share of the non-members' subjects that are trained on


class SelfPromptSpec(Part):
    """Texts that the target writes behind short public prompts, for whatever is fine-tuned on them."""

    texts: int = Field(default=400, ge=8)
    prompts: str | list[str] | None = None  # a text file with one prompt a line, or the prompts; None: those we ship
    new_tokens: int | None = Field(default=None, ge=4)  # of each text; None: 64, or what max_length leaves
    temperature: float = Field(default=0.9, gt=0)
    top_p: float = Field(default=0.9, gt=0, le=1)

    @field_validator("prompts")
    @classmethod
    def _prompts(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list) and not [p for p in value if p.strip()]:
            raise ValueError("name at least one prompt, or leave prompts out to use those we ship")
        return value


class NeighbourSpec(Part):
    """Altered copies of each row: how many for `neighbourhood`, and how much of a row each changes (for `spv` too)."""

    count: int = Field(default=10, ge=1)
    share: Fraction = 0.1  # of a row's whole words, at least one; our choice, the paper replaces one to a few words


class MembershipSpec(Audit):
    """Which training rows does the model remember?"""

    kind: Literal["membership"] = "membership"
    model: ModelSpec
    attacks: Attacks = Field(default_factory=lambda: ["ez", "loss", "reference"])
    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True
    recall_shots: int = Field(default=5, ge=1)  # non-members in the prefix of `recall`; they leave the evaluation
    reference: ReferenceSpec = Field(default_factory=ReferenceSpec)
    shadows: ShadowSpec = Field(default_factory=ShadowSpec)
    neighbours: NeighbourSpec = Field(default_factory=NeighbourSpec)
    spv: SpvSpec = Field(default_factory=SpvSpec)
    self_prompt: SelfPromptSpec = Field(default_factory=SelfPromptSpec)
    score: Literal["target", "all"] = "target"  # rows with prompt and target: which positions count
    target_fprs: list[Fraction] = Field(default_factory=lambda: [0.001, 0.01, 0.05, 0.1], min_length=1)
    membership_budget: float = Field(default=0.025, gt=0, lt=1)
    n_boot: int = Field(default=2000, ge=100)
    on_duplicates: Literal["warn", "exclude"] = "warn"  # texts that stand on both sides of the member line
    on_mismatch: Literal["error", "warn"] = "error"  # member column against what the checkpoint was trained on

    @property
    def written_tokens(self) -> int:
        """Tokens that the target writes behind each prompt, at most: by default the prompt may take 16 beside them."""
        if self.self_prompt.new_tokens is not None:
            return self.self_prompt.new_tokens
        return min(64, max(self.max_length - 16, self.max_length // 2))

    @model_validator(mode="after")
    def _reference(self) -> "MembershipSpec":
        if 0.01 not in self.target_fprs:
            raise ValueError("target_fprs must hold 0.01: the membership verdict is read there")
        return self
