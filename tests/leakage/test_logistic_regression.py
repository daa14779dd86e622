"""The regression against scikit-learn's: golden accuracies, the same optimum, classes without rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from auditcore.leakage.inputs import standardised_exact
from auditcore.leakage.logistic import fit_logistic

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "logreg.json").read_text())
RUNS = [(case, name, run) for case in GOLDEN["cases"] for name, run in case["runs"].items()]


@pytest.mark.parametrize(("case", "name", "run"), RUNS, ids=[f"{c['name']}-{n}" for c, n, _ in RUNS])
def test_golden_accuracies(case, name, run):
    train, test = np.array(case["X_train"]), np.array(case["X_test"])
    actual_train, actual = np.array(case["y_train"]), np.array(case["y_test"])
    if run["standardise"]:
        scale = standardised_exact(train)
        train, test = scale(train), scale(test)
    else:  # not centred: a bad start for the scaling, the same optimum
        mean = train.mean(axis=0)
        train, test = train - mean, test - mean
    model = fit_logistic(train, actual_train, run["params"].get("C", 1.0), case["k"], tolerance=1e-9)
    named = model.logits(test).argmax(axis=1)
    assert (named == actual).mean() == run["test_acc"]
    assert (model.logits(train).argmax(axis=1) == actual_train).mean() == run["train_acc"]
    recalls = [(named[actual == k] == k).mean() for k in range(case["k"])]
    assert np.mean(recalls) == pytest.approx(run["test_balanced_acc"], abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("c", [1e-3, 1.0, 100.0])
def test_same_optimum_as_scikit_learn(n_classes, c):
    rng = np.random.default_rng(n_classes)
    codes = np.arange(120) % n_classes
    features = (rng.normal(size=(120, 6)) + rng.normal(size=(n_classes, 6))[codes]) * np.geomspace(1, 1e-3, 6)
    features -= features.mean(axis=0)
    ours = fit_logistic(features, codes, c, n_classes, tolerance=1e-8)
    theirs = LogisticRegression(C=c, tol=1e-10, max_iter=100_000).fit(features, codes)
    p = np.exp(ours.logits(features) - ours.logits(features).max(axis=1, keepdims=True))
    assert ours.converged
    assert p / p.sum(axis=1, keepdims=True) == pytest.approx(theirs.predict_proba(features), abs=1e-5)


def test_badly_conditioned_features_need_few_steps():
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 3
    features = rng.normal(size=(300, 30)) * np.geomspace(1, 1e-3, 30)
    model = fit_logistic(features - features.mean(axis=0), codes, 10.0, 3)
    assert model.converged
    assert model.steps < 60


def test_a_class_without_rows_is_never_named():
    rng = np.random.default_rng(0)
    codes = np.array([0, 2] * 20)
    model = fit_logistic(rng.normal(size=(40, 3)), codes, 1.0, 4)
    logits = model.logits(rng.normal(size=(50, 3)))
    assert logits.shape == (50, 4)
    assert set(logits.argmax(axis=1)) <= {0, 2}
