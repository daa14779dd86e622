"""Fine-tuning end to end on tiny models: what is learnt, saved, resumed, refused."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from auditcore.errors import DatasetError, ModelError, RunError, SpecError
from auditcore.lm.load import load_model
from auditcore.spec import ModelSpec
from auditcore.training import trainer as trainer_module
from auditcore.training.checkpoint import link, recover, replacing
from auditcore.training.finetune import LOG_COLUMNS, finetune
from auditcore.training.lora import add_adapter, attention_projections
from auditcore.training.rows import load_trained_on

N = 24
TRAIN, VALIDATION = np.arange(20), np.arange(20, N)
NAMES = {"example_ids": [f"r{i}" for i in range(N)], "text_hashes": [f"{i:064x}" for i in range(N)]}


class Stop(Exception):
    """A training cut off from outside."""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = [f for f in ("model.safetensors", "adapter_model.safetensors") if (folder / f).is_file()]
    return load_file(folder / found[0])


def same(one: dict, two: dict) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=0, atol=1e-6, msg=name)


def stop_at(k: int):
    def on_step(step, total, metrics):
        if step == k:
            raise Stop

    return on_step


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("stops", [(3,), (5, 7), (9,)])
def test_a_resumed_training_ends_with_the_weights_of_an_undisturbed_one(
    make_lm, make_rows, make_spec, tmp_path, method, stops
):
    spec = make_spec(method=method, gradient_accumulation=1, warmup_ratio=0.2, weight_decay=0.01)
    dropout = {"attention_dropout": 0.1}
    whole = finetune(make_lm(**dropout), make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "whole", **NAMES)
    assert whole.steps == 10
    assert whole.resumed_from == 0
    cut = tmp_path / "cut"
    for k in stops:
        with pytest.raises(Stop):
            finetune(
                make_lm(**dropout),
                make_rows(N),
                TRAIN,
                VALIDATION,
                spec,
                cut,
                stop_at(k),
                state_seconds=0,
                **NAMES,
            )
        assert (cut / "state" / "state.json").is_file()
    resumed = finetune(make_lm(**dropout), make_rows(N), TRAIN, VALIDATION, spec, cut, **NAMES)
    assert resumed.resumed_from == stops[-1]
    same(weights(whole.last), weights(resumed.last))
    same(weights(whole.best), weights(resumed.best))
    pd.testing.assert_frame_equal(whole.log, resumed.log)
    assert whole.best_step == resumed.best_step
    assert not (cut / "state").exists()
    assert sorted(p.name for p in cut.iterdir()) == ["checkpoints"]
    assert sorted(p.name for p in (cut / "checkpoints").iterdir()) == ["best", "last"]


def test_a_kill_between_two_states_goes_back_to_the_older_one(make_lm, make_rows, make_spec, tmp_path, monkeypatch):
    spec = make_spec()
    whole = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "whole")
    written = []
    save = trainer_module.save_state

    def seldom(folder, key, state, *rest):
        if state.step in (2, 6):
            written.append(state.step)
            save(folder, key, state, *rest)

    monkeypatch.setattr(trainer_module, "save_state", seldom)
    with pytest.raises(Stop):
        finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "cut", stop_at(8), state_seconds=0)
    resumed = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "cut")
    assert written == [2, 6]
    assert resumed.resumed_from == 6
    same(weights(whole.last), weights(resumed.last))
    pd.testing.assert_frame_equal(whole.log, resumed.log)


@pytest.mark.slow
def test_kill_minus_nine_in_a_process_of_its_own(make_lm, make_rows, make_spec, tmp_path):
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[2])!r}]
import conftest, numpy as np, torch
from pathlib import Path
from auditcore.training.finetune import finetune
torch.set_num_threads(1)
def on_step(step, total, metrics):
    if step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
finetune(conftest.build_lm(), conftest.build_rows({N}), np.arange(20), np.arange(20, {N}), conftest.build_spec(),
         Path({str(tmp_path / "cut")!r}), on_step, state_seconds=0)
"""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    resumed = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path / "cut")
    whole = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path / "whole")
    assert resumed.resumed_from == 7
    same(weights(whole.last), weights(resumed.last))


def test_a_finished_training_is_not_repeated(make_lm, make_rows, make_spec, tmp_path):
    first = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path)
    steps = []
    again = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path, lambda *a: steps.append(a))
    assert steps == []
    pd.testing.assert_frame_equal(first.log, again.log)


def test_a_state_of_other_settings_is_refused(make_lm, make_rows, make_spec, tmp_path):
    with pytest.raises(Stop):
        finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path, stop_at(4), state_seconds=0)
    with pytest.raises(RunError, match="other settings"):
        finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(learning_rate=0.1), tmp_path)


