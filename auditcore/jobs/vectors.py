"""What can be inferred from the exported vectors? In: a vectors spec. Out: vectors, probe metrics, verdicts."""

import contextlib
import os
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore import disk
from auditcore.jobs import cache, given, sealed
from auditcore.jobs.audited import audited_rows, evaluation_rows, sum_note, used_rows
from auditcore.jobs.baselines import compare_baselines, read_baselines
from auditcore.jobs.ceilings import write_ceilings
from auditcore.jobs.context import Context
from auditcore.jobs.curve import sample_curves
from auditcore.jobs.defences import Defended, append, measured, write_effects
from auditcore.jobs.growing import Growing
from auditcore.jobs.outputs import write_and_read
from auditcore.jobs.prompting import directed_rows, directed_vectors
from auditcore.jobs.rows import Rows, load
from auditcore.spec import VectorsSpec

PLACE = ("attribute", "artifact", "layer", "defence", "probe")
PROJECTED = 2000  # test rows drawn in the 2-D projection


def audit(context: Context) -> None:
    """Run all stages that are not finished: rows, vectors, one stage per probe, verdicts."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_tokenizer

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    found = load_dataset(spec.data, spec.read_template)
    everything, array, given_notes = given.usable(spec, found)
    dataset, notes, warnings = audited_rows(spec, everything)
    notes = given_notes + notes
    for text in warnings:
        context.warn(text)
    sealed.require_open(dataset)
    evaluated = {}
    for attribute in spec.data.labels:
        evaluated[attribute], left_out = evaluation_rows(dataset.frame, attribute, spec.seed)
        notes += left_out
    notes.append(sum_note(len(found.frame), len(everything.frame), len(dataset.frame), len(used_rows(evaluated))))
    # A vector is made of the prompt: the text the model should write takes none of its tokens.
    references, dataset = dataset.target, replace(dataset, target=None)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base) if spec.model else None
    rows = load(context, dataset, tokenizer, more_notes=notes)
    _enter_ledger(context, rows)
    if not context.run.has("ceilings"):
        write_ceilings(context, spec.prompt_template if spec.model else None, rows.frame, evaluated)

    _fingerprint(context)
    if not context.finished("vectors"):
        with context.stage("vectors", len(rows.frame)) as on_progress:
            made: dict[tuple[str, int], Any]
            if array is None:
                made = vectors(context, rows, on_progress)
            else:
                made = given.artifact(spec, array, everything.frame["example_id"], rows)
            for (artifact, layer), source in made.items():
                _keep(context.run.vectors_path(artifact, layer), source)
            context.record(exported=[[artifact, layer] for artifact, layer in made])
            context.run.write("projection", _projection(spec, rows, _exported(context), evaluated))
    del array  # from here on they are read from the run's folder
    exported = _exported(context)
    read_baselines(context, rows, evaluated)
    directed = directed_rows(context, rows, tokenizer)
    made_anew = directed_vectors(context, directed, vectors, _keep)

    tests = len(spec.data.labels) * len(exported) * len(spec.probes)
    _note_resamples(context, tests)
    predictions = Growing(context.run, "predictions", PLACE)
    try:
        for attribute, (artifact, layer), defence in product(spec.data.labels, exported, measured(spec)):
            where = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": defence}
            other = made_anew.get((defence, artifact, layer))
            behind = Defended(context, rows, exported[artifact, layer], evaluated[attribute], where, other)
            behind.measure_cost()
            for probe in spec.probes:
                _probe(context, rows, behind, evaluated[attribute], probe, where, predictions, tests)
    finally:
        predictions.fold()  # whatever stops the run, what it has found can be read

    compare_baselines(context)
    sample_curves(context, rows, exported, evaluated)
    last = dict(sorted(exported))  # of each artifact the deepest layer
    beside = {("none", artifact): exported[artifact, layer] for artifact, layer in last.items()}
    beside |= {(name, a): found for (name, a, layer), found in made_anew.items() if last[a] == layer}
    write_and_read(context, rows, directed, references, evaluated[spec.data.labels[0]]["bal_test"], beside)
    if not context.finished("verdicts"):
        with context.stage("verdicts"):
            write_effects(context)
            _verdicts(context)


def _fingerprint(context: Context) -> None:
    """Say which model or file the vectors come from; a resumed run must find the same."""
    from auditcore.datasets.scan import sha256
    from auditcore.lm.sources import fingerprint

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    if spec.model is not None:
        context.fingerprint("vectors", model=fingerprint(spec.model.source, spec.model.base))
    elif spec.vectors is not None and Path(spec.vectors.path).is_file():
        context.fingerprint("vectors", vectors=sha256(Path(spec.vectors.path)))


def vectors(context: Context, rows: Rows, on_progress: Any) -> dict[tuple[str, int], Path]:
    """Files with the vectors of every artifact and layer; those that the cache lacks are made in one pass.

    They are written as they come: a sweep over all layers holds one batch in memory, whatever its number of rows.
    """
    from auditcore.datasets.vector_files import create_vectors
    from auditcore.lm.load import load_model
    from auditcore.lm.vectors import depth, extract_vectors, resolve_layers

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    assert spec.model is not None
    key = cache.key(
        version=2,
        model=context.run.manifest["fingerprints"]["model"],
        tokens=rows.ids_hash,
        dtype=spec.model.dtype,
        precision=spec.model.precision,
        device=spec.model.device,
    )
    folder = cache.folder("vectors", key)

    def place(artifact: str, layer: int) -> Path:
        which = f"-{spec.last_k}" if artifact == "last_k_mean" else ""
        return folder / f"{artifact}{which}-layer{layer}.safetensors"

    def grid(last: int) -> list[tuple[str, int]]:
        layers = sorted(resolve_layers(spec.layers, last, model_name))
        return [(artifact, layer) for artifact in spec.artifacts for layer in layers]

    known, model_name = folder / "layers", spec.model.source  # the file holds the model's number of layers
    if known.exists() and all(place(*one).exists() for one in grid(int(known.read_text()))):
        return {one: place(*one) for one in grid(int(known.read_text()))}
    model = load_model(spec.model)
    context.record(device=str(model.device), dtype=str(model.dtype), precision=spec.model.precision)
    every = grid(depth(model))
    missing = [one for one in every if not place(*one).exists()]
    with contextlib.ExitStack() as files:

        def allocate(artifact: str, layer: int, shape: tuple[int, int]) -> np.ndarray:
            return create_vectors(files.enter_context(disk.atomic(place(artifact, layer))), shape)

        exported = extract_vectors(
            model,
            rows.encoded,
            list(dict.fromkeys(artifact for artifact, _ in missing)),
            sorted({layer for _, layer in missing}),
            last_k=spec.last_k,
            batch_size=spec.batch_size,
            on_batch=on_progress,
            allocate=allocate,
        )
        for array in exported.values():
            if isinstance(array, np.memmap):
                array.flush()
    with disk.atomic(known) as temporary:
        temporary.write_text(str(depth(model)))
    return {one: place(*one) for one in every}


def _exported(context: Context) -> dict[tuple[str, int], np.ndarray]:
    """Every artifact of the run, read from its folder as needed, in the order of the tables."""
    from auditcore.datasets.vector_files import open_vectors

    found = [(str(artifact), int(layer)) for artifact, layer in context.run.manifest["exported"]]
    return {one: open_vectors(context.run.vectors_path(*one)) for one in found}


def _keep(path: Path, source: Path | np.ndarray) -> None:
    """Put vectors into the run's folder: a second name for the cached file where the disk allows, else a copy."""
    from auditcore.datasets.vector_files import create_vectors

    with disk.atomic(path) as temporary:
        if isinstance(source, Path):
            try:
                os.link(source, temporary)
            except OSError:
                shutil.copyfile(source, temporary)
        else:
            create_vectors(temporary, (source.shape[0], source.shape[1]))[:] = source


