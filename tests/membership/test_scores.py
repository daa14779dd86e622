"""EZ, loss and reference scores against golden values, at their edges, and under transformations."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore import spec
from auditcore.errors import DatasetError, SpecError
from auditcore.membership.scores import (
    ATTACKS,
    FORCED_FROM,
    Tokens,
    score_table,
    status_counts,
    tokens_from_frame,
)

GOLDEN = Path(__file__).parent.parent / "golden"
NUMBERS = ["score", "rank_score", "n_scored", "p_sum", "n_sum"]


def cases(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())["cases"]


def floats(values):
    return np.array([float(v) for v in values], dtype=np.float32)


def pack(rows):
    """Rows of (logp_target, logp_reference, is_error, scored), each from position 1 on -> Tokens.

    What some attacks need besides is made from these, so that it belongs to the row wherever the row stands.
    """
    parts = [[np.append(first, np.asarray(column)) for first, column in zip(START, row, strict=True)] for row in rows]
    columns = [np.concatenate([p[i] for p in parts]) if parts else np.empty(0) for i in range(4)]
    lengths = [len(p[0]) for p in parts]
    position = np.concatenate([np.arange(n) for n in lengths]) if lengths else np.empty(0)
    target, other = columns[0].astype(np.float32), columns[1].astype(np.float32)
    size = np.array(lengths, dtype=np.float64)
    return Tokens(
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        position=position.astype(np.int32),
        logp_target=target,
        logp_reference=other,
        is_error=columns[2].astype(bool),
        scored=columns[3].astype(bool),
        moments=(np.full_like(target, -2.0), np.full_like(target, 0.5)),
        reference_moments=(np.full_like(other, -2.5), np.full_like(other, 0.75)),
        rows={"zlib": size + 8, "lowercase": -size, "prefixed": -0.5 * size, "self_prompt": -size},
        copies={name: np.stack([-size, -2 * size]) for name in ("neighbours", "varied", "self_prompt")},
        # Variances are shared between rows: equal shadows for all, so that a row scores alone as it does among others.
        shadows=(
            np.tile([[-1.0], [-2.0], [-3.0], [-5.0]], len(size)),
            np.tile([[True], [True], [False], [False]], len(size)),
        ),
    )


START = (np.nan, np.nan, False, False)  # position 0 is never predicted


def score(rows, attacks=("ez",), **options):
    tokens = rows if isinstance(rows, Tokens) else pack(rows)
    n = len(tokens.offsets) - 1
    return score_table(tokens, attacks, [f"r{i}" for i in range(n)], [None] * n, **options)


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


@pytest.mark.parametrize("case", cases("ratio_reference"), ids=lambda c: c["name"])
def test_reference_is_a_difference(case):
    target, other = -floats([case["inputs"]["target_nll"]]), -floats([case["inputs"]["reference_nll"]])
    result = score([(target, other, [True], [True])], ("reference",)).iloc[0]
    expected = float(case["expected"]["fast"])
    if np.isfinite(expected):
        assert result.score == result.rank_score == pytest.approx(expected, rel=1e-6)
    else:
        assert result.status == "no_evidence"


@pytest.mark.parametrize("case", cases("loss_padding"), ids=lambda c: c["name"])
def test_loss_is_the_mean_of_a_row_alone(case):
    per_token, expected = case["expected"]["wbc"]["per_token"], case["expected"]["fast"]["mean_logp"]
    rows = [
        (-floats(x), -floats(x), [True] * len(x), np.array(valid, dtype=bool))
        for x, valid in zip(per_token["losses"], per_token["valid"], strict=True)
    ]
    result = score(rows, ("loss",))
    for got, want, status in zip(result.score, expected, result.status, strict=True):
        if want is None or not np.isfinite(float(want)):
            assert status == "no_evidence"
        else:
            assert got == pytest.approx(float(want), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_a_mean_over_a_broken_number_is_no_evidence(bad, where):
    good = [np.array([-1.0, -2, -3, -4], dtype=np.float32), np.array([-2.0, -2, -1, -5], dtype=np.float32)]
    broken = [x.copy() for x in good]
    broken[where][2] = bad
    rows = [(*good, [True] * 4, [True] * 4), (*broken, [True] * 4, [True] * 4)]
    rows += [(*broken, [True] * 4, [True, True, False, True])]  # the broken position is not scored
    result = score(rows, ("loss", "reference")).set_index(["attack", "example_id"])
    for attack in ("loss", "reference"):
        used = attack == "reference" or where == 0
        assert (result.loc[(attack, "r1"), "status"] == "no_evidence") == used
        assert pd.isna(result.loc[(attack, "r1"), "rank_score"]) == used
        assert result.loc[(attack, "r1"), "n_scored"] == 4
        assert result.loc[(attack, "r2"), "status"] == "ok"


@pytest.mark.parametrize(
    ("target", "other", "wrong", "status", "value"),
    [
        ([-1, np.nan, -1, -2], [-2, -2, -2, -1], [True] * 4, "ok", 1.0),  # NaN adds to neither sum
        ([-1, -np.inf, -1, -1], [-2, -2, -2, -3], [True] * 4, "ok", 0.0),  # probability 0: the bottom
        ([-1, -1, -1, -2], [-2, -np.inf, -2, -1], [True] * 4, "no_evidence", None),  # P infinite
        ([-1, np.nan, -1, -1], [-2, -2, -2, -2], [True] * 4, "no_evidence", None),  # N = 0 only for want of a number
        ([-1, np.nan, -1, -1], [-2, -2, -2, -2], [False] * 4, "no_evidence", None),  # no errors, but who knows
        ([-1, np.nan, np.nan, np.nan], [-2, -2, -2, -2], [True] * 4, "no_evidence", None),
        ([np.nan] * 4, [-2, -2, -2, -2], [True] * 4, "no_evidence", None),  # a broken model must not look safe
        ([-np.inf, -1, -1, -2], [-2, -2, -2, -1], [True] * 4, "ok", 2.0),  # the skipped position
    ],
)
def test_ez_never_puts_a_broken_row_on_top(target, other, wrong, status, value):
    result = score([(target, other, wrong, [True] * 4)]).iloc[0]
    assert result.status == status
    assert (None if pd.isna(result.score) else result.score) == value
    assert pd.isna(result.rank_score) if value is None else result.rank_score == value


def test_no_rows_and_empty_rows():
    empty = Tokens(np.zeros(4, dtype=np.int64), *(np.empty(0, dtype=t) for t in ("i4", "f4", "f4", "?", "?")))
    result = score(empty, ("ez", "loss", "reference"))
    assert len(result) == 9
    assert set(result.status) == {"no_evidence"}
    assert result.rank_score.isna().all()
    none = Tokens(np.zeros(1, dtype=np.int64), *(np.empty(0, dtype=t) for t in ("i4", "f4", "f4", "?", "?")))
    assert len(score(none)) == 0
    last_empty = Tokens(
        np.array([0, 0, 2, 2]), *(np.array(x) for x in ([0, 1], [np.nan, -1.0], [np.nan, -2.0], [0, 1], [0, 1]))
    )
    assert list(score(last_empty, ("loss",)).status) == ["no_evidence", "ok", "no_evidence"]


def test_columns_and_types():
    rows = [([-1.0, -2], [-2.0, -1], [True] * 2, [True] * 2)] * 2
    table = score_table(pack(rows), ["ez", "loss"], ["a", "b"], [True, None])
    assert list(table.columns) == [
        *("example_id", "member", "attack", "score", "rank_score", "status", "n_scored", "n_errors", "p_sum", "n_sum")
    ]
    assert [str(t) for t in table.dtypes] == [
        *("str", "boolean", "str", "float64", "float64", "str", "int64", "Int64", "float64", "float64")
    ]
    assert table[table.attack == "loss"][["n_errors", "p_sum", "n_sum"]].isna().all().all()
    assert list(table.attack) == ["ez", "ez", "loss", "loss"]
    assert set(table.status) <= set(spec.STATUSES)


def test_messages_name_what_to_do():
    rows = [([-1.0], [-1.0], [True], [True])]
    tokens = pack(rows)
    alone = Tokens(tokens.offsets, tokens.position, tokens.logp_target, None, tokens.is_error, tokens.scored)
    assert score(alone, ("loss",)).status[0] == "ok"
    for attack in ("ez", "reference"):
        with pytest.raises(SpecError, match=r"set model\.reference"):
            score(alone, (attack,))
    with pytest.raises(SpecError, match="Did you mean 'reference'"):
        score(tokens, ("referense",))
    with pytest.raises(SpecError, match="'paper'"):
        score(tokens, ez_policy="papers")
    with pytest.raises(SpecError, match="name at least one"):
        score(tokens, ())
    with pytest.raises(ValueError, match="2 example ids"):
        score_table(tokens, ["loss"], ["a", "b"], [True])


def test_every_attack_of_the_spec_has_a_function():
    assert set(ATTACKS) == set(spec.ATTACKS)
    for attack in ATTACKS.values():
        assert attack.title
        assert attack.paper
        assert attack.access
        assert attack.passes >= 1


def test_status_counts_show_the_forced_rows():
    every = [True] * 3
    rows = [
        ([-1.0, -1, -1], [-2.0, -3, -2], [False] * 3, every),
        ([-1.0, -1, -1], [-2.0, -3, -2], every, every),
        ([-1.0, -1, -1], [-2.0, -3, -2], every, every),
        ([-1.0, -1, -1], [-2.0, -3, -0.5], every, every),
    ]
    table = score_table(pack(rows), ["ez"], list("abcd"), [True, False, None, True])
    counts = status_counts(table).set_index("status")
    assert list(counts.loc["no_errors"]) == ["ez", True, 1, 0, 0]
    assert list(counts.loc["n_zero"]) == ["ez", True, 0, 1, 1]
    assert list(counts.loc["ok"]) == ["ez", False, 1, 0, 0]
    official = score_table(pack(rows), ["ez"], list("abcd"), [True, False, None, True], ez_policy="official")
    assert not status_counts(official).forced.any()


# --- table token_stats -> arrays ---


def frame_of(tokens, ids):
    rows = np.repeat(np.arange(len(ids)), np.diff(tokens.offsets))
    return pd.DataFrame(
        {
            "example_id": pd.array([ids[r] for r in rows], dtype="str"),
            "position": tokens.position,
            "logp_target": tokens.logp_target,
            "logp_reference": tokens.logp_reference,
            "is_error": tokens.is_error,
            "scored": tokens.scored,
        }
    )


def same(a, b):
    for name in ("offsets", "position", "logp_target", "logp_reference", "is_error", "scored"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_tokens_from_frame_restores_order_and_empty_rows():
    x = ([-1.0, -2, -3], [-2.0, -1, -4], [True, False, True], [True] * 3)
    tokens, ids = pack([x, ([-7.0], [-8.0], [True], [False])]), ["b", "a"]
    frame = frame_of(tokens, ids)
    shuffled = frame.sample(frac=1, random_state=0)
    for kind in ("str", "object", "category"):
        same(tokens_from_frame(shuffled.astype({"example_id": kind}), ids), tokens)
    padded = tokens_from_frame(frame, ["b", "nothing", "a", "none"])
    assert list(padded.offsets) == [0, 4, 4, 6, 6]
    same(tokens_from_frame(frame, ["a"]), pack([([-7.0], [-8.0], [True], [False])]))
    assert list(tokens_from_frame(frame.iloc[:0], ids).offsets) == [0, 0, 0]


def test_tokens_from_frame_through_parquet(tmp_path):
    tokens, ids = pack([([-1.0, -2, -3], [-2.0, -1, -4], [True, False, True], [True] * 3)]), ["a"]
    frame_of(tokens, ids).astype({"is_error": "boolean"}).to_parquet(tmp_path / "t.parquet")
    same(tokens_from_frame(pd.read_parquet(tmp_path / "t.parquet"), ids), tokens)


def test_tokens_from_frame_without_a_reference():
    frame = frame_of(pack([([-1.0, -2], [-2.0, -1], [True, True], [True] * 2)]), ["a"])
    assert tokens_from_frame(frame.drop(columns="logp_reference"), ["a"]).logp_reference is None
    assert tokens_from_frame(frame.assign(logp_reference=np.nan), ["a"]).logp_reference is None


def test_tokens_from_frame_refuses_doubles():
    frame = frame_of(pack([([-1.0, -2], [-2.0, -1], [True, True], [True] * 2)]), ["a"])
    with pytest.raises(DatasetError, match="asked for twice"):
        tokens_from_frame(frame, ["a", "a"])
    with pytest.raises(DatasetError, match="'a' has position 1 twice"):
        tokens_from_frame(pd.concat([frame, frame.iloc[[1]]]), ["a"])


# --- properties ---

# Multiples of 1/64, so that scaled values are exact in float32.
log_prob = st.integers(-640, 0).map(lambda k: k / 64)
token = st.tuples(log_prob, log_prob, st.booleans(), st.booleans())
token_rows = st.lists(st.lists(token, max_size=12), min_size=1, max_size=8)


def columns_of(row):
    return tuple(np.array([t[i] for t in row]) for i in range(4))


@settings(deadline=None, max_examples=40)
@given(token_rows, st.sampled_from([0.125, 0.5, 2.0, 3.0, 7.0]))
def test_ez_does_not_change_when_all_shifts_are_scaled(rows, c):
    rows = [columns_of(r) for r in rows]
    scaled = [(a * c, b * c, wrong, scored) for a, b, wrong, scored in rows]
    one, other = score(rows), score(scaled)
    assert list(one.status) == list(other.status)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(token_rows, st.randoms(use_true_random=False))
def test_rows_do_not_know_each_other(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    columns = [columns_of(r) for r in rows]
    attacks = tuple(ATTACKS)
    together = score(columns, attacks)
    shuffled = score([columns[i] for i in order], attacks)
    n = len(rows)
    for k in range(len(attacks)):
        part = together.iloc[k * n : (k + 1) * n].iloc[order]
        other = shuffled.iloc[k * n : (k + 1) * n]
        np.testing.assert_array_equal(part[NUMBERS], other[NUMBERS])
        assert list(part.status) == list(other.status)
    alone = score([columns[0]], attacks)
    np.testing.assert_array_equal(alone[NUMBERS], together.iloc[::n][NUMBERS])


maybe_broken = st.one_of(log_prob, st.sampled_from([np.nan, -np.inf, np.inf]))
broken_token = st.tuples(maybe_broken, maybe_broken, st.booleans(), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(broken_token, max_size=6), min_size=1, max_size=6), st.sampled_from(["paper", "official"]))
def test_ranks_are_finite_or_there_is_no_evidence(rows, policy):
    table = score([columns_of(r) for r in rows], tuple(ATTACKS), ez_policy=policy)
    no_evidence = table.status == "no_evidence"
    assert np.isfinite(table.rank_score[~no_evidence]).all()
    assert table.rank_score[no_evidence].isna().all()
    assert table.score[no_evidence].isna().all()
    used = [[t for t in row[1:] if t[3]] for row in rows]
    broken = [not np.isfinite([t[:2] for t in row]).all() for row in used]
    on_top = (table.rank_score >= FORCED_FROM).to_numpy()[: len(rows)]
    assert not (on_top & np.array(broken)).any()


@settings(deadline=None, max_examples=40)
@given(token_rows)
def test_plain_python_gives_the_same(rows):
    table = score([columns_of(r) for r in rows], tuple(ATTACKS)).groupby("attack")["score"].apply(list)
    for i, row in enumerate(rows):
        zone = [t - r for t, r, wrong, scored in row[1:] if wrong and scored]
        p, n = sum(max(d, 0) for d in zone), sum(max(-d, 0) for d in zone)
        if len(zone) >= 2 and n > 0:
            assert table["ez"][i] == pytest.approx(p / n, rel=1e-12)
        else:
            assert np.isnan(table["ez"][i])
        used = [(t, r) for t, r, _, scored in row if scored]
        if used:
            assert table["loss"][i] == pytest.approx(np.mean([t for t, _ in used]))
            assert table["reference"][i] == pytest.approx(np.mean([t - r for t, r in used]))
        else:
            assert np.isnan(table["loss"][i])
