"""Erasers against other people's values, what they promise, and the rule that they are fitted on rows of their own."""

import json
from pathlib import Path

import numpy as np
import pytest

from auditcore.errors import DatasetError, SpecError
from auditcore.leakage.erasure import DEFENCES, Options, orthonormal_rows, protect
from auditcore.leakage.logistic import fit_logistic
from auditcore.spec import DEFENCES as NAMES

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LEACE = json.loads((GOLDEN / "leace.json").read_text())["cases"]
INLP = json.loads((GOLDEN / "inlp.json").read_text())
ERASERS = ("pca", "pca_vectors", "inlp", "leace")


def _fit(name, x, codes, options=None, seed=0):
    groups = np.array([f"s{i:04d}" for i in range(len(x))])
    return DEFENCES[name](np.asarray(x, dtype=np.float64), np.asarray(codes), groups, options or Options(), seed)


def _planted(seed, n, width, signal=1.0, n_classes=3):
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    means = np.random.default_rng(5).normal(size=(n_classes, width)) * signal
    scale = np.random.default_rng(6).lognormal(size=width)
    return (rng.normal(size=(n, width)) + means[codes]) * scale + 3.0, codes


def _accuracy(train, codes, test, test_codes):
    mean, scale = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-9)
    model = fit_logistic((train - mean) / scale, codes, 1.0, int(codes.max()) + 1)
    return float((model.logits((test - mean) / scale).argmax(axis=1) == test_codes).mean())


@pytest.mark.parametrize("case", LEACE, ids=lambda c: c["name"])
def test_leace_agrees_with_concept_erasure(case):
    expected = case["results"]["leace_exact_no_shrinkage"]
    fitted = _fit("leace", case["X_train"], case["y_train"])
    assert fitted.removed == expected["rank_I_minus_P"]
    np.testing.assert_allclose(fitted.projection(), expected["P"], atol=1e-9)
    np.testing.assert_allclose(fitted.apply(np.array(case["X_train"])), expected["erased_train"], atol=1e-9)
    np.testing.assert_allclose(fitted.apply(np.array(case["X_heldout"])), expected["erased_heldout"], atol=1e-9)


@pytest.mark.parametrize("case", INLP["cases"], ids=lambda c: c["name"])
def test_projection_onto_the_null_space_agrees_with_the_inlp_code(case):
    kept = case["weights_per_iteration"]
    rows = orthonormal_rows(np.concatenate([np.array(w) for w in kept]))
    p = np.eye(case["d"]) - rows.T @ rows
    np.testing.assert_allclose(p, case["P"], atol=1e-9)
    assert case["d"] - len(rows) == case["rank_P"]
    np.testing.assert_allclose(np.array(case["X_dev"]) @ p, case["X_dev_projected"], atol=1e-9)


@pytest.mark.parametrize("unit", INLP["unit"])
def test_row_spaces_agree_with_the_inlp_code(unit):
    rows = orthonormal_rows(np.array(unit["W"], dtype=float))
    np.testing.assert_allclose(rows.T @ rows, unit["get_rowspace_projection"], atol=1e-12)


def test_spec_names_one_function_each():
    assert DEFENCES.keys() == NAMES.keys() - {"prompt"}  # a directive is no map of vectors


