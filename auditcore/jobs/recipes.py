"""Models that an audit trains for itself. In: a spec and one of its recipes. Out: specs of training and result."""

from pathlib import Path
from typing import Any

from auditcore.spec import FinetuneSpec, MembershipSpec, ModelSpec, RecipeSpec, dump_spec, parse_spec


def training_spec(spec: MembershipSpec, recipe: RecipeSpec, source: str, seed: int) -> FinetuneSpec:
    """Fine-tune `source` as the recipe says, on the audit's device, its rows cut as the audit's are."""
    how: dict[str, Any] = {k: recipe.model_dump(mode="json")[k] for k in RecipeSpec.model_fields}
    made = parse_spec(
        {
            "kind": "finetune",
            "model": {"source": source, "device": spec.model.device},
            "data": dump_spec(spec)["data"],
            "template": spec.template,
            "max_length": spec.max_length,
            "threads": spec.threads,
            "seed": seed,
            "validation": 0,
            **how,
        }
    )
    assert isinstance(made, FinetuneSpec)
    return made


def trained_model(spec: MembershipSpec, recipe: RecipeSpec, checkpoint: Path, source: str) -> ModelSpec:
    """The model in `checkpoint`, an adapter on `source` or a whole model, with the audit's precision and device."""
    base = source if recipe.method == "lora" else None
    return spec.model.model_copy(update={"source": str(checkpoint), "base": base, "reference": None})
