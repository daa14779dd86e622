"""Plans: what is said before a run is what the run would do."""

import pandas as pd
import pytest

from auditcore.jobs.plan import plan_here
from auditcore.spec import parse_spec
from tests.job_specs import membership_spec


def finetune_spec(home, model, **changes) -> dict:
    rows = 100
    split = ["train"] * 20 + ["bal_train"] * 80
    frame = pd.DataFrame({"text": ["fever and cough " * (1 + i % 3) for i in range(rows)], "split": split})
    frame.to_csv(home / "rows.csv", index=False)
    roles = {"text": "text", "split": "split"}
    spec = {
        "kind": "finetune",
        "model": {"source": str(model)},
        "data": {"path": str(home / "rows.csv"), "roles": roles},
    }
    return {**spec, "epochs": 3, "batch_size": 4, "validation": 0, **changes}


@pytest.fixture(autouse=True)
def speed(monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide


def test_a_finetune_plan_counts_the_rows_that_are_trained_on(home, pair) -> None:
    spec = finetune_spec(home, pair[1])
    plan = plan_here(parse_spec(spec))
    assert plan.rows == 20
    assert (
        "20 rows to train on, 0 to choose the best checkpoint; 80 of 100 rows take no part. 15 steps" in plan.to_text()
    )
    everything = {**spec, "data": {**spec["data"], "roles": {"text": "text"}}}
    all_rows = plan_here(parse_spec(everything))
    assert all_rows.rows == 100
    assert 4 < (all_rows.tokens / plan.tokens) < 6
    assert 4 < (all_rows.seconds - 20) / (plan.seconds - 20) < 6


def test_max_steps_shortens_the_estimate(home, pair) -> None:
    whole, short = (plan_here(parse_spec(finetune_spec(home, pair[1], **c))) for c in ({}, {"max_steps": 5}))
    assert (short.seconds - 20) * 3 == pytest.approx(whole.seconds - 20)
    assert short.rows == whole.rows


def test_a_target_that_is_its_own_reference_is_said(home, pair) -> None:
    plain = plan_here(parse_spec(membership_spec(home, pair)))
    assert plain.warnings == []
    same = plan_here(parse_spec(membership_spec(home, (pair[1], pair[1].parent / "." / pair[1].name))))
    assert "every shift between them will be 0" in same.warnings[0]
    assert "Warning: Target and reference are the same model" in same.to_text()
