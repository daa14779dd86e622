"""EZ against golden values and its peers, at its edges, under both policies."""

import numpy as np
import pandas as pd
import pytest

from auditcore.membership.scores import (
    FORCED_FROM,
)
from tests.score_rows import cases, floats, score


def official_row(case):
    x = case["inputs"]
    wrong = np.array(x["top1_ids"]) != np.array(x["target_ids"])
    return floats(x["target_logp"]), floats(x["reference_logp"]), wrong, np.array(x["mask"], dtype=bool)


EZ_CASES = {c["name"]: c for c in cases("ez_official")}
# The authors drop index 0 even where it is a pad; we drop the first real position.
SKIPPED = [name for name in EZ_CASES if name.startswith("left_padded")]
OTHER_MINIMUM = [name for name, c in EZ_CASES.items() if c["inputs"]["kwargs"].get("min_tokens", 2) != 2]


@pytest.mark.parametrize("name", [n for n in EZ_CASES if n not in SKIPPED + OTHER_MINIMUM])
def test_ez_against_the_authors(name):
    case = EZ_CASES[name]
    skip = case["inputs"]["kwargs"].get("ignore_bos", True)
    result = score([official_row(case)], ez_policy="official", skip_first=skip).iloc[0]
    if result.status == "no_evidence":
        assert pd.isna(result.rank_score)
        assert name in ("all_padding", "empty")
        return
    derived = case["expected"]["derived_not_peer"]
    assert result.rank_score == pytest.approx(case["expected"]["ez"], rel=1e-5)
    assert result.n_errors == derived["n_err"]
    assert result.p_sum == pytest.approx(float(derived["P"]), rel=1e-6)
    assert result.n_sum == pytest.approx(float(derived["N"]), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("typical_T12", "ok"),
        ("no_errors", "no_errors"),
        ("N_zero_all_up", "n_zero"),
        ("one_error_negative", "insufficient"),
        ("one_error_positive", "insufficient"),
        ("ties_self_reference", "insufficient"),
        ("all_padding", "no_evidence"),
        ("empty", "no_evidence"),
        ("both_neg_inf_gives_nan_delta", "ok"),
        ("target_neg_inf", "ok"),
    ],
)
def test_ez_status(name, status):
    result = score([official_row(EZ_CASES[name])]).iloc[0]
    assert result.status == status
    assert pd.isna(result.score) == (status not in ("ok", "p_zero"))
    assert pd.isna(result.rank_score) == (status == "no_evidence")


def log_softmax(logits):
    logits = np.asarray(logits, dtype=np.float32).astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("case", cases("ez_pipeline_from_logits"), ids=lambda c: c["name"])
def test_ez_from_logits(case):
    x, expected = case["inputs"], case["expected"]["ez"]
    ids, mask = np.array(x["token_ids"]), np.array(x["attention_mask"], dtype=bool)
    rows = []
    for i in range(len(ids)):
        real = mask[i].sum()
        following = ids[i, 1:real]
        target, other = log_softmax(x["target_logits"][i]), log_softmax(x["reference_logits"][i])
        at = np.arange(len(following))
        wrong = target[: len(following)].argmax(axis=-1) != following
        rows.append((target[at, following], other[at, following], wrong, np.ones(len(following), dtype=bool)))
        np.testing.assert_allclose(rows[-1][0], expected["target_logp"][i][: len(following)], rtol=1e-5)
    result = score(rows, ez_policy="official")
    np.testing.assert_allclose(result.rank_score.fillna(0.0), expected["ez_scores"], rtol=1e-5)
    assert set(result.status) <= {"ok", "no_evidence", "insufficient"}


def test_ez_paper_order_against_a_peer():
    case = cases("ez_leakpro_pr461")[0]
    names, peer = case["inputs"]["row_names"], np.array(case["expected"]["leakpro461"]["scores"])
    # Not the peer's ranking of empty, one-error and self-reference rows, nor left padding (see above).
    left_out = {"all_padding", "single_token", "empty", "one_error_positive", "ties_self_reference", "left_padded_4"}
    keep = [i for i, name in enumerate(names) if name in EZ_CASES and name not in left_out]
    assert len(keep) >= 8
    ours = score([official_row(EZ_CASES[names[i]]) for i in keep]).rank_score.to_numpy()
    theirs = peer[keep]
    np.testing.assert_array_equal(np.sign(ours[:, None] - ours), np.sign(theirs[:, None] - theirs))


def test_paper_policy_places_every_status():
    up, down = ([-1.0, -1, -1], [-2.0, -3, -2]), ([-2.0, -3, -2], [-1.0, -1, -1])
    every = np.ones(3, dtype=bool)
    rows = [
        (*up, [False] * 3, every),  # no_errors
        ([-1.0, -1, -1], [-2.0, -6, -2], every, every),  # n_zero, P = 6
        (*up, every, every),  # n_zero, P = 3
        ([-1.0, -1, -3], [-2.0, -30, -2.99], every, every),  # ok, large ratio
        (*down, every, every),  # p_zero
        (*up, [False, True, False], every),  # insufficient, although its only shift is up
        (*up, [False] * 3, [True, False, False]),  # the only scored position is the first
        (*up, [False] * 3, every),  # equal to row 0
    ]
    paper = score(rows)
    assert list(paper.status) == [
        *("no_errors", "n_zero", "n_zero", "ok", "p_zero", "insufficient", "no_evidence", "no_errors")
    ]
    r = paper.rank_score
    assert r[0] == r[7] > r[1] > r[2] >= FORCED_FROM > r[3] > r[4] == r[5] == 0
    assert pd.isna(r[6])
    official = score(rows, ez_policy="official").rank_score
    assert list(official[[0, 1, 2, 4, 5, 7]]) == [0.0] * 6
    assert official[3] == paper.score[3]


def test_smallest_and_largest_float32_shifts_keep_their_order():
    tiny, huge = np.float32(1.5e-45), np.float32(3e38)
    rows = [
        ([0.0, -tiny, -tiny], [0.0, 0.0, -huge], [True] * 3, [True] * 3),  # largest possible ratio
        ([0.0, 0.0, 0.0], [0.0, -tiny, 0.0], [True] * 3, [True] * 3),  # smallest possible n_zero
        ([0.0, 0.0, 0.0], [0.0, -huge, -huge], [True] * 3, [True] * 3),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [False] * 3, [True] * 3),
    ]
    result = score(rows)
    assert list(result.status) == ["ok", "n_zero", "n_zero", "no_errors"]
    assert np.isfinite(result.rank_score).all()
    assert (np.diff(result.rank_score) > 0).all()
    assert result.rank_score[0] < FORCED_FROM <= result.rank_score[1]


def test_skip_first_drops_the_first_predicted_position_only_for_ez():
    row = ([-1.0, -2, -4], [-9.0, -3, -2], [True] * 3, [True] * 3)
    with_skip = score([row], ("ez", "loss", "reference"))
    without = score([row], ("ez", "loss", "reference"), skip_first=False)
    assert list(with_skip.n_scored) == [2, 3, 3]
    assert list(without.n_scored) == [3, 3, 3]
    assert with_skip.score[0] == 0.5
    assert without.score[0] == 4.5
    assert with_skip.score[1] == without.score[1] == pytest.approx(-7 / 3)
    # A target that begins after a prompt has its first position counted: it is not the first of the sequence.
    prompted = score([([-5.0, -2, -4], [-9.0, -3, -2], [True] * 3, [False, True, True])])
    assert (prompted.n_scored[0], prompted.score[0]) == (2, 0.5)
