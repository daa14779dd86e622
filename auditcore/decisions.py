"""Runs that trained or compared checkpoints in; what is declared, chosen by the rule, locked and decided out.

Pages, command line, report and jobs all ask here, so that all of them speak of the same choice. No torch, no streamlit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from auditcore import frontier, records
from auditcore.errors import RunError, SpecError
from auditcore.frontier import Declaration, Rebound, Selection
from auditcore.spec import ARTIFACTS
from auditcore.store import Run

KINDS = ("surfacelora", "frontier")
DEFENDED = "checkpoint_defences"  # the table of what is left behind a defence on the exported vectors
Read = Callable[[Run, str], pd.DataFrame]


def read_table(run: Run, table: str) -> pd.DataFrame:
    """Read a whole table (pages pass a cached reader instead)."""
    return run.read(table)


def has_checkpoints(run: Run) -> bool:
    """True for a run of checkpoints that has measured at least one."""
    return run.kind in KINDS and run.has("checkpoints")


def default_declaration(spec: dict[str, Any]) -> Declaration:
    """What a spec declares by itself: its budget, every label, the targeted (else every) artifact, every probe."""
    label = spec["data"]["roles"].get("label", [])
    return Declaration(
        budget=float(spec["budget"]),
        attributes=(label,) if isinstance(label, str) else tuple(label),
        artifacts=tuple(spec.get("targets") or spec["audit"]),
        attackers=tuple(spec["probes"]),
        seeds=tuple(spec["seeds"]),
        select_on=spec.get("select_on") or "point",
    )


def declared(run: Run) -> Declaration:
    """What holds for this run: what was locked, else what was declared last, else what its spec says."""
    record = locked(run) or records.latest(run, "declaration")
    if record is not None:
        return Declaration.read(record["content"]["declaration"])
    return default_declaration(run.manifest["spec"])


def locked(run: Run) -> dict[str, Any] | None:
    """The record that locked the choice of this run, or None."""
    found = records.read(run, "lock")
    return found[0] if found else None


def revealed(run: Run) -> dict[str, Any] | None:
    """The record of what the test rows said, or None."""
    found = records.read(run, "reveal")
    return found[0] if found else None


@dataclass(frozen=True)
class Frontier:
    """Checkpoints of one run or several, under one declaration. Numbers are those of the selection split."""

    runs: tuple[Run, ...]
    table: pd.DataFrame  # `checkpoints` of all of them
    declaration: Declaration

    @cached_property
    def points(self) -> pd.DataFrame:
        """`frontier.points` with a column `pareto`, within each attribute, artifact and layer; trained ones only."""
        found = frontier.points(self.table, self.declaration.attackers)
        trained = found[~frontier.is_base(found)]
        inside = pd.Series(False, index=found.index)
        for _, cell in trained.groupby(["attribute", "artifact", "layer"], dropna=False, sort=False):
            inside[cell.index] = frontier.pareto(cell["gap"].to_numpy(), cell["rougeL"].to_numpy())
        return found.assign(pareto=inside)

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """One row per trained checkpoint: the largest declared leak. Raises SpecError for what was never audited."""
        found = frontier.judged(self.table, self.declaration)
        return found[~frontier.is_base(found)].reset_index(drop=True)

    @cached_property
    def selection(self) -> Selection:
        """What the rule chooses among all candidates."""
        return frontier.select(self.candidates, self.declaration.budget, self.declaration.select_on)

    @cached_property
    def anchors(self) -> pd.DataFrame:
        """Base model and utility-only LoRA, per attribute, artifact and layer."""
        return frontier.anchors(self.points)

    def known(self, **computed: Any) -> "Frontier":
        """Take over what was computed from the same tables before: any of points, candidates, anchors."""
        self.__dict__.update(computed)
        return self

    @property
    def at(self) -> dict[str, Any] | None:
        """The chosen checkpoint, else the nearest: the row that a picture marks."""
        return self.selection.chosen or self.selection.nearest

    def point(self, run_id: str, step: int, attribute: str, artifact: str) -> dict[str, Any] | None:
        """One checkpoint on one artifact, as a row of `points`; None when it was not measured."""
        return self._by_place.get((run_id, step, attribute, artifact))

    def beside(self, at: dict[str, Any] | None, attribute: str) -> list[dict[str, Any]]:
        """One checkpoint (a row of `at`) on every artifact it was measured on: rows of `points`."""
        if at is None:
            return []
        found = [self.point(at["run_id"], int(at["step"]), attribute, a) for a in self.artifacts()]
        return [c for c in found if c is not None]

    @cached_property
    def _by_place(self) -> dict[tuple[str, int, str, str], dict[str, Any]]:
        rows = [{str(k): v for k, v in row.items()} for row in self.points.to_dict("records")]
        keys = [(str(r["run_id"]), int(r["step"]), str(r["attribute"]), str(r["artifact"])) for r in rows]
        return dict(zip(reversed(keys), reversed(rows), strict=True))  # of several layers, the first

    def artifacts(self) -> list[str]:
        """Artifacts in the order to show them: declared first, then as the spec names them."""
        found = [str(a) for a in self.points["artifact"].unique()]
        order = [*self.declaration.artifacts, *ARTIFACTS]
        return sorted(found, key=lambda a: order.index(a) if a in order else len(order))


def view(runs: Sequence[Run], declaration: Declaration | None = None, read: Read = read_table) -> Frontier:
    """Put the checkpoints of `runs` under one declaration, by default the first run's.

    Raises RunError when a run has no checkpoints or the runs do not speak of the same test rows.
    """
    if not runs:
        raise RunError("Name at least one run.")
    tables = []
    for run in runs:
        if not has_checkpoints(run):
            raise RunError(f"Run {run.id} has no measured checkpoint.")
        # A folder may be renamed; the name in the address is the folder's.
        tables.append(read(run, "checkpoints").assign(run_id=run.id))
    prints = {(run.manifest.get("fingerprints") or {}).get("data") for run in runs}
    if len(prints) > 1:
        raise RunError("These runs were audited on different data; their checkpoints cannot be compared.")
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    return Frontier(tuple(runs), table, declaration or declared(runs[0]))


def defended(seen: Frontier, read: Read = read_table) -> pd.DataFrame:
    """What is left where the exported vectors pass a defence too: `frontier.points` with a column `defence`.

    The model before training and every checkpoint, under the same attackers; none of them is a candidate of the rule.
    """
    parts = []
    for run in seen.runs:
        if not run.has(DEFENDED):
            continue
        table = read(run, DEFENDED).assign(run_id=run.id)
        for defence, rows in table.groupby("defence", sort=False):
            parts.append(frontier.points(rows, seen.declaration.attackers).assign(defence=defence))
    return pd.concat(parts, ignore_index=True) if parts else seen.points.iloc[:0].assign(defence=[])


def rebounds(run: Run, declaration: Declaration, n_boot: int = 2000) -> dict[tuple[str, str], Rebound]:
    """Rebound of each attribute and artifact of a run, under the declared attackers; absent where none can be told."""
    if not (run.has("predictions") and run.has("examples")):
        return {}
    rows = run.sql(
        """
        select p.attribute, p.artifact, p.layer, p.step, p.probe, p.example_id, any_value(p.actual) as actual,
               any_value(coalesce(e."group", p.example_id)) as "group", avg((p.actual = p.predicted)::double) as "right"
        from predictions p left join examples e using (example_id)
        where p.split = ? and p.step > 0 group by all order by all
        """,
        [frontier.SELECTION_SPLIT],
        ["predictions", "examples"],
    )
    found = {}
    for (attribute, artifact, _), cell in rows.groupby(["attribute", "artifact", "layer"], sort=False):
        one = frontier.rebound(cell, declaration.attackers, n_boot)
        if one is not None:
            found[str(attribute), str(artifact)] = one
    return found


def skipped(run: Run, read: Read = read_table) -> pd.DataFrame:
    """Checkpoints that were found but could not be measured: columns checkpoint, reason."""
    return read(run, "skipped") if run.has("skipped") else pd.DataFrame(columns=["checkpoint", "reason"])


def merge(base: Declaration, **changes: Any) -> Declaration:
    """The declaration with some parts replaced; None leaves a part as it is."""
    known = {k: v for k, v in changes.items() if v is not None}
    unknown = [k for k in known if k not in Declaration.__dataclass_fields__]
    if unknown:
        raise SpecError(f"'{unknown[0]}' is no part of a declaration.")
    return Declaration.read({**base.record(), **known})
