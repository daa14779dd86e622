"""Pairs of checkpoints at equal validation loss: which are taken, and when nothing can be said."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore.membership.matched import difference_at_equal_loss, pair_at_equal_loss


def checkpoints(rows: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["variant", "method", "step", "validation_loss"])


def test_the_pair_stands_at_the_lowest_loss_that_both_reach() -> None:
    table = checkpoints(
        [
            ("full", "full", 10, 3.9),
            ("full", "full", 20, 3.5),
            ("lora r4", "lora", 10, 3.95),
            ("lora r4", "lora", 20, 3.88),
            ("lora r16", "lora", 20, 3.91),
        ]
    )
    pair = pair_at_equal_loss(table, "full", "lora", tolerance=0.03)
    assert pair is not None
    assert (pair.a, pair.b, pair.matched) == (0, 3, True)
    assert not pair_at_equal_loss(table, "full", "lora", tolerance=0.01).matched


def test_checkpoints_past_their_best_are_not_compared() -> None:
    # Step 30 of full has LoRA's loss again, but by overfitting: it remembers without fitting better.
    table = checkpoints(
        [("full", "full", 10, 3.7), ("full", "full", 20, 3.5), ("full", "full", 30, 3.8), ("lora", "lora", 10, 3.8)]
    )
    pair = pair_at_equal_loss(table, "full", "lora", tolerance=0.02)
    assert (pair.a, pair.b, pair.matched) == (0, 3, False)


def test_a_tie_takes_the_earlier_checkpoint() -> None:
    table = checkpoints([("a", "full", 30, 3.5), ("b", "full", 20, 3.5), ("c", "lora", 10, 3.5)])
    assert pair_at_equal_loss(table, "full", "lora", 0.02).a == 1


@pytest.mark.parametrize(
    "rows", [[("full", "full", 10, 3.5)], [("full", "full", 10, 3.5), ("lora", "lora", 10, None)], []]
)
def test_without_both_methods_and_a_loss_there_is_no_pair(rows) -> None:
    table = checkpoints(rows).astype({"validation_loss": float})
    assert pair_at_equal_loss(table, "full", "lora", 0.02) is None


@given(st.lists(st.tuples(st.sampled_from(["full", "lora"]), st.integers(1, 4), st.floats(1, 5)), min_size=2))
def test_no_other_pair_of_usable_checkpoints_fits_lower(rows) -> None:
    table = checkpoints([(f"{m} {i}", m, s, loss) for i, (m, s, loss) in enumerate(rows)])
    pair = pair_at_equal_loss(table, "full", "lora", 0.1)
    sides = [table.loc[table["method"] == m, "validation_loss"] for m in ("full", "lora")]
    if any(side.empty for side in sides):
        assert pair is None
        return
    # Every variant has one checkpoint: the pair stands at the worse of the two best losses.
    assert max(pair.loss_a, pair.loss_b) >= max(side.min() for side in sides)
    assert pair.matched == (abs(pair.loss_a - pair.loss_b) <= 0.1)
    assert min(abs(pair.loss_a - sides[0].min()), abs(pair.loss_b - sides[1].min())) == 0


def test_the_difference_is_paired_by_row() -> None:
    rng = np.random.default_rng(0)
    n = 200
    member = np.arange(n) % 2 == 0
    noise = rng.normal(size=n)
    ids = [f"r{i}" for i in range(n)]

    def scores(gain: float) -> pd.DataFrame:
        rank = noise + gain * member
        return pd.DataFrame({"example_id": ids, "member": member, "attack": "ez", "rank_score": rank})

    table = checkpoints([("full", "full", 1, 3.5), ("lora", "lora", 1, 3.5)])
    pair = pair_at_equal_loss(table, "full", "lora", 0.02)
    found = difference_at_equal_loss(pair, {0: scores(3.0), 1: scores(0.5)}, None, [0.1], 200, 0)
    auc = found[found["metric"] == "auc"].iloc[0]
    assert auc["difference"] == pytest.approx(auc["value_a"] - auc["value_b"])
    assert auc["low"] > 0.2
    same = difference_at_equal_loss(pair, {0: scores(1.0), 1: scores(1.0)}, None, [0.1], 200, 0)
    assert (same["difference"].dropna() == 0).all()
