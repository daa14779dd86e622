"""Fine-tuning the bundled model for a few steps: it learns, and its checkpoints load by themselves."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from auditcore.lm.encode import encode
from auditcore.lm.load import load_model, load_pair
from auditcore.spec import ModelSpec
from auditcore.training.finetune import finetune
from auditcore.training.loss import NextTokenLoss

pytestmark = pytest.mark.slow

TEXTS = [
    "The harbour master counts the boats twice each evening and writes the number on a slate.",
    "Rain is expected over the northern hills by noon, with gusts near the coast.",
    "A recipe for barley soup: one onion, two carrots, a handful of pearl barley.",
    "The museum returned eleven letters to the family that had lent them in 1911.",
]


@pytest.fixture(scope="module")
def lm():
    return load_model(ModelSpec(source="smollm2-135m"))


def test_lora_learns_and_its_adapter_finds_the_short_name(lm, make_spec, tmp_path: Path):
    rows = encode(lm.tokenizer, "{text}", {"text": TEXTS}, None, 32)
    spec = make_spec(method="lora", batch_size=4, epochs=4, learning_rate=2e-3, lora={"r": 8}, schedule="constant")
    before = NextTokenLoss(lm.model, "cpu").head
    assert before is lm.model.lm_head  # the fast path is the one in use
    result = finetune(lm, rows, np.arange(4), [], spec, tmp_path)
    assert result.log["lm_loss"].iloc[-1] < 0.9 * result.log["lm_loss"].iloc[0]
    config = json.loads((result.last / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "smollm2-135m"
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    pair = load_pair(ModelSpec(source=str(result.last), reference="smollm2-135m"))
    assert pair.shared


def test_full_fine_tuning_learns_and_saves_a_model(make_spec, tmp_path: Path):
    lm = load_model(ModelSpec(source="smollm2-135m"))
    rows = encode(lm.tokenizer, "{text}", {"text": TEXTS}, None, 32)
    spec = make_spec(batch_size=4, epochs=3, learning_rate=1e-4, schedule="constant")
    result = finetune(lm, rows, np.arange(4), [], spec, tmp_path)
    assert result.log["lm_loss"].iloc[-1] < 0.8 * result.log["lm_loss"].iloc[0]
    back = load_model(ModelSpec(source=str(result.best)))
    ids = torch.from_numpy(rows.ids[0])[None]
    with torch.no_grad():
        assert torch.equal(back.model(ids).logits, lm.model(ids).logits)
    assert back.model.lm_head.weight is back.model.model.embed_tokens.weight
