"""Adversaries: what they see, that their gradients are right, and that a saved one goes on as if never stopped."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from auditcore.spec import DiscriminatorSpec
from auditcore.training.adversaries import ADVERSARIES, UNKNOWN, Bank, Block, Mlp, Moment, Ridge

CPU = torch.device("cpu")


def leaky(n: int = 900, width: int = 12, n_classes: int = 3, scale: float = 1.0, seed: int = 0):
    """Class means in the direction with the least variance: one in a thousand of what the first has."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    x = rng.normal(size=(n, width)) * np.logspace(0, -3, width)
    x[:, -1] += scale * 1e-3 * (codes - 1)
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(width, width)))[0]
    return torch.from_numpy(x @ turn + 5.0).float(), torch.from_numpy(codes)


def made(name: str, width: int = 12, n_classes: int = 3, **changes):
    return ADVERSARIES[name](width, n_classes, DiscriminatorSpec(**changes), 7, CPU)


def test_ridge_is_regularised_discriminant_analysis_on_standardised_vectors():
    x, y = leaky()
    # scikit-learn's common covariance weighs classes by their rows, ours equally: equal classes make them one.
    keep = np.concatenate([np.flatnonzero(y.numpy() == k)[:250] for k in range(3)])
    x, y = x[keep], y[keep]
    adversary = made("ridge", ridge=1e-3)
    adversary.refit(x, y, False)
    z = ((x - x.mean(0)) / x.std(0, unbiased=False)).double().numpy()
    inner = z - np.stack([z[y.numpy() == k].mean(0) for k in range(3)])[y.numpy()]
    shrunk = inner.T @ inner / len(z) + 1e-3 * np.eye(12)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3, covariance_estimator=Given(shrunk)).fit(
        z, y.numpy()
    )
    ours = torch.softmax(x @ adversary.weight + adversary.bias, dim=1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(z), atol=1e-3)


class Given(BaseEstimator):
    """A covariance that is given."""

    def __init__(self, covariance_):
        self.covariance_ = covariance_

    def fit(self, X):
        return self


def test_ridge_reads_a_direction_of_low_variance():
    x, y = leaky(scale=3.0)
    adversary = made("ridge", ridge=1e-7)
    adversary.refit(x, y, True)
    losses, right = adversary.losses(*leaky(scale=3.0, seed=1))
    assert right is not None
    assert right.float().mean() > 0.85
    assert losses.mean() < 0.5
    plain = made("ridge", ridge=1.0)
    plain.refit(x, y, True)
    assert plain.losses(*leaky(scale=3.0, seed=1))[0].mean() > 1.0


def test_ridge_auto_knows_what_carries_over():
    rng = np.random.default_rng(0)
    noise, codes = torch.from_numpy(rng.normal(size=(200, 150))).float(), torch.from_numpy(np.arange(200) % 4)
    adversary = made("ridge", 150, 4)
    adversary.refit(noise, codes, True)
    assert adversary.factor <= 0.04  # by heart it would name nearly every row
    fixed = made("ridge", 150, 4, ridge=0.01)
    fixed.refit(noise, codes, False)
    assert fixed.losses(noise, codes)[1].float().mean() > 0.95
    told = noise + 1.5 * torch.nn.functional.one_hot(codes, 150)
    adversary.refit(told, codes, True)
    assert adversary.factor >= 0.15
    fresh = torch.from_numpy(rng.normal(size=(400, 150))).float()
    labels = torch.from_numpy(np.arange(400) % 4)
    losses, right = adversary.losses(fresh + 1.5 * torch.nn.functional.one_hot(labels, 150), labels)
    assert right.float().mean() > 0.45
    assert losses.mean() < np.log(4)
    resumed = made("ridge", 150, 4)
    resumed.load(adversary.tensors())
    resumed.refit(told, codes, False)
    assert torch.equal(resumed.weight, adversary.weight)


@pytest.mark.parametrize("name", ["ridge", "mlp"])
def test_without_a_leak_the_loss_is_that_of_guessing(name):
    rng = np.random.default_rng(3)
    x, y = torch.from_numpy(rng.normal(size=(4000, 6))).float(), torch.from_numpy(rng.integers(0, 3, 4000))
    adversary = made(name, 6)
    adversary.refit(x, y, True)
    adversary.learn(x, y, rng)
    fresh = torch.from_numpy(rng.normal(size=(2000, 6))).float()
    losses, _ = adversary.losses(fresh, torch.from_numpy(rng.integers(0, 3, 2000)))
    assert float(losses.mean().detach()) == pytest.approx(np.log(3), abs=0.05)


def test_moment_turns_into_the_gradient_of_the_squared_cross_covariance():
    x, y = leaky(300, 5)
    x = x.double().requires_grad_()
    mean, deviation = x.detach().mean(0), x.detach().std(0, unbiased=False)
    wanted = torch.nn.functional.one_hot(y, 3).double()
    # Classes weigh the same: each row stands for n / (K n_k) rows.
    weight = len(y) / (3 * wanted.sum(0))[y]
    z = (x - mean) / deviation
    cross = z.T @ (weight[:, None] * (wanted - 1 / 3)) / len(y)
    (expected,) = torch.autograd.grad(-(cross**2).sum(), x)
    adversary = Moment(5, 3, DiscriminatorSpec(), 0, CPU)
    adversary.refit(x.detach().float(), y, True)
    rows = x.detach().float().requires_grad_()
    losses, right = adversary.losses(rows, y)
    assert right is None
    (found,) = torch.autograd.grad(losses.mean(), rows)
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("name", list(ADVERSARIES))
def test_classes_weigh_the_same_whatever_their_rows(name):
    x, y = leaky(600, scale=2.0)
    twice = torch.cat([torch.arange(600), torch.arange(600)[y == 0], torch.arange(600)[y == 0]])
    sums = []
    for rows in (torch.arange(600), twice):
        adversary = made(name, updates=0, ridge=0.1, start_updates=300, weight_decay=0.1)
        adversary.refit(x[rows], y[rows], True)
        losses, _ = adversary.losses(x[rows], y[rows])
        sums.append(torch.stack([losses[y[rows] == k].sum() for k in range(3)]) / len(rows))
    # Columns are standardised by all rows, so that the scale moves a little.
    torch.testing.assert_close(sums[0], sums[1], rtol=0.15, atol=0.05)


