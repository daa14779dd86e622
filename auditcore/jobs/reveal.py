"""Read the test rows of a locked choice, once. In: a locked run. Out: bal_test rows of its tables, verdicts, a record.

Vectors of bal_test rows are extracted for the chosen checkpoint alone, and judged by fresh probes fitted on bal_train;
some of the rows are summarised by it. What was declared gets the verdict; everything else is told without one.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache as once
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore import decisions, disk, records
from auditcore.errors import DatasetError, ModelError, RunError
from auditcore.frontier import Declaration
from auditcore.jobs import sealed
from auditcore.jobs.ceilings import write_ceilings
from auditcore.jobs.context import Context
from auditcore.jobs.defences import protected
from auditcore.jobs.lock import plain
from auditcore.jobs.rows import Rows

VECTORS, SUMMARIES, VERDICTS = "bal_test vectors", "bal_test summaries", "bal_test verdicts"
PERMUTATIONS = 199  # of the null band of what was declared


def work(context: Context) -> None:
    """Read the test rows for the locked checkpoint: vectors, one stage per probe, verdicts; then the record of it."""
    run = context.run
    record = decisions.locked(run)
    if record is None:
        raise RunError(f"Run {run.id} is not locked; nothing reads its test rows before.")
    chosen, declaration = record["content"]["chosen"], decisions.declared(run)
    rows = _rows(context)
    frame = rows.frame
    evaluated = _positions(context, frame)
    every = np.flatnonzero(frame["split"].eq(sealed.TEST).to_numpy(dtype=bool))
    if not any(len(at[sealed.TEST]) for at in evaluated.values()):
        raise DatasetError(f"{_spec(context).data.path}: has no bal_test rows that can be judged.")
    prints = sealed.row_prints(rows.dataset)
    context.record(test_split=sealed.enter_ledger(run, [prints[i] for i in every]))
    write_ceilings(context, _spec(context).prompt_template, frame, evaluated)
    model = once(lambda: _open(context, chosen))
    exported, positions = _vectors(context, model, rows, evaluated)
    here = frame.iloc[positions].reset_index(drop=True)
    for attribute, (artifact, layer), probe in product(evaluated, exported, _spec(context).probes):
        at = {s: np.searchsorted(positions, found) for s, found in evaluated[attribute].items()}
        where = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": "none"}
        _probe(context, here, exported[artifact, layer], at, probe, where, declaration, int(chosen["step"]))
    for attribute, (artifact, layer), defence in product(evaluated, exported, _spec(context).defences):
        at = {split: np.searchsorted(positions, found) for split, found in evaluated[attribute].items()}
        where = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": defence}
        behind = protected(context, defence, exported[artifact, layer], here, attribute, artifact, at).vectors
        for probe in _spec(context).probes:
            _probe(context, here, behind, at, probe, where, declaration, int(chosen["step"]))
    _summaries(context, model, rows)
    if not context.finished(VERDICTS):
        with context.stage(VERDICTS):
            _verdicts(context, record, chosen, declaration)


def _spec(context: Context) -> Any:
    """The spec of a run of checkpoints, whichever of the two kinds."""
    return context.spec


def _rows(context: Context) -> Rows:
    """The rows of this run with the splits it gave them, and their tokens."""
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
    encoded = encode(tokenizer, dataset.template, dataset.fields, dataset.target, spec.max_length)
    return Rows(dataset, encoded, dataset.frame).with_exported(tokenizer, spec.max_length)


def _positions(context: Context, frame: pd.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    from auditcore.jobs.audited import evaluation_rows

    spec = _spec(context)
    return {attribute: evaluation_rows(frame, attribute, spec.seed)[0] for attribute in spec.data.labels}


def _open(context: Context, chosen: dict[str, Any]) -> Any:
    """The chosen checkpoint, loaded."""
    from auditcore.jobs.surfacelora import folder_name
    from auditcore.lm.load import load_model

    spec = _spec(context)
    if spec.kind == "surfacelora":
        folder = context.run.path / "checkpoints" / folder_name(int(chosen["step"]))
    else:
        folder = _adapter(context, str(chosen["checkpoint"]))
    return load_model(spec.model.model_copy(update={"source": str(folder), "base": spec.model.source}))


def _adapter(context: Context, name: str) -> Path:
    """Folder of an adapter the user has. Raises ModelError when it is not the one that was measured."""
    from auditcore.lm.sources import fingerprint

    known = context.run.read("adapters", where="checkpoint = ?", params=[name]).iloc[0]
    if fingerprint(str(known["path"]), _spec(context).checkpoints.base) != known["fingerprint"]:
        raise ModelError(f"adapter {name} is not the one that was measured and chosen; it changed since.")
    return Path(str(known["path"]))


def _vectors(
    context: Context, model: Callable[[], Any], rows: Rows, evaluated: dict[str, dict[str, np.ndarray]]
) -> tuple[dict[tuple[str, int], np.ndarray], np.ndarray]:
    """Vectors of every audited artifact for the rows that probes are fitted or judged on, and those rows, ascending."""
    from safetensors.numpy import load_file, save_file

    from auditcore.lm.vectors import extract_vectors

    spec, path = _spec(context), context.run.path / "reveal.safetensors"
    positions = np.unique(np.concatenate([at for found in evaluated.values() for at in found.values()]))
    if not context.finished(VECTORS):
        # The lock opened this run's own test rows; what another run seals among the rest stays closed.
        rest = [at for found in evaluated.values() for split, at in found.items() if split != sealed.TEST]
        sealed.require_open(rows.dataset, np.unique(np.concatenate(rest)), own=context.run)
        with context.stage(VECTORS, len(positions)) as on_progress:
            found = extract_vectors(
                model(), rows.exported.select(positions), spec.audit, [spec.layer],
                batch_size=max(spec.batch_size, 16), on_batch=on_progress,
            )  # fmt: skip
            with disk.atomic(path) as temporary:
                save_file({f"{a}@{k}": np.ascontiguousarray(v) for (a, k), v in found.items()}, temporary)
    arrays = {(n.split("@")[0], int(n.split("@")[1])): array for n, array in load_file(path).items()}
    return dict(sorted(arrays.items(), key=lambda item: spec.audit.index(item[0][0]))), positions


def _summaries(context: Context, model: Callable[[], Any], rows: Rows) -> None:
    """ROUGE of summaries of some test rows; the texts themselves are not kept."""
    from auditcore import rouge
    from auditcore.jobs.checkpoints import summarised_rows
    from auditcore.lm.generate import generate

    spec = _spec(context)
    if not spec.rouge_rows or context.finished(SUMMARIES):
        return
    at = summarised_rows(rows, sealed.TEST, spec.rouge_rows, spec.seed)
    if not len(at):
        return
    with context.stage(SUMMARIES, len(at)) as on_progress:
        encoded = rows.encoded.select(at)
        longest = int((encoded.lengths - encoded.prompt_lengths).max(initial=1))
        texts = generate(
            model(), encoded.prompts(), max_new_tokens=spec.max_new_tokens or longest,
            batch_size=max(spec.batch_size, 16), on_batch=on_progress,
        )  # fmt: skip
        scores = rouge.rouge([rows.dataset.target[i] for i in at], texts)
        found = rouge.means(scores, rows.frame["group"].iloc[at].tolist(), spec.n_boot, spec.seed)
        context.record(test_summaries={"rows": len(at), **{k: plain_number(v) for k, v in found.items()}})


def plain_number(value: float) -> float | None:
    """A number for JSON: None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


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
    from auditcore.jobs.defences import append
    from auditcore.leakage.gap import evaluate

    spec = _spec(context)
    behind = "" if where["defence"] == "none" else f" behind {where['defence']}"
    name = f"bal_test: {where['attribute']} from {where['artifact']}{behind}, {probe}"
    if context.finished(name):
        return
    counts = _is_declared({**where, "probe": probe}, declaration)
    with context.stage(name) as on_progress:
        result = evaluate(
            array, frame[where["attribute"]], frame["group"], rows, probe, spec.seeds, n_boot=spec.n_boot,
            permutations=max(spec.permutations, PERMUTATIONS) if counts else spec.permutations,
            budget=declaration.budget,  # Holm's p-values are of the same budget as the verdicts
            seed=spec.seed, example_ids=frame["example_id"], on_step=on_progress, **where,
        )  # fmt: skip
        key = {**where, "probe": probe}
        append(context, "probe_metrics", result.metrics, key)
        test = result.predictions[result.predictions["split"] == sealed.TEST]
        if where["defence"] == "none":
            append(context, "predictions", test.assign(step=step), {**key, "split": sealed.TEST})


