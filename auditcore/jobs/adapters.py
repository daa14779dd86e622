"""Checkpoints that are there already. In: a frontier spec, which names a folder of adapters. Out: what each one leaks.

The base is loaded once; adapters take turns on it. What cannot be used is listed in the table `skipped` with its
reason, and the others are measured all the same.
"""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import ModelError
from auditcore.jobs import sealed
from auditcore.jobs.ceilings import write_ceilings
from auditcore.jobs.checkpoints import Bench, Checkpoint
from auditcore.jobs.context import Context
from auditcore.jobs.defences import FIT, needs_fit
from auditcore.jobs.rows import Rows, load
from auditcore.jobs.surfacelora import without_test
from auditcore.spec import FrontierSpec

BAL = ("bal_train", "bal_val", sealed.TEST)


def audit(context: Context) -> None:
    """Run the stages rows, adapters, one for the base, and one for each adapter that can be used."""
    from auditcore.claims import claim
    from auditcore.lm.sources import fingerprint

    spec, run = context.spec, context.run
    assert isinstance(spec, FrontierSpec)
    rows = _rows(context)
    base = fingerprint(spec.checkpoints.base)
    context.fingerprint("checkpoint 0", model=base)
    adapters = _adapters(context)
    bench = Bench(context, rows, base)
    write_ceilings(context, spec.prompt_template, rows.frame, bench.evaluated)
    for note in bench.notes():
        context.note(note)
    turns = _Turns(context)
    bench.measure(Checkpoint("base", 0, 0.0, base, turns.base))
    measured = 0
    for line in adapters.to_dict("records"):
        one = Checkpoint(
            str(line["checkpoint"]),
            int(line["step"]),
            None if pd.isna(line["lambda"]) else float(line["lambda"]),
            str(line["fingerprint"]),
            lambda path=str(line["path"]): turns.adapter(path),  # type: ignore[misc]
        )
        try:
            bench.measure(one)
            measured += 1
        except ModelError as error:
            skip(context, one.name, str(error))
    if not measured:
        raise ModelError(_none_usable(spec, run.read("skipped")))
    if not context.finished("claim"):
        with context.stage("claim"):
            context.record(claim=claim(run.manifest, pd.DataFrame()))


