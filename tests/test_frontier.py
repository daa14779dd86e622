"""Selection, Pareto set, anchors and rebound over made-up checkpoint tables: rules, ties, missing values."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore import frontier
from auditcore.errors import SpecError
from auditcore.frontier import Declaration
from tests.fake_checkpoints import checkpoints_table, step_predictions

DECLARED = Declaration(0.025, ("race",), ("lasttok",), ("linear", "mlp"))
# Few values, so that ties are common; NaN is one of them.
GAPS = st.sampled_from([0.0, 0.01, 0.025, 0.0250001, 0.05, 0.2, math.nan])
SCORES = st.sampled_from([0.0, 20.0, 20.0000001, 35.5, math.nan])
ROWS = st.lists(st.tuples(GAPS, st.sampled_from([0.0, 0.01, 0.2, math.nan]), SCORES), max_size=9)


def candidates(rows: list[tuple[float, float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["gap", "wider", "rougeL"]).astype(float)
    return frame.assign(step=range(50, 50 + 50 * len(frame), 50), upper=frame["gap"] + frame["wider"])


@settings(max_examples=300, deadline=None)
@given(ROWS, st.sampled_from([0.0, 0.01, 0.025, 1.0]), st.sampled_from(["point", "upper"]))
def test_the_rule_is_what_it_says_for_any_table(rows, budget, select_on) -> None:
    frame = candidates(rows)
    found = frontier.select(frame, budget, select_on)
    leak = "upper" if select_on == "upper" else "gap"
    records = frame.to_dict("records")
    usable = [r for r in records if not any(math.isnan(r[k]) for k in ("gap", leak, "rougeL"))]
    good = [r for r in usable if r[leak] <= budget]
    assert found.candidates == len(records)
    assert found.qualified == len(good)
    assert found.unmeasured == len(records) - len(usable)
    if good:
        assert found.nearest is None
        assert found.chosen is not None
        assert found.chosen["step"] == min(good, key=lambda r: (-r["rougeL"], r["gap"], r["step"]))["step"]
    else:
        assert found.chosen is None
        known = [r for r in records if not math.isnan(r["gap"]) and not math.isnan(r[leak])]
        assert (found.nearest is None) == (not known)
        if found.nearest is not None:
            assert found.nearest[leak] == min(r[leak] for r in known)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.sampled_from(["point", "upper"]))
def test_the_order_of_the_table_does_not_matter_and_upper_is_stricter(rows, random, select_on) -> None:
    frame = candidates(rows)
    order = list(range(len(frame)))
    random.shuffle(order)
    chosen = frontier.select(frame, 0.025, select_on).chosen
    again = frontier.select(frame.iloc[order], 0.025, select_on).chosen
    assert (again and again["step"]) == (chosen and chosen["step"])
    point, upper = (frontier.select(frame, 0.025, rule) for rule in ("point", "upper"))
    assert upper.qualified <= point.qualified
    wide = frontier.select(frame, 1.0, select_on)
    assert wide.chosen is None or chosen is None or wide.chosen["rougeL"] >= chosen["rougeL"]


def test_ties_go_to_the_lower_gap_then_to_the_earlier_step() -> None:
    frame = pd.DataFrame({"step": [1, 2, 3], "gap": [0.02, 0.01, 0.01], "rougeL": [40.0] * 3})
    assert frontier.select(frame, 0.025).chosen["step"] == 2
    assert frontier.select(frame, 0.005).nearest["step"] == 2
    assert frontier.select(frame, 0.0).chosen is None
    assert frontier.select(frame.iloc[:0], 0.1) == frontier.Selection(None, None, 0, 0, 0)


def test_a_checkpoint_qualifies_only_if_every_declared_attacker_and_artifact_does() -> None:
    table = checkpoints_table(
        gaps={("lasttok", "linear"): [0.3, 0.02, 0.01], ("lasttok", "mlp"): [0.3, 0.01, 0.06],
              ("meanpool", "linear"): [0.4, 0.3, 0.3], ("meanpool", "mlp"): [0.4, 0.3, 0.3]},
        rouge=[20, 40, 45],
    )  # fmt: skip
    seen = frontier.judged(table, DECLARED)
    assert seen["gap"].round(6).tolist() == [0.3, 0.02, 0.06]
    assert seen["probe"].tolist()[1:] == ["linear", "mlp"]
    assert frontier.select(seen, 0.025).chosen["step"] == 50
    both = Declaration(0.025, ("race",), ("lasttok", "meanpool"), ("linear", "mlp"))
    assert frontier.select(frontier.judged(table, both), 0.025).nearest["step"] == 100  # equal gaps: more ROUGE-L
    alone = frontier.judged(table, Declaration(0.025, ("race",), ("lasttok",), ("linear",)))
    assert frontier.select(alone, 0.025).chosen["step"] == 100


def test_a_missing_attacker_is_not_measured_and_a_leak_below_chance_counts_as_one() -> None:
    table = checkpoints_table(
        gaps={("lasttok", "linear"): [0.3, 0.0, -0.2], ("lasttok", "mlp"): [0.3, math.nan, 0.0]}, rouge=[20, 40, 45]
    )
    seen = frontier.judged(table, DECLARED)
    assert seen["measured"].tolist() == [True, False, True]
    assert seen["gap"].round(6).tolist()[2] == 0.2
    found = frontier.select(seen, 0.025)
    assert found.chosen is None
    assert found.unmeasured == 1
    dropped = table[~((table["step"] == 50) & (table["probe"] == "mlp"))]
    assert frontier.judged(dropped, DECLARED)["measured"].tolist() == [True, False, True]
    with pytest.raises(SpecError, match=r"artifact 'lastok' is declared.*Did you mean 'lasttok'"):
        frontier.judged(table, Declaration(0.025, ("race",), ("lastok",), ("linear",)))


@pytest.mark.parametrize(
    "wrong", [{"budget": math.nan}, {"budget": -1.0}, {"select_on": "best"}, {"attackers": ()}, {"artifacts": ()}]
)
def test_a_declaration_that_says_nothing_is_refused(wrong: dict[str, Any]) -> None:
    given_: dict[str, Any] = {"budget": 0.025, "attributes": ("a",), "artifacts": ("b",), "attackers": ("c",)}
    with pytest.raises(SpecError):
        Declaration(**{**given_, **wrong})
    fine = Declaration(**given_, seeds=(0, 1))
    assert Declaration.read({**fine.record(), "by": "somebody"}) == fine


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(GAPS, SCORES), max_size=12))
def test_the_pareto_set_holds_exactly_what_nothing_beats(rows) -> None:
    gap, utility = (np.array([r[i] for r in rows], dtype=float) for i in (0, 1))
    inside = frontier.pareto(gap, utility)
    for i, (g, u) in enumerate(rows):
        if math.isnan(g) or math.isnan(u):
            assert not inside[i]
            continue
        beaten = any(
            (a <= g and b >= u and (a < g or b > u)) for a, b in rows if not math.isnan(a) and not math.isnan(b)
        )
        assert inside[i] == (not beaten)


def test_points_read_the_selection_split_only_and_keep_every_artifact() -> None:
    gaps = {("lasttok", "linear"): [0.3, 0.1], ("meanpool", "linear"): [0.4, 0.4]}
    table = checkpoints_table(gaps=gaps, rouge=[20, 40])
    test = table.assign(split="bal_test", signed_gap=0.9)
    per_seed = table.assign(seed=0, signed_gap=0.7)
    drawn = frontier.points(pd.concat([table, test, per_seed], ignore_index=True))
    assert len(drawn) == 4
    assert drawn["gap"].max() < 0.5
    assert drawn["lambda"].tolist() == [0.0, 0.0, 2.0, 2.0]  # the model before training has none
    assert frontier.points(table.iloc[:0]).empty


def test_anchors_are_the_base_model_once_and_the_best_checkpoint_without_an_adversary() -> None:
    gaps = {("lasttok", "linear"): [0.3, 0.25, 0.2], ("meanpool", "linear"): [0.4, 0.4, 0.4]}
    with_adversary = checkpoints_table(gaps=gaps, rouge=[20, 38, 39], run_id="a")
    plain = checkpoints_table(gaps=gaps, rouge=[20, 41, 40], run_id="b", strength=0.0)
    found = frontier.anchors(frontier.points(pd.concat([with_adversary, plain])))
    assert found["anchor"].value_counts().to_dict() == {"base model": 2, "utility-only LoRA": 2}
    assert found.loc[found["anchor"] == "utility-only LoRA", "step"].tolist() == [50, 50]
    assert frontier.anchors(frontier.points(with_adversary))["anchor"].tolist() == ["base model"] * 2
    foreign = with_adversary.assign(**{"lambda": np.where(with_adversary["step"] > 0, np.nan, 0.0)})
    assert frontier.anchors(frontier.points(foreign))["anchor"].tolist() == ["base model"] * 2


def test_a_leak_that_comes_back_is_flagged_with_its_size() -> None:
    predictions = step_predictions([0.6, 0.25, 0.3, 0.45], n=600, seed=3)
    found = frontier.rebound(predictions)
    assert (found.best_step, found.peak_step) == (50, 150)
    assert found.flagged
    assert found.low < 0.2 < found.high
    assert found.n_subjects == 600
    falling = frontier.rebound(step_predictions([0.6, 0.5, 0.4, 0.3], n=600, seed=4))
    assert not falling.flagged
    assert (falling.rise, falling.low, falling.high) == (0.0, 0.0, 0.0)


def test_the_strongest_attacker_of_each_step_makes_the_rebound() -> None:
    predictions = step_predictions({"mlp": [0.6, 0.25, 0.21], "linear": [0.6, 0.25, 0.5]}, n=500, seed=5)
    assert frontier.rebound(predictions).flagged
    assert not frontier.rebound(predictions, ["mlp"]).flagged


def test_few_flat_trajectories_are_flagged() -> None:
    flagged = sum(
        frontier.rebound(step_predictions([0.3] * 8, n=250, seed=seed), n_boot=300).flagged for seed in range(100)
    )
    assert flagged <= 12  # about 5 of 100; 34 when read from the rows that named the steps


def test_too_little_to_tell_a_rebound_is_none() -> None:
    assert frontier.rebound(step_predictions([0.5], n=100, seed=0)) is None
    assert frontier.rebound(step_predictions([0.5, 0.4], n=15, seed=0)) is None
    assert frontier.rebound(step_predictions([0.5, 0.4], n=100, seed=0).iloc[:0]) is None


def test_two_notes_of_one_subject_never_stand_on_both_sides() -> None:
    predictions = step_predictions([0.6, 0.2, 0.6], n=200, seed=1)
    twin = predictions.assign(example_id=predictions["example_id"] + "b")
    both = frontier.rebound(pd.concat([predictions, twin], ignore_index=True))
    once = frontier.rebound(predictions)
    assert both.n_subjects == once.n_subjects == 200
    assert (both.low, both.high) == pytest.approx((once.low, once.high))
