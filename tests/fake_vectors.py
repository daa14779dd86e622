"""A fake vectors run. In: a folder, sizes, a seed. Out: the run, numbers drawn from a seeded generator."""

import json
from dataclasses import replace
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

from auditcore.leakage.baselines import differences
from auditcore.leakage.effects import effects
from auditcore.store import Run
from auditcore.verdict import interval_verdict
from tests.fake_parts import HOSTILE, VERDICT_COLUMNS, Recipe, example_table, judged, progress, start_run
from tests.fake_texts import fake_texts


def vectors_run(out: Path, recipe: Recipe | None = None, **changes: Any) -> Run:
    """Write a vectors run: examples, vectors/*.safetensors, probe_metrics, predictions, verdicts."""
    recipe = replace(recipe or Recipe(), **changes)
    rng = np.random.default_rng(recipe.seed)
    if recipe.hostile:
        recipe = replace(recipe, classes=(*HOSTILE[:4], "=1+1", "E")[: len(recipe.classes)])
    spec = {
        "kind": "vectors",
        "name": out.name,
        "model": {"source": "smollm2-135m"},
        "data": {
            "path": "data/notes.parquet",
            "roles": {"prompt": "prompt", "label": list(recipe.attributes), "group": "subject_id", "split": "split"},
        },
        "artifacts": list(recipe.artifacts),
        "layers": list(recipe.layers),
        "probes": list(recipe.probes),
        "defences": list(dict.fromkeys(d.split(":")[0] for d in recipe.defences)),
        "seeds": list(recipe.seeds),
        "store_text": recipe.store_text,
        "curve": {} if recipe.curve else None,
    }
    run = start_run(out, spec, recipe)
    examples = example_table(rng, recipe)
    splits = np.array(["bal_train", "bal_val", "bal_test"])
    examples["split"] = splits[rng.choice(3, recipe.rows, p=[0.5, 0.15, 0.35])]
    examples["member"] = pd.array([pd.NA] * recipe.rows, dtype="boolean")
    for attribute in recipe.attributes:
        names = np.array(classes_of(recipe, attribute))
        examples[attribute] = names[rng.integers(0, len(names), recipe.rows)]
    run.write("examples", examples)
    if recipe.keep_vectors:
        _vectors(run, rng, recipe, examples)
    if recipe.stages > 1:
        predictions = _predictions(rng, recipe, examples)
        metrics = _probe_metrics(rng, recipe, examples, predictions)
        run.write("predictions", predictions)
        run.write("probe_metrics", metrics)
        run.write("verdicts", _vector_verdicts(metrics))
        if recipe.curve:
            points, more = fake_curve(metrics, recipe)
            run.write("sample_curve", points)
            run.write("sample_extrapolation", more)
        if recipe.baselines:
            for name, table in fake_baselines(recipe, examples, predictions).items():
                run.write(name, table)
        if recipe.ceiling is not None:
            run.write("ceilings", _ceilings(recipe, metrics))
        if recipe.defences != ("none",):
            run.write("defence_costs", _costs(rng, metrics))
            groups = examples.set_index("example_id")["group"]
            run.write("defence_effects", effects(predictions, groups, 100, 0))
    if recipe.summaries:
        for name, table in fake_texts(rng, recipe, examples).items():
            run.write(name, table)
    progress(run, ["vectors", "probes", "null band"], recipe)
    return run


def classes_of(recipe: Recipe, attribute: str) -> tuple[str, ...]:
    """Each attribute has a class fewer than the one before, two at least."""
    return recipe.classes[: max(2, len(recipe.classes) - recipe.attributes.index(attribute))]


def _ceilings(recipe: Recipe, metrics: pd.DataFrame) -> pd.DataFrame:
    known = ["attribute", "split", "n_eval", "n_subjects", "n_classes"]
    rows = metrics.drop_duplicates(["attribute", "split"])[known]
    return rows.assign(ceiling=recipe.ceiling, standard_error=0.01, hits=recipe.ceiling)


def _vectors(run: Run, rng: np.random.Generator, recipe: Recipe, examples: pd.DataFrame) -> None:

    (run.path / "vectors").mkdir()
    names = list(recipe.classes)
    label = examples[recipe.attributes[0]].map(names.index).to_numpy()
    for place, artifact in enumerate(recipe.artifacts):
        for layer in recipe.layers:
            centres = rng.normal(0, recipe.gap * (3 + 3 * place), (len(names), recipe.width))
            noise = rng.normal(0, 1, (recipe.rows, recipe.width))
            values = (centres[label] + noise).astype(np.float32)
            save_file({"vectors": values}, run.path / "vectors" / f"{artifact}-layer{layer}.safetensors")


