"""How deep a label can be read. In: attackers at several layers. Out: one row per artifact and layer, sentences."""

from typing import Any

import pandas as pd

from auditcore.findings.common import records
from auditcore.words import Strong, count, counted, known, listed, percent, percent_interval

FEW = 2  # layers up to which a table of attackers says it all


def swept(rows: pd.DataFrame) -> bool:
    """True where so many layers were audited that a picture by layer tells more than a list."""
    return rows["layer"].nunique() > FEW


def by_layer(rows: pd.DataFrame, probe: str | None = None) -> pd.DataFrame:
    """One row per artifact and layer: this probe's, or (None) that of the strongest one in each place.

    rows: seed-averaged rows of one attribute, split and defence. Artifacts stand in the order of the run, layers in
    order of depth.
    """
    some = rows if probe is None else rows[rows["probe"] == probe]
    some = some.sort_values("accuracy", ascending=False, kind="stable", na_position="last")
    some = some.drop_duplicates(["artifact", "layer"])
    order = {name: place for place, name in enumerate(rows["artifact"].unique())}
    return some.sort_values(["artifact", "layer"], key=lambda c: c.map(order) if c.name == "artifact" else c)


def layers_sentence(cells: pd.DataFrame) -> list[str]:
    """For each artifact the layer that tells most, with interval and n, beside the deepest. cells: of `by_layer`."""
    measured = cells[cells["accuracy"].map(known)]
    if measured.empty:
        return ["No layer has a finite accuracy."]
    parts: list[str] = []
    for artifact, mine in measured.groupby("artifact", sort=False):
        peak = records(mine.sort_values("accuracy", ascending=False, kind="stable"))[0]
        parts += [" ", *_one(str(artifact), peak, records(mine.sort_values("layer"))[-1], with_n=not parts)]
    layers = measured["layer"].nunique()
    more = f" The best of {count(layers)} layers is picked on the rows that judge it, so it flatters a little; all are "
    more += "read on the same subjects, so that overlapping intervals are no test of a difference."
    return [*parts[1:], more]


def _one(artifact: str, peak: dict[str, Any], deepest: dict[str, Any], with_n: bool) -> list[str]:
    spread = percent_interval(peak["accuracy_low"], peak["accuracy_high"])
    head = [f"{artifact} tells most at ", Strong(f"layer {int(peak['layer'])}"), f": {percent(peak['accuracy'])} "]
    n = f", 95 % interval, {counted(int(peak['n_subjects']), 'subject')}" if with_n else ""
    head.append(f"({spread}{n})")
    if peak["layer"] == deepest["layer"]:
        return [*head, ", the deepest audited."]
    other = percent_interval(deepest["accuracy_low"], deepest["accuracy_high"])
    return [*head, f"; {percent(deepest['accuracy'])} ({other}) at layer {int(deepest['layer'])}, the deepest."]


def missing_cells(cells: pd.DataFrame) -> int:
    """Number of artifact and layer pairs without a finite accuracy: said beside the picture, never hidden."""
    wanted = cells["artifact"].nunique() * cells["layer"].nunique()
    return int(wanted - cells["accuracy"].map(known).sum())


def probes_in(rows: pd.DataFrame) -> str:
    """The attackers whose strongest a place shows, in words."""
    names = [str(p) for p in dict.fromkeys(rows["probe"])]
    return names[0] if len(names) == 1 else f"the strongest of {listed(names)} in each place"