def test_full_checkpoints_are_models_that_load(make_lm, make_rows, make_spec, tmp_path):
    lm = make_lm()
    result = finetune(lm, make_rows(N), TRAIN, VALIDATION, make_spec(epochs=4), tmp_path, **NAMES)
    losses = result.log.dropna(subset="validation_loss").set_index("step")["validation_loss"]
    assert list(losses.index) == [5, 10, 15, 20]
    assert result.best_validation_loss == losses.min()
    assert result.best_step == losses.idxmin()
    assert result.last_validation_loss == losses.iloc[-1]
    assert list(result.log.columns) == list(LOG_COLUMNS)
    assert result.log["lm_loss"].iloc[-1] < result.log["lm_loss"].iloc[0]
    assert result.log[["lambda", "adversary_loss", "reversed_grad_norm", "lora_grad_norm"]].isna().all(axis=None)
    back = load_model(ModelSpec(source=str(result.last)))
    for name, parameter in lm.model.state_dict().items():
        assert torch.equal(parameter, back.model.state_dict()[name])
    for folder in (result.last, result.best):
        table = load_trained_on(folder)
        assert table["example_id"].tolist() == [f"r{i}" for i in range(N)]
        assert table["used"].tolist() == ["train"] * 20 + ["validation"] * 4
        assert "pad_token" not in json.loads((folder / "tokenizer_config.json").read_text())
        assert not list(folder.glob("*.bin"))
    assert lm.tokenizer.pad_token is not None
    assert not lm.model.training


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gptj", "qwen2"])
def test_lora_leaves_the_base_as_it_was(make_lm, make_rows, make_spec, tmp_path, architecture):
    lm = make_lm(architecture)
    before = {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}
    base = tmp_path / "base"
    lm.model.save_pretrained(base)
    lm.tokenizer.save_pretrained(base)
    spec = make_spec(method="lora", model={"source": str(base)})
    result = finetune(lm, make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "run")
    after = lm.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (result.log["lora_grad_norm"] > 0).all()
    config = json.loads((result.last / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert config["target_modules"] == sorted(config["target_modules"])
    adapted = load_model(ModelSpec(source=str(result.last)))
    ids = torch.arange(5)[None]
    with torch.no_grad():
        changed = adapted.model(ids).logits - lm.model(ids).logits
    assert changed.abs().max() > 1e-4
    again = finetune(lm, make_rows(N), TRAIN, VALIDATION, spec, tmp_path / "again")
    same(weights(result.last), weights(again.last))


def test_default_adapter_sits_on_the_attention_projections(make_lm):
    assert attention_projections(make_lm("llama").model) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert attention_projections(make_lm("qwen2").model) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert attention_projections(make_lm("gpt2").model) == ["attn.c_proj", "c_attn"]
    assert attention_projections(make_lm("gptj").model) == ["k_proj", "out_proj", "q_proj", "v_proj"]


def test_unknown_modules_are_named(make_lm, make_spec):
    lora = make_spec(lora={"target_modules": ["q_prj"]}).lora
    with pytest.raises(ModelError, match=r"has no module 'q_prj'\. Did you mean 'q_proj'"):
        add_adapter(make_lm().model, lora, "x")


def test_without_validation_best_is_last(make_lm, make_rows, make_spec, tmp_path):
    result = finetune(make_lm(), make_rows(N), TRAIN, [], make_spec(validation=0), tmp_path)
    assert result.best_validation_loss is None
    assert result.best_step == result.steps
    assert "`best` is the same as `last`" in result.notes[0]
    same(weights(result.best), weights(result.last))


def test_best_stays_when_later_steps_are_worse(make_lm, make_rows, make_spec, tmp_path):
    spec = make_spec(learning_rate=0.05, epochs=6, schedule="constant")
    result = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, spec, tmp_path, validate_every=2)
    assert result.best_step < result.steps
    assert result.best_validation_loss < result.last_validation_loss
    assert json.loads((result.best / "training.json").read_text())["step"] == result.best_step
    best, last = weights(result.best), weights(result.last)
    assert any(not torch.equal(best[name], last[name]) for name in best)


def test_accumulated_batches_give_the_step_of_one_large_batch(make_lm, make_rows, make_spec, tmp_path):
    rows = make_rows(8)
    large = finetune(make_lm(), rows, np.arange(8), [], make_spec(batch_size=8, epochs=3), tmp_path / "large")
    small = finetune(
        make_lm(), rows, np.arange(8), [], make_spec(batch_size=2, gradient_accumulation=4, epochs=3), tmp_path / "s"
    )
    assert small.steps == large.steps == 3
    np.testing.assert_allclose(small.log["lm_loss"], large.log["lm_loss"], rtol=1e-4)


def test_rows_that_were_never_reached_are_not_called_trained_on(make_lm, make_rows, make_spec, tmp_path):
    result = finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(max_steps=2), tmp_path, **NAMES)
    assert result.steps == 2
    used = load_trained_on(result.last)["used"].value_counts()
    assert used["train"] == 8
    assert "before 12 of 20 rows" in result.notes[0]


