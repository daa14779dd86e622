"""Adapters folded into their maps: the same vectors, and the weights as they were, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from auditcore.lm.encode import encode
from auditcore.lm.folded import folded
from auditcore.lm.load import as_base, load_model
from auditcore.lm.vectors import extract_vectors
from auditcore.spec import ModelSpec


@pytest.fixture
def adapted(tiny_adapter):
    return load_model(ModelSpec(source=str(tiny_adapter)))


def weights(lm) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in lm.model.named_parameters()}


def last_state(lm) -> torch.Tensor:
    with torch.no_grad():
        return lm.causal.base_model(input_ids=torch.arange(2, 12)[None], use_cache=False).last_hidden_state


def test_folding_changes_rounding_only_and_leaves_the_weights_alone(adapted) -> None:
    before, plain = weights(adapted), last_state(adapted)
    with folded(adapted):
        changed = [n for n, p in adapted.model.named_parameters() if not torch.equal(p, before[n])]
        assert changed
        assert not any("lora_" in name for name in changed)
        assert torch.allclose(last_state(adapted), plain, atol=1e-5)
    assert all(torch.equal(p, before[n]) for n, p in adapted.model.named_parameters())
    assert torch.equal(last_state(adapted), plain)


def test_the_base_seen_through_an_adapter_stays_the_base(adapted, tiny_llama) -> None:
    base = load_model(ModelSpec(source=str(tiny_llama)))
    with folded(as_base(adapted, str(tiny_llama))):
        assert torch.equal(last_state(adapted), last_state(base))


def test_weights_come_back_when_the_work_inside_fails(adapted) -> None:
    before = weights(adapted)
    with pytest.raises(KeyboardInterrupt), folded(adapted):
        raise KeyboardInterrupt
    assert all(torch.equal(p, before[n]) for n, p in adapted.model.named_parameters())
    assert not any(getattr(m, "merged", False) for m in adapted.model.modules())


def test_an_adapter_in_training_is_not_folded(adapted) -> None:
    encoded = encode(adapted.tokenizer, "{text}", {"text": ["fever and cough"]}, None, 16)
    here = extract_vectors(adapted, encoded, ["lasttok"], [-1])
    adapted.model.train()
    before = weights(adapted)
    with folded(adapted):
        assert all(torch.equal(p, before[n]) for n, p in adapted.model.named_parameters())
    adapted.model.eval()
    again = extract_vectors(replace(adapted), encoded, ["lasttok"], [-1])
    assert all(np.array_equal(here[k], again[k]) for k in here)
