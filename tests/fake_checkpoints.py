"""Made-up tables of trained checkpoints. In: gaps and scores per step. Out: `checkpoints` and predictions by step."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd


def checkpoints_table(
    gaps: Mapping[tuple[str, str], Sequence[float]],
    rouge: Sequence[float],
    *,
    run_id: str = "run",
    strength: float = 2.0,
    attribute: str = "race",
    k: int = 5,
    n: int = 1000,
    every: int = 50,
    layer: int = 30,
    split: str = "bal_val",
) -> pd.DataFrame:
    """Rows of `checkpoints` of one run at steps 0, every, 2 every ...; gaps: (artifact, probe) -> gap of each step."""
    rows = []
    for (artifact, probe), values in gaps.items():
        for place, (gap, score) in enumerate(zip(values, rouge, strict=True)):
            accuracy = gap + 1 / k
            error = float(np.sqrt(max(accuracy * (1 - accuracy), 0.01) / n))
            rows.append(
                {
                    "run_id": run_id, "checkpoint": f"step-{place * every:06d}" if place else "base",
                    "step": place * every, "lambda": strength if place else 0.0,
                    "attribute": attribute, "artifact": artifact, "layer": layer, "defence": "none", "probe": probe,
                    "seed": pd.NA, "split": split, "n_train": 1600, "n_eval": n, "n_subjects": n, "n_classes": k,
                    "accuracy": accuracy, "accuracy_low": accuracy - 1.96 * error,
                    "accuracy_high": accuracy + 1.96 * error, "chance": 1 / k, "signed_gap": gap,
                    "signed_low90": gap - 1.645 * error, "signed_high90": gap + 1.645 * error, "gap": abs(gap),
                    "null_mean": np.nan, "null_p95": np.nan, "p_value": np.nan,
                    "v_information_bits": max(0.0, 2 * gap), "confident_share": max(0.0, gap - 0.1),
                    "converged": True, "verdict": None,
                    **{f"{name}{end}": score * size + shift for name, size in (("rouge1", 1.2), ("rouge2", 0.6),
                       ("rougeL", 1.0)) for end, shift in (("", 0.0), ("_low", -1.3), ("_high", 1.3))},
                    "ez_tpr_at_1pct": np.nan, "selected": False,
                }
            )  # fmt: skip
    return pd.DataFrame(rows).astype({"seed": "Int64", "step": "int64"})


def step_predictions(
    accuracy: Sequence[float] | Mapping[str, Sequence[float]], *, n: int, seed: int, k: int = 5, every: int = 50
) -> pd.DataFrame:
    """Predictions on bal_val at every step, one subject a row; a subject keeps its luck from step to step, in part."""
    rng = np.random.default_rng(seed)
    by_probe = accuracy if isinstance(accuracy, Mapping) else {"mlp": accuracy}
    codes = np.arange(n) % k
    names = np.array(list("ABCDEFGHIJ"))
    luck = rng.random(n)
    parts = []
    for probe, values in by_probe.items():
        for place, value in enumerate(values):
            own = np.where(rng.random(n) < 0.5, luck, rng.random(n))
            predicted = np.where(own < value, codes, (codes + rng.integers(1, k, n)) % k)
            parts.append(
                pd.DataFrame(
                    {
                        "example_id": [f"N{i}" for i in range(n)],
                        "group": [f"S{i}" for i in range(n)],
                        "step": place * every,
                        "probe": probe,
                        "seed": 0,
                        "split": "bal_val",
                        "actual": names[codes],
                        "predicted": names[predicted],
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)
