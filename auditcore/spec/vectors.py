"""What can be inferred from exported vectors? In: a mapping. Out: a vectors spec."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from auditcore.spec.audit import Audit
from auditcore.spec.exported import Artifacts, Defences, DefenceSpec, Probes
from auditcore.spec.names import BASELINES, Fraction
from auditcore.spec.parts import ModelSpec, Part, Place, choices


class VectorFile(Part):
    """Vectors the user already has: one row each, in the order of the data (or joined by the id role)."""

    path: Place
    column: str | None = None


class GenerateSpec(Part):
    """Summaries that the model writes, to be read by attackers too: of how many test rows, how long."""

    rows: int = Field(default=200, ge=20)  # at most; whole subjects, the first label's classes equally frequent
    max_new_tokens: int = Field(default=96, ge=1)
    embed: bool = True  # read vectors of the texts too, made by the audited model


class CurveSpec(Part):
    """Accuracy against training rows: probes on nested subsamples of bal_train, and what more rows might give."""

    shares: list[Fraction] = Field(default_factory=lambda: [1 / 16, 1 / 8, 1 / 4, 1 / 2], min_length=1)
    draws: int = Field(default=5, ge=2)  # subsamples of each size
    times: float = Field(default=10.0, gt=1)  # as many rows as there are: an extrapolation

    @field_validator("shares")
    @classmethod
    def _shares(cls, value: list[float]) -> list[float]:
        if len(set(value)) != len(value):
            raise ValueError(f"a share stands twice in {value}")
        return sorted(value)


class VectorsSpec(Audit):
    """What can be inferred from the exported vectors?"""

    kind: Literal["vectors"] = "vectors"
    model: ModelSpec | None = None
    vectors: VectorFile | None = None
    artifacts: Artifacts = Field(default_factory=lambda: ["lasttok", "meanpool"])
    # -1 = after the final norm; all = every one, from the embeddings (0) to there
    layers: list[int] | Literal["all"] = Field(default_factory=lambda: [-1])
    last_k: int = Field(default=8, ge=1)  # tokens in the artifact last_k_mean
    probes: Probes = Field(default_factory=lambda: ["linear", "mlp"])
    # Those the data has columns for
    baselines: Annotated[list[str], choices("baseline", BASELINES)] = Field(default_factory=lambda: list(BASELINES))
    defences: Defences = Field(default_factory=lambda: ["none"])
    defence_options: DefenceSpec = Field(default_factory=DefenceSpec)
    directives: dict[str, str] | None = None  # of the defence `prompt`: name -> text; None: the three shipped ones
    meta_terms: list[str] | None = None  # words of directives that no summary should hold; None: the list shipped
    generate: GenerateSpec | None = None
    curve: CurveSpec | None = None  # of the deepest layer of each artifact, as exported; costs another round of fits
    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    budget: float = Field(default=0.025, gt=0, lt=1)
    permutations: int = Field(default=199, ge=19)
    n_boot: int = Field(default=2000, ge=100)

    @field_validator("layers", mode="before")
    @classmethod
    def _layers(cls, value: Any) -> Any:
        whole = isinstance(value, list) and value and all(type(layer) is int for layer in value)
        if whole or value == "all":
            return value
        raise ValueError(f"{value!r} is neither a list of whole numbers, such as [0, 15, -1], nor all")

    @field_validator("directives")
    @classmethod
    def _directives(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for name, text in (value or {}).items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,29}", name):
                raise ValueError(f"directive '{name}': names are lower-case letters, digits, - and _, at most 30")
            if not text.strip():
                raise ValueError(f"directive '{name}' is empty")
        if value == {}:
            raise ValueError("no directive is named; leave directives out to have the shipped ones")
        return value

    @model_validator(mode="after")
    def _texts(self) -> "VectorsSpec":
        if self.model is None and "prompt" in self.defences:
            raise ValueError("defence 'prompt' changes what a model reads: it needs a model, not a file of vectors")
        if self.model is None and self.generate is not None:
            raise ValueError("generate: summaries are written by a model, and none is named")
        return self

    @model_validator(mode="after")
    def _source(self) -> "VectorsSpec":
        if (self.model is None) == (self.vectors is None):
            raise ValueError("name either a model to extract vectors with, or a file of vectors, not both")
        if not self.data.labels:
            raise ValueError("data.roles.label is missing: which column holds the sensitive label?")
        return self

    @property
    def read_template(self) -> str | None:
        """How a row's text is written, None where no text is read: vectors from a file, without a column for it."""
        has_text = self.template is not None or "prompt" in self.data.roles or "text" in self.data.roles
        return self.prompt_template if self.model is not None or has_text else None
