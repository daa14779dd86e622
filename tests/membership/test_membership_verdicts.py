"""Membership verdicts from scores: over, within, together, not resolved."""

import numpy as np
import pandas as pd

from auditcore.membership.roc import attack_metrics, exact_roc, membership_verdicts, reasons
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


def test_ties_that_leave_no_threshold_never_clear_an_attack():
    member, noise = normal(400, 800)
    others = np.flatnonzero(~member)
    top = np.where(member, noise, -10.0 - np.arange(1200))
    tied = np.where(member, np.where(noise > 0, 1.0, noise), noise - 9.0)
    tied[others[:40]] = 1.0  # 40 of 800 share the highest score with half of the members: 8 may be accused
    alone = tied.copy()
    alone[np.flatnonzero(member)[0]] = 2.0  # one member above them
    above = tied.copy()
    above[others[50:53]] = 3.0  # three others above them: a threshold exists, and finds nobody
    free = tied.copy()
    free[others[8:40]] = -9.0  # 8 share the highest score: they may be accused
    step = above.copy()
    step[np.flatnonzero(member)[0]] = 3.0  # three others and one member: a step at 3 of 800 that finds something
    scores = table(member, tied=tied, alone=alone, above=above, free=free, step=step)
    metrics, _ = attack_metrics(scores, None, (0.01,), 100, 0)
    verdicts = membership_verdicts(scores, metrics, None, 0.025, 400, 0).set_index("attacker")
    assert verdicts.verdict[["tied", "alone", "above"]].eq("not resolved").all()
    assert verdicts.loc[["tied", "above"], ["value", "low", "high"]].isna().all().all()
    assert verdicts.value["alone"] == 1 / 400
    assert verdicts.value["free"] > 0.4
    assert verdicts.value["step"] == 1 / 400 - 3 / 800
    assert verdicts.verdict["step"] == "within budget"
    points = metrics[metrics.metric == "tpr"].set_index("attack")
    assert points.resolvable.all()
    assert points.loc[["tied", "above"], ["value", "low", "high", "threshold"]].isna().all().all()
    assert points.threshold["alone"] == 2.0
    why = reasons(metrics, 0.01)
    assert list(why) == ["tied", "alone", "above"]
    assert why["tied"].endswith("share the highest score, so no threshold accuses fewer")
    assert why["alone"].endswith("share their highest score, so no threshold accuses some and fewer")
    assert why["above"].startswith("tied scores: the next threshold accuses more than 1 % of the non-members at once")
    # An audit of such attacks alone is not within budget; one that is over stays over beside them.
    only = membership_verdicts(table(member, tied=tied, alone=alone), None, None, 0.025, 200, 0)
    assert list(only.verdict) == ["not resolved"] * 3
    both = membership_verdicts(table(member, tied=tied, loss=top), None, None, 0.025, 200, 0)
    assert list(both.verdict) == ["not resolved", "over budget", "over budget"]


def test_a_tie_far_below_the_threshold_changes_nothing():
    member, rank = normal(400, 800)
    clumped = np.where(rank < 1.0, -5.0, rank)
    assert reasons(attack_metrics(table(member, loss=clumped), None, (0.01,), 50, 0)[0], 0.01) == {}
    a, b = (membership_verdicts(table(member, loss=r), None, None, 0.025, 200, 0) for r in (rank, clumped))
    pd.testing.assert_frame_equal(a, b)


def test_verdicts_of_no_scores():
    empty = table([], loss=[])
    assert len(membership_verdicts(empty)) == 0
