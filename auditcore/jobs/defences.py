"""Defences of a vectors audit. In: vectors of one artifact and attribute. Out: defended vectors, what they cost."""

import json
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from auditcore.jobs.context import Context
from auditcore.jobs.rows import Rows
from auditcore.spec import VectorsSpec

FIT = "defence_fit"


def needs_fit(spec: Any) -> bool:
    """True when a defence is fitted, so that subjects have to be set aside for it."""
    return any(name not in ("none", "prompt") for name in spec.defences)


def measured(spec: VectorsSpec) -> list[str]:
    """The defences by the names of the tables: each directive of `prompt` is one, as in prompt:neutral."""
    from auditcore.jobs.prompting import directives

    return [n for name in spec.defences for n in (directives(spec) if name == "prompt" else [name])]


def fit_rows(frame: pd.DataFrame, attribute: str) -> np.ndarray:
    """Positions of the rows a defence may see: of defence_fit, labelled, of subjects with one class."""
    from auditcore.datasets.splits import subject_classes

    single = subject_classes(frame, attribute).dropna().index
    usable = frame["split"].eq(FIT) & frame[attribute].notna() & frame["group"].isin(single)
    return np.flatnonzero(usable.to_numpy(dtype=bool)).astype(np.int64)


def protected(
    context: Context,
    name: str,
    array: np.ndarray,
    frame: pd.DataFrame,
    attribute: str,
    artifact: str,
    rows: dict[str, np.ndarray],
) -> Any:
    """`leakage.erasure.Protected`: a defence fitted on the defence_fit rows of `rows`; what was left out is noted."""
    from auditcore.leakage.erasure import Options, protect

    spec: Any = context.spec
    options = Options(**spec.defence_options.model_dump(exclude={"fit_on"}))
    about = f"{attribute} {artifact}"
    found = protect(name, array, frame[attribute], frame["group"], rows, options, spec.seed, about)
    for note in found.notes:
        context.note(note)
    return found


class Defended:
    """Vectors of one artifact, layer and attribute behind one defence; fitted when they are first asked for.

    directed: the vectors behind a directive, which are made and not fitted; None otherwise.
    """

    def __init__(
        self,
        context: Context,
        rows: Rows,
        array: np.ndarray,
        evaluated: dict[str, np.ndarray],
        where: dict[str, Any],
        directed: np.ndarray | None = None,
    ):
        self.context, self.rows, self.plain, self.evaluated, self.where = context, rows, array, evaluated, where
        self.directed = directed

    @cached_property
    def fitted(self) -> Any:
        """`leakage.erasure.Protected`; what had to be left out is noted."""
        from auditcore.leakage.erasure import Defence, Protected

        where = self.where
        if self.directed is not None:
            return Protected(self.directed, Defence(where["defence"], 0), 0, 0, [])
        return protected(
            self.context, where["defence"], self.plain, self.rows.frame, where["attribute"], where["artifact"],
            self.evaluated,
        )  # fmt: skip

    @property
    def array(self) -> np.ndarray:
        """The vectors an attacker gets, float32 [n, d]."""
        return self.plain if self.where["defence"] == "none" else self.fitted.vectors

    def measure_cost(self) -> None:
        """Write this defence's rows of `defence_costs`: what the vectors' user loses, on the rows attackers are judged.

        Neighbours are looked for among those rows.
        """
        from auditcore.leakage.utility import utility

        where, spec = self.where, self.context.spec
        assert isinstance(spec, VectorsSpec)
        name = f"cost of {where['defence']}: {where['attribute']}, {where['artifact']}, layer {where['layer']}"
        if where["defence"] == "none" or self.context.finished(name):
            return
        with self.context.stage(name):
            split = next(s for s in ("bal_test", "bal_val") if len(self.evaluated[s]))
            at = self.evaluated[split]
            groups = self.rows.frame["group"].to_numpy(dtype=str)[at]
            fitted = self.fitted
            lines = [
                {
                    **where,
                    "split": split,
                    "measure": m.measure,
                    "value": m.value,
                    "low": m.low,
                    "high": m.high,
                    "n_rows": m.n_rows,
                    "n_subjects": m.n_subjects,
                    "n_fit": fitted.n_fit,
                    "n_subjects_fit": fitted.n_subjects_fit,
                    "removed": fitted.defence.removed,
                    "width": self.plain.shape[1],
                    "settings": json.dumps(fitted.defence.settings),
                }
                for m in utility(self.plain[at], fitted.vectors[at], groups, spec.n_boot, spec.seed)
                # Vectors of another prompt lie elsewhere: their distance to the old ones is no loss of variance.
                if self.directed is None or m.measure != "variance_kept"
            ]
            append(self.context, "defence_costs", pd.DataFrame(lines), where)


def append(context: Context, table: str, frame: pd.DataFrame, where: dict[str, Any]) -> None:
    """Add rows to a table; rows of the same place left by an attempt that was killed are replaced."""
    if context.run.has(table):
        old = context.run.read(table)
        same = np.logical_and.reduce([(old[column] == value).to_numpy() for column, value in where.items()])
        frame = pd.concat([old[~same], frame], ignore_index=True)
    context.run.write(table, frame)


def write_effects(context: Context) -> None:
    """Write `defence_effects`: what each defence changes for each attacker, paired by row."""
    from auditcore.leakage.effects import effects

    spec, run = context.spec, context.run
    assert isinstance(spec, VectorsSpec)
    if "none" not in spec.defences or spec.defences == ["none"]:
        return
    examples = run.read("examples", ["example_id", "group"])
    groups = examples.set_index("example_id")["group"]
    found = []
    # Place by place: what a sweep predicts may be more than memory holds, and pairs lie in one place.
    places = run.sql("select distinct attribute, artifact, layer from predictions", tables=["predictions"])
    for place in places.sort_values(["attribute", "artifact", "layer"]).to_dict("records"):
        here = [str(place["attribute"]), str(place["artifact"]), int(place["layer"])]
        some = run.read("predictions", where="attribute = ? and artifact = ? and layer = ?", params=here)
        found.append(effects(some, groups, spec.n_boot, spec.seed))
    run.write("defence_effects", pd.concat(found, ignore_index=True))
