"""Small trainings of SurfaceLoRA for tests. In: a tiny model. Out: rows whose last token tells, specs, trainers."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from auditcore.lm.encode import Encoded
from auditcore.spec import SurfaceLoraSpec, parse_spec
from auditcore.training import surfacelora as module
from auditcore.training.prompts import Labels, Prompts
from auditcore.training.surface_trainer import SurfaceTrainer
from auditcore.training.surfacelora import surfacelora

N = 60
NONE = np.zeros(0, dtype=np.int64)


class Stop(Exception):
    """A training cut off from outside."""


def rows(n: int = N, leak: bool = True) -> tuple[Encoded, Labels, list[str]]:
    """Prompts whose last token tells the label, and targets that do not."""
    rng = np.random.default_rng(0)
    codes = np.arange(n) % 3
    ids, prompts = [], []
    for k in codes:
        prompt = rng.integers(10, 60, rng.integers(5, 14))
        if leak:
            prompt[-1] = k + 1
        target = rng.integers(10, 60, rng.integers(2, 6))
        ids.append(np.concatenate([prompt, target, [60]]).astype(np.int64))
        prompts.append(len(prompt))
    no = np.zeros(n, dtype=bool)
    encoded = Encoded(ids, np.array(prompts, dtype=np.int64), no, no, has_target=True)
    other = np.where(np.arange(n) % 5 == 0, -1, np.arange(n) % 2)
    labels = Labels(("colour", "shape"), np.stack([codes, other], axis=1), (("a", "b", "c"), ("x", "y")))
    return encoded, labels, [f"s{i}" for i in range(n)]


def spec(**changes) -> SurfaceLoraSpec:
    raw = {
        "kind": "surfacelora",
        "model": {"source": "tiny"},
        "data": {"path": "rows.csv", "roles": {"prompt": "p", "target": "t", "label": ["colour", "shape"]}},
        "steps": 12,
        "checkpoint_every": 5,
        "batch_size": 4,
        "learning_rate": 0.01,
        "lora": {"r": 4, "alpha": 8, "dropout": 0.1},
        "discriminator": {"rows": 10, "bank_rows": 12, "bank_every": 4, "hidden": 16, "start_updates": 5},
        "threads": 1,
        "autocast": "none",
        **changes,
    }
    found = parse_spec(raw)
    assert isinstance(found, SurfaceLoraSpec)
    return found


def train(lm, out: Path, wanted: SurfaceLoraSpec | None = None, **more):
    encoded, labels, groups = rows()
    return surfacelora(lm, encoded, np.arange(40), labels, groups, wanted or spec(), out, **more)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def assert_equal(one: dict, two: dict) -> None:
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


def trainer(lm, wanted: SurfaceLoraSpec, out: Path, exported: Encoded | None = None) -> SurfaceTrainer:
    encoded, labels, groups = rows()
    task = module.make_task(lm, encoded, np.arange(40), NONE, wanted, None, None)
    usable = encoded.prompt_lengths > 0
    prompts = Prompts(labels, groups, usable, wanted.discriminator, wanted.seed)
    layer = module.resolve_layers([wanted.layer], module.depth(lm), "tiny")[0]
    return SurfaceTrainer(task, lm, out, "none", labels, prompts, layer, exported or encoded.prompts())


def flat(grads) -> torch.Tensor:
    return torch.cat([g.flatten() for g in grads])