def test_targets_are_learnt_and_prompts_are_not(make_lm, make_rows, make_spec, tmp_path):
    rows = make_rows(N, targets=True)
    result = finetune(make_lm(), rows, TRAIN, VALIDATION, make_spec(epochs=3), tmp_path)
    assert result.log["lm_loss"].iloc[-1] < result.log["lm_loss"].iloc[0]


def test_learning_rates_follow_the_schedule(make_lm, make_rows, make_spec, tmp_path):
    for schedule, wanted in [
        ("constant", [0.5, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 2 / 3, 1 / 3]),
        ("cosine", [0.5, 1, 1, 0.75, 0.25]),
    ]:
        spec = make_spec(schedule=schedule, warmup_ratio=0.4, epochs=1)
        result = finetune(make_lm(), make_rows(N), TRAIN, [], spec, tmp_path / schedule)
        np.testing.assert_allclose(result.log["learning_rate"], 0.01 * np.array(wanted), rtol=1e-9)


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_checkpoint(
    make_lm, make_rows, make_spec, tmp_path, monkeypatch
):
    monkeypatch.setattr(trainer_module, "_KEEP_LAST_EVERY", 0.0)
    lm = make_lm()

    def poison(step, total, metrics):
        if step == 7:
            lm.model.model.norm.weight.data[0] = math.nan

    with pytest.raises(RunError, match=r"not a number at step 8 of 10.*step 5 is kept"):
        finetune(lm, make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path, poison)
    assert all(t.isfinite().all() for t in weights(tmp_path / "checkpoints" / "last").values())
    fresh = make_lm()
    with torch.no_grad():
        fresh.model.model.norm.weight[0] = math.inf
    with pytest.raises(RunError, match="No checkpoint had been written"):
        finetune(fresh, make_rows(N), TRAIN, VALIDATION, make_spec(), tmp_path / "other")


def test_running_out_of_memory_says_what_to_lower(make_lm, make_rows, make_spec, tmp_path):
    def exhausted(step, total, metrics):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ModelError, match=r"batch_size: 2 with gradient_accumulation: 2.*method: lora"):
        finetune(make_lm(), make_rows(N), TRAIN, [], make_spec(), tmp_path, exhausted)


def test_what_cannot_be_trained_is_refused(make_lm, make_rows, make_spec, tmp_path):
    from dataclasses import replace

    rows = make_rows(N)
    short = replace(rows, ids=[row[:1] for row in rows.ids], prompt_lengths=np.ones(N, dtype=np.int64))
    with pytest.raises(DatasetError, match="none of the 20 training rows has a token to learn"):
        finetune(make_lm(), short, TRAIN, VALIDATION, make_spec(), tmp_path)
    with pytest.raises(DatasetError, match="also trained on"):
        finetune(make_lm(), rows, TRAIN, TRAIN[:2], make_spec(), tmp_path)
    with pytest.raises(SpecError, match="scoring only"):
        finetune(replace(make_lm(), precision="bf16"), rows, TRAIN, [], make_spec(), tmp_path)
    adapted = make_lm()
    adapted = replace(adapted, model=add_adapter(adapted.model, make_spec().lora, "base"), base="base")
    with pytest.raises(ModelError, match="is an adapter"):
        finetune(adapted, rows, TRAIN, [], make_spec(), tmp_path)


def test_global_state_stands_where_it_stood(make_lm, make_rows, make_spec, tmp_path):
    torch.manual_seed(3)
    np.random.seed(3)
    wanted = torch.get_rng_state().clone(), np.random.get_state()[1].copy()
    finetune(make_lm(), make_rows(N), TRAIN, VALIDATION, make_spec(threads=2, method="lora"), tmp_path)
    assert torch.get_num_threads() == 1
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), wanted[0])
    assert np.array_equal(np.random.get_state()[1], wanted[1])


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "last"
    with replacing(folder) as new:
        (new / "a").write_text("1")
    with pytest.raises(ZeroDivisionError), replacing(folder) as new:
        (new / "a").write_text(str(1 / 0))
    assert (folder / "a").read_text() == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["last"]
    with pytest.raises(RunError, match="cannot be written"), replacing(folder):
        raise OSError(28, "No space left on device")
    folder.rename(tmp_path / ".last.old")  # as a kill between the two renames leaves it
    (tmp_path / ".last.new").mkdir()
    recover(folder)
    assert (folder / "a").read_text() == "1"
    link(folder, tmp_path / "best")
    assert (tmp_path / "best" / "a").stat().st_ino == (folder / "a").stat().st_ino
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", "last"]
