"""Two processes that train together end where one ends that sees the same batches; one alone exchanges nothing."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from auditcore.training.workers import Workers
from tests.training.surface import spec, train, weights

LORA = {"r": 4, "alpha": 8, "dropout": 0.0}
CASES = {
    "turned": {"lambda": 3, "adversary": ["mlp", "ridge"], "targets": ["lasttok", "meanpool"], "lambda_steps": 2},
    "plain": {"lambda": 0},
}


def case(name: str):
    return spec(steps=6, checkpoint_every=3, lora=LORA, batch_size=5, learning_rate=2e-3, **CASES[name])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """Folder in which two processes have trained every case."""
    out = tmp_path_factory.mktemp("together")
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
import torch
from pathlib import Path
from tests.training.conftest import build_lm
from tests.training.surface import train
from tests.training.test_workers import CASES, case
torch.set_num_threads(1)
for name in CASES:
    steps = []
    see = lambda step, total, row: steps.append(step)
    found = train(build_lm(), Path({str(out)!r}) / name, case(name), on_step=see)
    print(len(steps), sorted(found.checkpoints))
"""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    ends = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    assert [end[0].splitlines() for end in ends] == [["6 [3, 6]"] * 2, ["0 [3, 6]"] * 2]  # one of them keeps the books
    return out


@pytest.mark.parametrize("name", CASES)
def test_two_processes_end_where_one_does(make_lm, tmp_path, together, name) -> None:
    alone = train(make_lm(), tmp_path, case(name))
    for step, folder in alone.checkpoints.items():
        theirs = weights(together / name / "checkpoints" / folder.name)
        for key, tensor in weights(folder).items():
            torch.testing.assert_close(theirs[key], tensor, rtol=1e-3, atol=1e-4, msg=f"{key} of step {step}")
        assert any(tensor.abs().max() > 1e-3 for key, tensor in theirs.items() if "lora_B" in key)
    again = train(make_lm(), together / name, case(name))  # the training is whole: one process finds nothing left to do
    assert again.resumed_from == 6
    for column in ("lm_loss", "lora_grad_norm", "adversary_loss", "adversary_accuracy", "reversed_grad_norm"):
        np.testing.assert_allclose(again.log[column], alone.log[column], rtol=1e-3, atol=1e-5, err_msg=column)


def test_a_process_alone_exchanges_nothing() -> None:
    workers = Workers("cpu")
    rows, tensor = np.arange(5), torch.ones(3, 2)
    assert workers.main
    assert workers.share(rows) is rows
    assert workers.joined(tensor) is tensor
    assert workers.add_gradients([tensor, None], [tensor, tensor]) == [tensor, None]
    assert workers.told("word") == "word"
