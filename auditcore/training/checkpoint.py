"""Checkpoints and trainer states. In: a model in training. Out: folders that are there whole or not at all.

A folder is written under a temporary name and renamed; where it replaces one, the old one steps aside first and is put
back by the next start if the writer was killed in between.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from auditcore.errors import RunError
from auditcore.lm.load import quiet
from auditcore.training.rows import TRAINED_ON

RECORD = "training.json"  # what a checkpoint folder says about its training


@contextmanager
def replacing(folder: Path, *, flush: bool = True) -> Iterator[Path]:
    """Give a temporary folder that becomes `folder` when the block ends well, and vanishes when it does not.

    flush: bring the files to the disk first, so that they outlive a power cut and not only a kill.
    Raises RunError when the disk is full or not writable.
    """
    new, old = _beside(folder, "new"), _beside(folder, "old")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        if flush:
            for path in new.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{folder}: cannot be written ({error}). Is the disk full?") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Tidy up after a writer that was killed: put the old folder back if the new one did not arrive."""
    shutil.rmtree(_beside(folder, "new"), ignore_errors=True)
    old = _beside(folder, "old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(folder)


def link(source: Path, folder: Path) -> None:
    """Make `folder` hold the same files as `source`: hard links where the file system has them, else copies."""
    with replacing(folder, flush=False) as new:
        for path in source.iterdir():
            try:
                os.link(path, new / path.name)
            except OSError:
                shutil.copy2(path, new / path.name)


def save_checkpoint(
    folder: Path, model: Any, tokenizer: Any, record: dict[str, Any], trained_on: pd.DataFrame | None
) -> None:
    """Save an adapter (PeftModel) or a full model as safetensors, with tokenizer, config and what it was trained on."""
    with replacing(folder) as new:
        with quiet(), _as_found(tokenizer):
            if hasattr(model, "peft_config"):
                model.save_pretrained(new, save_embedding_layers=False)
                (new / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
                _sort_modules(new / "adapter_config.json")
            else:
                model.save_pretrained(new, max_shard_size="1000GB")
            tokenizer.save_pretrained(new)
        if trained_on is not None:
            trained_on.to_parquet(new / TRAINED_ON, index=False)
        (new / RECORD).write_text(json.dumps(record), encoding="utf-8")


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return what a checkpoint folder says about its training, or None."""
    try:
        return json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class State:
    """Where a training stands after `step` optimiser steps."""

    step: int
    progress: dict[str, Any]  # plain JSON: log rows, best so far
    extra: dict[str, torch.Tensor] = field(default_factory=dict)  # whatever else goes on from here, by name


def save_state(
    folder: Path, key: str, state: State, parameters: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> None:
    """Write trainable weights, optimiser, random states, step and progress."""
    moments = optimizer.state
    with replacing(folder, flush=False) as new:
        # One file per kind: the library copies a file's tensors before it writes them.
        save_file({name: p.detach().contiguous() for name, p in parameters.items()}, new / "weights.safetensors")
        for kind in ("exp_avg", "exp_avg_sq"):
            save_file(
                {name: moments[p][kind].contiguous() for name, p in parameters.items()}, new / f"{kind}.safetensors"
            )
        save_file(_torch_random(), new / "random.safetensors")
        # Copied: one storage may serve several names, which the format does not take.
        save_file({name: t.detach().clone().contiguous() for name, t in state.extra.items()}, new / "extra.safetensors")
        python, numpy_state = random.getstate(), np.random.get_state(legacy=False)
        plain = {
            "key": key,
            "step": state.step,
            "progress": state.progress,
            "python": [python[0], list(python[1]), python[2]],
            "numpy": {**numpy_state, "state": {k: _plain(v) for k, v in numpy_state["state"].items()}},
        }
        (new / "state.json").write_text(json.dumps(plain), encoding="utf-8")


def load_state(
    folder: Path, key: str, parameters: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> State | None:
    """Bring weights, optimiser and random states back; None when there is no (readable) state.

    Raises RunError when the state belongs to another training.
    """
    recover(folder)
    if not folder.exists():
        return None
    try:
        plain = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        kinds = {
            k: load_file(folder / f"{k}.safetensors") for k in ("weights", "exp_avg", "exp_avg_sq", "random", "extra")
        }
    except (OSError, ValueError, SafetensorError):
        return None
    if plain["key"] != key:
        raise RunError(
            f"{folder}: was saved by a training with other settings, rows or another model. Remove it, or start a new "
            "run."
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(kinds["weights"][name])
    optimizer.load_state_dict(
        {
            "state": {
                i: {
                    "step": torch.tensor(float(plain["step"])),
                    "exp_avg": kinds["exp_avg"][name],
                    "exp_avg_sq": kinds["exp_avg_sq"][name],
                }
                for i, name in enumerate(_in_order(optimizer, parameters))
            },
            "param_groups": optimizer.state_dict()["param_groups"],
        }
    )
    _restore_random(kinds["random"], plain)
    return State(plain["step"], plain["progress"], kinds["extra"])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, Python and NumPy for the block; afterwards they stand where they stood before."""
    python, numpy_state = random.getstate(), np.random.get_state(legacy=False)
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)


def _in_order(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> list[str]:
    names = {id(p): name for name, p in parameters.items()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _torch_random() -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    states.update({f"cuda{i}": torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())})
    return states


def _restore_random(states: dict[str, torch.Tensor], plain: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    for i in range(torch.cuda.device_count()):
        if f"cuda{i}" in states:
            torch.cuda.set_rng_state(states[f"cuda{i}"], i)
    version, values, gauss = plain["python"]
    random.setstate((version, tuple(values), gauss))
    inner = plain["numpy"]["state"]
    np.random.set_state({**plain["numpy"], "state": {**inner, "key": np.asarray(inner["key"], dtype=np.uint32)}})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _sort_modules(path: Path) -> None:
    # PEFT keeps them as a set, whose order changes from process to process; equal trainings give equal files.
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


@contextmanager
def _as_found(tokenizer: Any) -> Iterator[None]:
    """Save the tokenizer without the pad token that loading gave it in memory."""
    given = tokenizer.pad_token if tokenizer.init_kwargs.get("pad_token") is None else None
    if given is None:
        yield
        return
    tokenizer.pad_token = None
    try:
        yield
    finally:
        tokenizer.pad_token = given


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")
