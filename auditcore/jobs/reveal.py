"""Read the test rows of a locked choice, once. In: a locked run. Out: bal_test rows of its tables, verdicts, a record.

Vectors of bal_test rows are extracted for the chosen checkpoint alone, and judged by fresh probes fitted on bal_train.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from auditcore import decisions, records
from auditcore.errors import DatasetError, RunError
from auditcore.frontier import Declaration
from auditcore.jobs import sealed
from auditcore.jobs.context import Context
from auditcore.jobs.lock import plain

VECTORS, VERDICTS = "bal_test vectors", "bal_test verdicts"
PERMUTATIONS = 199  # of the null band of what was declared


def work(context: Context) -> None:
    """Read the test rows for the locked checkpoint: vectors, one stage per probe, verdicts; then the record of it."""
    run = context.run
    record = decisions.locked(run)
    if record is None:
        raise RunError(f"Run {run.id} is not locked; nothing reads its test rows before.")
    chosen, declaration = record["content"]["chosen"], decisions.declared(run)
    dataset, encoded = _rows(context)
    evaluated = _positions(context, dataset.frame)
    prints = sealed.row_prints(dataset)
    used = np.unique(np.concatenate([evaluated[a][sealed.TEST] for a in evaluated]))
    every = np.flatnonzero(dataset.frame["split"].eq(sealed.TEST).to_numpy(dtype=bool))
    if not len(used):
        raise DatasetError(f"{_spec(context).data.path}: has no bal_test rows that can be judged.")
    context.record(test_split=sealed.enter_ledger(run, [prints[i] for i in every]))
    exported, positions = _vectors(context, chosen, dataset, encoded, evaluated)
    place = pd.Series(np.arange(len(positions)), index=positions)
    for attribute, (artifact, layer), probe in product(evaluated, exported, _spec(context).probes):
        rows = {split: place.loc[at].to_numpy() for split, at in evaluated[attribute].items()}
        where = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": "none"}
        frame = dataset.frame.iloc[positions].reset_index(drop=True)
        _probe(context, frame, exported[artifact, layer], rows, probe, where, declaration, int(chosen["step"]))
    if not context.finished(VERDICTS):
        with context.stage(VERDICTS):
            _verdicts(context, record, chosen, declaration)


def _spec(context: Context) -> Any:
    """The spec of a run of checkpoints, whichever of the two kinds."""
    return context.spec


def _rows(context: Context) -> tuple[Any, Any]:
    """The data set with the splits this run gave its rows, and their tokens."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_tokenizer

    spec, run = _spec(context), context.run
    dataset = load_dataset(spec.data, spec.prompt_template)
    if dataset.sha256 != run.manifest["data"]["sha256"]:
        raise DatasetError(f"{spec.data.path}: has changed since this run began; its test rows are not those sealed.")
    examples = run.read("examples").set_index("example_id")
    keep = np.flatnonzero(dataset.frame["example_id"].isin(examples.index).to_numpy())
    known = examples.reindex(dataset.frame["example_id"].iloc[keep])
    frame = dataset.frame.iloc[keep].assign(split=known["split"].to_numpy(), group=known["group"].to_numpy())
    dataset = replace(dataset.select(keep), frame=frame.reset_index(drop=True))
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    return dataset, encode(tokenizer, dataset.template, dataset.fields, dataset.target, spec.max_length)


