"""The perceptron: as good as scikit-learn's on the same task, deterministic, its gradient right."""

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from auditcore.leakage.perceptron import Perceptron


def _rings(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.arange(400) % 2
    angle = rng.uniform(0, 2 * np.pi, 400)
    radius = np.where(codes == 1, 2.0, 0.8) + rng.normal(0, 0.25, 400)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32), codes


def test_as_good_as_scikit_learns_on_what_no_line_can_tell():
    (train, codes), (test, actual) = _rings(0), _rings(1)
    ours = Perceptron(train, codes, 2, seed=0, hidden=32, batch=50, alpha=1e-3, learning_rate=1e-3).run(60)
    theirs = MLPClassifier((32,), alpha=1e-3, batch_size=50, random_state=0)
    for _ in range(60):
        theirs.partial_fit(train, codes, classes=[0, 1])
    accuracy = (ours.logits(test).argmax(axis=1) == actual).mean()
    assert accuracy > 0.95
    assert accuracy == pytest.approx(theirs.score(test, actual), abs=0.03)


def test_first_step_follows_the_gradient():
    # Adam's first step is the learning rate times the sign of the gradient, here taken by finite differences.
    rng = np.random.default_rng(0)
    features, codes = rng.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    model = Perceptron(features, codes, 3, seed=1, hidden=4, alpha=0.6, learning_rate=1e-3)
    before = [w.copy() for w in model._weights]

    def loss(weights: list[np.ndarray]) -> float:
        w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
        logits = np.maximum(features @ w1 + b1, 0) @ w2 + b2
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -log_p[np.arange(12), codes].mean() + 0.5 * 0.6 / 12 * ((w1**2).sum() + (w2**2).sum())

    model.run(1)
    for place in range(4):
        for index in np.ndindex(before[place].shape):
            up, down = ([w.astype(np.float64) for w in before] for _ in range(2))
            up[place][index] += 1e-5
            down[place][index] -= 1e-5
            slope = (loss(up) - loss(down)) / 2e-5
            moved = float(model._weights[place][index] - before[place][index])
            if abs(slope) > 1e-4:
                assert moved == pytest.approx(-1e-3 * np.sign(slope), rel=1e-2)


def test_deterministic_for_a_seed():
    train, codes = _rings(0)
    one, same = (Perceptron(train, codes, 2, seed=3, hidden=8).run(2).logits(train) for _ in range(2))
    other = Perceptron(train, codes, 2, seed=4, hidden=8).run(2).logits(train)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
