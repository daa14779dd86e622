"""Lower layers computed once: the same hidden states and gradients, whoever asks, and no pass it cannot serve."""

import numpy as np
import pytest
import torch

from auditcore.lm.encode import encode
from auditcore.lm.generate import generate
from auditcore.lm.load import load_model
from auditcore.lm.prefix import Kept, Prefix, may_keep, told
from auditcore.lm.vectors import extract_vectors
from auditcore.spec import LoraSpec, ModelSpec
from auditcore.training.batches import collate
from auditcore.training.lora import add_adapter
from auditcore.training.loss import NextTokenLoss
from tests.tiny_models import ARCHITECTURES, TEXTS

ROWS = [*TEXTS, "a", TEXTS[0][:20], "z " * 40]
EVERY = ("lasttok", "meanpool", "firsttok", "maxpool")


def opened(folder):
    lm = load_model(ModelSpec(source=str(folder)))
    for module in lm.causal.modules():  # GPT-2's and GPT-J's own dropout would vary from pass to pass
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return lm


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_are_the_same_and_the_lower_layers_run_once_a_row(tiny_folders, architecture, tmp_path):
    lm = opened(tiny_folders[architecture])
    encoded = encode(lm.tokenizer, "{t}\nCourse:", {"t": ROWS}, None, 64)
    plain = extract_vectors(lm, encoded, EVERY, [2, -1])
    kept = Kept(tmp_path / "lower")
    prefix = Prefix(lm.causal, 2, kept)
    for batch_size in (1, 3, 16):
        found = extract_vectors(lm, encoded, EVERY, [2, -1], batch_size=batch_size)
        for key, wanted in plain.items():
            np.testing.assert_allclose(found[key], wanted, rtol=1e-4, atol=1e-5)
    assert prefix.computed == len(ROWS)
    assert not list((tmp_path / "lower").glob("*")) if (tmp_path / "lower").exists() else True
    kept.flush()

    other = opened(tiny_folders[architecture])
    again = Prefix(other.causal, 2, Kept(tmp_path / "lower"))
    from_disk = extract_vectors(other, encoded, EVERY, [-1], batch_size=16)
    assert again.computed == 0
    for artifact in EVERY:
        np.testing.assert_array_equal(from_disk[artifact, 3], found[artifact, 3])


def test_padding_on_the_left_and_generation_run_as_ever(tiny_folders):
    lm = opened(tiny_folders["llama"])
    encoded = encode(lm.tokenizer, "{t}\nCourse:", {"t": ROWS}, None, 64)
    plain = extract_vectors(lm, encoded, EVERY, [-1], padding_side="left")
    texts = generate(lm, encoded, max_new_tokens=8)
    prefix = Prefix(lm.causal, 1, Kept())
    found = extract_vectors(lm, encoded, EVERY, [-1], padding_side="left", batch_size=len(ROWS))
    assert prefix.computed == 0
    for key, wanted in plain.items():
        np.testing.assert_allclose(found[key], wanted, rtol=1e-4, atol=1e-5)
    assert generate(lm, encoded, max_new_tokens=8) == texts
    assert prefix.computed == 0


def test_gradients_of_the_upper_layers_are_the_same(tiny_folders):
    grads, losses = [], []
    for served in (False, True):
        lm = opened(tiny_folders["llama"])
        fields = {"t": ROWS}
        encoded = encode(lm.tokenizer, "{t}\nCourse:", fields, [t[::-1] for t in ROWS], 64)
        prefix = Prefix(lm.causal, 2, Kept()) if served else None
        torch.manual_seed(1)
        model = add_adapter(lm.model, LoraSpec(r=2, dropout=0.0, upper_layers=1), "tiny")
        causal = model.get_base_model()
        with torch.no_grad():  # B is zero at first, which would make the gradient of A zero
            for name, p in causal.named_parameters():
                if "lora_B" in name:
                    p.normal_(generator=torch.Generator().manual_seed(2))
        loss = NextTokenLoss(causal, "cpu")(collate(encoded, np.arange(len(ROWS))))
        loss.backward()
        losses.append(float(loss.detach()))
        grads.append({n: p.grad.numpy() for n, p in causal.named_parameters() if p.requires_grad})
        assert prefix is None or prefix.computed == len(ROWS)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert grads[0].keys() == grads[1].keys()
    assert all(".2." in name for name in grads[0])
    for name, wanted in grads[0].items():
        np.testing.assert_allclose(grads[1][name], wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_states_kept_while_nothing_learns_serve_a_training(tiny_folders):
    lm = opened(tiny_folders["llama"])
    encoded = encode(lm.tokenizer, "{t}", {"t": ROWS}, None, 64)
    Prefix(lm.causal, 2, Kept())
    extract_vectors(lm, encoded, ["lasttok"], [-1])  # in inference mode
    causal = add_adapter(lm.model, LoraSpec(r=2, upper_layers=1), "tiny").get_base_model()
    ids = torch.from_numpy(encoded.ids[0])[None]
    with told(causal, [ids.shape[1]]):
        causal.base_model(input_ids=ids, use_cache=False).last_hidden_state.sum().backward()


def test_where_the_lower_layers_are_not_a_function_of_the_ids(tiny_folders):
    dropping = load_model(ModelSpec(source=str(tiny_folders["gpt2"])))
    assert not may_keep(dropping.causal, 1)
    lm = load_model(ModelSpec(source=str(tiny_folders["llama"])))
    assert may_keep(lm.causal, 1)
    assert not may_keep(lm.causal, 0)
    assert not may_keep(lm.causal, 3)
    adapted = add_adapter(lm.model, LoraSpec(r=2, upper_layers=2), "tiny").get_base_model()
    assert may_keep(adapted, 1)
    assert not may_keep(adapted, 2)


def test_a_damaged_file_counts_as_absent(tmp_path):
    kept = Kept(tmp_path)
    kept.put("a", np.ones((2, 3), dtype=np.float32))
    kept.flush()
    kept.put("b", np.zeros((1, 3), dtype=np.float32))
    kept.flush()
    first = sorted(tmp_path.glob("*.safetensors"))
    first[0].write_bytes(b"not a file of tensors")
    again = Kept(tmp_path)
    assert sum(again.get(name) is not None for name in ("a", "b")) == 1
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
