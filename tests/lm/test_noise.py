"""Noise on embeddings: two sides of one step, the same whatever the batch, gone when the block ends."""

import numpy as np
import pytest
import torch

from auditcore.lm.encode import encode
from auditcore.lm.load import load_model
from auditcore.lm.noise import Noise, noisy
from auditcore.lm.tokens import token_statistics
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS


@pytest.fixture(params=ARCHITECTURES)
def lm(request, tiny_folders):
    return load_model(ModelSpec(source=str(tiny_folders[request.param])))


def embedded(lm, noise, width=6):
    ids = torch.arange(2 * width).view(2, width) % 300
    with torch.inference_mode(), noisy(lm, noise):
        return lm.causal.get_input_embeddings()(ids)


def test_twins_stand_on_either_side_at_the_asked_distance(lm):
    plain = embedded(lm, None)
    up, down = embedded(lm, Noise(0, 3, 1, 0.5)), embedded(lm, Noise(0, 3, -1, 0.5))
    torch.testing.assert_close((up + down) / 2, plain, atol=1e-5, rtol=0)
    torch.testing.assert_close((up - plain)[0], (up - plain)[1], atol=1e-5, rtol=0)  # of the place, not of the row
    size = lm.causal.get_input_embeddings().weight.detach().square().mean().sqrt()
    far = embedded(lm, Noise(0, 3, 1, 0.5), width=100) - embedded(lm, None, width=100)
    assert float(far.square().mean().sqrt() / size) == pytest.approx(0.5, rel=0.1)
    other = embedded(lm, Noise(0, 4, 1, 0.5))
    assert not torch.allclose(other, up)


def test_rows_do_not_depend_on_their_batch_and_nothing_is_left_behind(lm):
    encoded = encode(lm.tokenizer, "{t}", {"t": [*TEXTS, "a"]}, None, 100)
    before = token_statistics(lm, None, encoded).logp_target
    with noisy(lm, Noise(1, 0, 1, 0.3)):
        alone = token_statistics(lm, None, encoded, batch_size=1).logp_target
        together = token_statistics(lm, None, encoded, batch_size=8).logp_target
    np.testing.assert_allclose(alone, together, atol=1e-4)
    assert np.nanmax(np.abs(alone - before)) > 1e-3
    np.testing.assert_array_equal(token_statistics(lm, None, encoded).logp_target, before)