@pytest.mark.parametrize("name", ERASERS)
@pytest.mark.parametrize("shape", [(300, 12), (40, 64)])
def test_an_eraser_keeps_the_mean_and_is_idempotent(name, shape):
    x, codes = _planted(0, *shape)
    fitted = _fit(name, x, codes)
    out = fitted.apply(x)
    assert fitted.removed == 2
    np.testing.assert_allclose(out.mean(axis=0), x.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(fitted.apply(out), out, atol=1e-8)


@pytest.mark.parametrize("name", ["pca", "leace"])
def test_class_means_are_equal_on_the_fitted_rows(name):
    x, codes = _planted(1, 300, 12)
    out = _fit(name, x, codes).apply(x)
    for k in range(3):
        np.testing.assert_allclose(out[codes == k].mean(axis=0), out.mean(axis=0), atol=1e-9)


def test_leace_changes_least_of_all_maps_that_leave_equal_class_means():
    x, codes = _planted(2, 300, 12)
    change = {name: np.mean((_fit(name, x, codes).apply(x) - x) ** 2) for name in ("leace", "pca")}
    assert change["leace"] < change["pca"]


def test_no_linear_probe_beats_guessing_on_erased_rows_of_the_fit():
    x, codes = _planted(4, 300, 10)
    out = _fit("leace", x, codes).apply(x)
    assert _accuracy(x, codes, x, codes) > 0.9
    model = fit_logistic(out - out.mean(axis=0), codes, 100.0, 3)
    assert np.abs(model.weights).max() < 1e-6


def test_inlp_removes_the_wanted_number_of_directions_each_of_which_a_probe_used():
    x, codes = _planted(6, 400, 12)
    accuracies = []
    for dimensions in (2, 8, 12):
        fitted = _fit("inlp", x, codes, Options(dimensions=dimensions))
        assert fitted.removed == dimensions
        np.testing.assert_allclose(fitted.right @ fitted.right.T, np.eye(dimensions), atol=1e-9)
        out = fitted.apply(x).astype(np.float32)  # what is exported: rounding hides what float64 leaves over
        accuracies.append(_accuracy(out[:200], codes[:200], out[200:], codes[200:]))
    assert _accuracy(x[:200], codes[:200], x[200:], codes[200:]) > accuracies[0] > accuracies[1] + 0.2
    assert accuracies[2] == pytest.approx(1 / 3, abs=0.01)  # nothing is left


def test_an_index_as_label_would_erase_one_direction_one_hot_erases_all():
    x, codes = _planted(7, 300, 12, n_classes=5)
    assert _fit("leace", x, codes).removed == 4


def test_what_no_eraser_of_means_sees_is_still_there():
    """Two classes with equal means and different spread: nothing linear to erase, a non-linear attacker still reads."""
    rng = np.random.default_rng(0)
    codes = np.arange(600) % 2
    x = rng.normal(size=(600, 4)) * np.where(codes == 1, 3.0, 1.0)[:, None]
    out = _fit("leace", x[:300], codes[:300]).apply(x[300:])
    size = (out**2).sum(axis=1)
    assert ((size > np.median(size)) == codes[300:]).mean() > 0.8


def test_few_rows_for_the_fit_leave_much_behind_many_leave_little():
    x, codes = _planted(8, 2000, 60, signal=0.5)
    train, test = slice(1000, 1500), slice(1500, 2000)
    left = [
        _accuracy(e.apply(x[train]), codes[train], e.apply(x[test]), codes[test])
        for e in (_fit("none", x, codes), _fit("leace", x[:60], codes[:60]), _fit("leace", x[:1000], codes[:1000]))
    ]
    assert left[0] - 0.2 > left[1] > left[2] + 0.1


def test_controls_do_what_they_say():
    x, codes = _planted(9, 4000, 6)
    added = _fit("noise", x, codes, Options(noise=0.5)).apply(x) - x
    np.testing.assert_allclose(added.std(axis=0), 0.5 * x.std(axis=0), rtol=0.05)
    cut = _fit("truncate", x, codes, Options(keep=0.34)).apply(x)
    np.testing.assert_array_equal(cut[:, :2], x[:, :2])
    assert np.ptp(cut[:, 2:], axis=0).max() == 0
    assert _fit("truncate", x, codes, Options(keep=0.34)).removed == 4
    np.testing.assert_array_equal(_fit("none", x, codes).apply(x), x)


# --- which rows a defence may see ---


def _rows(n):
    cut = np.split(np.arange(n), [n // 4, n // 2, n * 3 // 4])
    return dict(zip(("defence_fit", "bal_train", "bal_val", "bal_test"), cut, strict=True))


def test_protect_fits_on_defence_fit_alone():
    x, codes = _planted(10, 400, 8)
    x = x.astype(np.float32)
    groups = np.array([f"s{i}" for i in range(400)])
    one = protect("leace", x, codes.astype(str), groups, _rows(400))
    other = x.copy()
    other[100:] += 50  # everything but defence_fit
    two = protect("leace", other, codes.astype(str), groups, _rows(400))
    np.testing.assert_array_equal(one.vectors[:100], two.vectors[:100])
    assert (one.n_fit, one.n_subjects_fit) == (100, 100)
    assert one.vectors.dtype == np.float32


def test_the_order_of_the_data_does_not_matter():
    x, codes = _planted(11, 200, 8)
    groups = np.array([f"s{i:03d}" for i in range(200)])
    rows = _rows(200)
    turn = np.random.default_rng(0).permutation(200)
    back = np.argsort(turn)
    turned = {split: np.sort(back[at]) for split, at in rows.items()}
    for name in ERASERS:
        one = protect(name, x, codes.astype(str), groups, rows).vectors
        two = protect(name, x[turn], codes[turn].astype(str), groups[turn], turned).vectors
        np.testing.assert_array_equal(one[turn], two)


@pytest.mark.parametrize("split", ["bal_train", "bal_val", "bal_test"])
def test_a_subject_of_the_probe_in_defence_fit_is_refused(split):
    x, codes = _planted(12, 200, 4)
    rows = _rows(200)
    rows["defence_fit"] = np.append(rows["defence_fit"], rows[split][0])
    with pytest.raises(DatasetError, match=f"1 subject in both defence_fit and {split}"):
        protect("leace", x, codes.astype(str), [f"s{i}" for i in range(200)], rows)


def test_rows_that_cannot_be_used_are_refused_or_counted():
    x, codes = _planted(13, 200, 4)
    groups, labels, rows = [f"s{i}" for i in range(200)], codes.astype(str).astype(object), _rows(200)
    with pytest.raises(DatasetError, match="no row is in defence_fit"):
        protect("leace", x, labels, groups, {k: v for k, v in rows.items() if k != "defence_fit"})
    with pytest.raises(SpecError, match="Did you mean 'leace'"):
        protect("lace", x, labels, groups, rows)
    with pytest.raises(DatasetError, match="one class only"):
        protect("leace", x, ["a"] * 200, groups, rows)
    with pytest.raises(DatasetError, match="class 'b' has 1 subject in defence_fit"):
        protect("leace", x, ["b", *["a"] * 99, *["b"] * 100], groups, rows)
    x[3, 1] = np.nan
    labels[5] = None
    found = protect("leace", x, labels, groups, rows, where="sex lasttok")
    assert found.n_fit == 48
    assert found.notes == ["sex lasttok, leace: 1 of 50 defence_fit rows left out: they hold NaN or infinity."]
    assert np.isnan(found.vectors[3]).all()
    assert np.isfinite(np.delete(found.vectors, 3, axis=0)).all()


def test_fitting_on_the_wrong_rows_misleads_as_a_published_experiment_shows():
    """Why the rule exists: on the probe's own rows an eraser reads chance, with test rows among them below chance."""
    golden = json.loads((GOLDEN / "eraser_split_effect.json").read_text())["rows"]
    expected = {r["defence"]: r["test_acc"] for r in golden if r["d"] == 64 and r["signal"] == 0.15}
    rng = np.random.RandomState(0)
    n, d = 400, 64
    codes = np.arange(3 * n) % 5
    x = rng.randn(3 * n, d) + 0.15 * rng.randn(5, d)[codes] * 2
    train, test = slice(0, n), slice(n, 2 * n)
    fitted = {"eraser fit on train+test": slice(0, 2 * n), "eraser fit on train only": train,
              "eraser fit on disjoint third split": slice(2 * n, 3 * n)}  # fmt: skip
    found = {"raw": _accuracy(x[train], codes[train], x[test], codes[test])}
    for name, at in fitted.items():
        eraser = _fit("leace", x[at], codes[at])
        found[name] = _accuracy(eraser.apply(x[train]), codes[train], eraser.apply(x[test]), codes[test])
    assert sorted(found, key=found.get) == sorted(expected, key=expected.get)
    assert found["eraser fit on train only"] == pytest.approx(0.2, abs=0.005)
    assert found["eraser fit on train+test"] < 0.15
