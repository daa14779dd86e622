"""A SurfaceLoRA training that was stopped, looked at or killed ends with the bits of an undisturbed one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from auditcore.spec import SurfaceLoraSpec, dump_spec, parse_spec
from tests.training.surface import Stop, assert_equal, spec, train, weights


def stop_at(k: int):
    def on_step(step, total, metrics):
        if step == k:
            raise Stop

    return on_step


@pytest.mark.parametrize("stops", [(1,), (3, 6), (5,), (10, 11)])
def test_a_resumed_training_ends_with_the_bits_of_an_undisturbed_one(make_lm, tmp_path, stops):
    wanted = spec(adversary=["mlp", "ridge", "moment"], targets=["lasttok", "meanpool"])
    whole = train(make_lm(), tmp_path / "whole", wanted)
    cut = tmp_path / "cut"
    for k in stops:
        with pytest.raises(Stop):
            train(make_lm(), cut, wanted, on_step=stop_at(k), state_seconds=0)
    resumed = train(make_lm(), cut, wanted)
    assert resumed.resumed_from == stops[-1]
    for step in (5, 10, 12):
        assert_equal(weights(whole.checkpoints[step]), weights(resumed.checkpoints[step]))
    pd.testing.assert_frame_equal(whole.log, resumed.log)
    again = train(make_lm(), cut, wanted)
    assert again.resumed_from == 12


def test_a_checkpoint_is_a_state_to_resume_from_and_looking_at_it_changes_nothing(make_lm, tmp_path):
    whole = train(make_lm(), tmp_path / "whole")
    shown = []

    def look(step, folder, model):
        assert not model.causal.training
        assert (folder / "adapter_model.safetensors").is_file()
        shown.append(step)
        torch.manual_seed(step)
        torch.rand(100)
        np.random.seed(step)
        if step == 10 and len(shown) == 2:
            raise Stop

    with pytest.raises(Stop):
        train(make_lm(), tmp_path / "cut", on_checkpoint=look)
    resumed = train(make_lm(), tmp_path / "cut", on_checkpoint=look)
    assert resumed.resumed_from == 10
    assert shown == [5, 10, 12]
    assert_equal(weights(whole.checkpoints[12]), weights(resumed.checkpoints[12]))


def test_kill_minus_nine_at_random_steps(make_lm, tmp_path):
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
import torch
from pathlib import Path
from tests.training.conftest import build_lm
from tests.training.surface import train
torch.set_num_threads(1)
stop = int(sys.argv[1])
def on_step(step, total, metrics):
    if step == stop:
        os.kill(os.getpid(), signal.SIGKILL)
train(build_lm(), Path({str(tmp_path / "cut")!r}), on_step=on_step, state_seconds=0)
"""
    whole = train(make_lm(), tmp_path / "whole")
    steps = np.sort(np.random.default_rng().choice(np.arange(1, 12), 2, replace=False))
    for step in steps:
        done = subprocess.run([sys.executable, "-c", code, str(step)], env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == -signal.SIGKILL, steps
    resumed = train(make_lm(), tmp_path / "cut")
    assert resumed.resumed_from >= steps[-1] - 1
    assert_equal(weights(whole.checkpoints[12]), weights(resumed.checkpoints[12]))


def test_how_checkpoints_are_measured_does_not_make_another_training(make_lm, tmp_path):
    with pytest.raises(Stop):
        train(make_lm(), tmp_path, on_step=stop_at(4), state_seconds=0)
    other = parse_spec({**dump_spec(spec()), "probes": ["linear"], "rouge_rows": 10, "budget": 0.1})
    assert isinstance(other, SurfaceLoraSpec)
    assert train(make_lm(), tmp_path, other).resumed_from == 4
