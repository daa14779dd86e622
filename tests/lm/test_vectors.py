"""Exported vectors: pooling, layers, padding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.errors import SpecError
from auditcore.lm.encode import encode
from auditcore.lm.load import LM, load_model
from auditcore.lm.pooling import POOLS, pool
from auditcore.lm.vectors import extract_vectors, resolve_layers
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS

ROWS = [*TEXTS, "", "a", TEXTS[0][:20], TEXTS[1] + TEXTS[2], "z " * 40]
EVERY = tuple(POOLS)


def expected(lm, encoded, layer, last_k=8):
    """One prompt at a time, from what transformers itself calls hidden_states[layer]: {artifact: [n, width]}."""
    rows = []
    with torch.inference_mode(), lm.active():
        for ids, n in zip(encoded.ids, encoded.prompt_lengths, strict=True):
            if n == 0:
                rows.append({a: np.full(64 if a == "concat" else 32, np.nan) for a in EVERY})
                continue
            states = lm.model(input_ids=torch.from_numpy(ids[:n])[None], output_hidden_states=True).hidden_states
            rows.append(by_hand(states[layer][0].double().numpy(), last_k))
    return {artifact: np.array([row[artifact] for row in rows]) for artifact in EVERY}


def by_hand(hidden: np.ndarray, last_k: int) -> dict[str, np.ndarray]:
    """Artifacts of one unpadded row of hidden states [n, width]."""
    mean = hidden.sum(axis=0) / len(hidden)
    weights = np.arange(1, len(hidden) + 1)
    return {
        "lasttok": hidden[-1],
        "meanpool": mean,
        "concat": np.concatenate([hidden[-1], mean]),
        "firsttok": hidden[0],
        "maxpool": hidden.max(axis=0),
        "weighted_mean": sum(w * h for w, h in zip(weights / weights.sum(), hidden, strict=True)),
        "last_k_mean": hidden[-last_k:].mean(axis=0),
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_alone_in_a_batch_left_and_right_padded(tiny_folders, architecture):
    lm = load_model(ModelSpec(source=str(tiny_folders[architecture])))
    encoded = encode(lm.tokenizer, "{t}\nCourse:", {"t": ROWS}, None, 64)
    for batch_size, side in ((1, "right"), (4, "right"), (16, "right"), (4, "left"), (16, "left")):
        options = {"batch_size": batch_size, "padding_side": side, "last_k": 5}
        found = extract_vectors(lm, encoded, EVERY, [0, 1, 2, -1], **options)
        assert set(found) == {(a, k) for a in EVERY for k in range(4)}
        for k in range(4):
            wanted = expected(lm, encoded, k, last_k=5)
            for artifact in EVERY:
                assert found[artifact, k].dtype == np.float32
                np.testing.assert_allclose(found[artifact, k], wanted[artifact], rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(found["concat", k], np.hstack([found["lasttok", k], found["meanpool", k]]))


def test_every_layer_into_files(tiny_llama, tmp_path):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    encoded = encode(lm.tokenizer, "{t}", {"t": ["", *TEXTS]}, None, 64)

    def allocate(artifact, layer, shape):
        return np.lib.format.open_memmap(tmp_path / f"{artifact}{layer}.npy", "w+", np.float32, shape)

    extract_vectors(lm, encoded, EVERY, "all", allocate=allocate)
    in_memory = extract_vectors(lm, encoded, EVERY, [0, 1, 2, 3])
    for (artifact, layer), wanted in in_memory.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{artifact}{layer}.npy"), wanted)


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
        for layer in (1, 3):
            wanted = expected(lm, encoded, layer)["lasttok"]
            np.testing.assert_allclose(found["lasttok", layer], wanted, atol=1e-4)


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
    assert resolve_layers([-1, 3, 0, -4], 3, lm.source) == [3, 0]
    encoded = encode(lm.tokenizer, "{t}", {"t": ["a"]}, None, 8)
    for layer in (4, -5):
        with pytest.raises(SpecError, match=rf"no layer {layer}; choose 0 \(embeddings\) to 3"):
            extract_vectors(lm, encoded, ["lasttok"], [layer])
    with pytest.raises(SpecError, match="Did you mean 'lasttok'"):
        extract_vectors(lm, encoded, ["lastok"], [0])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 5), st.integers(1, 8), st.integers(0, 2**31))
def test_padding_never_reaches_the_pool(real, left, right, last_k, seed):
    values = torch.randn(1, real, 4, generator=torch.Generator().manual_seed(seed))
    hidden = torch.full((1, left + real + right, 4), torch.nan)
    hidden[:, left : left + real] = values
    mask = torch.zeros(1, left + real + right, dtype=torch.bool)
    mask[:, left : left + real] = True
    found, wanted = pool(hidden, mask, EVERY, last_k), by_hand(values[0].double().numpy(), last_k)
    for artifact in EVERY:
        np.testing.assert_allclose(found[artifact][0].numpy(), wanted[artifact], rtol=1e-5, atol=1e-6)


def test_low_precision_states_are_summed_in_float32():
    # 2,049 ones: a float16 or bfloat16 sum stops at 2,048 or 256.
    for dtype in (torch.float16, torch.bfloat16):
        found = pool(torch.ones(1, 2049, 2, dtype=dtype), torch.ones(1, 2049, dtype=torch.bool), EVERY, last_k=2049)
        for values in found.values():
            np.testing.assert_allclose(values.numpy(), 1.0, rtol=1e-6)


def test_progress(tiny_llama):
    lm: LM = load_model(ModelSpec(source=str(tiny_llama)))
    seen = []
    encoded = encode(lm.tokenizer, "{t}", {"t": ["a", "", "bb"]}, None, 8)
    extract_vectors(lm, encoded, ["lasttok"], [-1], batch_size=1, on_batch=lambda *x: seen.append(x))
    assert seen == [(1, 2), (2, 2)]
