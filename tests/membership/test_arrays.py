"""The table token_stats back into arrays."""

import numpy as np
import pandas as pd
import pytest

from auditcore.errors import DatasetError
from auditcore.membership.scores import (
    tokens_from_frame,
)
from tests.score_rows import pack


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
