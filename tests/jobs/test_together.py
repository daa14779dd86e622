"""A run that two processes train together: one folder, the adapters of a run in one, everything measured once."""

import os
import socket
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from auditcore import cli, store
from auditcore.spec import parse_spec
from tests.job_specs import ROOT, membership_spec, run_spec
from tests.jobs.test_surfacelora_jobs import surface_spec


def launch(file, out, home, port) -> list[subprocess.Popen]:
    """`auditcore run` in two processes, with the environment that `accelerate launch` gives them."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "auditcore", "run", str(file), "--out", str(out), "--resume"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **shared, "AUDIT_HOME": str(home), "RANK": str(n), "LOCAL_RANK": str(n)},
        )
        for n in range(2)
    ]  # fmt: skip


def test_two_processes_make_one_run(home, tiny_llama, tmp_path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    spec = surface_spec(home, tiny_llama, steps=3, checkpoint_every=3, audit=["lasttok"], rouge_rows=2, max_length=40)
    alone = run_spec(spec, home / "alone")
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec))
    for _ in range(2):  # the second time there is nothing left to do
        processes = launch(file, tmp_path / "together", tmp_path / "home", port)
        ends = [p.communicate() for p in processes]
        assert [p.returncode for p in processes] == [0, 0], ends
    run = store.open_run(tmp_path / "together")
    assert run.status == "done"
    assert run.read("checkpoints")["step"].tolist() == [0, 3]
    theirs, ours = (
        load_file(r.path / "checkpoints" / "step-000003" / "adapter_model.safetensors") for r in (run, alone)
    )
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_everything_else_takes_one_process(home, tiny_llama, tiny_folders, monkeypatch, tmp_path, capsys) -> None:
    file = tmp_path / "spec.yaml"
    raw = membership_spec(home, [tiny_llama, tiny_folders["qwen2"]])
    assert parse_spec(raw).kind == "membership"
    file.write_text(yaml.safe_dump(raw))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["run", str(file)]) == 2
    assert "runs in one process" in capsys.readouterr().err
    assert cli.main(["list"]) == 2
    assert "all else takes one" in capsys.readouterr().err


@pytest.mark.parametrize(("world", "rank", "number"), [("2", "1", 1), ("1", "1", 0), (None, "3", 0)])
def test_a_rank_counts_only_among_several(monkeypatch, world, rank, number) -> None:
    from auditcore.jobs import together

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world:
        monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setenv("RANK", rank)
    assert together.number() == number
