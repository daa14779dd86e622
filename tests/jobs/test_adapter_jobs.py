"""A folder of forty adapters as one run: usable ones are measured, the others are listed with their reasons."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError, ModelError
from auditcore.jobs.adapters import steps_of
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import run_spec
from tests.jobs.test_surfacelora_jobs import make_rows, surface_spec
from tests.tiny_models import build_adapter


def frontier_spec(home: Path, base: Path, folder: Path, **changes) -> dict:
    data = surface_spec(home, base)["data"]
    return {
        "kind": "frontier",
        "checkpoints": {"folder": str(folder), "base": str(base)},
        "data": data,
        "template": "{prompt}\nSummary:",
        "max_length": 48,
        "audit": ["lasttok", "meanpool"],
        "probes": ["linear"],
        "seeds": [0],
        "n_boot": 100,
        "rouge_rows": 0,
        "threads": 1,
        **changes,
    }


def copies(folder: Path, adapter: Path, names: list[str]) -> None:
    """Adapters that differ in one number each, so that none is another's twin."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    first = next(iter(tensors))
    for number, name in enumerate(names):
        shutil.copytree(adapter, folder / name)
        changed = tensors[first].clone()
        changed.view(-1)[0] += number
        save_file({**tensors, first: changed}, folder / name / "adapter_model.safetensors")


def test_forty_foreign_adapters(home, tiny_llama, tiny_folders, tiny_adapter) -> None:
    folder = home / "adapters"
    names = [f"run-{i}" for i in range(36)]
    copies(folder, tiny_adapter, names)
    for name in ("foreign-1", "foreign-2"):
        build_adapter(folder / name, tiny_folders["qwen2"])
    build_adapter(folder / "other-shape", tiny_folders["gpt2"])
    path = folder / "other-shape" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": str(tiny_llama)}))
    copies(folder, tiny_adapter, ["corrupt"])
    weights = folder / "corrupt" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    assert len(list(folder.iterdir())) == 40
    run = run_spec(frontier_spec(home, tiny_llama, folder, audit=["lasttok"]))
    assert run.status == "done"
    skipped = run.read("skipped").set_index("checkpoint")["reason"]
    assert set(skipped.index) == {"foreign-1", "foreign-2", "other-shape", "corrupt"}
    assert "damaged" in skipped["corrupt"]
    assert "another base" in skipped["foreign-1"]
    assert "no module" in skipped["other-shape"]
    table = run.read("checkpoints")
    assert table["step"].tolist() == list(range(37))
    assert table["checkpoint"].tolist() == ["base", *names]  # run-2 before run-10
    assert table["lambda"].isna().tolist() == [False] + [True] * 36
    assert run.manifest["counts"] | {"adapters": 36, "skipped": 4} == run.manifest["counts"]
    assert any("4 of 40 folders cannot be used" in w for w in run.manifest["warnings"])
    assert any("numbered in the order of their names" in n for n in run.manifest["data"]["notes"])
    assert set(run.read("predictions")["split"]) == {"bal_val"}


def test_our_own_checkpoints_measure_the_same_here_as_where_they_were_trained(home, tiny_llama) -> None:
    trained = run_spec(surface_spec(home, tiny_llama, audit=["lasttok", "meanpool"], learning_rate=0.01))
    spec = frontier_spec(home, tiny_llama, trained.path / "checkpoints", rouge_rows=6, max_new_tokens=6)
    run = run_spec(spec)
    assert run.read("skipped")["checkpoint"].tolist() == ["last"]  # step-000005 under another name
    one, two = trained.read("checkpoints"), run.read("checkpoints")
    assert two["step"].unique().tolist() == [0, 2, 4, 5]
    assert two.loc[two["step"] > 0, "lambda"].eq(2.0).all()
    assert two["checkpoint"].unique().tolist() == ["base", "step-000002", "step-000004", "step-000005"]
    # In the folder's own run bal_* rows are the same, so that balanced rows, probes and summaries are.
    columns = ["step", "artifact", "accuracy", "signed_low90", "rougeL", "rougeL_low"]
    pd.testing.assert_frame_equal(one[columns], two[columns], rtol=1e-3, atol=1e-3)