def fake_curve(metrics: pd.DataFrame, recipe: Recipe) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each probe with fewer rows, and ten times the rows."""
    whole = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test") & (metrics["defence"] == "none")]
    whole = whole[whole["layer"] == whole["layer"].max()]
    lines, beyond = [], []
    for row in whole.to_dict("records"):
        names = {k: row[k] for k in ("attribute", "artifact", "layer", "probe", "split", "chance")}
        sizes = {k: row[k] for k in ("n_eval", "n_subjects", "n_classes")}
        for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0):
            value = row["chance"] + (row["accuracy"] - row["chance"]) * share**0.3
            spread = {"accuracy": value, "accuracy_low": value - 0.03, "accuracy_high": value + 0.03}
            fitted = {"share": share, "n_train": 1600 * share, "n_subjects_train": 1600 * share, "draws": 5}
            lines.append({**names, **sizes, **fitted, **spread, "draw_deviation": 0.01})
        for times in (1.0, 3.0, 10.0):
            value = float("nan") if recipe.curve != "extrapolated" else row["accuracy"] + 0.02 * np.log10(times)
            ends = {"low": value - 0.02 * times**0.3, "high": value + 0.02 * times**0.3}
            why = "" if recipe.curve == "extrapolated" else recipe.curve
            told = {"predicted": 0.61, "measured": 0.62, "settings": "{}", "refused": why}
            beyond.append({**names, "times": times, "n_train": 1600 * times, "accuracy": value, **ends, **told})
    return pd.DataFrame(lines), pd.DataFrame(beyond)


def fake_baselines(recipe: Recipe, examples: pd.DataFrame, predictions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Baselines that say what the first probe says, but guess two rows in three of them (text), or all (metadata)."""
    first = predictions[predictions["seed"] == recipe.seeds[0]]
    first = first.drop_duplicates(["example_id", "attribute"])
    parts, lines = [], []
    for name in recipe.baselines:
        keep = np.arange(len(first)) % 3 == 0 if name == "text" else np.zeros(len(first), dtype=bool)
        part = first[["example_id", "attribute", "split", "actual"]].assign(baseline=name)
        part["predicted"] = np.where(keep, first["predicted"], recipe.classes[0])
        parts.append(part)
        for (attribute, split), mine in part.groupby(["attribute", "split"], sort=False):
            accuracy, n, k = float((mine["actual"] == mine["predicted"]).mean()), len(mine), len(recipe.classes)
            sizes = {"n_train": 100, "n_eval": n, "n_subjects": n, "n_classes": k, "n_features": 9}
            ends = {"accuracy": accuracy, "accuracy_low": accuracy - 0.03, "accuracy_high": accuracy + 0.03}
            more = {"chance": 1 / k, "signed_gap": accuracy - 1 / k, "settings": "{}"}
            lines.append({"attribute": attribute, "baseline": name, "split": split, **sizes, **ends, **more})
    read = pd.concat(parts, ignore_index=True)
    rows = predictions.assign(right=(predictions["actual"] == predictions["predicted"]).astype(float))
    keys = ["attribute", "artifact", "layer", "defence", "probe", "split", "example_id"]
    found = rows.groupby(keys, sort=False)["right"].mean().reset_index()
    moved = differences(found, read, examples.set_index("example_id")["group"], 100, 0)
    return {"baseline_metrics": pd.DataFrame(lines), "baseline_predictions": read, "baseline_differences": moved}


def _costs(rng: np.random.Generator, metrics: pd.DataFrame) -> pd.DataFrame:
    places = metrics[metrics["defence"] != "none"].drop_duplicates(["attribute", "artifact", "layer", "defence"])
    rows: list[dict[str, Any]] = []
    for place in places[["attribute", "artifact", "layer", "defence"]].to_dict("records"):
        for measure in ("retrieval_overlap_at_10", "variance_kept"):
            value = float(rng.uniform(0.4, 0.95))
            sizes = {"n_rows": 60, "n_subjects": 60, "n_fit": 20, "n_subjects_fit": 20, "removed": 4, "width": 24}
            spread = {"value": value, "low": value - 0.03, "high": value + 0.03}
            rows.append(
                {str(k): v for k, v in place.items()}
                | {"split": "bal_test", "measure": measure, "settings": "{}"}
                | spread
                | sizes
            )
    return pd.DataFrame(rows)


def _left(defence: str, probe: str) -> float:
    """Share of the gap a defence leaves: erasers stop the linear probe, noise stops both, a little."""
    if defence == "none":
        return 1.0
    return 0.8 if defence in ("noise", "truncate") else 0.0 if probe == "linear" else 0.6


def _cells(recipe: Recipe) -> list[tuple[str, str, int, str, str, float]]:
    """(attribute, artifact, layer, defence, probe, accuracy above chance) of every cell of the audit."""
    cells = []
    for a, attribute in enumerate(recipe.attributes):
        for b, artifact in enumerate(recipe.artifacts):
            for layer in recipe.layers:
                for c, probe in enumerate(recipe.probes):
                    share = (1 + b + 0.3 * c) / (len(recipe.artifacts) + 0.3 * (len(recipe.probes) - 1))
                    for d in recipe.defences:
                        gap = _left(d, probe) * recipe.gap * share / (1 + a)
                        cells.append((attribute, artifact, layer, d, probe, gap))
    return cells


