"""Defences in a vectors audit: fitted on rows of their own, measured behind every probe, with what they cost."""

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.cli import main
from auditcore.errors import DatasetError, SpecError
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import run_spec, tables_of, vectors_spec

ALL = ["none", "pca", "pca_vectors", "inlp", "leace", "noise", "truncate"]


def given_spec(home, n=600, shift=2.0, spread=1.0, split=None, **changes) -> dict:
    """Vectors of 8 numbers; classes differ by `shift` along one and by `spread` in size along another."""
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[np.arange(n) % 2]
    vectors = rng.normal(size=(n, 8))
    vectors[:, 0] += shift * (sex == "m")
    vectors[:, 1] *= np.where(sex == "m", spread, 1.0)
    frame = pd.DataFrame({"id": [f"s{i}" for i in range(n)], "sex": sex})
    roles = {"label": "sex", "id": "id"}
    if split is not None:
        frame["split"] = split
        roles["split"] = "split"
    frame.to_csv(home / "labels.csv", index=False)
    np.save(home / "v.npy", vectors)
    return {
        "kind": "vectors",
        "vectors": {"path": str(home / "v.npy")},
        "data": {"path": str(home / "labels.csv"), "roles": roles},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
        "threads": 1,
        **changes,
    }


def test_every_defence_is_measured_with_its_cost(home, tiny_llama) -> None:
    spec = vectors_spec(home, tiny_llama, layers=[-1], artifacts=["lasttok"], defences=ALL)
    run = run_spec(spec)
    assert run.status == "done"
    averaged = run.read("probe_metrics").query("seed.isna() and split == 'bal_test'")
    assert list(averaged["defence"]) == ALL
    verdicts = run.read("verdicts")
    assert set(verdicts.loc[verdicts["attacker"] == "all", "defence"]) == set(ALL)
    costs = run.read("defence_costs")
    assert set(costs["defence"]) == set(ALL) - {"none"}
    assert set(costs["measure"]) == {"retrieval_overlap_at_10", "variance_kept"}
    assert (costs["value"] <= 1).all()
    assert (costs["low"] <= costs["value"]).all()
    assert (costs["value"] <= costs["high"]).all()
    examples = run.read("examples")
    assert (costs["n_fit"] == (examples["split"] == "defence_fit").sum()).all()
    removed = costs.drop_duplicates("defence").set_index("defence")["removed"]
    assert removed.to_dict() == {"pca": 1, "pca_vectors": 1, "inlp": 1, "leace": 1, "noise": 0, "truncate": 16}
    effects = run.read("defence_effects").query("split == 'bal_test'").set_index("defence")
    accuracy = averaged.set_index("defence")["accuracy"]
    for name in ALL[1:]:
        assert effects.loc[name, "accuracy"] == pytest.approx(accuracy[name])
        assert effects.loc[name, "change"] == pytest.approx(accuracy[name] - accuracy["none"])
        assert effects.loc[name, "low"] <= effects.loc[name, "change"] <= effects.loc[name, "high"]
    claim = run.manifest["claim"]
    assert "as they are and behind pca" in claim["audited"]
    assert "linear behind leace" in claim["audited"]
    assert "what a defence fitted for one label leaves of another" in claim["not_audited"]
    again = run_spec(spec)
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, again.read(name))


def test_linear_falls_and_non_linear_does_not_where_classes_differ_in_spread(home) -> None:
    spec = given_spec(home, 900, spread=5.0, probes=["linear", "mlp"], defences=["none", "leace"])
    run = run_spec(spec)
    found = run.read("verdicts").set_index(["defence", "attacker"])
    assert found.loc[("none", "linear"), "verdict"] == "over budget"
    assert found.loc[("leace", "linear"), "value"] < 0.1
    assert found.loc[("leace", "mlp"), "verdict"] == "over budget"


