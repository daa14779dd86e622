"""The real bundled model: loading, padding, adapters, low precision."""

import numpy as np
import pytest

from auditcore.lm.encode import encode
from auditcore.lm.generate import generate
from auditcore.lm.load import ensure_bundled, load_model, load_pair
from auditcore.lm.tokens import token_statistics
from auditcore.lm.vectors import extract_vectors
from auditcore.spec import ModelSpec
from tests.tiny_models import TEXTS, build_adapter

pytestmark = pytest.mark.slow
ROWS = [*TEXTS, "", "a", "The capital of France is Paris.", TEXTS[0] + " " + TEXTS[1], "Once upon a time " * 12]


@pytest.fixture(scope="module")
def lm():
    return load_model(ModelSpec(source="smollm2-135m"))


def test_files_and_marks(lm):
    folder = ensure_bundled()
    assert (folder / "model.safetensors").is_file()
    assert (folder / "LICENSE").is_file()
    assert lm.model.num_parameters() == 134_515_008
    assert getattr(lm.model, "hf_quantizer", None) is None
    assert lm.model.get_input_embeddings().weight is lm.model.get_output_embeddings().weight


def test_it_has_learnt_language(lm):
    encoded = encode(lm.tokenizer, "{t}", {"t": ["The capital of France is Paris."]}, None, 32)
    stats = token_statistics(lm, None, encoded)
    assert stats.logp_target[stats.scored].mean() > -3
    assert (
        "Paris"
        in generate(lm, encode(lm.tokenizer, "{t}", {"t": ["The capital of France is"]}, None, 32), max_new_tokens=8)[0]
    )


def test_statistics_and_vectors_alone_in_a_batch_left_and_right_padded(lm):
    encoded = encode(lm.tokenizer, "{t}", {"t": ROWS}, None, 64)
    alone = token_statistics(lm, None, encoded, batch_size=1).logp_target
    pooled = extract_vectors(lm, encoded, ["concat"], [0, 15, -1], batch_size=1)
    for side in ("right", "left"):
        found = token_statistics(lm, None, encoded, batch_size=16, padding_side=side).logp_target
        np.testing.assert_allclose(found, alone, atol=1e-4, rtol=0)
        for key, values in extract_vectors(
            lm, encoded, ["concat"], [0, 15, -1], batch_size=16, padding_side=side
        ).items():
            scale = np.nanmax(np.abs(pooled[key]))
            np.testing.assert_allclose(values, pooled[key], rtol=1e-4, atol=1e-4 * scale)


def test_adapter_shares_the_base(lm, tmp_path):
    adapter = build_adapter(tmp_path / "lora", ensure_bundled(), scale=0.02)
    pair = load_pair(ModelSpec(source=str(adapter), reference="smollm2-135m"))
    assert pair.shared
    encoded = encode(lm.tokenizer, "{t}", {"t": ROWS}, None, 48)
    stats = token_statistics(pair.target, pair.reference, encoded, batch_size=4)
    plain = token_statistics(lm, None, encoded, batch_size=4).logp_target
    np.testing.assert_allclose(stats.logp_reference, plain, atol=1e-4)
    assert np.nanmax(np.abs(stats.logp_target - plain)) > 0.01


def test_body_in_bfloat16_stays_near(lm):
    low = load_model(ModelSpec(source="smollm2-135m", precision="bf16"))
    encoded = encode(lm.tokenizer, "{t}", {"t": ROWS}, None, 48)
    exact = token_statistics(lm, None, encoded)
    rough = token_statistics(low, None, encoded)
    assert np.nanmean(np.abs(exact.logp_target - rough.logp_target)) < 0.1
    assert (exact.is_error == rough.is_error).mean() > 0.95
