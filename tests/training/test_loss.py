"""The loss: which tokens are in it, that pads never are, and that its gradients are those of plain cross-entropy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.training import loss as loss_module
from auditcore.training.batches import collate, plan_epoch, tokens_in_loss
from auditcore.training.loss import NextTokenLoss


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def plain_sum(model, encoded, row):
    """Cross-entropy of one row alone, the way a textbook has it."""
    ids = torch.tensor(encoded.ids[row])[None]
    first = int(encoded.prompt_lengths[row]) if encoded.has_target else 1
    logits = model(ids).logits[0]
    return F.cross_entropy(logits[max(first, 1) - 1 : -1], ids[0, max(first, 1) :], reduction="sum")


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gptj", "qwen2"])
@pytest.mark.parametrize("targets", [False, True])
def test_padded_batch_has_loss_and_gradient_of_its_rows_alone(make_lm, make_rows, architecture, targets):
    model = make_lm(architecture).model
    encoded = make_rows(6, targets=targets)
    batch = collate(encoded, np.arange(6))
    tokens = tokens_in_loss(encoded).sum()
    assert len(batch.labels) == tokens
    ours = NextTokenLoss(model, "cpu")(batch, 1 / tokens)
    ours.backward()
    found = gradients(model)
    total = sum(plain_sum(model, encoded, row) for row in range(6)) / tokens
    total.backward()
    expected = gradients(model)
    assert float(ours.detach()) == pytest.approx(float(total.detach()), rel=1e-5)
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gptj"])
def test_pad_tokens_change_nothing(make_lm, make_rows, architecture):
    model = make_lm(architecture).model
    encoded = make_rows(5)
    results = []
    for pad in (0, 7, 60):
        value = NextTokenLoss(model, "cpu")(collate(encoded, np.arange(5), pad_id=pad))
        value.backward()
        results.append((value.detach(), gradients(model)))
    for value, grads in results[1:]:
        assert torch.equal(value, results[0][0])
        for name in grads:
            torch.testing.assert_close(grads[name], results[0][1][name], rtol=0, atol=1e-7)


def test_a_pad_id_inside_a_text_is_learnt_like_any_token(make_lm, make_rows):
    lm = make_lm()
    encoded = make_rows(2)
    encoded.ids[0][2] = lm.tokenizer.pad_token_id
    batch = collate(encoded, np.array([0]), pad_id=lm.tokenizer.pad_token_id)
    assert lm.tokenizer.pad_token_id in batch.labels
    assert float(NextTokenLoss(lm.model, "cpu").evaluate(batch)) == pytest.approx(
        float(plain_sum(lm.model, encoded, 0).detach()), rel=1e-5
    )


def test_chunks_do_not_change_the_loss(make_lm, make_rows, monkeypatch):
    model = make_lm("gptj").model
    batch = collate(make_rows(8), np.arange(8))
    whole = NextTokenLoss(model, "cpu")(batch)
    whole.backward()
    expected = gradients(model)
    monkeypatch.setattr(loss_module, "_LOGITS_AT_ONCE", 61 * 7)
    parts = NextTokenLoss(model, "cpu")(batch)
    (3 * parts).backward()
    assert float(parts.detach()) == pytest.approx(float(whole.detach()), rel=1e-6)
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, 3 * expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_a_head_that_is_more_than_a_matrix_goes_through_the_model(make_lm, make_rows):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.05,
        attn_implementation="eager",
    )
    model = Gemma2ForCausalLM(config).eval()
    loss = NextTokenLoss(model, "cpu")
    assert loss.head is None
    encoded = make_rows(3)
    ours = loss(collate(encoded, np.arange(3)))
    expected = sum(plain_sum(model, encoded, row) for row in range(3))
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_frozen_head_gets_no_gradient(make_lm, make_rows):
    model = make_lm("gptj").model
    model.requires_grad_(False)
    model.transformer.h[0].attn.q_proj.weight.requires_grad_(True)
    NextTokenLoss(model, "cpu")(collate(make_rows(4), np.arange(4))).backward()
    assert list(gradients(model)) == ["transformer.h.0.attn.q_proj.weight"]


def test_autocast_stays_near_float32_and_validation_ignores_it(make_lm, make_rows):
    model = make_lm().model
    batch = collate(make_rows(6), np.arange(6))
    exact = NextTokenLoss(model, "cpu")
    rough = NextTokenLoss(model, "cpu", bf16=True)
    wanted = float(exact(batch).detach())
    value = rough(batch)
    value.backward()
    assert float(value.detach()) == pytest.approx(wanted, rel=2e-2)
    assert float(value.detach()) != wanted
    assert {g.dtype for g in gradients(model).values()} == {torch.float32}
    assert rough.evaluate(batch) == wanted
    assert rough.bf16


def test_text_rows_learn_all_tokens_and_targets_only_theirs(make_rows):
    plain, targets = make_rows(5), make_rows(5, targets=True)
    assert [plain.places(row)[0] for row in range(5)] == [1] * 5
    assert tokens_in_loss(plain).tolist() == [len(i) - 1 for i in plain.ids]
    assert tokens_in_loss(targets).tolist() == [
        len(i) - max(p, 1) for i, p in zip(targets.ids, targets.prompt_lengths, strict=True)
    ]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=200),
    size=st.integers(1, 9),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_every_epoch_uses_every_row_once_in_the_same_number_of_batches(lengths, size, seed, epoch):
    rows = np.arange(len(lengths))[::-1]
    plan = plan_epoch(np.array(lengths), rows, size, seed, epoch)
    assert sorted(np.concatenate(plan)) == sorted(rows)
    assert len(plan) == -(-len(rows) // size)
    again = plan_epoch(np.array(lengths), rows, size, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(plan, again, strict=True))


def test_batches_hold_rows_of_like_length_and_change_with_the_epoch():
    lengths = np.random.default_rng(0).integers(5, 65, size=800)
    one, two = (plan_epoch(lengths, np.arange(800), 16, 0, epoch) for epoch in (0, 1))
    padded = sum(len(b) * lengths[b].max() for b in one)
    assert padded < 1.12 * lengths.sum()
    assert {frozenset(b) for b in one} != {frozenset(b) for b in two}
    order = [int(lengths[b].max()) for b in one]
    assert order != sorted(order)