def _projection(
    spec: VectorsSpec, rows: Rows, exported: dict[tuple[str, int], np.ndarray], evaluated: dict[str, dict]
) -> pd.DataFrame:
    """First two principal components of (a sample of) the test rows: for a picture, never for a number."""
    from sklearn.decomposition import PCA

    positions = np.unique(np.concatenate([evaluated[a]["bal_test"] for a in spec.data.labels]))
    if len(positions) > PROJECTED:
        positions = np.sort(np.random.default_rng(spec.seed).choice(positions, PROJECTED, replace=False))
    parts = []
    for (artifact, layer), array in exported.items():
        chosen = positions[np.isfinite(array[positions]).all(axis=1)]
        values = array[chosen].astype(np.float64)
        if len(chosen) < 3 or array.shape[1] < 2 or not np.ptp(values, axis=0).any():  # nothing to project
            continue
        pca = PCA(2, random_state=spec.seed)
        points = pca.fit_transform(values)
        part = rows.frame.iloc[chosen][["example_id", "split", *spec.data.labels]]
        share_x, share_y = (float(s) for s in pca.explained_variance_ratio_)
        parts.append(
            part.assign(
                artifact=artifact, layer=layer, x=points[:, 0], y=points[:, 1], share_x=share_x, share_y=share_y
            )
        )
    columns = ["example_id", "split", *spec.data.labels, "artifact", "layer", "x", "y", "share_x", "share_y"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _probe(
    context: Context,
    rows: Rows,
    behind: Defended,
    evaluated: dict[str, np.ndarray],
    probe: str,
    where: dict[str, Any],
    predictions: Growing,
    tests: int,
) -> None:
    """Fit and judge one probe on one artifact for one attribute; its rows join the tables.

    tests: how many attackers on labels, artifacts and layers are corrected for together.
    """
    from auditcore.leakage.gap import evaluate
    from auditcore.leakage.intervals import resamples

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    defence = "" if where["defence"] == "none" else f" behind {where['defence']}"
    name = f"{where['attribute']} from {where['artifact']}, layer {where['layer']}{defence}, {probe}"
    if context.finished(name):
        return
    with context.stage(name) as on_progress:
        result = evaluate(
            behind.array,
            rows.frame[where["attribute"]],
            rows.frame["group"],
            evaluated,
            probe,
            spec.seeds,
            n_boot=resamples(spec.n_boot, tests),
            permutations=resamples(spec.permutations, tests),
            most_refits=spec.permutations or None,  # more permutations cost little, more refits would
            budget=spec.budget,
            seed=spec.seed,
            example_ids=rows.frame["example_id"],
            on_step=on_progress,
            **where,
        )
        known = context.run.manifest["data"]["notes"]
        context.record(data={"notes": known + [text for text in result.warnings if text not in known]})
        append(context, "probe_metrics", result.metrics, {**where, "probe": probe})
        predictions.add(result.predictions, {**where, "probe": probe})


def _note_resamples(context: Context, tests: int) -> None:
    """Say that more are drawn than the spec asks for, where the correction over many tests needs them."""
    from auditcore.leakage.intervals import resamples

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    asked = {"bootstrap replicates": spec.n_boot, "permutations of the labels": spec.permutations}
    more = {name: (resamples(n, tests), n) for name, n in asked.items() if resamples(n, tests) > n}
    if more:
        each = " and ".join(f"{drawn:,} {name} instead of {n:,}" for name, (drawn, n) in more.items())
        context.note(
            f"{tests:,} tests are corrected for together, so that {each} are drawn for each: fewer could not tell a "
            "p-value small enough to survive the correction."
        )


def _verdicts(context: Context) -> None:
    from auditcore.claims import claim
    from auditcore.leakage.gap import leakage_verdicts

    spec, run = context.spec, context.run
    assert isinstance(spec, VectorsSpec)
    verdicts = leakage_verdicts(run.read("probe_metrics"), spec.budget)
    if verdicts.empty:
        context.warn("There are no bal_test rows, so nothing is judged: bal_val chooses, bal_test decides.")
    run.write("verdicts", verdicts)
    context.record(claim=claim(run.manifest, verdicts))


def _enter_ledger(context: Context, rows: Rows) -> None:
    """Note this look at the test rows: repeated looks at one test set wear it out, and a reader may count them."""
    test = rows.frame["split"].eq(sealed.TEST).to_numpy(dtype=bool)
    prints = sealed.row_prints(rows.dataset)
    context.record(test_split=sealed.enter_ledger(context.run, [prints[i] for i in np.flatnonzero(test)]))
