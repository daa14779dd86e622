"""What an audit is: validated specs, and every name that can be chosen. In: YAML, JSON or a dict. Out: a frozen spec.

The pages, the command line and spec files all build the same objects; the module that owns a kind of choice maps each
name listed here to one function.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from auditcore.errors import SpecError, did_you_mean
from auditcore.spec.audit import Audit
from auditcore.spec.checkpoints import CheckpointFolder, DiscriminatorSpec, FrontierSpec, SurfaceLoraSpec
from auditcore.spec.data import ClinicalSpec, CorpusSpec, DataSpec
from auditcore.spec.exported import DefenceSpec
from auditcore.spec.membership import MembershipSpec, NeighbourSpec, ReferenceSpec, SelfPromptSpec, ShadowSpec, SpvSpec
from auditcore.spec.names import (
    ADVERSARIES,
    ARTIFACTS,
    ATTACKS,
    BASELINES,
    CHATS,
    CLINICAL,
    CLINICAL_ROLES,
    CLINICAL_SPLITS,
    CORPORA,
    DEFENCES,
    KINDS,
    PROBES,
    ROLES,
    SEQUENCES,
    SHORT_NAMES,
    SPLITS,
    STATUSES,
    UNITS,
    VERDICTS,
    WHY_NOT,
    Fraction,
    LiraVariant,
    SplitName,
)
from auditcore.spec.parts import ModelSpec, parse_template
from auditcore.spec.recipes import LoraSpec, RecipeSpec, SurfaceShape
from auditcore.spec.training import FinetuneSpec, SweepSpec, VariantSpec
from auditcore.spec.vectors import CurveSpec, GenerateSpec, VectorFile, VectorsSpec

__all__ = [
    "ADVERSARIES",
    "ARTIFACTS",
    "ATTACKS",
    "BASELINES",
    "CHATS",
    "CLINICAL",
    "CLINICAL_ROLES",
    "CLINICAL_SPLITS",
    "CORPORA",
    "DEFENCES",
    "KINDS",
    "PROBES",
    "ROLES",
    "SEQUENCES",
    "SHORT_NAMES",
    "SPLITS",
    "STATUSES",
    "UNITS",
    "VERDICTS",
    "WHY_NOT",
    "AnySpec",
    "CheckpointFolder",
    "ClinicalSpec",
    "CorpusSpec",
    "CurveSpec",
    "DataSpec",
    "DefenceSpec",
    "DiscriminatorSpec",
    "FinetuneSpec",
    "Fraction",
    "FrontierSpec",
    "GenerateSpec",
    "LiraVariant",
    "LoraSpec",
    "MembershipSpec",
    "ModelSpec",
    "NeighbourSpec",
    "RecipeSpec",
    "ReferenceSpec",
    "SelfPromptSpec",
    "ShadowSpec",
    "SplitName",
    "SpvSpec",
    "SurfaceLoraSpec",
    "SurfaceShape",
    "SweepSpec",
    "VariantSpec",
    "VectorFile",
    "VectorsSpec",
    "dump_spec",
    "load_spec",
    "parse_data",
    "parse_spec",
    "parse_template",
]

AnySpec = MembershipSpec | VectorsSpec | FinetuneSpec | SweepSpec | SurfaceLoraSpec | FrontierSpec
_ADAPTER: TypeAdapter[AnySpec] = TypeAdapter(Annotated[AnySpec, Field(discriminator="kind")])
_CLASSES: dict[str, type[Audit]] = {
    "membership": MembershipSpec,
    "vectors": VectorsSpec,
    "finetune": FinetuneSpec,
    "sweep": SweepSpec,
    "surfacelora": SurfaceLoraSpec,
    "frontier": FrontierSpec,
}


def parse_spec(raw: Any, where: str = "spec") -> AnySpec:
    """Validate a mapping. Raises SpecError naming the field and the nearest known name."""
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: expected a mapping with a 'kind', got {type(raw).__name__}.")
    kind = raw.get("kind")
    if kind not in _CLASSES:
        what = "'kind' is missing." if kind is None else f"kind '{kind}' is unknown."
        raise SpecError(f"{where}: {what}{did_you_mean(str(kind), KINDS)}")
    try:
        return _ADAPTER.validate_python(raw)
    except ValidationError as error:
        raise SpecError(_explain(error, where, _CLASSES[kind])) from None


def parse_data(raw: dict[str, Any], where: str = "data") -> DataSpec:
    """Validate the `data` part of a spec alone. Raises SpecError like parse_spec."""
    try:
        return DataSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(_explain(error, where, DataSpec)) from None


def load_spec(path: str | Path) -> AnySpec:
    """Read one YAML or JSON document. Raises SpecError when it is missing, not one document, or wrong."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; name the spec file inside it.") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SpecError(f"{path}{line}: not valid YAML ({getattr(error, 'problem', None) or error}).") from None
    if len(documents) != 1:
        raise SpecError(f"{path}: holds {len(documents)} documents; one spec per file.")
    return parse_spec(documents[0], str(path))


def dump_spec(spec: AnySpec) -> dict[str, Any]:
    """Return the spec as plain JSON types, every default written out."""
    return json.loads(spec.model_dump_json(by_alias=True))


def _explain(error: ValidationError, where: str, cls: type[BaseModel]) -> str:
    first = error.errors()[0]
    # The discriminator's tag stands first in the location.
    path = [str(part) for part in (first["loc"][1:] if first["loc"][:1] and first["loc"][0] in KINDS else first["loc"])]
    if first["type"] == "extra_forbidden":
        fields = _fields_at(cls, path[:-1])
        inside = f" in {'.'.join(path[:-1])}" if path[:-1] else ""
        message = f"unknown key '{path[-1]}'{inside}.{did_you_mean(path[-1], fields)}"
    elif first["type"] == "missing":
        message = f"'{'.'.join(path)}' is missing."
    else:
        got = first.get("input")
        place = f"{'.'.join(path)}: " if path else ""
        message = place + first["msg"].removeprefix("Value error, ")
        if not first["type"].startswith("value_error") and isinstance(got, (str, int, float, bool)):
            message += f" (got {got!r})"
    more = error.error_count() - 1
    return f"{where}: {message}" + (f" (and {more} more)" if more else "")


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    here: type[BaseModel] = cls
    for part in path:
        annotation = here.model_fields[part].annotation if part in here.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        here = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), here)
    return [field.alias or name for name, field in here.model_fields.items()]
