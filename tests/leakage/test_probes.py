"""Probes: planted signals of known strength, invariances, awkward vectors, settings chosen on disjoint subjects."""

import numpy as np
import pytest
from scipy.stats import norm

from auditcore import spec
from auditcore.leakage.cells import Part
from auditcore.leakage.folds import inner_folds, log_softmax
from auditcore.leakage.permutation import mean_recall, permute_by_subject
from auditcore.leakage.probes import PROBES

# name: (vectors, codes) -> accuracy on fresh rows
Rows = tuple[np.ndarray, np.ndarray]


def _accuracy(probe: str, train: Rows, test: Rows, n_classes: int, seed: int = 0) -> float:
    fit = PROBES[probe](train[0], train[1], np.arange(len(train[1])), n_classes, seed)
    return mean_recall(fit.logits(fit.transform(test[0])).argmax(axis=1) == test[1], test[1])


def _planted(seed: int, n: int, distance: float, width: int = 10) -> Rows:
    """Two Gaussian classes whose means lie `distance` apart along one direction of many."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    vectors = rng.normal(size=(n, width))
    vectors[:, 3] += distance * (codes - 0.5)
    return vectors.astype(np.float32), codes


def test_names_agree_with_spec():
    assert set(PROBES) == set(spec.PROBES)


@pytest.mark.parametrize("probe", sorted(PROBES))
@pytest.mark.parametrize("distance", [0.0, 1.0, 2.0])
def test_planted_direction_gives_the_theoretical_accuracy(probe, distance):
    # The best any probe can do is Phi(distance / 2).
    found = _accuracy(probe, _planted(0, 1200, distance), _planted(1, 6000, distance), 2)
    best = norm.cdf(distance / 2)
    assert best - 0.035 < found < best + 0.02


@pytest.mark.parametrize("distance", [0.5, 1.0, 2.0, 3.0])
def test_the_linear_probe_comes_as_near_to_the_theory_as_its_rows_allow(distance):
    # Two spherical Gaussians `distance` apart: the best plane names Phi(distance / 2), and a plane fitted on n rows
    # names what its normal and offset say: exact, without test rows.
    width, n = 10, 4000
    train = _planted(5, n, distance, width)
    fit = PROBES["linear"](train[0], train[1], np.arange(n), 2, 0)
    corners = np.vstack([np.zeros((1, width)), np.eye(width)])
    logits = fit.logits(fit.transform(corners))
    margin = logits[:, 1] - logits[:, 0]  # affine in the vectors
    normal, offset = margin[1:] - margin[0], margin[0]
    length = np.linalg.norm(normal)
    reached = np.mean([norm.cdf((distance / 2 * normal[3] + side * offset) / length) for side in (-1, 1)])
    best = norm.cdf(distance / 2)
    assert best - 0.004 < reached <= best + 1e-9
    test = _planted(6, 20_000, distance, width)
    found = mean_recall(fit.logits(fit.transform(test[0])).argmax(axis=1) == test[1], test[1])
    assert found == pytest.approx(reached, abs=4 * np.sqrt(0.25 / 20_000))


def test_what_no_plane_separates_is_found_by_all_but_the_linear_one():
    def xor(seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(1500, 4)).astype(np.float32)
        return vectors, (vectors[:, 0] * vectors[:, 1] > 0).astype(int)

    assert _accuracy("linear", xor(0), xor(1), 2) == pytest.approx(0.5, abs=0.06)
    for probe in ("mlp", "gbt", "knn"):
        assert _accuracy(probe, xor(0), xor(1), 2) > 0.8


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_a_leak_in_directions_of_low_variance_is_found(probe):
    # Columns share one large common factor; the label sits in small differences between them.
    def rows(seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        codes = np.arange(900) % 3
        small = rng.normal(size=(900, 16)) + 1.5 * np.eye(3, 16)[codes]
        mixing = np.random.default_rng(99).normal(size=(16, 16))
        return (30 * rng.normal(size=(900, 1)) + small @ mixing).astype(np.float32), codes

    assert _accuracy(probe, rows(0), rows(1), 3) > 0.6


def test_linear_does_not_care_about_scale_rotation_or_shift():
    train, test = _planted(0, 300, 1.0), _planted(1, 300, 1.0)
    rng = np.random.default_rng(2)
    rotation = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    groups = np.arange(300)

    def named(change) -> np.ndarray:
        fit = PROBES["linear"](change(train[0]), train[1], groups, 2, 0)
        return fit.logits(fit.transform(change(test[0])))

    plain = named(lambda v: v)
    scaled = named(lambda v: v * np.geomspace(1e-3, 1e3, 10, dtype=np.float32) + 5)
    rotated = named(lambda v: v @ rotation)
    assert (plain.argmax(axis=1) == scaled.argmax(axis=1)).mean() > 0.99
    assert (plain.argmax(axis=1) == rotated.argmax(axis=1)).mean() > 0.95


@pytest.mark.parametrize("fit", PROBES.values(), ids=PROBES)
def test_deterministic_whatever_the_number_of_threads(fit):
    vectors, codes = _planted(0, 120, 1.0)
    one, two = (fit(vectors, codes, np.arange(120), 2, 7, n_jobs=n) for n in (1, 2))
    assert one.settings == two.settings
    assert np.array_equal(one.logits(one.transform(vectors)), two.logits(two.transform(vectors)))


@pytest.mark.parametrize("fit", PROBES.values(), ids=PROBES)
def test_awkward_vectors(fit):
    rng = np.random.default_rng(0)
    codes = np.arange(40) % 2
    wide = rng.normal(size=(40, 300)).astype(np.float32)  # more columns than rows
    wide[:, 5] = 0.1  # constant
    wide[:, 6] = 0.0
    wide[:, 7] = wide[:, 8]  # no new direction
    wide[:, 9] *= 1e6  # an outlier dimension, as language models have
    wide[:, 10] += 8 * codes
    found = fit(wide, codes, np.arange(40), 2, 0)
    logits = found.logits(found.transform(wide))
    assert logits.dtype == np.float64
    assert np.isfinite(logits).all()
    constant = np.full((40, 3), 2.5, dtype=np.float32)  # nothing to learn from
    nothing = fit(constant, codes, np.arange(40), 2, 0)
    assert np.isfinite(nothing.logits(nothing.transform(constant))).all()


def test_a_constant_column_stays_silent_on_new_rows():
    vectors, codes = _planted(0, 100, 2.0)
    vectors[:, 0] = 0.3
    found = PROBES["linear"](vectors, codes, np.arange(100), 2, 0)
    moved = vectors.copy()
    moved[:, 0] = 1e6
    assert np.array_equal(found.logits(found.transform(vectors)), found.logits(found.transform(moved)))


def test_rotated_features_leave_the_solution_of_wide_vectors_as_it_is():
    # In 60 dimensions with 40 rows, the probe's own features (at most 40) against all 60 columns.
    from auditcore.leakage.inputs import principal, standardised_exact
    from auditcore.leakage.logistic import fit_logistic

    rng = np.random.default_rng(1)
    train, codes, test = rng.normal(size=(40, 60)), np.arange(40) % 4, rng.normal(size=(25, 60))
    rotate, standardise = principal(train), standardised_exact(train)
    inside = fit_logistic(rotate(train), codes, 0.1, 4, tolerance=1e-9).logits(rotate(test))
    outside = fit_logistic(standardise(train), codes, 0.1, 4, tolerance=1e-9).logits(standardise(test))
    assert rotate(train).shape == (40, 40)
    assert log_softmax(inside) == pytest.approx(log_softmax(outside), abs=1e-5)


def test_inner_folds_share_no_subject_and_miss_no_class():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 30, 200)
    codes = groups % 4
    folds = inner_folds(codes, groups, seed=1)
    assert np.array_equal(np.sum(folds, axis=0), np.ones(200))
    for fold in folds:
        assert not set(groups[fold]) & set(groups[~fold])
        assert set(codes[~fold]) == set(range(4))
    assert len(inner_folds(np.array([0, 0, 1, 1]), np.arange(4), seed=0)) == 2
    with pytest.raises(ValueError, match="two subjects"):
        inner_folds(np.array([0, 0, 1]), np.arange(3), seed=0)


def test_permutation_keeps_a_subjects_rows_together():
    groups = np.array([f"s{i // 3}" for i in range(60)])
    part = Part(np.arange(60), np.zeros((60, 1)), np.arange(60) // 3 % 4, groups)
    permuted = permute_by_subject(part, np.random.default_rng(0))
    assert all(len(set(permuted[groups == g])) == 1 for g in set(groups))
    assert np.array_equal(np.bincount(permuted), np.bincount(part.codes))
    assert not np.array_equal(permuted, part.codes)


def test_permutation_moves_whole_sequences_where_subjects_have_several_labels():
    groups = np.array(["a", "a", "b", "b", "c", "d", "d", "e"])
    part = Part(np.arange(8), np.zeros((8, 1)), np.array([0, 1, 2, 2, 3, 4, 5, 6]), groups)
    permuted = permute_by_subject(part, np.random.default_rng(1))
    pairs = {tuple(permuted[groups == g]) for g in "abd"}
    assert pairs == {(0, 1), (2, 2), (4, 5)}
    assert {permuted[4], permuted[7]} == {3, 6}


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_held_out_probabilities_of_the_training_rows_are_as_good_as_those_of_fresh_ones(probe):
    # They are from fits that have not seen the row's subject: no better than on fresh rows, no worse than they must be.
    train, test = _planted(0, 600, 2.0), _planted(1, 3000, 2.0)
    fit = PROBES[probe](train[0], train[1], np.arange(600), 2, 0)
    held_out = mean_recall(fit.held_out.argmax(axis=1) == train[1], train[1])
    assert fit.held_out.shape == (600, 2)
    assert held_out == pytest.approx(fit.inner_accuracy)
    assert held_out == pytest.approx(_accuracy(probe, train, test, 2), abs=0.05)


@pytest.mark.parametrize(("probe", "alike"), [("linear", True), ("gbt", True), ("knn", True), ("mlp", False)])
def test_what_draws_nothing_is_chosen_once_for_all_seeds(probe, alike):
    vectors, codes = _planted(0, 120, 1.0)
    memo: dict = {}
    one, two = (PROBES[probe](vectors, codes, np.arange(120), 2, s, memo=memo) for s in (0, 1))
    assert (one is two) == alike
    alone = PROBES[probe](vectors, codes, np.arange(120), 2, 0)
    assert one.settings == alone.settings
    assert np.array_equal(one.logits(one.transform(vectors)), alone.logits(alone.transform(vectors)))
    other = PROBES[probe](vectors, codes, np.arange(120), 2, 1, memo={})  # other rows share nothing
    assert other is not one


def test_many_rows_need_fewer_passes():
    from auditcore.leakage.probes import EPOCH_GRID, UPDATES, _mlp_grid

    assert {s["epochs"] for s in _mlp_grid(1000)} == set(EPOCH_GRID)
    assert max(s["epochs"] for s in _mlp_grid(20_000)) * -(-20_000 // 256) <= UPDATES
    assert max(s["epochs"] for s in _mlp_grid(1_000_000)) == 8


def test_trees_do_not_depend_on_the_seed():
    from auditcore.leakage.trees import Trees

    vectors, codes = _planted(0, 300, 1.0)
    one, two = (Trees(vectors, codes, 2, 10, seed).logits(vectors) for seed in (0, 1))
    assert np.array_equal(one, two)


def test_a_class_without_rows_is_never_named_by_trees():
    from auditcore.leakage.trees import Trees

    rng = np.random.default_rng(0)
    for codes in (np.array([0, 2] * 40), np.array([0, 2, 3] * 40)):
        model = Trees(rng.normal(size=(len(codes), 3)), codes, 4, 5, 0)
        logits = model.logits(rng.normal(size=(50, 3)))
        assert logits.shape == (50, 4)
        assert set(logits.argmax(axis=1)) <= set(codes)


def test_neighbours_vote_by_angle():
    from auditcore.leakage.neighbours import nearest, votes

    rng = np.random.default_rng(0)
    train, queries = rng.normal(size=(40, 5)), rng.normal(size=(7, 5))
    cosine = queries @ train.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(train, axis=1)
    found = nearest(train, queries * 3, 5)
    assert np.array_equal(found, np.argsort(-cosine, axis=1)[:, :5])
    p = np.exp(votes(found, np.arange(40) % 4, 4))
    assert p.sum(axis=1) == pytest.approx(np.ones(7))
    assert p.min() == pytest.approx(0.25 / 6)


def test_the_null_band_of_many_rows_uses_whole_subjects():
    from auditcore.leakage.permutation import ROWS, _some_subjects

    groups = np.array([f"s{i // 3}" for i in range(9000)])
    part = Part(np.arange(9000), np.zeros((9000, 1)), np.arange(9000) // 3 % 5, groups)
    some = _some_subjects(part, np.random.default_rng(0))
    assert ROWS <= len(some.codes) <= ROWS + 3 * 6
    assert (np.unique(some.groups, return_counts=True)[1] == 3).all()
    assert set(some.codes) == set(range(5))
    assert min(np.bincount(some.codes)) > 300
    few = Part(np.arange(30), np.zeros((30, 1)), np.arange(30) % 5, np.arange(30).astype(str))
    assert _some_subjects(few, np.random.default_rng(0)) is few
