"""Exported vectors: pooling, layers, padding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.errors import SpecError
from auditcore.lm.encode import encode
from auditcore.lm.load import LM, load_model
from auditcore.lm.vectors import extract_vectors, pool, resolve_layers
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS

ROWS = [*TEXTS, "", "a", TEXTS[0][:20], TEXTS[1] + TEXTS[2], "z " * 40]
BOTH = ("lasttok", "meanpool", "concat")


def expected(lm, encoded, layer):
    """One prompt at a time, from what transformers itself calls hidden_states[layer]."""
    rows = []
    with torch.inference_mode(), lm.active():
        for ids, n in zip(encoded.ids, encoded.prompt_lengths, strict=True):
            if n == 0:
                rows.append(np.full(64, np.nan))
                continue
            states = lm.model(input_ids=torch.from_numpy(ids[:n])[None], output_hidden_states=True).hidden_states
            hidden = states[layer][0].double()
            rows.append(torch.cat([hidden[-1], hidden.mean(dim=0)]).numpy())
    return np.array(rows)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_alone_in_a_batch_left_and_right_padded(tiny_folders, architecture):
    lm = load_model(ModelSpec(source=str(tiny_folders[architecture])))
    encoded = encode(lm.tokenizer, "{t}\nCourse:", {"t": ROWS}, None, 64)
    for batch_size, side in ((1, "right"), (4, "right"), (16, "right"), (4, "left"), (16, "left")):
        found = extract_vectors(lm, encoded, BOTH, [0, 1, 2, -1], batch_size=batch_size, padding_side=side)
        assert set(found) == {(a, k) for a in BOTH for k in range(4)}
        for k in range(4):
            wanted = expected(lm, encoded, k)
            assert found["lasttok", k].dtype == np.float32
            np.testing.assert_allclose(found["lasttok", k], wanted[:, :32], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found["meanpool", k], wanted[:, 32:], rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(found["concat", k], np.hstack([found["lasttok", k], found["meanpool", k]]))


def test_only_the_prompt_counts(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    alone = encode(lm.tokenizer, "{t}", {"t": TEXTS}, None, 64)
    joined = encode(lm.tokenizer, "{t}", {"t": TEXTS}, ["and a target"] * 4, 128)
    one = extract_vectors(lm, alone, ["concat"], [-1])
    two = extract_vectors(lm, joined, ["concat"], [-1])
    np.testing.assert_allclose(one["concat", 3][:1], two["concat", 3][:1], atol=1e-4)


def test_adapter_and_its_base(tiny_llama, tiny_adapter):
    base = load_model(ModelSpec(source=str(tiny_llama)))
    adapted = load_model(ModelSpec(source=str(tiny_adapter)))
    encoded = encode(base.tokenizer, "{t}", {"t": TEXTS}, None, 64)
    for lm in (base, adapted):
        found = extract_vectors(lm, encoded, ["lasttok"], [1, 3])
        np.testing.assert_allclose(found["lasttok", 1], expected(lm, encoded, 1)[:, :32], atol=1e-4)
        np.testing.assert_allclose(found["lasttok", 3], expected(lm, encoded, 3)[:, :32], atol=1e-4)


def test_low_precision_is_pooled_in_float32(tiny_llama):
    full = load_model(ModelSpec(source=str(tiny_llama)))
    low = load_model(ModelSpec(source=str(tiny_llama), precision="bf16"))
    encoded = encode(full.tokenizer, "{t}", {"t": ["z " * 100]}, None, 200)
    one, two = (extract_vectors(lm, encoded, ["meanpool"], [3])["meanpool", 3] for lm in (full, low))
    assert two.dtype == np.float32
    np.testing.assert_allclose(one, two, atol=0.15)


def test_a_prompt_without_tokens_has_no_vector(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    encoded = encode(lm.tokenizer, "{t}", {"t": ["", "a"]}, None, 8)
    found = extract_vectors(lm, encoded, ["concat"], [0])["concat", 0]
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    nothing = extract_vectors(lm, encode(lm.tokenizer, "{t}", {"t": [""]}, None, 8), ["concat"], [0])["concat", 0]
    assert nothing.shape == (1, 64)
    assert np.isnan(nothing).all()


def test_layers_and_artifacts_that_do_not_exist(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    assert resolve_layers(lm, [-1, 3, 0, -4]) == [3, 0]
    encoded = encode(lm.tokenizer, "{t}", {"t": ["a"]}, None, 8)
    for layer in (4, -5):
        with pytest.raises(SpecError, match=rf"no layer {layer}; choose 0 \(embeddings\) to 3"):
            extract_vectors(lm, encoded, ["lasttok"], [layer])
    with pytest.raises(SpecError, match="Did you mean 'lasttok'"):
        extract_vectors(lm, encoded, ["lastok"], [0])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**31))
def test_padding_never_reaches_the_pool(real, left, right, seed):
    values = torch.randn(1, real, 4, generator=torch.Generator().manual_seed(seed))
    hidden = torch.full((1, left + real + right, 4), torch.nan)
    hidden[:, left : left + real] = values
    mask = torch.zeros(1, left + real + right, dtype=torch.bool)
    mask[:, left : left + real] = True
    last, mean = pool(hidden, mask)
    torch.testing.assert_close(last, values[:, -1])
    torch.testing.assert_close(mean, values.mean(dim=1))


def test_progress(tiny_llama):
    lm: LM = load_model(ModelSpec(source=str(tiny_llama)))
    seen = []
    encoded = encode(lm.tokenizer, "{t}", {"t": ["a", "", "bb"]}, None, 8)
    extract_vectors(lm, encoded, ["lasttok"], [-1], batch_size=1, on_batch=lambda *x: seen.append(x))
    assert seen == [(1, 2), (2, 2)]
