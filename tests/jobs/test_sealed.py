"""Sealed test rows: no run reads them before the lock, whatever it calls them; every later look is in the ledger."""

import json

import numpy as np
import pandas as pd
import pytest

from auditcore import cli, jobs, records, store
from auditcore.datasets.roles import load_dataset
from auditcore.datasets.splits import make_splits
from auditcore.errors import RunError
from auditcore.jobs import sealed
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import run_spec, vectors_spec


def rows_with_splits(home, tiny_llama) -> dict:
    """A vectors spec whose file brings its splits."""
    spec = vectors_spec(home, tiny_llama, artifacts=["lasttok"], layers=[-1])
    data = parse_spec(spec).data
    frame = make_splits(load_dataset(data, "{prompt}").frame, ("sex",), 0, defences=False)
    table = pd.read_csv(data.path, dtype=str)
    table.assign(split=frame["split"], id=[f"p{i}" for i in range(len(table))]).to_csv(data.path, index=False)
    spec["data"]["roles"] |= {"split": "split", "id": "id"}
    return spec


def declare(home, spec: dict) -> store.Run:
    """A run that trains on these rows and seals the test rows among them."""
    raw = {"kind": "finetune", "model": spec["model"], "data": spec["data"], "template": "{prompt}"}
    parsed = parse_spec(raw)
    run = store.create_run(dump_spec(parsed))
    sealed.seal(run, load_dataset(parsed.data, "{prompt}"))
    run.update(status="done")  # nobody works on it: a queue would wait for its worker
    return run


@pytest.fixture
def spec(home, tiny_llama) -> dict:
    return rows_with_splits(home, tiny_llama)


def test_no_door_opens_before_the_lock_and_every_look_is_counted_after_it(home, spec, capsys, monkeypatch) -> None:
    run = declare(home, spec)
    import auditcore.lm.load as load

    def refuse(*_, **__):
        raise AssertionError("a model met the sealed rows")

    with monkeypatch.context() as patch:
        patch.setattr(load, "load_model", refuse)
        with pytest.raises(RunError, match=f"run {run.id} keeps sealed"):
            run_spec(spec)
    with pytest.raises(Exception, match="keeps sealed"):
        jobs.plan(parse_spec(spec))
    (home / "audit.json").write_text(json.dumps(spec))
    assert cli.main(["run", str(home / "audit.json"), "--out", str(home / "cli")]) == 2
    assert "reveal" in capsys.readouterr().err
    assert not (store.home() / "ledger.jsonl").exists()

    records.append(run, "declaration", "Ada", budget=0.025)
    with pytest.raises(RunError, match="keeps sealed"):
        run_spec(spec)
    records.append(run, "lock", "Ada", step=50)
    first, second = run_spec(spec), run_spec({**spec, "template": "Note: {prompt}\nSummary:"})
    ledger = [json.loads(line) for line in (store.home() / "ledger.jsonl").read_text().splitlines()]
    assert [entry["run"] for entry in ledger] == [first.id, second.id]
    assert len({entry["key"] for entry in ledger}) == 1  # the same rows under another template
    assert second.manifest["test_split"]["earlier_looks"] == 1


@pytest.mark.parametrize("disguise", ["template", "split", "part", "file", "no split", "blanks"])
def test_a_sealed_row_is_known_in_any_disguise(home, spec, disguise) -> None:
    declare(home, spec)
    path = spec["data"]["path"]
    table = pd.read_csv(path, dtype=str)
    if disguise == "template":
        spec["template"] = "{sex}: {prompt} ..."
    elif disguise == "split":
        table["split"] = table["split"].map({"bal_test": "bal_val", "bal_val": "bal_test"}).fillna(table["split"])
    elif disguise == "part":
        spec["data"]["max_rows"] = 120
    elif disguise == "no split":
        del spec["data"]["roles"]["split"]
    elif disguise == "blanks":
        table["prompt"] = "  " + table["prompt"].str.replace(" ", "  ")
        table["id"] = [f"q{i}" for i in range(len(table))]
    if disguise in ("split", "file", "blanks"):
        path = str(home / "copy.csv")
        table.to_csv(path, index=False)
        spec["data"]["path"] = path
    with pytest.raises(RunError, match="keeps sealed"):
        run_spec(spec)


