"""The cheap attacks against golden values of public tools, at their edges, and against plain Python."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from auditcore.errors import SpecError
from auditcore.jobs.evidence import compressed_bytes
from auditcore.membership.arrays import Tokens
from auditcore.membership.attacks import WINDOWS, Options, lowercase, min_k, min_k_pp, min_k_pp_ref, recall, wbc
from auditcore.membership.attacks import zlib as zlib_attack
from auditcore.membership.windows import win_share

GOLDEN = Path(__file__).parent.parent / "golden"
OPTIONS = Options()


def cases(name):
    return {c["name"]: c for c in json.loads((GOLDEN / f"{name}.json").read_text())["cases"]}


def tokens(logp, other=None, **more):
    """Rows of log-probs of positions 1, 2 ... -> Tokens."""
    other = logp if other is None else other
    lengths = [len(r) + 1 for r in logp]
    join = [np.concatenate([np.append(np.nan, r) for r in side]).astype(np.float32) for side in (logp, other)]
    position = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    return Tokens(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        position=position,
        logp_target=join[0],
        logp_reference=join[1],
        is_error=np.zeros(len(position), dtype=bool),
        scored=position > 0,
        **more,
    )


WBC = cases("wbc")


@pytest.mark.parametrize("name", [n for n in WBC if n not in ("nan_loss", "empty")])
def test_wbc_against_the_authors(name):
    case = WBC[name]
    x = case["inputs"]
    mine = np.array(x["target_losses"], dtype=np.float32)[np.array(x["target_mask"], dtype=bool)]
    theirs = np.array(x["reference_losses"], dtype=np.float32)[np.array(x["reference_mask"], dtype=bool)]
    found = win_share(mine, theirs, np.array([len(mine)]), x["windows"])[0]
    assert found == pytest.approx(case["expected"]["wbc"]["score"], abs=1e-9)


def test_the_windows_are_the_authors():
    assert list(WINDOWS) == WBC["typical_T127"]["inputs"]["windows"]


def test_wbc_of_broken_and_empty_rows_is_no_evidence():
    found = wbc(tokens([[-1.0, np.nan, -2.0], [], [-1.0, -2.0]], [[-2.0, -1.0, -3.0], [], [-2.0, -3.0]]), OPTIONS)
    assert list(found.status) == ["no_evidence", "no_evidence", "ok"]
    assert found.score[2] == 1.0


def distribution(case):
    """Per row: log-prob, mean and deviation of log p under p of every scored token, from logits, in float64."""
    x = case["inputs"]
    for logits, ids, mask in zip(x["logits"], x["token_ids"], x["attention_mask"], strict=True):
        n = int(np.sum(mask)) - 1  # the golden rows are padded on the right
        z = np.array(logits, dtype=np.float32).astype(np.float64)[:n]
        logp = z - logsumexp(z, axis=1, keepdims=True)
        p = np.exp(logp)
        mean = (p * logp).sum(axis=1)
        variance = np.maximum((p * logp**2).sum(axis=1) - mean**2, 0)
        yield logp[np.arange(n), np.array(ids)[1 : n + 1]], mean, np.sqrt(variance)


MIN_K, MIN_K_PP = cases("min_k"), cases("min_k_plus_plus")


@pytest.mark.parametrize("name", list(MIN_K))
def test_min_k_takes_at_least_one_token(name):
    rows = [logp for logp, _, _ in distribution(MIN_K[name])]
    expected = [row["0.2"] for row in MIN_K[name]["expected"]["fast"]]
    np.testing.assert_allclose(min_k(tokens(rows), OPTIONS).score, expected, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in MIN_K_PP if n not in ("uniform_logits", "near_one_hot")])
def test_min_k_pp_weighs_by_probability(name):
    rows = list(distribution(MIN_K_PP[name]))
    join = [np.concatenate([np.append(0.0, row[i]) for row in rows]).astype(np.float32) for i in (1, 2)]
    found = min_k_pp(tokens([logp for logp, _, _ in rows], moments=(join[0], join[1])), OPTIONS).score
    for peer, sign in (("mimir", -1), ("spector", 1)):
        expected = np.array([sign * float(row["0.2"]) for row in MIN_K_PP[name]["expected"][peer]])
        known = np.isfinite(expected)  # the peers take no token of a row shorter than 5
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-3)
    assert np.isfinite(found).all()


ZLIB = cases("zlib")


@pytest.mark.parametrize("name", [n for n in ZLIB if n != "empty"])
def test_zlib_divides_by_compressed_bytes(name):
    case = ZLIB[name]
    x = case["inputs"]
    assert compressed_bytes([x["text"]])[0] == len(zlib.compress(x["text"].encode()))
    size = np.array([float(x["zlib_compressed_len"])])
    found = zlib_attack(tokens([[-x["nll_mean"]]], rows={"zlib": size}), OPTIONS).score[0]
    assert found == pytest.approx(case["expected"]["fast"], rel=1e-5, abs=1e-12)


def test_zlib_counts_bytes_not_characters():
    assert compressed_bytes(["\u00e9" * 3])[0] == len(zlib.compress(("\u00e9" * 3).encode()))


def test_altered_rows_are_compared_with_the_row_itself():
    some = tokens(
        [[-1.0, -3.0], []], rows={"lowercase": np.array([-3.0, np.nan]), "prefixed": np.array([-1.0, np.nan])}
    )
    assert lowercase(some, OPTIONS).score[0] == pytest.approx(1.0)
    assert recall(some, OPTIONS).score[0] == pytest.approx(0.5)
    for attack in (lowercase, recall):
        assert list(attack(some, OPTIONS).status) == ["ok", "no_evidence"]


def test_what_is_missing_is_named():
    for attack, words in ((min_k_pp, "mean and deviation"), (zlib_attack, "'zlib'"), (lowercase, "'lowercase'")):
        with pytest.raises(SpecError, match=words):
            attack(tokens([[-1.0, -2.0]]), OPTIONS)


def test_equal_models_give_every_comparison_its_neutral_value():
    same = (np.full(4, -2.0, np.float32), np.ones(4, np.float32))
    some = tokens([[-1.0, -2.0, -4.0]], moments=same, reference_moments=same)
    assert min_k_pp_ref(some, OPTIONS).score[0] == 0.0
    assert wbc(some, OPTIONS).score[0] == 0.0


losses = st.lists(st.tuples(st.floats(0, 20, width=32), st.floats(0, 20, width=32)), max_size=50)


@settings(deadline=None, max_examples=50)
@given(st.lists(losses, min_size=1, max_size=5))
def test_plain_python_counts_the_same_windows(rows):
    mine = np.array([t for row in rows for t, _ in row], dtype=np.float32)
    theirs = np.array([r for row in rows for _, r in row], dtype=np.float32)
    found = win_share(mine, theirs, np.array([len(row) for row in rows]), WINDOWS)
    for share, row in zip(found, rows, strict=True):
        if not row:
            assert np.isnan(share)
            continue
        wins = []
        for size in (min(w, len(row)) for w in WINDOWS):
            windows = [row[i : i + size] for i in range(len(row) - size + 1)]
            wins.append(np.mean([sum(r for _, r in w) > sum(t for t, _ in w) for w in windows]))
        assert share == pytest.approx(np.mean(wins))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-20, 0, width=32), max_size=30), min_size=1, max_size=5))
def test_min_k_is_the_mean_of_the_lowest(rows):
    found = min_k(tokens(rows), OPTIONS).score
    for score, row in zip(found, rows, strict=True):
        if not row:
            assert np.isnan(score)
        else:
            assert score == pytest.approx(np.mean(sorted(row)[: max(1, len(row) // 5)]), abs=1e-9)
