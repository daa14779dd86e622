"""Gradient reversal: how much, where, and from which step on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.training.reversal import reverse, warmed_up


def parts(seed: int = 0):
    torch.manual_seed(seed)
    body, head = torch.nn.Linear(7, 5).double(), torch.nn.Linear(5, 3).double()
    return body, head, torch.randn(11, 7).double(), torch.randint(0, 3, (11,))


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0, 4.0])
def test_the_model_gets_minus_lambda_times_the_plain_gradient_and_the_discriminator_the_plain_one(strength):
    body, head, x, y = parts()
    plain = torch.autograd.grad(
        torch.nn.functional.cross_entropy(head(body(x)), y), [*body.parameters(), *head.parameters()]
    )
    turned = torch.autograd.grad(
        torch.nn.functional.cross_entropy(head(reverse(body(x), strength)), y),
        [*body.parameters(), *head.parameters()],
    )
    n = len(list(body.parameters()))
    for one, other in zip(plain[:n], turned[:n], strict=True):
        torch.testing.assert_close(other, -strength * one, rtol=0, atol=1e-6)
    for one, other in zip(plain[n:], turned[n:], strict=True):  # the layer stands before the discriminator
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_values_pass_unchanged():
    x = torch.randn(4, 3)
    assert torch.equal(reverse(x, 2.0), x)


@settings(deadline=None)
@given(st.floats(0, 10), st.integers(0, 50), st.integers(1, 400), st.integers(0, 500))
def test_lambda_rises_from_0_to_its_strength_and_stays_there(strength, begin, over, step):
    value = warmed_up(strength, step, begin, over)
    assert 0 <= value <= strength
    assert value <= warmed_up(strength, step + 1, begin, over)
    if step <= begin:
        assert value == 0
    if step >= begin + over:
        assert value == pytest.approx(strength, rel=1e-4)


def test_the_schedule_is_the_one_of_the_paper():
    assert warmed_up(1.0, 10, 0, 100) == pytest.approx(2 / (1 + 2.718281828459045**-1) - 1)
    assert warmed_up(2.0, 60, 10, 100) == pytest.approx(2 * (2 / (1 + 2.718281828459045**-5) - 1))
