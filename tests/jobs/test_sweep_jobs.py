"""Sweeps on tiny models: every checkpoint is measured, whole models are cleared away, a kill costs nothing twice."""

import numpy as np
import pandas as pd
import pytest

from auditcore import cli, jobs, store
from auditcore.errors import SpecError
from auditcore.jobs.plan import plan_here
from auditcore.report.page import html_report
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import HOSTILE, make_rows, membership_spec, run_spec, tables_of


def sweep_spec(folder, base, **changes) -> dict:
    return {
        "kind": "sweep",
        "name": "methods",
        "model": {"source": str(base)},
        "data": {
            "path": str(make_rows(folder / "rows.csv")),
            "roles": {"text": "text", "member": "member", "id": "id"},
        },
        "variants": [
            {"method": "full", "learning_rate": 1e-2, "epochs": 2},
            {"method": "lora", "rank": [2, 4], "learning_rate": 1e-2, "epochs": 3, "target_modules": ["q_proj"]},
        ],
        "validation": "unknown",
        "attacks": ["ez", "loss"],
        "max_length": 32,
        "batch_size": 8,
        "n_boot": 100,
        "threads": 1,
        **changes,
    }


def test_every_checkpoint_of_every_variant_is_measured(home, pair, capsys) -> None:
    run = run_spec(sweep_spec(home, pair[1]))
    sweep = run.read("sweep")
    one = sweep[(sweep["attack"] == "ez") & (sweep["metric"] == "auc")]
    assert one.groupby("variant", sort=False)["step"].apply(list).to_dict() == {
        "full 0.01": [2, 4],
        "lora r2 0.01": [2, 4, 6],
        "lora r4 0.01": [2, 4, 6],
    }
    assert one["validation_loss"].notna().all()
    assert one["n_member"].eq(16).all()
    assert one["n_nonmember"].eq(16).all()
    assert set(sweep["attack"]) == {"ez", "loss"}
    # Full models are half a gigabyte each in life: they go, adapters stay.
    assert not (run.path / "variants" / "01").exists()
    kept = sorted(p.name for p in (run.path / "variants" / "02" / "checkpoints").iterdir())
    assert kept == ["best", "last", "step-000002", "step-000004", "step-000006"]
    matched = run.read("matched")
    assert set(matched["attack"]) == {"ez", "loss"}
    assert "Not audited" in run.manifest["claim"]["not_audited"]
    assert run.read("blind")["attack"].eq("bow").all()
    cli.main(["show", str(run.path)])
    assert "Words alone, without asking a model, tell members from others with AUC" in capsys.readouterr().out
    assert "words alone" in html_report(run)


def test_words_that_give_membership_away_are_a_warning_of_a_sweep_too(home, pair) -> None:
    spec = sweep_spec(home, pair[1], variants=[{"method": "lora", "learning_rate": 1e-2, "epochs": 1}])
    spec["attacks"] = ["loss"]
    rows = pd.read_csv(spec["data"]["path"], dtype=str)
    rows["text"] = np.where(rows["member"] == "1", "members say this " + rows["text"].fillna(""), rows["text"])
    rows.to_csv(spec["data"]["path"], index=False)
    assert any("differ by themselves" in w for w in run_spec(spec).manifest["warnings"])


def test_a_checkpoint_of_a_sweep_reads_as_its_own_audit_would(home, pair) -> None:
    run = run_spec(sweep_spec(home, pair[1]))
    folder = run.path / "variants" / "03" / "checkpoints" / "step-000004"
    alone = membership_spec(home, (folder, pair[1]), attacks=["ez", "loss"], target_fprs=[0.01, 0.1])
    alone["model"]["base"] = str(pair[1])
    scores = run_spec(alone).read("membership_scores")
    mine = run.read("variant_03")
    mine = mine[mine["step"] == 4]
    np.testing.assert_allclose(mine["rank_score"], scores["rank_score"], rtol=1e-5, atol=1e-6)
    assert mine["member"].isna().sum() == 2 * len(HOSTILE)


def test_more_checkpoints_per_epoch_and_a_validation_share(home, pair) -> None:
    variants = [{"method": "lora", "learning_rate": 1e-2, "epochs": 1, "target_modules": ["q_proj"]}]
    spec = sweep_spec(home, pair[1], variants=variants, checkpoints_per_epoch=4, batch_size=2, validation=0.25)
    run = run_spec(spec)
    sweep = run.read("sweep")
    assert list(sweep["step"].unique()) == [1, 2, 3, 4, 5, 6]  # 12 rows of 16 members, one checkpoint every step
    assert sweep["n_member"].max() == 12  # the rows that measured the validation loss are no evidence
    assert run.read("matched").empty
    assert any("both methods" in w for w in run.manifest["warnings"])


def test_resumed_after_a_kill_between_variants_it_trains_nothing_twice(home, pair, monkeypatch) -> None:
    import auditcore.training.finetune as training

    undisturbed = tables_of(run_spec(sweep_spec(home, pair[1])))
    trained: list[str] = []
    real = training.finetune

    def counting(*args, **kwargs):
        trained.append(args[5].name)
        if trained == ["01", "02"]:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "finetune", counting)
    run = store.create_run(dump_spec(parse_spec(sweep_spec(home, pair[1]))))
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert trained == ["01", "02", "02", "03"]
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, undisturbed[name])


def test_what_a_sweep_refuses(home, pair) -> None:
    with pytest.raises(SpecError, match="'lira' trains or generates"):
        run_spec(sweep_spec(home, pair[1], attacks=["lira"]))
    twice = [{"method": "full", "learning_rate": 1e-4}, {"method": "full", "learning_rate": 1e-4}]
    with pytest.raises(SpecError, match="there twice"):
        run_spec(sweep_spec(home, pair[1], variants=twice))
    with pytest.raises(SpecError, match="above 0"):
        parse_spec(sweep_spec(home, pair[1], variants=[{"method": "lora", "rank": 0, "learning_rate": 1e-4}]))


def test_the_plan_counts_variants_and_checkpoints(home, pair) -> None:
    plan = plan_here(parse_spec(sweep_spec(home, pair[1])))
    assert any("3 variants and 8 checkpoints; 16 rows to train on" in note for note in plan.notes)
