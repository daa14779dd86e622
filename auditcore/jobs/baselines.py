"""What the label is read from without any vector. In: rows of a vectors audit. Out: three tables.

`baseline_metrics` (attribute × baseline × split), `baseline_predictions` (example × attribute × baseline) and
`baseline_differences` (attribute × artifact × layer × defence × probe × baseline × split): probe minus baseline.
"""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.jobs.context import Context
from auditcore.jobs.rows import Rows
from auditcore.spec import VectorsSpec

FIT, COMPARE = "baselines", "baselines compared"
NOTHING = {
    "text": "The prompt's own words are not read as a baseline: no column plays the role prompt.",
    "metadata": "No column plays the role metadata: how a vector compares with what is held is not said.",
}


def available(spec: VectorsSpec) -> dict[str, bool]:
    """Each baseline of the spec, and whether the data has columns for it."""
    has = {"text": spec.read_template is not None, "metadata": bool(spec.data.metadata)}
    return {name: has[name] for name in spec.baselines}


def texts_of(dataset: Any) -> list[str]:
    """The text of each row's fields, without the template's own words."""
    return [" ".join(filter(None, parts)) for parts in zip(*dataset.fields.values(), strict=True)]


def read_baselines(context: Context, rows: Rows, evaluated: dict[str, dict[str, np.ndarray]]) -> None:
    """Fit and judge every baseline that the data has columns for; evaluated: attribute -> split -> positions."""
    from auditcore.leakage.baselines import read_baseline

    spec, frame = context.spec, rows.frame
    assert isinstance(spec, VectorsSpec)
    names = [name for name, there in available(spec).items() if there]
    if not names or context.finished(FIT):
        return
    with context.stage(FIT, len(names) * len(spec.data.labels)) as on_progress:
        found = []
        for attribute in spec.data.labels:
            for name in names:
                found.append(
                    read_baseline(
                        name,
                        texts_of(rows.dataset) if name == "text" else rows.dataset.metadata,
                        frame[attribute],
                        frame["group"],
                        evaluated[attribute],
                        frame["example_id"],
                        attribute=attribute,
                        seed=spec.seed,
                        n_boot=spec.n_boot,
                    )
                )
                on_progress(len(found), len(names) * len(spec.data.labels))
        for one in found:
            for note in one.notes:
                context.note(note)
        context.run.write("baseline_metrics", pd.concat([f.metrics for f in found], ignore_index=True))
        context.run.write("baseline_predictions", pd.concat([f.predictions for f in found], ignore_index=True))


def compare_baselines(context: Context) -> None:
    """Write `baseline_differences` once the probes are done."""
    from auditcore.leakage.baselines import differences

    spec, run = context.spec, context.run
    assert isinstance(spec, VectorsSpec)
    if not run.has("baseline_predictions") or context.finished(COMPARE):
        return
    query = """
        select attribute, artifact, layer, defence, probe, split, example_id,
               avg((actual = predicted)::double) as "right"
        from predictions where attribute = ? group by all order by all
    """
    with context.stage(COMPARE, len(spec.data.labels)) as on_progress:
        groups = run.read("examples", ["example_id", "group"]).set_index("example_id")["group"]
        read, parts = run.read("baseline_predictions"), []
        for attribute in spec.data.labels:
            judged = run.sql(query, [attribute], ["predictions"])
            mine = read[read["attribute"] == attribute]
            parts.append(differences(judged, mine, groups, spec.n_boot, spec.seed))
            on_progress(len(parts), len(spec.data.labels))
        run.write("baseline_differences", pd.concat(parts, ignore_index=True))
