"""An attacker with fewer rows, and with more. In: vectors of a vectors audit. Out: two tables.

`sample_curve` (attribute × artifact × probe × size) and `sample_extrapolation` (attribute × artifact × probe × times
the rows), of the deepest exported layer, of vectors as they are exported; the largest size is the audit's own probe.
"""

from itertools import product
from typing import Any

import numpy as np

from auditcore.jobs.context import Context
from auditcore.jobs.defences import append, measured
from auditcore.jobs.rows import Rows
from auditcore.spec import VectorsSpec
from auditcore.words import counted


def sample_curves(
    context: Context,
    rows: Rows,
    exported: dict[tuple[str, int], np.ndarray],
    evaluated: dict[str, dict[str, np.ndarray]],
) -> None:
    """Write the tables, a stage for each attribute, artifact and probe; nothing where the spec asks for no curve."""
    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    if spec.curve is None:
        return
    if "none" not in measured(spec):
        context.note("No sample-size curve: it is of vectors as they are exported, and defences leaves out none.")
        return
    deepest = max(layer for _, layer in exported)
    artifacts = [artifact for artifact, layer in exported if layer == deepest]
    for attribute, artifact, probe in product(spec.data.labels, artifacts, spec.probes):
        name = f"curve of {attribute} from {artifact}, {probe}"
        if context.finished(name):
            continue
        with context.stage(name) as on_progress:
            names = {"attribute": attribute, "artifact": artifact, "layer": deepest, "probe": probe}
            _one(context, rows, exported[artifact, deepest], evaluated[attribute], names, on_progress)


def _one(
    context: Context,
    rows: Rows,
    array: np.ndarray,
    evaluated: dict[str, np.ndarray],
    names: dict[str, Any],
    on_progress: Any,
) -> None:
    from auditcore.leakage.cells import make_cell
    from auditcore.leakage.curve import Point, curve, learn, usable

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    assert spec.curve is not None
    cell = make_cell(array, rows.frame[names["attribute"]].tolist(), rows.frame["group"].tolist(), evaluated)
    split = "bal_test" if "bal_test" in cell.evaluated else "bal_val"
    part, train, asked = cell.evaluated[split], cell.train, spec.curve
    left = len(asked.shares) - len(usable(train, asked.shares))
    if left:
        context.note(
            f"{names['attribute']}: {counted(left, 'size')} of the curve left out: too few subjects of a class."
        )
    points = learn(cell, split, names["probe"], asked.shares, asked.draws, spec.seeds, spec.seed, on_progress)
    ids = rows.frame["example_id"].to_numpy(dtype=str)[part.positions]
    whole = Point(1.0, float(len(train.positions)), float(train.n_subjects), _audited(context, names, split, ids))
    found = curve(cell, split, [*points, whole], asked.times, spec.n_boot, spec.seed, names)
    append(context, "sample_curve", found.points, names)
    append(context, "sample_extrapolation", found.more, names)


def _audited(context: Context, names: dict[str, Any], split: str, ids: np.ndarray) -> np.ndarray:
    """What the audit's own probe, fitted on all rows, named correctly: bool [seeds, n], rows in the order of `ids`."""
    query = """
        select seed, example_id, actual = predicted as "right" from predictions
        where attribute = ? and artifact = ? and layer = ? and probe = ? and split = ? and defence = 'none'
    """
    found = context.run.sql(query, [*names.values(), split], ["predictions"])
    table = found.pivot(index="seed", columns="example_id", values="right")
    return table[list(ids)].to_numpy(dtype=bool)
