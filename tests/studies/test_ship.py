"""A finished run becomes a study that a page can read."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from auditcore import store
from auditcore.errors import RunError
from studies.ship import ADAPTER, ship
from tests.fake_runs import vectors_run


def test_a_shipped_run_reads_the_same_and_leaves_the_vectors_out(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=60)
    (run.path / "vectors").mkdir(exist_ok=True)
    made = store.open_run(ship(run, tmp_path / "studies" / "notes"))
    assert made.manifest["id"] == "notes"
    assert made.tables() == run.tables()
    assert made.read("probe_metrics").equals(run.read("probe_metrics"))
    assert not list(made.path.glob("vectors*"))
    assert not list(made.path.glob("events*"))
    with pytest.raises(RunError, match="is there already"):
        ship(run, tmp_path / "studies" / "notes")


def test_adapters_go_along_in_bfloat16_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=60)
    folder = run.path / "checkpoints" / "step-000040"
    folder.mkdir(parents=True)
    weights = torch.linspace(-1, 1, 30).reshape(5, 6)
    save_file({"lora_A": weights}, folder / ADAPTER)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(RunError, match="no adapter of step 80"):
        ship(run, tmp_path / "out", [40, 80])
    assert not (tmp_path / "out").exists()
    kept = ship(run, tmp_path / "out", [40]) / "checkpoints" / "step-000040"
    assert sorted(p.name for p in kept.iterdir()) == ["adapter_config.json", ADAPTER]
    (found,) = load_file(kept / ADAPTER).values()
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), weights, rtol=2**-8, atol=0)


def test_the_claim_of_a_shipped_run_keeps_why_an_attack_has_no_verdict(tmp_path: Path) -> None:
    run = store.open_run("notes-membership")
    made = store.open_run(ship(run, tmp_path / "again"))
    assert "wbc not measurable, not resolved (tied scores: " in made.manifest["claim"]["audited"]
    assert made.manifest["claim"]["audited"] == run.manifest["claim"]["audited"]


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = vectors_run(tmp_path / "v", rows=60, stages=1, status="failed")
    with pytest.raises(RunError, match="only a finished run"):
        ship(run, tmp_path / "out")
