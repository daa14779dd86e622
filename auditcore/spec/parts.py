"""What every spec is made of. In: mappings. Out: the model, templates, chosen names, what all audits share."""

import string
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

from auditcore.errors import did_you_mean


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: name what is meant (an empty path would be the working directory, written '.')")
    return value


Place = Annotated[str, AfterValidator(_not_empty)]  # a path, or another name of a model


class ModelSpec(Part):
    """Which model: a folder, an adapter folder, a GGUF file, a hub id or a short name."""

    source: Place
    reference: Place | None = None  # membership only: the model before fine-tuning
    base: Place | None = None  # the base of an adapter, when its own config does not find it
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    precision: Literal["full", "bf16"] = "full"  # bf16: body in bfloat16, head and log-softmax in float32
    device: str = "auto"

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if value in ("auto", "cpu", "mps") or value.split(":")[0] == "cuda":
            return value
        raise ValueError(f"'{value}' is not a device: use auto, cpu, cuda, cuda:N or mps")


def parse_template(template: str) -> list[tuple[str, str | None]]:
    """Split "{title}. {description}" into (literal, column) pairs; column is None at the end.

    Raises ValueError when the template names no column or is not a valid format string.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"template {template!r}: {error}; write {{{{ and }}}} for literal braces") from None
    pieces: list[tuple[str, str | None]] = []
    for literal, field, spec, conversion in parts:
        if field is not None and (not field or spec or conversion):
            raise ValueError(f"template {template!r}: write columns as {{name}}, with nothing else inside the braces")
        pieces.append((literal, field))
    if not any(field for _, field in pieces):
        raise ValueError(f"template {template!r} names no column, as in '{{text}}'")
    return pieces


def choice(what: str, known: Iterable[str]) -> AfterValidator:
    """For a field that takes one of the known names; any other is refused with the nearest one."""
    return AfterValidator(partial(_known, what, known))


def choices(what: str, known: Iterable[str]) -> AfterValidator:
    """For a field that takes a list of the known names, none of them twice."""

    def check(values: list[str]) -> list[str]:
        for value in values:
            _known(what, known, value)
        if len(set(values)) != len(values):
            raise ValueError(f"{what} named twice in {values}")
        return values

    return AfterValidator(check)


def _known(what: str, known: Iterable[str], value: str) -> str:
    if value not in known:
        raise ValueError(f"{what} '{value}' is unknown.{did_you_mean(value, known)}")
    return value
