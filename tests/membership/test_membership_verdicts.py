"""Membership verdicts from scores: over, within, together, not resolved."""

import numpy as np
import pandas as pd

from auditcore.membership.roc import exact_roc, membership_verdicts
from auditcore.membership.thresholds import (
    operating_point,
)
from auditcore.spec import VERDICTS
from tests.score_tables import normal, table


def test_verdicts_over_within_and_together():
    member, strong = normal(2000, 2000, shift=3.0, seed=1)
    weak = normal(2000, 2000, shift=0.0, seed=2)[1]
    scores = table(member, ez=strong, loss=weak)
    verdicts = membership_verdicts(scores, None, None, 0.025, 400, 0)
    assert list(verdicts.columns) == [
        *("kind", "attribute", "artifact", "layer", "defence", "attacker", "split", "budget"),
        *("value", "low", "high", "n_subjects", "verdict"),
    ]
    assert list(verdicts.attacker) == ["ez", "loss", "all"]
    assert list(verdicts.verdict) == ["over budget", "within budget", "over budget"]
    assert set(verdicts.verdict) <= set(VERDICTS)
    assert set(verdicts.kind) == {"membership"}
    assert set(verdicts.n_subjects) == {4000}
    point = operating_point(exact_roc(member, strong), 0.01)
    assert verdicts.value[0] == verdicts.value[2] == point.tpr - point.fpr
    assert verdicts.low[0] < verdicts.value[0] < verdicts.high[0]
    only_weak = membership_verdicts(table(member, loss=weak, reference=weak[::-1]), None, None, 0.025, 400, 0)
    assert list(only_weak.verdict) == ["within budget"] * 3


def test_one_unresolved_attack_keeps_the_run_from_being_within_budget():
    member, rank = normal(2000, 2000)
    broken = np.where(np.arange(4000) % 4000 < 3500, rank, np.nan)  # 500 non-members short
    broken[2000:3000] = np.nan
    verdicts = membership_verdicts(table(member, loss=rank, ez=broken), None, None, 0.025, 200, 0)
    assert list(verdicts.verdict) == ["within budget", "not resolved", "not resolved"]
    assert pd.isna(verdicts.value[1])


def test_few_members_cannot_show_that_nothing_leaks():
    for members, expected in ((20, "not resolved"), (400, "within budget")):
        member, rank = normal(members, 2000)
        rank = rank - 10.0 * member  # no member anywhere near the top: every resample says TPR = 0
        verdict = membership_verdicts(table(member, loss=rank), None, None, 0.025, 200, 0)
        assert verdict.verdict[0] == expected
        assert verdict.value[0] == -0.01


def test_verdicts_of_no_scores():
    empty = table([], loss=[])
    assert len(membership_verdicts(empty)) == 0