def _positions(context: Context, frame: pd.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    from auditcore.jobs.vectors import evaluation_rows

    spec = _spec(context)
    return {attribute: evaluation_rows(frame, attribute, spec.seed)[0] for attribute in spec.data.labels}


def _vectors(
    context: Context, chosen: dict[str, Any], dataset: Any, encoded: Any, evaluated: dict[str, dict[str, np.ndarray]]
) -> tuple[dict[tuple[str, int], np.ndarray], np.ndarray]:
    """Vectors of every audited artifact for the rows that probes are fitted or judged on, and those rows."""
    from safetensors.numpy import load_file, save_file

    from auditcore import store
    from auditcore.lm.load import load_model
    from auditcore.lm.vectors import extract_vectors

    spec, run = _spec(context), context.run
    positions = np.unique(np.concatenate([at for rows in evaluated.values() for at in rows.values()]))
    path = run.path / "reveal.safetensors"
    if context.finished(VECTORS):
        arrays = load_file(path)
        return {(n.split("@")[0], int(n.split("@")[1])): array for n, array in arrays.items()}, positions
    # The lock opened this run's own test rows; what another run seals among the rest stays closed.
    fitted = np.unique(
        np.concatenate([at for rows in evaluated.values() for s, at in rows.items() if s != sealed.TEST])
    )
    sealed.require_open(dataset, fitted, own=run)
    with context.stage(VECTORS, len(positions)) as on_progress:
        model = load_model(_source(context, chosen))
        found = extract_vectors(
            model, encoded.select(positions), spec.audit, [spec.layer], batch_size=spec.batch_size,
            on_batch=on_progress,
        )  # fmt: skip
        with store.atomic(path) as temporary:
            save_file({f"{a}@{k}": np.ascontiguousarray(v) for (a, k), v in found.items()}, temporary)
    return {key: np.asarray(array) for key, array in found.items()}, positions


def _source(context: Context, chosen: dict[str, Any]) -> Any:
    """The chosen checkpoint as a model to load."""
    from auditcore.spec import ModelSpec

    known = context.run.manifest["spec"]
    own = (known.get("checkpoints") or {}).get("folder")
    model = known.get("model") or known["checkpoints"]
    folder = (
        f"{own}/{chosen['checkpoint']}" if own else str(context.run.path / "checkpoints" / f"step-{chosen['step']:06d}")
    )
    kept = {k: model[k] for k in ("dtype", "precision", "device") if k in model}
    return ModelSpec(source=folder, base=model.get("source") or model.get("base"), **kept)


def _probe(
    context: Context,
    frame: pd.DataFrame,
    array: np.ndarray,
    rows: dict[str, np.ndarray],
    probe: str,
    where: dict[str, Any],
    declaration: Declaration,
    step: int,
) -> None:
    """Fit one fresh probe on bal_train and judge it on bal_test; its rows join `probe_metrics` and `predictions`."""
    from auditcore.jobs.vectors import append
    from auditcore.leakage.gap import evaluate

    spec = _spec(context)
    name = f"bal_test: {where['attribute']} from {where['artifact']}, {probe}"
    if context.finished(name):
        return
    counts = _is_declared({**where, "probe": probe}, declaration)
    with context.stage(name) as on_progress:
        result = evaluate(
            array, frame[where["attribute"]], frame["group"], rows, probe, spec.seeds, n_boot=spec.n_boot,
            permutations=max(spec.permutations, PERMUTATIONS) if counts else spec.permutations, budget=spec.budget,
            seed=spec.seed, example_ids=frame["example_id"], on_step=on_progress, **where,
        )  # fmt: skip
        key = {**where, "probe": probe}
        append(context, "probe_metrics", result.metrics, key)
        test = result.predictions[result.predictions["split"] == sealed.TEST]
        append(context, "predictions", test.assign(step=step), {**key, "split": sealed.TEST})


def _is_declared(row: dict[Any, Any], declaration: Declaration) -> bool:
    return (
        row["attribute"] in declaration.attributes
        and row["artifact"] in declaration.artifacts
        and row["probe"] in declaration.attackers
        and (not declaration.layers or row["layer"] in declaration.layers)
    )


def _verdicts(context: Context, record: dict[str, Any], chosen: dict[str, Any], declaration: Declaration) -> None:
    """Judge what was declared, mark the chosen checkpoint, and put the outcome on record."""
    from auditcore.claims import claim
    from auditcore.leakage.gap import leakage_verdicts

    run = context.run
    metrics = run.read("probe_metrics")
    counts = [_is_declared(row, declaration) for row in metrics.to_dict("records")]
    verdicts = leakage_verdicts(metrics[counts], declaration.budget)
    run.write("verdicts", verdicts)
    table = run.read("checkpoints")
    mine = table["step"] == chosen["step"]
    same = table[mine].iloc[0]
    tested = metrics[metrics["split"] == sealed.TEST]
    carried = {c: same[c] for c in ("run_id", "step", "lambda", "checkpoint") if c in table}
    rows = pd.concat(
        [table[table["split"] != sealed.TEST].assign(selected=mine), tested.assign(**carried, selected=True)]
    )
    run.write("checkpoints", rows.reset_index(drop=True)[list(table.columns)])
    context.record(claim=claim(run.manifest, verdicts))
    combined = verdicts[verdicts["attacker"] == "all"]
    outcome = {
        "chosen": chosen,
        "declaration": record["number"],
        "verdict": str(combined["verdict"].iloc[0]) if len(combined) else None,
        "verdicts": [plain(row) for row in verdicts.to_dict("records")],
        "test_split": run.manifest["test_split"],
    }
    if decisions.revealed(run) is None:
        records.append(run, "reveal", record["by"], **outcome)
