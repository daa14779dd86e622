"""Sample-size curves in a vectors audit: the largest size is the audit's own, killed and resumed, told, planned."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.cli import main
from auditcore.errors import SpecError
from auditcore.jobs.plan import plan_here
from auditcore.report.page import html_report
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import run_spec, tables_of


def given_spec(home, n=1200, shift=1.2, **changes) -> dict:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[np.arange(n) % 2]
    vectors = rng.normal(size=(n, 30)).astype(np.float32)
    vectors[:, 0] += shift * (sex == "m")
    pd.DataFrame({"sex": sex, "v": list(vectors)}).to_parquet(home / "v.parquet")
    return {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.parquet")},
        "data": {"path": str(home / "v.parquet"), "roles": {"label": "sex"}},
        "probes": ["linear"],
        "seeds": [0, 1],
        "permutations": 19,
        "n_boot": 200,
        "threads": 1,
        "curve": {"draws": 2},
        **changes,
    }


def test_the_largest_size_is_the_audits_own_and_all_tell_of_it(home, capsys) -> None:
    run = run_spec(given_spec(home))
    points = run.read("sample_curve")
    assert points["share"].tolist() == [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0]
    probe = run.read("probe_metrics").query("split == 'bal_test' and seed.isna()").iloc[0]
    whole = points.iloc[-1]
    assert whole["accuracy"] == pytest.approx(probe["accuracy"])
    assert whole["accuracy_low"] <= probe["accuracy_low"] + 1e-9
    assert (whole["n_train"], whole["n_eval"], whole["split"]) == (probe["n_train"], probe["n_eval"], "bal_test")
    assert points["n_train"].is_monotonic_increasing
    more = run.read("sample_extrapolation")
    assert more["times"].iloc[-1] == 10
    assert more["n_train"].iloc[-1] == 10 * whole["n_train"]
    assert main(["show", str(run.path)]) == 0
    told = capsys.readouterr().out
    assert "v read by linear:" in told
    assert ("an extrapolation, not a measurement" in told) != ("Not extrapolated to 10 times the rows" in told)
    assert "fitted on more rows (extrapolated, not measured)" in told
    report = html_report(run)
    assert "an attacker with fewer rows, and with more" in report
    assert "accuracy against training rows" in report
    without = run_spec({k: v for k, v in given_spec(home).items() if k != "curve"})
    assert not without.has("sample_curve")
    for name in ("verdicts", "predictions", "probe_metrics"):
        pd.testing.assert_frame_equal(run.read(name), without.read(name))


def test_killed_in_the_curve_it_ends_with_the_same_tables(home) -> None:
    spec = given_spec(home, n=600)
    undisturbed = run_spec(spec)
    run = store.create_run(dump_spec(parse_spec(spec)))
    jobs.execute(run)
    done = run.manifest["finished_stages"]
    run.update(status="failed", finished_stages=done[: done.index("curve of sex from v, linear")])
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert run.status == "done"
    for name, table in tables_of(undisturbed).items():
        pd.testing.assert_frame_equal(run.read(name), table)


def test_sizes_with_too_few_subjects_are_left_out_and_counted(home) -> None:
    run = run_spec(given_spec(home, n=160))
    assert "1 size of the curve left out" in " ".join(run.manifest["data"]["notes"])
    assert len(run.read("sample_curve")) == 4


def test_its_cost_stands_in_the_plan_and_wrong_shares_are_refused(home, monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide
    spec = given_spec(home)
    plain = plan_here(parse_spec({k: v for k, v in spec.items() if k != "curve"}))
    assert plan_here(parse_spec({**spec, "curve": {"draws": 200}})).seconds > plain.seconds + 20
    for shares, why in (([0.5, 0.5], "stands twice"), ([1.0], "less than 1"), ([], "at least 1")):
        with pytest.raises(SpecError, match=why):
            parse_spec({**spec, "curve": {"shares": shares}})
    with pytest.raises(SpecError, match="Did you mean 'draws'"):
        parse_spec({**spec, "curve": {"draw": 2}})


def test_without_the_plain_vectors_there_is_no_curve_and_it_is_said(home) -> None:
    run = run_spec(given_spec(home, n=600, defences=["leace"]))
    assert "No sample-size curve" in " ".join(run.manifest["data"]["notes"])
    assert not run.has("sample_curve")
