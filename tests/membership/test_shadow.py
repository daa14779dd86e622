"""LiRA's arithmetic: against scipy's densities, at its edges, and on models made of known Gaussians."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from auditcore.membership.shadow import lira, shadow_halves


def world(n_rows, n_shadows, seed=0, gain=1.0):
    """Rows of different difficulty; a model trained on a row gains `gain` there, give or take 0.5."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(-4, 2, n_rows)
    trained = shadow_halves(np.arange(n_rows), n_shadows, seed)
    shadows = hard + gain * trained + 0.5 * rng.normal(size=trained.shape)
    member = rng.random(n_rows) < 0.5
    target = hard + gain * member + 0.5 * rng.normal(size=n_rows)
    return target, shadows, trained, member


def test_many_shadows_give_each_row_its_own_densities():
    target, shadows, trained, _ = world(30, 64)
    found = lira(target, shadows, trained)
    for i in range(30):
        inside, outside = shadows[trained[:, i], i], shadows[~trained[:, i], i]
        one = norm.logpdf(target[i], inside.mean(), inside.std(ddof=1))
        two = norm.logpdf(target[i], outside.mean(), outside.std(ddof=1))
        assert found[i] == pytest.approx(one - two, rel=1e-9)
        alone = lira(target, shadows, trained, "offline")[i]
        assert log_ndtr(alone) == pytest.approx(norm.logcdf(target[i], outside.mean(), outside.std(ddof=1)), rel=1e-9)


def test_few_shadows_share_one_variance():
    target, shadows, trained, _ = world(40, 4)
    outside = np.where(trained, np.nan, shadows)
    mean = np.nanmean(outside, axis=0)
    shared = np.sqrt(np.nansum((outside - mean) ** 2) / 40)  # two shadows a row: one degree of freedom each
    found = lira(target, shadows, trained, "offline")
    np.testing.assert_allclose(found, (target - mean) / shared)


def test_the_surest_rows_are_not_tied_offline():
    target, shadows, trained, _ = world(40, 8)
    order = np.argsort(lira(target, shadows, trained, "offline"))
    raised = target + 1000.0  # far above whatever a shadow says: P(out < x) is 1 for every row
    found = lira(raised, shadows, trained, "offline")
    assert len(np.unique(found)) == 40
    np.testing.assert_array_equal(np.argsort(found), order)


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_a_row_outside_every_shadow_changes_no_other_score(variant):
    target, shadows, trained, _ = world(40, 16)  # 8 shadows on each side; a 41st row has 16 on one
    more = np.append(shadows, shadows[:, :1], axis=1), np.append(trained, np.zeros((16, 1), dtype=bool), axis=1)
    found = lira(np.append(target, target[0]), *more, variant)[:40]
    assert np.corrcoef(found, lira(target, shadows, trained, variant))[0, 1] > 0.99


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_it_beats_the_loss_where_rows_differ_in_difficulty(variant):
    target, shadows, trained, member = world(2000, 8)
    by_loss = roc_auc_score(member, target)
    by_lira = roc_auc_score(member, lira(target, shadows, trained, variant))
    assert by_loss < 0.7
    assert by_lira > 0.85


def test_a_target_that_gained_nothing_is_at_chance():
    _, shadows, trained, member = world(4000, 8, seed=3)
    untrained = world(4000, 8, seed=3, gain=0.0)[0]
    assert abs(roc_auc_score(member, lira(untrained, shadows, trained)) - 0.5) < 0.03


def test_rows_without_evidence_or_without_a_side_have_no_score():
    target, shadows, trained, _ = world(6, 4)
    target[0] = np.nan
    shadows[:, 1] = np.nan
    trained[:, 2] = True
    trained[:, 3] = False
    online, offline = lira(target, shadows, trained), lira(target, shadows, trained, "offline")
    assert np.isnan(online[:4]).all()
    assert np.isfinite(online[4:]).all()
    assert np.isnan(offline[:3]).all()
    assert np.isfinite(offline[3:]).all()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_pairs_of_shadows_share_out_the_subjects(count):
    subjects = np.repeat(np.arange(31), 2)
    trained = shadow_halves(subjects, count, seed=1)
    assert (trained[:, 0::2] == trained[:, 1::2]).all()  # both rows of a subject
    for first in range(0, count - 1, 2):
        assert (trained[first] ^ trained[first + 1]).all()
    np.testing.assert_array_equal(trained, shadow_halves(subjects, count, seed=1))
    assert (trained != shadow_halves(subjects, count, seed=2)).any()
    assert abs(trained[0].mean() - 0.5) < 0.25
