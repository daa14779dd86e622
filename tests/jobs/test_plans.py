"""Plans: what is said before a run is what the run would do."""

import os

import pandas as pd
import pytest

from auditcore.jobs.estimate import Plan
from auditcore.jobs.plan import plan_here, slowdown
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


def test_a_busy_machine_is_told_beside_the_time_of_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0), raising=False)
    assert slowdown() == 3.0
    plan = Plan("vectors", 10, 0, 3600.0, 0, slowdown=slowdown())
    assert "about 60 minutes on this machine when it is free (it is busy now: about 3 h 00 min beside" in plan.to_text()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.2, 0.0, 0.0), raising=False)
    assert "busy" not in Plan("vectors", 10, 0, 3600.0, 0, slowdown=slowdown()).to_text()
    power = {"attribute": "sex", "n_subjects": 22, "n_classes": 2, "budget": 0.025, "p_within": 0.0, "tests": 2}
    power |= {"subjects_needed": 4300, "needed_by_one": 3480, "smallest_gap": None}
    assert "Warning: sex: 22 test subjects" in Plan("vectors", 10, 0, 1.0, 0, [power]).to_text()
    assert "Warning" not in Plan("vectors", 10, 0, 1.0, 0, [{**power, "p_within": 0.8}]).to_text()