def test_a_defence_alone_is_judged_alone_and_the_command_line_tells_which(home, capsys) -> None:
    run = run_spec(given_spec(home, defences=["leace"]))
    assert set(run.read("verdicts")["defence"]) == {"leace"}
    assert not run.has("defence_effects")
    assert main(["show", str(run.path)]) == 0
    told = capsys.readouterr().out
    assert "Behind leace, an attacker holding v names sex correctly for" in told
    assert "Nothing has been measured yet" not in told


def test_fit_rows_are_subjects_of_no_probe(home) -> None:
    run = run_spec(given_spec(home, defences=["none", "leace"]))
    examples = run.read("examples")
    assert examples["split"].value_counts(normalize=True)["defence_fit"] == pytest.approx(0.2, abs=0.01)
    assert (examples.groupby("group")["split"].nunique() == 1).all()
    assert not run.read("predictions")["example_id"].isin(examples.query("split == 'defence_fit'")["example_id"]).any()


def test_the_five_groups_rule_is_refused_with_its_reason(home) -> None:
    splits = np.resize(["defence_fit", "bal_train", "bal_train", "bal_val", "bal_test"], 600)
    ok = given_spec(home, split=splits, defences=["none", "leace"])
    run_spec(ok)
    for split, why in {"bal_train": "leaves it nothing to learn", "bal_test": "worse than guessing"}.items():
        with pytest.raises(SpecError, match=why):
            parse_spec({**ok, "defence_options": {"fit_on": split}})
    with pytest.raises(SpecError, match="Did you mean 'defence_fit'"):
        parse_spec({**ok, "defence_options": {"fit_on": "defence-fit"}})
    missing = given_spec(home, split=np.where(splits == "defence_fit", "train", splits), defences=["leace"])
    with pytest.raises(DatasetError, match=r"no rows of defence_fit.*no probe sees.*split_map"):
        run_spec(missing)
    mapped = {**missing["data"], "split_map": {"train": "defence_fit"}}
    assert run_spec({**missing, "data": mapped}).status == "done"
    two = given_spec(home, split=splits, defences=["leace"])
    frame = pd.read_csv(home / "labels.csv").assign(subject=lambda f: f["id"])
    frame.loc[1, "subject"] = "s0"  # of defence_fit and of bal_train
    frame.to_csv(home / "labels.csv", index=False)
    two["data"]["roles"]["group"] = "subject"
    with pytest.raises(DatasetError, match="subject 's0' is in the splits"):
        run_spec(two)


def test_a_defence_that_was_killed_is_finished_by_resume(home, monkeypatch) -> None:
    spec = given_spec(home, defences=["none", "leace", "noise"])
    whole = run_spec(spec)
    run = store.create_run(dump_spec(parse_spec(spec)), home / "killed")
    import auditcore.leakage.gap as gap

    real, calls = gap.evaluate, []

    def dies(*args, **named):
        calls.append(named["defence"])
        if named["defence"] == "noise":
            raise KeyboardInterrupt
        return real(*args, **named)

    monkeypatch.setattr(gap, "evaluate", dies)
    with pytest.raises(KeyboardInterrupt):
        jobs.execute(run)
    monkeypatch.setattr(gap, "evaluate", real)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert calls == ["none", "leace", "noise"]
    for name, table in tables_of(whole).items():
        pd.testing.assert_frame_equal(table, run.read(name))


def test_the_plan_counts_every_defence(home) -> None:
    one, many = (plan_here(parse_spec(given_spec(home, defences=d))) for d in (["none"], ALL))
    start = 15  # seconds that every plan grants to what is read and written around the fits
    assert many.seconds - start > 4 * (one.seconds - start)
    assert many.rows > 0


def test_unknown_defence_names_the_nearest() -> None:
    data = {"path": "x.csv", "roles": {"label": "sex"}}
    with pytest.raises(SpecError, match="Did you mean 'leace'"):
        parse_spec({"kind": "vectors", "vectors": {"path": "v.npy"}, "data": data, "defences": ["lace"]})