def _rows(context: Context) -> Rows:
    """Stage rows; returns what a model may see."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_tokenizer

    spec = context.spec
    assert isinstance(spec, FrontierSpec)
    dataset, notes = used_rows(spec, load_dataset(spec.data, spec.prompt_template))
    sealed.seal(context.run, dataset)
    tokenizer = load_tokenizer(spec.checkpoints.base)
    rows = without_test(load(context, dataset, tokenizer, more_notes=notes)).with_exported(tokenizer, spec.max_length)
    sealed.require_open(rows.dataset, own=context.run)
    return rows


def used_rows(spec: FrontierSpec, dataset: Any) -> tuple[Any, list[str]]:
    """Keep the rows of the bal_* splits, and what the membership attack needs; and words for what is left out."""
    from auditcore.datasets.splits import checkpoint_splits

    frame = checkpoint_splits(dataset.frame, spec.data.labels, spec.seed, needs_fit(spec))
    keep = frame["split"].isin([*BAL, *([FIT] if needs_fit(spec) else [])]).to_numpy(dtype=bool)
    if spec.membership_rows:
        keep = keep | frame["member"].notna().to_numpy(dtype=bool)
    left = frame.loc[~keep, "split"].fillna("no split").value_counts()
    notes = [f"{n:,} rows of {name} take no part." for name, n in left.items()]
    if "split" not in spec.data.roles:
        notes.append(
            "The data has no split; subjects were assigned at random, stratified by label. Rows that an adapter was "
            "trained on may be among those it is judged on: map the split role to keep them apart."
        )
    return dataset.select(np.flatnonzero(keep), frame=frame), notes


def _adapters(context: Context) -> pd.DataFrame:
    """Stage adapters: table `adapters` (checkpoint, step, lambda, path, fingerprint) and table `skipped`."""
    from auditcore.lm.adapters import find_adapters
    from auditcore.lm.sources import fingerprint

    spec, run = context.spec, context.run
    assert isinstance(spec, FrontierSpec)
    if context.finished("adapters"):
        known = run.read("adapters")
        for line in known.to_dict("records"):
            if not context.finished(f"checkpoint {line['step']}"):
                continue
            if fingerprint(str(line["path"]), spec.checkpoints.base) != line["fingerprint"]:
                raise ModelError(f"adapter {line['checkpoint']} changed since this run began; start a new run.")
        return known
    with context.stage("adapters"):
        folder = spec.checkpoints
        found = find_adapters(folder.folder, folder.base, folder.check_base)
        usable = [c for c in found if c.reason is None]
        records = [_record(c.path) for c in usable]
        table = pd.DataFrame(
            {
                "checkpoint": [c.name for c in usable],
                "step": steps_of(records),
                "lambda": [r.get("lambda") for r in records],
                "path": [str(c.path) for c in usable],
                "fingerprint": [fingerprint(c.path, folder.base) for c in usable],
            }
        ).astype({"checkpoint": "str", "step": "int64", "lambda": "float64", "path": "str", "fingerprint": "str"})
        numbered = table["step"].tolist() != [r.get("step") for r in records]
        table = table.sort_values("step", kind="stable", ignore_index=True)
        run.write("adapters", table)
        left_out = [(c.name, c.reason) for c in found if c.reason is not None]
        run.write("skipped", pd.DataFrame(left_out, columns=["checkpoint", "reason"]).astype("str"))
        context.record(counts={"adapters": len(usable), "skipped": len(left_out)})
        if not usable:
            raise ModelError(_none_usable(spec, run.read("skipped")))
        how = "numbered in the order of their names" if numbered else "named by the steps in their training records"
        context.note(f"{len(usable):,} of {len(found):,} folders hold an adapter that can be used; they are {how}.")
        if left_out:
            context.warn(f"{len(left_out):,} of {len(found):,} folders cannot be used; their reasons are listed.")
    return table


def steps_of(records: list[dict[str, Any]]) -> list[int]:
    """A step for each adapter: its own, where all have one and no two the same; else 1, 2, 3 ..."""
    own = [r.get("step") for r in records]
    if all(type(s) is int and s > 0 for s in own) and len(set(own)) == len(own):
        return [int(s) for s in own if s is not None]
    return list(range(1, len(records) + 1))


def _record(path: Any) -> dict[str, Any]:
    """What a checkpoint folder says about its training; lambda as a number or not at all."""
    from auditcore.training.checkpoint import read_record

    found = read_record(path) or {}
    strength = found.get("lambda")
    known = {"step": found.get("step")} if type(found.get("step")) is int else {}
    if isinstance(strength, (int, float)) and not isinstance(strength, bool) and np.isfinite(strength):
        known["lambda"] = float(strength)
    return known


def skip(context: Context, name: str, reason: str) -> None:
    """List an adapter that only loading showed to be unusable."""
    run = context.run
    table = run.read("skipped")
    if name not in set(table["checkpoint"]):
        line = pd.DataFrame({"checkpoint": [name], "reason": [reason]}).astype("str")
        run.write("skipped", pd.concat([table, line], ignore_index=True))
    context.warn("Some adapters could not be applied; their reasons are listed.")


def _none_usable(spec: FrontierSpec, skipped: pd.DataFrame) -> str:
    first = f"{skipped['checkpoint'].iloc[0]}: {skipped['reason'].iloc[0]}" if len(skipped) else "it is empty"
    return f"checkpoints.folder {spec.checkpoints.folder}: none of {len(skipped)} folders can be used. First, {first}"


class _Turns:
    """One base in memory, on which adapters take turns."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.loaded: Any = None
        self.on: Any = None
        self.path = ""

    def base(self) -> Any:
        """The base without any adapter."""
        from auditcore.lm.load import load_model, without_adapter

        spec = self.context.spec
        assert isinstance(spec, FrontierSpec)
        if self.on is not None:
            without_adapter(self.on)
            self.on, self.path = None, ""
        if self.loaded is None:
            self.loaded = load_model(spec.model)
            self.context.record(device=str(self.loaded.device), dtype=str(self.loaded.dtype))
        return self.loaded

    def adapter(self, path: str) -> Any:
        """The base with this adapter on it. Raises ModelError when it cannot be applied."""
        from auditcore.lm.load import with_adapter

        if self.path != path:
            base = self.base()
            try:
                self.on, self.path = with_adapter(base, path), path
            except ModelError:
                self.loaded = None  # half an adapter may sit in it
                raise
        return self.on
