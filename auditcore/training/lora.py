"""Adapters. In: a causal model and a LoRA shape. Out: the model wrapped by PEFT, base weights frozen."""

from typing import Any

import torch

from auditcore.errors import ModelError, did_you_mean
from auditcore.lm.load import quiet
from auditcore.spec import LoraSpec


def attention_projections(causal: Any) -> list[str]:
    """Name the linear maps inside the attention blocks, as PEFT's target_modules.

    q_proj, k_proj, v_proj, o_proj for Llama and Qwen2; attn.c_attn, attn.c_proj for GPT-2, whose MLP has a c_proj too;
    q_proj, k_proj, v_proj, out_proj for GPT-J. Raises ModelError when no attention block is found.
    """
    inside, outside = {}, set()
    for name, module in causal.named_modules():
        if not _is_linear(module):
            continue
        parts = name.split(".")
        if len(parts) > 1 and "att" in parts[-2].lower():
            inside[parts[-1]] = f"{parts[-2]}.{parts[-1]}"
        else:
            outside.add(parts[-1])
    if not inside:
        raise ModelError(
            f"{type(causal).__name__}: no attention projections found to adapt; name them as lora.target_modules."
        )
    return sorted(full if leaf in outside else leaf for leaf, full in inside.items())


def all_linear(causal: Any) -> list[str]:
    """Name every linear map but the language-model head, as PEFT's target_modules.

    Raises ModelError when there is none.
    """
    head = causal.get_output_embeddings()
    names = [name for name, module in causal.named_modules() if _is_linear(module) and module is not head]
    if not names:
        raise ModelError(f"{type(causal).__name__}: no linear maps found to adapt; name them as lora.target_modules.")
    outside = next((name.rsplit(".", 1)[-1] for name, module in causal.named_modules() if module is head), None)
    leaves = {name.rsplit(".", 1)[-1] for name in names}
    # A head that shares its name with a map inside must not be adapted along with it: whole names then.
    return sorted(names if outside in leaves else leaves)


def add_adapter(causal: Any, lora: LoraSpec, source: str) -> Any:
    """Freeze the model and put a LoRA on it (Hu et al., arXiv 2106.09685); returns the PeftModel.

    source: what the saved adapter names as its base. Weights of the adapter are float32. Raises ModelError when a
    named module does not exist or cannot be adapted.
    """
    from peft import LoraConfig, get_peft_model

    if lora.target_modules == "all-linear":
        targets = all_linear(causal)
    else:
        targets = list(lora.target_modules) if lora.target_modules else attention_projections(causal)
    _check_targets(causal, targets)
    chosen = [m for name, m in causal.named_modules() if any(_matches(name, t) for t in targets)]
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        layers_to_transform=_uppermost(causal, lora, source),
        fan_in_fan_out=any(type(m).__name__ == "Conv1D" for m in chosen),
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        with quiet():
            wrapped: Any = get_peft_model(causal, config)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ModelError(f"lora.target_modules {targets}: {str(error).splitlines()[0]}") from None
    wrapped.peft_config["default"].base_model_name_or_path = source
    return wrapped


def _uppermost(causal: Any, lora: LoraSpec, source: str) -> list[int] | None:
    """Numbers of the layers that are adapted; None: all."""
    if lora.upper_layers is None:
        return None
    depth = int(causal.config.get_text_config().num_hidden_layers)
    if lora.upper_layers > depth:
        raise ModelError(f"lora.upper_layers {lora.upper_layers}: {source} has {depth} layers.")
    return list(range(depth - lora.upper_layers, depth))


def _check_targets(causal: Any, targets: list[str]) -> None:
    names = [name for name, _ in causal.named_modules() if name]
    for target in targets:
        if not any(_matches(name, target) for name in names):
            leaves = sorted({name.rsplit(".", 1)[-1] for name, m in causal.named_modules() if _is_linear(m)})
            raise ModelError(
                f"lora.target_modules: {type(causal).__name__} has no module '{target}'.{did_you_mean(target, leaves)}"
            )


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _is_linear(module: Any) -> bool:
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