def _predictions(rng: np.random.Generator, recipe: Recipe, examples: pd.DataFrame) -> pd.DataFrame:
    frames = []
    evaluated = examples[examples["split"].isin(["bal_val", "bal_test"])]
    for attribute, artifact, layer, defence, probe, gap in _cells(recipe):
        actual, names = evaluated[attribute].to_numpy(), np.array(classes_of(recipe, attribute))
        k = len(names)
        right = rng.random(len(evaluated)) < min(0.98, gap * k / (k - 1))  # the others guess
        for seed in recipe.seeds:
            flip = rng.random(len(evaluated)) < 0.03
            wrong = names[rng.integers(0, k, len(evaluated))]
            frames.append(
                pd.DataFrame(
                    {
                        "example_id": evaluated["example_id"].to_numpy(),
                        "attribute": attribute,
                        "artifact": artifact,
                        "layer": layer,
                        "defence": defence,
                        "probe": probe,
                        "seed": seed,
                        "split": evaluated["split"].to_numpy(),
                        "actual": actual,
                        "predicted": np.where(right ^ flip, actual, wrong),
                        "probability": np.clip(rng.beta(3 + 3 * right, 3, len(evaluated)), 1 / k, 1).astype(np.float32),
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


def _probe_metrics(
    rng: np.random.Generator, recipe: Recipe, examples: pd.DataFrame, predictions: pd.DataFrame
) -> pd.DataFrame:
    rows = []
    n_train = int((examples["split"] == "bal_train").sum())
    keys = ["attribute", "artifact", "layer", "defence", "probe", "split"]
    for (attribute, artifact, layer, defence, probe, split), cell in predictions.groupby(keys, sort=False):
        cell, names = cell.assign(right=cell["actual"] == cell["predicted"]), classes_of(recipe, str(attribute))
        k = len(names)
        n = cell["example_id"].nunique()
        base = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": defence, "probe": probe}
        sizes = {"split": split, "n_train": n_train, "n_eval": n, "n_subjects": n, "n_classes": k, "chance": 1 / k}
        per_seed = [(s, float(part["right"].mean())) for s, part in cell.groupby("seed")]
        for seed, accuracy in [(None, float(np.mean([a for _, a in per_seed]))), *per_seed]:
            numbers = _gap_columns(accuracy, k, n, rng, seed is None)
            sure = {name: round(numbers["confident_share"] * (0.5 + i / k), 6) for i, name in enumerate(names)}
            extra = {"confident_precision": 0.93, "confident_by_class": json.dumps(sure), "settings": "{}"}
            share = numbers["confident_share"]
            extra |= {
                "confident_low": 0.7 * share,
                "confident_high": 1.4 * share,
                "confident_p": 1e-9 if share else 1.0,
                "confident_least": min(1.0, 10 / max(n, 1)),
            }
            extra |= {"mdl_bits": 0.9 * np.log2(k), "mdl_compression": 1 / 0.9} if seed is None else {}
            rows.append({**base, "seed": seed, **sizes, **numbers, **extra})
    return pd.DataFrame(rows).astype({"seed": "Int32", "layer": "int32"})


def _gap_columns(accuracy: float, k: int, n: int, rng: np.random.Generator, pooled: bool) -> dict[str, Any]:
    gap, error = accuracy - 1 / k, np.sqrt(accuracy * (1 - accuracy) / max(n, 1))
    low, high = gap - 1.645 * error, gap + 1.645 * error
    null = abs(rng.normal(0, 0.003))
    return {
        "accuracy": accuracy,
        "accuracy_low": accuracy - 1.96 * error if pooled else None,
        "accuracy_high": accuracy + 1.96 * error if pooled else None,
        "signed_gap": gap,
        "signed_low90": low if pooled else None,
        "signed_high90": high if pooled else None,
        "gap": abs(gap),
        "null_mean": 1 / k + null if pooled else None,
        "null_p95": 1 / k + null + 1.645 * np.sqrt((1 - 1 / k) / k / max(n, 1)) if pooled else None,
        "p_value": 1 / 200 if gap > 2 * error else 0.4,
        "v_information_bits": max(0.0, 2.2 * gap),
        "confident_share": max(0.0, gap - 0.1),
        "converged": True,
        "verdict": interval_verdict(low, high, 0.025) if pooled else None,
        "p_over": 0.5 * erfc((gap - 0.025) / error / sqrt(2)) if pooled else None,
    }


def _vector_verdicts(metrics: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for row in metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")].to_dict("records"):
        where = {k: row[k] for k in ("attribute", "artifact", "layer", "defence", "split", "n_subjects")}
        numbers = judged(row["signed_gap"], row["signed_low90"], row["signed_high90"])
        rows.append({"kind": "vectors", "attacker": row["probe"], **where, **numbers})
    for defence in dict.fromkeys(row["defence"] for row in rows):
        mine = [row for row in rows if row["defence"] == defence]
        worst = {**max(mine, key=lambda r: r["value"]), "attacker": "all"}
        rows.append({**worst, **{c: None for c in ("attribute", "artifact", "layer") if metrics[c].nunique() > 1}})
    return pd.DataFrame(rows, columns=[*VERDICT_COLUMNS, "p_over", "point_rule"]).astype({"layer": "Int32"})