def test_vectors_made_elsewhere_are_refused_by_the_ids_of_the_same_file(home, spec) -> None:
    declare(home, spec)
    n = len(pd.read_csv(spec["data"]["path"]))
    np.save(home / "v.npy", np.random.default_rng(0).normal(size=(n, 4)))
    given = {"kind": "vectors", "vectors": {"path": str(home / "v.npy")}, "data": dict(spec["data"])}
    given["data"]["roles"] = {k: v for k, v in spec["data"]["roles"].items() if k != "prompt"}
    with pytest.raises(RunError, match="keeps sealed"):
        run_spec({**given, "probes": ["linear"], "seeds": [0], "permutations": 19, "n_boot": 100})


def test_other_rows_pass_and_deleting_a_run_opens_nothing(home, spec) -> None:
    run = declare(home, spec)
    dataset = load_dataset(parse_spec(spec).data, "{prompt}")
    free = np.flatnonzero(~dataset.frame["split"].eq("bal_test").to_numpy(dtype=bool))
    sealed.require_open(dataset, free)
    test = np.flatnonzero(dataset.frame["split"].eq("bal_test").to_numpy(dtype=bool))
    with pytest.raises(RunError, match=f"{len(test)} rows"):
        sealed.require_open(dataset, own=run)
    run.delete()
    sealed.require_open(dataset, free)
    with pytest.raises(RunError, match=f"{len(test)} rows .* is gone, which opens nothing"):
        sealed.require_open(dataset)


def test_what_a_deleted_run_sealed_opens_with_the_lock_of_another_on_the_same_rows(home, spec) -> None:
    dataset = load_dataset(parse_spec(spec).data, "{prompt}")
    first, second, third = declare(home, spec), declare(home, spec), declare(home, spec)
    first.delete()
    records.append(second, "lock", "Ada", step=50)
    with pytest.raises(RunError, match=third.id):  # a run that is there waits for its own lock
        sealed.require_open(dataset)
    sealed.mark_open(second, records.append(third, "lock", "Ada", step=50))
    sealed.require_open(dataset)
    third.delete()
    sealed.require_open(dataset)
    second.delete()  # its lock is noted beside the seal
    sealed.require_open(dataset)


def test_a_run_begun_anew_in_the_same_folder_keeps_what_the_old_one_sealed(home, spec) -> None:
    dataset = load_dataset(parse_spec(spec).data, "{prompt}")
    run = declare(home, spec)
    dataset_without = dataset.select(np.flatnonzero(~dataset.frame["split"].eq("bal_test").to_numpy(dtype=bool)))
    assert sealed.seal(run, dataset_without) != sealed.seal(run, dataset)
    sealed.seal(run, dataset_without)
    records.append(run, "lock", "Ada", step=50)
    with pytest.raises(RunError, match="keeps sealed"):
        sealed.require_open(dataset)


def test_a_run_is_told_its_own_rows_by_id_since_texts_repeat(home, spec) -> None:
    table = pd.read_csv(spec["data"]["path"], dtype=str)
    train, test = (table.index[table["split"] == s][0] for s in ("bal_train", "bal_test"))
    table.loc[train, "prompt"] = table.loc[test, "prompt"]
    table.to_csv(spec["data"]["path"], index=False)
    run = declare(home, spec)
    dataset = load_dataset(parse_spec(spec).data, "{prompt}")
    sealed.require_open(dataset, np.array([train]), own=run)
    with pytest.raises(RunError, match="1 row "):
        sealed.require_open(dataset, np.array([train]))
    with pytest.raises(RunError, match="1 row "):
        sealed.require_open(dataset, np.array([test]), own=run)
