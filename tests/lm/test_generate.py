"""Greedy generation: batches, end of sequence, the model's own settings left out."""

import pytest
import torch

from auditcore.errors import ModelError
from auditcore.lm.encode import encode
from auditcore.lm.generate import generate
from auditcore.lm.load import load_model
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS


def by_hand(lm, ids, steps):
    """Append the most likely token, one whole forward pass at a time."""
    ids = ids.tolist()
    start = len(ids)
    with torch.inference_mode(), lm.active():
        for _ in range(steps):
            token = int(lm.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
            if token == lm.tokenizer.eos_token_id:
                break
            ids.append(token)
    return lm.tokenizer.decode(ids[start:], skip_special_tokens=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_text_alone_and_in_a_batch(tiny_folders, architecture):
    lm = load_model(ModelSpec(source=str(tiny_folders[architecture])))
    rows = [*TEXTS, "", "a", TEXTS[0][:15]]
    encoded = encode(lm.tokenizer, "{t}", {"t": rows}, ["a target that must not be seen"] * 7, 200)
    wanted = [by_hand(lm, ids[:n], 12) if n else "" for ids, n in zip(encoded.ids, encoded.prompt_lengths, strict=True)]
    seen = []
    assert generate(lm, encoded, max_new_tokens=12, batch_size=1) == wanted
    assert generate(lm, encoded, max_new_tokens=12, batch_size=4, on_batch=lambda *x: seen.append(x)) == wanted
    assert seen == [(4, 6), (6, 6)]
    assert len({text for text in wanted if text}) > 1


def test_the_models_own_settings_do_not_matter_and_stay(tiny_llama, tiny_adapter):
    for source in (tiny_llama, tiny_adapter):
        lm = load_model(ModelSpec(source=str(source)))
        encoded = encode(lm.tokenizer, "{t}", {"t": TEXTS}, None, 64)
        before = generate(lm, encoded, max_new_tokens=10)
        own = lm.causal.generation_config
        own.do_sample, own.temperature, own.repetition_penalty, own.no_repeat_ngram_size = True, 1.7, 5.0, 1
        assert generate(lm, encoded, max_new_tokens=10) == before
        assert lm.causal.generation_config is own


def test_stops_at_end_of_sequence(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    encoded = encode(lm.tokenizer, "{t}", {"t": TEXTS[:2]}, None, 64)
    with torch.inference_mode():
        third = [int(lm.model(input_ids=torch.from_numpy(ids)[None]).logits[0, -1].argmax()) for ids in encoded.ids]
    lm.tokenizer.eos_token = lm.tokenizer.convert_ids_to_tokens(third[0])
    found = generate(lm, encoded, max_new_tokens=8)
    assert found[0] == ""
    assert (found[1] == "") == (third[1] == third[0])


def test_too_many_tokens(tiny_llama):
    lm = load_model(ModelSpec(source=str(tiny_llama)))
    encoded = encode(lm.tokenizer, "{t}", {"t": ["z " * 100]}, None, 250)
    with pytest.raises(ModelError, match="exceed its 256 positions"):
        generate(lm, encoded, max_new_tokens=200)
