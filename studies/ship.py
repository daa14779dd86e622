"""Ship a finished run as a study. In: its run folder. Out: a read-only folder below data/studies, small enough to keep.

    python -m studies.ship runs/notes-vectors
    python -m studies.ship runs/surfacelora-lasttok-2 --checkpoint 40 --checkpoint 240

Kept: run.json, every table that a page reads, the records. Left out: vectors, checkpoints that are not named, the state
of an unfinished training, the progress log. Adapters are rounded to bfloat16, which halves them.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from auditcore import disk, records, store
from auditcore.claims import claim
from auditcore.errors import AuditError, RunError
from auditcore.findings import tie_reasons
from auditcore.store import Run

ADAPTER = "adapter_model.safetensors"
BESIDE = ("adapter_config.json", "training.json", "trained_on.parquet")  # the tokenizer is the base model's
OF_A_MACHINE = ("queued_at", "message")


def ship(run: Run, out: Path, steps: Sequence[int] = ()) -> Path:
    """Copy what a reader of the run needs to the folder `out`; returns it. steps: checkpoints whose adapters go along.

    Raises RunError for a run that is not finished, holds no such checkpoint, or whose folder of that name is there.
    """
    if run.status != "done":
        raise RunError(f"{run.path}: is {run.status}, not done; only a finished run is shipped.")
    if out.exists():
        raise RunError(f"{out}: is there already. Delete it first.")
    adapters = [_adapter(run, step) for step in steps]
    working = out.with_name(f"{out.name}.part")
    shutil.rmtree(working, ignore_errors=True)
    working.mkdir(parents=True)
    for table in run.tables():
        shutil.copyfile(run.path / f"{table}.parquet", working / f"{table}.parquet")
    manifest = {key: value for key, value in run.manifest.items() if key not in OF_A_MACHINE}
    if run.has("verdicts"):  # said again: what could be audited by now and was not
        metrics = run.read("attack_metrics") if run.has("attack_metrics") else None
        manifest["claim"] = claim(manifest, run.read("verdicts"), tie_reasons(metrics))
    disk.write_json(working / store.MANIFEST, {**manifest, "id": out.name})
    if (run.path / records.FILE).exists():
        shutil.copyfile(run.path / records.FILE, working / records.FILE)
    for adapter in adapters:
        _copy_adapter(adapter, working / "checkpoints" / adapter.name)
    return working.rename(out)


def _adapter(run: Run, step: int) -> Path:
    folder = run.path / "checkpoints" / f"step-{step:06d}"
    if not (folder / ADAPTER).is_file():
        raise RunError(f"{run.path}: holds no adapter of step {step}.")
    return folder


def _copy_adapter(source: Path, to: Path) -> None:
    """Copy an adapter with its weights in bfloat16; float32 ones lose their last 16 bits."""
    import torch
    from safetensors.torch import load_file, save_file

    to.mkdir(parents=True)
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(source / ADAPTER).items()}
    save_file(weights, to / ADAPTER, metadata={"format": "pt"})
    for name in BESIDE:
        if (source / name).is_file():
            shutil.copyfile(source / name, to / name)


def main(argv: Sequence[str] | None = None) -> int:
    """Ship one run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m studies.ship", description="A finished run into data/studies.")
    parser.add_argument("run", help="its folder")
    parser.add_argument("--name", help="of the study (default: the folder's)")
    parser.add_argument("--checkpoint", type=int, action="append", default=[], metavar="STEP", help="ship its adapter")
    asked = parser.parse_args(argv)
    try:
        run = store.open_run(asked.run)
        print(ship(run, store.studies() / (asked.name or run.id), asked.checkpoint))
    except AuditError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