def test_an_adapter_that_only_loading_refuses_is_listed_and_the_next_one_is_measured_on_a_clean_base(
    home, tiny_llama, tiny_adapter, monkeypatch
) -> None:
    from auditcore.lm import load

    folder = home / "adapters"
    copies(folder, tiny_adapter, ["a", "b", "c"])
    real = load._open_adapter

    def refuse(source, model, device):
        if str(source).endswith("b"):
            raise ModelError("adapter b cannot be applied.")
        return real(source, model, device)

    spec = frontier_spec(home, tiny_llama, folder, audit=["lasttok"])
    with monkeypatch.context() as patch:
        patch.setattr(load, "_open_adapter", refuse)
        run = run_spec(spec)
    assert run.read("skipped").values.tolist() == [["b", "adapter b cannot be applied."]]
    assert run.read("checkpoints")["checkpoint"].tolist() == ["base", "a", "c"]
    shutil.rmtree(store.cache())
    whole = run_spec(spec).read("checkpoints").set_index("checkpoint")["accuracy"]
    for name in ("base", "a", "c"):
        assert run.read("checkpoints").set_index("checkpoint")["accuracy"][name] == pytest.approx(whole[name])


def test_a_run_that_was_cut_off_goes_on_and_notices_changed_adapters(
    home, tiny_llama, tiny_adapter, monkeypatch
) -> None:
    from auditcore.jobs.checkpoints import Bench

    folder = home / "adapters"
    copies(folder, tiny_adapter, ["a", "b", "c"])
    run = store.create_run(dump_spec(parse_spec(frontier_spec(home, tiny_llama, folder, audit=["lasttok"]))))
    real = Bench.measure

    def stop(self, checkpoint):
        if checkpoint.name == "b":
            raise KeyboardInterrupt
        real(self, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(Bench, "measure", stop)
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    jobs.prepare_resume(run)
    changed = folder / "a" / "adapter_model.safetensors"
    before = changed.read_bytes()
    changed.write_bytes((folder / "c" / "adapter_model.safetensors").read_bytes())
    with pytest.raises(ModelError, match="adapter a changed"):
        jobs.execute(run)
    changed.write_bytes(before)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert run.read("checkpoints")["checkpoint"].tolist() == ["base", "a", "b", "c"]


def test_nothing_usable_and_missing_splits_are_refused_in_words(home, tiny_llama, tiny_folders) -> None:
    build_adapter(home / "adapters" / "a", tiny_folders["qwen2"])
    with pytest.raises(ModelError, match="none of 1 folders can be used"):
        run_spec(frontier_spec(home, tiny_llama, home / "adapters"))
    spec = frontier_spec(home, tiny_llama, home / "adapters")
    path = make_rows(home / "other.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame[frame["split"] != "bal_val"].to_csv(path, index=False)
    with pytest.raises(DatasetError, match="no rows of bal_val"):
        run_spec({**spec, "data": {**spec["data"], "path": str(path)}})


def test_steps_are_the_adapters_own_or_their_numbers() -> None:
    assert steps_of([{"step": 50}, {"step": 100}]) == [50, 100]
    for records in ([{"step": 50}, {"step": 50}], [{"step": 50}, {}], [{"step": 0}, {"step": 1}], [{"step": True}, {}]):
        assert steps_of(records) == [1, 2]
    assert steps_of([]) == []
    assert np.all(np.diff(steps_of([{}] * 5)) == 1)


def test_the_plan_says_how_many_adapters_can_be_used(home, tiny_llama, tiny_adapter, tiny_folders) -> None:
    copies(home / "adapters", tiny_adapter, ["a", "b"])
    build_adapter(home / "adapters" / "c", tiny_folders["qwen2"])
    found = plan_here(parse_spec(frontier_spec(home, tiny_llama, home / "adapters")))
    assert found.kind == "frontier"
    assert any("2 of 3 folders hold an adapter that can be used" in note for note in found.notes)
    assert any("c: it names another base" in note for note in found.notes)
    assert any("Each of 3 checkpoints" in note for note in found.notes)
