"""What any kind of audit measures on exported vectors. In: lists and mappings. Out: artifacts, attackers, defences."""

from typing import Annotated

from pydantic import Field, field_validator

from auditcore.errors import did_you_mean
from auditcore.spec.names import ARTIFACTS, DEFENCES, PROBES, WHY_NOT, Fraction
from auditcore.spec.parts import Part, choices

# The defences that change a vector; the others leave it as it is (none) or change what the model reads (prompt).
ON_VECTORS = {name: words for name, words in DEFENCES.items() if name not in ("none", "prompt")}

Artifacts = Annotated[list[str], Field(min_length=1), choices("artifact", ARTIFACTS)]
Probes = Annotated[list[str], Field(min_length=1), choices("probe", PROBES)]
Defences = Annotated[list[str], Field(min_length=1), choices("defence", DEFENCES)]
Added = Annotated[list[str], choices("defence", ON_VECTORS)]


class DefenceSpec(Part):
    """How defences on vectors are fitted; what one of them does not use is ignored by it."""

    fit_on: str = "defence_fit"
    dimensions: int | None = Field(default=None, ge=1)  # directions to remove; None: classes - 1, what their means span
    noise: float = Field(default=0.5, gt=0)  # of `noise`: standard deviation, in those of each column
    keep: Fraction = 0.5  # of `truncate`: share of the columns

    @field_validator("fit_on")
    @classmethod
    def _fit_on(cls, value: str) -> str:
        if value not in WHY_NOT:
            raise ValueError(f"'{value}' is not a split.{did_you_mean(value, WHY_NOT)}")
        if WHY_NOT[value]:
            raise ValueError(f"{WHY_NOT[value]} Defences are fitted on subjects of their own, those of defence_fit")
        return value
