"""A fake run of trained checkpoints. In: a folder, lambda, a seed. Out: the run; a generator invents every number."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore import disk
from auditcore.jobs import sealed
from auditcore.store import Run, create_run
from tests.fake_checkpoints import checkpoints_table, step_predictions
from tests.fake_parts import HOSTILE, NOTE, progress

STEPS = 9
ARTIFACTS = ("lasttok", "meanpool", "concat")
SENTENCES = (
    "Admitted with pneumonia and treated with oral antibiotics.",
    "Fluids were given overnight and the fever settled by the second day.",
    "Discharged home in good condition, to be seen in the clinic in two weeks.",
    "An echocardiogram showed no effusion; the dose of the diuretic was halved.",
)


def surfacelora_run(
    out: Path,
    *,
    strength: float = 2.0,
    seed: int = 0,
    status: str = "done",
    hostile: bool = False,
    text: bool = True,
    leak: float = 0.02,
    rebounds: float = 0.12,
    attribute: str = "recorded_race",
    name: str | None = None,
    rows: int = 400,
    kind: str = "surfacelora",
    stages: int = 3,
) -> Run:
    """Write checkpoints, predictions by step, training_log, generations and examples of one run.

    strength: lambda; leak: gap of lasttok where it is lowest; rebounds: how far it comes back; stages: 0 nothing yet,
    1 a few checkpoints, 3 all of it.
    """
    rng = np.random.default_rng(seed)
    attribute = "$x$ <img src=x>" if hostile else attribute
    run = create_run(_spec(name or (HOSTILE[0] if hostile else out.name), kind, strength, attribute), out)
    labels = np.array(list("ABCDE"))
    examples = pd.DataFrame(
        {
            "example_id": [f"N{i}" for i in range(rows)],
            "group": [f"S{i}" for i in range(rows)],
            "split": "bal_val",
            "member": pd.array([pd.NA] * rows, dtype="boolean"),
            attribute: labels[np.arange(rows) % 5],
            "n_tokens": 300,
            "truncated": False,
        }
    )
    run.update(
        status=status,
        started="2026-11-30T01:00:00+00:00",
        finished="2026-11-30T05:00:00+00:00" if status == "done" else None,
        versions={"auditcore": "test"},
        fingerprints={"model": "ab" * 8, "data": "cd" * 8, "template": "ef" * 8},
        data={"path": "data/notes.parquet", "sha256": "0" * 64, "rows": rows, "notes": [NOTE]},
        warnings=[],
        finished_stages=["rows"],
    )
    run.write("examples", examples)
    test = {"example_id": [f"T{i}" for i in range(50)], "print": [f"{i:064d}" for i in range(50)]}
    disk.write_parquet(
        out.parent / "sealed" / sealed.file_of(run).name, pd.DataFrame(test).assign(data="0" * 64, run=str(run.path))
    )
    if stages:
        count = STEPS if stages > 2 else 3
        table, predictions = _measured(run.id, rng, strength, leak, rebounds, attribute, rows, count)
        run.write("checkpoints", table)
        run.write("predictions", predictions)
        run.write("training_log", _log(rng, strength, count))
        run.write("generations", _generations(rng, examples["example_id"].tolist()[:24], count, hostile, text))
    progress(run, ["rows", "training", "checkpoint 400"], _Recipe(status))  # type: ignore[arg-type]
    return run


class _Recipe:
    def __init__(self, status: str):
        self.status = status


def _spec(name: str, kind: str, strength: float, attribute: str) -> dict[str, Any]:
    spec = {
        "kind": kind,
        "name": name,
        "model": {"source": "smollm2-135m"},
        "data": {
            "path": "data/notes.parquet",
            "roles": {"prompt": "prompt", "target": "target", "label": attribute, "group": "subject_id",
                      "split": "split"},
        },
        "template": "{prompt}\nBrief Hospital Course:",
        "audit": list(ARTIFACTS),
        "layer": -1,
        "probes": ["linear", "mlp"],
        "seeds": [0, 1, 2],
        "budget": 0.025,
        "max_length": 512,
        "store_text": "full",
        "seed": 0,
    }  # fmt: skip
    if kind == "surfacelora":
        return {**spec, "targets": ["lasttok"], "lambda": strength, "adversary": ["mlp", "ridge"], "steps": 400}
    del spec["model"]
    return {**spec, "checkpoints": {"folder": "adapters", "base": "smollm2-135m"}}


def _measured(
    run_id: str, rng: np.random.Generator, strength: float, leak: float, rebounds: float, attribute: str, rows: int,
    count: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    at = np.linspace(0, 1, STEPS)
    fall = np.exp(-5 * at) if strength else np.ones(STEPS)
    low = leak if strength >= 2 else 0.36 - 0.34 * min(strength, 2) / 2 + leak
    curve = low + (0.4 - low) * fall
    curve[0] = 0.4
    curve = curve + rebounds * (strength > 0) * np.clip((at - 0.65) / 0.35, 0, 1)

    def noise(size: float) -> np.ndarray:
        return np.append(0.0, rng.normal(0, size, STEPS - 1))  # every run starts from the same model

    gaps = {
        ("lasttok", "linear"): curve + noise(0.006),
        ("lasttok", "mlp"): 0.6 * curve + noise(0.006),
        ("meanpool", "linear"): 0.42 - 0.02 * at * (strength > 0) + noise(0.006),
        ("meanpool", "mlp"): 0.36 - 0.05 * at * (strength > 0) + noise(0.006),
        ("concat", "linear"): 0.43 + noise(0.006),
        ("concat", "mlp"): 0.38 + noise(0.006),
    }
    rouge = 52 - 0.6 * strength - (36 - 0.6 * strength) * np.exp(-6 * at) + noise(0.3)
    table = checkpoints_table(
        {k: v[:count] for k, v in gaps.items()}, rouge[:count], run_id=run_id, strength=strength, attribute=attribute,
        n=1050,
    )  # fmt: skip
    parts = []
    for artifact in ARTIFACTS:
        accuracy = {probe: [g + 0.2 for g in values[:count]] for (a, probe), values in gaps.items() if a == artifact}
        drawn = step_predictions(accuracy, n=rows, seed=int(rng.integers(1 << 30)))
        parts.append(drawn.assign(artifact=artifact, attribute=attribute, layer=30, defence="none", probability=0.5))
    columns = ["example_id", "step", "attribute", "artifact", "layer", "defence", "probe", "seed", "split", "actual"]
    predictions = pd.concat(parts, ignore_index=True)[[*columns, "predicted", "probability"]]
    return table, predictions


def _log(rng: np.random.Generator, strength: float, count: int) -> pd.DataFrame:
    steps = np.arange(1, 50 * (count - 1) + 1)
    return pd.DataFrame(
        {
            "step": steps,
            "lambda": strength * (2 / (1 + np.exp(-10 * steps / 400)) - 1),
            "lm_loss": 2.2 * np.exp(-steps / 60) + 0.05 + rng.normal(0, 0.01, len(steps)).clip(-0.04),
            "adversary_loss": 1.6 + rng.normal(0, 0.02, len(steps)),
            "reversed_grad_norm": 0.4 * np.exp(-steps / 300),
            "lora_grad_norm": 0.9 * np.exp(-steps / 200),
            "learning_rate": 2e-4,
        }
    )


def _generations(rng: np.random.Generator, ids: list[str], count: int, hostile: bool, text: bool) -> pd.DataFrame:
    rows = []
    for place in range(count):
        for number, example in enumerate(ids):
            words = list(rng.permutation(SENTENCES)[: 2 + number % 2])
            reference, generated = " ".join(SENTENCES[:3]), " ".join(words)
            if hostile:
                reference, generated = HOSTILE[number % 7], HOSTILE[(number + place) % 7]
            score = float(rng.uniform(20, 60))
            rows.append(
                {
                    "example_id": example, "step": 50 * place, "defence": "none",
                    "prompt": "62-year-old with cough. " * 6 if text else None,
                    "reference": reference if text else None, "generated": generated if text else None,
                    "rouge1": score * 1.2, "rouge2": score * 0.6, "rougeL": score,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