def _is_declared(row: dict[Any, Any], declaration: Declaration) -> bool:
    return (
        row.get("defence", "none") == "none"
        and row["attribute"] in declaration.attributes
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
    tested = metrics[(metrics["split"] == sealed.TEST) & (metrics["defence"] == "none")]
    carried = {c: same[c] for c in ("run_id", "step", "lambda", "checkpoint") if c in table}
    carried |= {k: v for k, v in (run.manifest.get("test_summaries") or {}).items() if k in table}
    rows = pd.concat(
        [table[table["split"] != sealed.TEST].assign(selected=mine), tested.assign(**carried, selected=True)]
    )
    run.write("checkpoints", rows.reset_index(drop=True)[list(table.columns)])
    behind = metrics[(metrics["split"] == sealed.TEST) & (metrics["defence"] != "none") & metrics["seed"].isna()]
    if len(behind):
        known = run.read(decisions.DEFENDED)
        more = behind.assign(**carried, selected=True)
        both = [known[known["split"] != sealed.TEST].assign(selected=known["step"] == chosen["step"]), more]
        run.write(decisions.DEFENDED, pd.concat(both, ignore_index=True)[list(known.columns)])
    context.record(claim=claim(run.manifest, verdicts))
    combined = verdicts[verdicts["attacker"] == "all"]
    outcome = {
        "chosen": chosen,
        "declaration": record["number"],
        "verdict": str(combined["verdict"].iloc[0]) if len(combined) else None,
        "verdicts": [plain(row) for row in verdicts.to_dict("records")],
        "test_split": run.manifest["test_split"],
        "rouge": run.manifest.get("test_summaries"),
    }
    if decisions.revealed(run) is None:
        records.append(run, "reveal", record["by"], **outcome)