@pytest.mark.parametrize("name", list(ADVERSARIES))
def test_losses_can_be_differentiated_and_a_step_against_them_lowers_them(name):
    x, y = leaky(scale=2.0)
    adversary = made(name, ridge=1e-6)
    adversary.refit(x, y, True)
    for k in range(30):
        adversary.learn(x, y, np.random.default_rng(k))
    rows = x[:64].clone().requires_grad_()
    before = adversary.losses(rows, y[:64])[0].mean()
    (slope,) = torch.autograd.grad(before, rows)
    after = adversary.losses(x[:64] - 1e-5 * slope / slope.norm(), y[:64])[0].mean()
    assert after < before


def test_mlp_learns_and_its_start_takes_nothing_from_the_global_stream():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    adversary = made("mlp")
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(adversary.parameters()[0], made("mlp").parameters()[0])
    rng = np.random.default_rng(5)
    y = torch.from_numpy(rng.integers(0, 3, 1200))
    x = torch.from_numpy(rng.normal(size=(1200, 12))).float()
    x[:, 0] *= torch.where(y == 0, 1.0, torch.where(y == 1, 0.05, 6.0))  # no class mean differs: not linear
    adversary = made("mlp", start_updates=300, weight_decay=1.0)
    adversary.refit(x[:800], y[:800], True)
    assert adversary.losses(x[800:], y[800:])[1].float().mean() > 0.5
    linear = made("ridge")
    linear.refit(x[:800], y[:800], True)
    assert linear.losses(x[800:], y[800:])[1].float().mean() < 0.42


@pytest.mark.parametrize("restart", [True, False])
def test_mlp_begins_anew_at_a_refresh_or_goes_on(restart):
    x, y = leaky()
    adversary = made("mlp", restart=restart, start_updates=3)
    adversary.refit(x, y, True)
    before = [p.detach().clone() for p in adversary.parameters()]
    adversary.refit(x, y, False)
    assert all(torch.equal(a, b) for a, b in zip(before, adversary.parameters(), strict=True))
    adversary.refit(x, y, True)
    changed = [not torch.equal(a, b) for a, b in zip(before, adversary.parameters(), strict=True)]
    assert all(changed) if restart else not any(changed)


def test_a_gradient_that_came_with_the_turned_one_is_used_first():
    x, y = leaky()
    one, two = (made("mlp", updates=0, start_updates=5) for _ in range(2))
    for adversary in (one, two):
        adversary.refit(x, y, True)
    one.losses(x[:8], y[:8])[0].mean().backward()
    before = two.parameters()[0].detach().clone()
    for adversary in (one, two):
        adversary.learn(x, y, np.random.default_rng(0))
    assert torch.equal(two.parameters()[0], before)
    assert not torch.equal(one.parameters()[0], before)
    assert one.parameters()[0].grad is None


def test_a_saved_mlp_goes_on_as_if_never_stopped():
    x, y = leaky()
    whole = made("mlp")
    whole.refit(x, y, True)
    for k in range(5):
        whole.learn(x, y, np.random.default_rng(k))
    resumed = made("mlp")
    resumed.load({name: t.clone() for name, t in whole.tensors().items()})
    for adversary in (whole, resumed):
        adversary.refit(x + 1, y, False)
        adversary.learn(x, y, np.random.default_rng(9))
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def block(start: int, n: int = 4) -> Block:
    codes = torch.arange(start, start + n)[:, None] % 3
    return Block({"lasttok": torch.full((n, 2), float(start))}, torch.where(codes == 2, UNKNOWN, codes))


def test_a_bank_keeps_the_last_refreshes_and_the_batches_since():
    bank = Bank(kept=2)
    for start in (0, 10, 20):
        bank.refresh(block(start))
        bank.add(block(start + 5))
    vectors, codes = bank.cell("lasttok", 0)
    assert set(vectors[:, 0].tolist()) == {10.0, 20.0, 25.0}
    assert len(vectors) == len(codes)
    assert UNKNOWN not in codes
    other = Bank(kept=2)
    other.load(bank.tensors(), CPU)
    assert torch.equal(other.cell("lasttok", 0)[0], vectors)
    assert torch.equal(other.cell("lasttok", 0)[1], codes)


@pytest.mark.parametrize("adversary", [Ridge, Moment, Mlp])
def test_a_constant_column_and_an_absent_class_do_no_harm(adversary):
    x, y = leaky()
    x[:, 3] = 2.0
    found = adversary(12, 4, DiscriminatorSpec(), 0, CPU)
    found.refit(x, y, True)
    found.learn(x, y, np.random.default_rng(0))
    assert torch.isfinite(found.losses(x, y)[0]).all()
