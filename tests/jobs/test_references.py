"""References that an audit fine-tunes for itself: on non-members that leave the evaluation, on texts of the target."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError, RunError, SpecError
from auditcore.jobs import references
from auditcore.jobs.classify import classify
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import membership_spec, run_spec, tables_of

RECIPE = {"epochs": 6, "learning_rate": 5e-3, "batch_size": 4}


def spec_of(home, pair, kind, **changes):
    recipe = {"kind": kind, **RECIPE, **changes.pop("recipe", {})}
    return membership_spec(home, pair, **{"attacks": ["ez", "reference"], "reference": recipe, **changes})


def differences(run):
    stats = run.read("token_stats")
    return stats.groupby("example_id")["delta"].mean().dropna()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_sft_trains_on_nonmembers_and_leaves_them_out(method, home, pair) -> None:
    base = run_spec(spec_of(home, pair, "base"))
    run = run_spec(spec_of(home, pair, "sft", recipe={"method": method}))
    rows = pd.read_csv(home / "rows.csv", dtype=str).set_index("id")
    scores = run.read("membership_scores").drop_duplicates("example_id").set_index("example_id")
    out = [i for i in scores.index if rows.loc[i, "member"] == "0" and pd.isna(scores.loc[i, "member"])]
    assert len(out) == 8 == run.manifest["counts"]["reference_rows"]
    metrics = run.read("attack_metrics")
    assert set(metrics["n_nonmember"]) == {8}
    assert set(metrics["n_member"]) == {16}
    # The reference learnt its own rows best: the target stands lower above it there than it did above the base.
    fall = differences(base) - differences(run)
    rest = [i for i in scores.index if rows.loc[i, "member"] == "1"]
    assert fall[out].mean() > fall[rest].mean() > 0
    assert "8 known non-members" in run.manifest["claim"]["audited"]
    assert any("8 non-members are what the reference is fine-tuned on" in n for n in run.manifest["data"]["notes"])
    jobs.require_unchanged(run)  # the fine-tuned reference is no change of the base


def test_distillation_trains_on_what_the_target_writes_once(home, pair, monkeypatch) -> None:
    from auditcore.lm import generate

    written, sample = [], generate.sample
    monkeypatch.setattr(generate, "sample", lambda *a, **k: written.append(1) or sample(*a, **k))
    small = {"self_prompt": {"texts": 30, "new_tokens": 12}, "spv": {"pairs": 1, "max_steps": 2}}
    base = run_spec(spec_of(home, pair, "base"))
    run = run_spec(spec_of(home, pair, "distillation", attacks=["ez", "spv"], **small))
    assert len(written) == 1
    assert len(run.read("self_prompt_texts")) == 30
    assert (differences(base) - differences(run)).abs().mean() > 0.01
    assert set(run.read("attack_metrics")["n_nonmember"]) == {16}
    assert "fine-tuned on texts that the model wrote" in run.manifest["claim"]["audited"]


def test_whole_subjects_are_drawn(home, pair) -> None:
    spec = parse_spec(spec_of(home, pair, "sft", recipe={"nonmembers": 0.4}))
    group = pd.Series([f"g{i // 4}" for i in range(80)], dtype="str")
    member = pd.Series([i % 2 == 0 for i in range(80)], dtype="boolean")
    chosen = references.choose_nonmembers(spec, group, member)
    assert len(chosen) == 16
    assert not member[chosen].any()
    assert set(group[chosen]).isdisjoint(group[~member & ~group.index.isin(chosen)])
    again = references.choose_nonmembers(spec, group, member)
    np.testing.assert_array_equal(chosen, again)


def test_other_rows_of_a_subject_go_with_those_an_attack_uses() -> None:
    group = pd.Series(["a", "a", "b", "b", "c"], dtype="str")
    member = pd.Series([False, True, False, pd.NA, True], dtype="boolean")
    left, others = references.without_subjects(group, member, np.array([0]))
    assert left.isna().tolist() == [True, True, False, True, False]
    assert others == 1
    assert references.without_subjects(group, member, np.array([2]))[1] == 0


def test_the_prefix_of_recall_takes_its_subjects_out_of_every_metric(home, pair) -> None:
    spec = membership_spec(home, pair, attacks=["recall", "loss"], recall_shots=2)
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["patient"] = [f"p{i // 4}" for i in range(len(rows))]  # two members and two non-members each
    rows.to_csv(spec["data"]["path"], index=False)
    spec["data"]["roles"]["group"] = "patient"
    run = run_spec(spec)
    scores = (
        run.read("membership_scores").drop_duplicates("example_id").merge(run.read("examples")[["example_id", "group"]])
    )
    out = scores[scores["member"].isna()].groupby("group").size()
    assert sorted(out) == [4] * 4  # two subjects of unknown membership, and the two of the prefix, whole
    assert any("and with them 6 other rows of the same subjects" in n for n in run.manifest["data"]["notes"])
    planned = plan_here(parse_spec(spec)).operating_points[0]["n_nonmember"]
    assert set(run.read("attack_metrics")["n_nonmember"]) == {planned} == {12}


def test_too_few_nonmembers_are_refused_by_plan_and_run_alike(home, pair) -> None:
    spec = spec_of(home, pair, "sft", recipe={"nonmembers": 0.2})
    with pytest.raises(DatasetError, match="sft fine-tunes on 3 of 16 rows"):
        run_spec(spec)
    with pytest.raises(Exception, match="sft fine-tunes on 3 of 16 rows"):
        plan_here(parse_spec(spec))


def test_the_plan_counts_its_training_and_the_rows_that_leave(home, pair, monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide
    base = plan_here(parse_spec(spec_of(home, pair, "base")))
    sft = plan_here(parse_spec(spec_of(home, pair, "sft")))
    text = sft.to_text()
    assert [p["n_nonmember"] for p in base.operating_points] == [16] * 4
    assert [p["n_nonmember"] for p in sft.operating_points] == [8] * 4
    assert sft.attacks[0]["seconds"] > base.attacks[0]["seconds"]
    assert "fine-tuned on 8 non-members, which leave the evaluation (lora, 6 epochs)" in text
    assert "trains a reference (lora) on known non-members" in text
    distilled = plan_here(parse_spec(spec_of(home, pair, "distillation"))).to_text()
    assert "The target writes 400 texts" in distilled
    assert "trains a reference (lora) on 400 texts that the target writes" in distilled


def test_a_new_text_is_held_against_the_same_reference(home, pair) -> None:
    spec = spec_of(home, pair, "sft", target_fprs=[0.01, 0.5])
    run = run_spec(spec)
    text = pd.read_csv(spec["data"]["path"], dtype=str).iloc[21]
    known = run.manifest["fingerprints"]
    run.update(fingerprints={**known, "trained_reference": "another"})
    with pytest.raises(RunError, match="fine-tuned reference changed"):
        classify(run, text["text"], "reference", 0.5)
    run.update(fingerprints=known)
    found = classify(run, text["text"], "reference", 0.5)["score"].iloc[0]
    scores = run.read("membership_scores")
    mine = scores[(scores["attack"] == "reference") & (scores["example_id"] == text["id"])]
    assert found == pytest.approx(float(mine["score"].iloc[0]), abs=1e-4)


def test_stopped_after_its_reference_was_trained_a_run_keeps_it(home, pair, monkeypatch) -> None:
    from auditcore.jobs import evidence

    spec = spec_of(home, pair, "sft")
    expected = tables_of(run_spec(spec))
    store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    with monkeypatch.context() as patch:
        patch.setattr(evidence.Pass, "run", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    last = run.path / "reference" / "checkpoints" / "last" / "adapter_model.safetensors"
    made = last.stat().st_mtime_ns
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert last.stat().st_mtime_ns == made
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
    # Another reference under a finished run is no reference of its thresholds.
    run.update(status="failed", finished_stages=[s for s in run.manifest["finished_stages"] if s != "scores"])
    last.write_bytes(last.read_bytes()[:-4] + b"\x00\x00\x80\x3f")
    jobs.prepare_resume(run)
    with pytest.raises(RunError, match="trained_reference changed"):
        jobs.execute(run)


def test_unknown_kinds_name_the_known_ones(home, pair) -> None:
    with pytest.raises(SpecError, match=r"reference.kind: .*'base', 'sft' or 'distillation'"):
        parse_spec(spec_of(home, pair, "distilation"))
