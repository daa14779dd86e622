"""Train the mitigation. In: a surfacelora spec. Out: an adapter every so many steps, training_log, what each one leaks.

Rows of bal_test are named in `examples` and nothing more: they are left out before a model sees a row, and sealed until
the choice of a checkpoint is declared.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs import cache, sealed, together
from auditcore.jobs.ceilings import write_ceilings
from auditcore.jobs.checkpoints import Bench, Checkpoint
from auditcore.jobs.context import Context
from auditcore.jobs.defences import FIT, needs_fit
from auditcore.jobs.rows import Rows, load
from auditcore.spec import SurfaceLoraSpec

LOG_EVERY = 20.0  # seconds between two looks that a page can take at the training log


def train(context: Context) -> None:
    """Run the stages rows, one for the model before training, training, and one for each checkpoint.

    A checkpoint is measured as soon as it is there, with the model in memory. Training continues at its last saved
    step; a checkpoint that was saved and not measured to the end is measured from its folder first.
    """
    from auditcore.lm.load import load_model

    spec, run = context.spec, context.run
    assert isinstance(spec, SurfaceLoraSpec)
    rows, train_rows, labels = prepare(context)
    workers = together.meet(spec)
    bench = Bench(context, rows, _base_print(context), _seen_by_all(spec, rows, train_rows))
    write_ceilings(context, spec.prompt_template, rows.frame, bench.evaluated)
    for note in bench.notes():
        context.note(note)
    loaded: list[Any] = []
    lower = lower_layers(spec)

    def model() -> Any:
        if not loaded:
            loaded.append(load_model(spec.model))
            start_above(spec, loaded[0], lower)
            context.record(device=str(loaded[0].device), dtype=str(loaded[0].dtype))
        return loaded[0]

    bench.measure(Checkpoint("base", 0, 0.0, bench.base, model))
    for step in spec.checkpoint_steps:
        if (run.path / "checkpoints" / folder_name(step) / "adapter_config.json").is_file():
            bench.measure(_from_folder(context, step, lower))
    unfinished = not context.finished("training")
    workers.told(str(run.path.absolute()) if unfinished else None)
    if unfinished:
        _train(context, model(), rows, train_rows, labels, bench)
    for step in spec.checkpoint_steps:
        bench.measure(_from_folder(context, step, lower))
    if lower is not None:
        lower.flush()
    if not context.finished("claim"):
        with context.stage("claim"):
            from auditcore.claims import claim

            context.record(claim=claim(run.manifest, pd.DataFrame()))


def lower_layers(spec: SurfaceLoraSpec) -> Any:
    """What is known of the layers that the adapters leave alone, shared by all runs that leave the same ones alone."""
    import torch

    from auditcore.lm.prefix import Kept
    from auditcore.lm.sources import fingerprint

    if spec.lora.upper_layers is None:
        return None
    base = fingerprint(spec.model.source, spec.model.base)
    name = cache.key(version=1, model=base, upper=spec.lora.upper_layers, torch=torch.__version__)
    return Kept(cache.folder("lower-layers", name))


def start_above(spec: SurfaceLoraSpec, lm: Any, lower: Any) -> None:
    """Let the model's passes start at the lowest layer that carries an adapter, where that changes nothing."""
    from auditcore.lm.prefix import Prefix, may_keep
    from auditcore.lm.vectors import depth, resolve_layers

    if lower is None or spec.lora.upper_layers is None:
        return
    below = depth(lm) - spec.lora.upper_layers
    if resolve_layers([spec.layer], depth(lm), lm.source)[0] >= below and may_keep(lm.causal, below):
        Prefix(lm.causal, below, lower)


def prepare(context: Context) -> tuple[Rows, np.ndarray, Any]:
    """Stage rows. Returns the rows a model may see, positions of those that are summarised, and labels as codes."""
    from auditcore.lm.load import load_tokenizer
    from auditcore.training.prompts import label_codes

    spec = context.spec
    assert isinstance(spec, SurfaceLoraSpec)
    dataset, notes = split_rows(spec)
    sealed.seal(context.run, dataset)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    rows = without_test(load(context, dataset, tokenizer, more_notes=notes))
    rows = rows.with_exported(tokenizer, spec.max_length)
    sealed.require_open(rows.dataset, own=context.run)
    train_rows, adversary_rows = training_rows(spec, rows.frame)
    labels = label_codes(rows.frame, spec.data.labels, adversary_rows)
    known = int((labels.codes >= 0).any(axis=1).sum())
    context.record(counts={"train_rows": len(train_rows), "adversary_rows": known})
    return rows, train_rows, labels


def split_rows(spec: SurfaceLoraSpec) -> tuple[Any, list[str]]:
    """The rows that take part, each with its split, sealed ones among them; and words about the others."""
    from auditcore.datasets.roles import load_dataset

    everything, notes = with_splits(spec, load_dataset(spec.data, spec.prompt_template))
    dataset, left_out = used_rows(spec, everything)
    return dataset, [*notes, *left_out]


def _train(context: Context, model: Any, rows: Rows, train_rows: np.ndarray, labels: Any, bench: Bench) -> None:
    """Stage training; checkpoints are measured as they come."""
    from auditcore.lm.sources import fingerprint
    from auditcore.training.rows import text_hashes
    from auditcore.training.surfacelora import surfacelora

    spec, run = context.spec, context.run
    assert isinstance(spec, SurfaceLoraSpec)
    log = _Log(context)
    with context.stage("training", spec.steps) as on_progress:

        def on_step(step: int, total: int, row: dict[str, Any]) -> None:
            log.add(row)
            on_progress(step, total)

        def on_checkpoint(step: int, folder: Path, trained: Any) -> None:
            log.write()
            print_ = fingerprint(folder, spec.model.source)
            bench.measure(Checkpoint(folder.name, step, spec.strength, print_, lambda: trained))

        result = surfacelora(
            model,
            rows.encoded,
            train_rows,
            labels,
            rows.frame["group"].tolist(),
            spec,
            run.path,
            on_step,
            on_checkpoint,
            example_ids=rows.frame["example_id"].tolist(),
            text_hashes=text_hashes(rows.dataset.texts()),
            exported=rows.exported,
        )
        run.write("training_log", result.log)
        context.record(training={"steps": spec.steps, "autocast": result.autocast})
        for note in result.notes:
            context.note(note)


def _base_print(context: Context) -> str:
    from auditcore.lm.sources import fingerprint

    spec = context.spec
    assert isinstance(spec, SurfaceLoraSpec)
    found = fingerprint(spec.model.source, spec.model.base)
    context.fingerprint("checkpoint 0", model=found)
    return found


def _from_folder(context: Context, step: int, lower: Any) -> Checkpoint:
    from auditcore.lm.load import load_model
    from auditcore.lm.sources import fingerprint

    spec, folder = context.spec, context.run.path / "checkpoints" / folder_name(step)
    assert isinstance(spec, SurfaceLoraSpec)
    adapter = spec.model.model_copy(update={"source": str(folder), "base": spec.model.source})
    print_ = fingerprint(folder, spec.model.source)

    def model() -> Any:
        lm = load_model(adapter)
        start_above(spec, lm, lower)
        return lm

    return Checkpoint(folder.name, step, spec.strength, print_, model)


def folder_name(step: int) -> str:
    """Folder of a checkpoint, below checkpoints/ of the run."""
    return f"step-{step:06d}"


def _seen_by_all(spec: SurfaceLoraSpec, rows: Rows, train_rows: np.ndarray) -> np.ndarray:
    """Training rows that the first checkpoint has used already: members at every checkpoint."""
    from auditcore.training.trainer import Task

    task = Task(rows.encoded, train_rows, np.zeros(0, dtype=np.int64), spec, "", None)
    return task.seen(min(spec.checkpoint_every, spec.steps))


def with_splits(spec: SurfaceLoraSpec, dataset: Any) -> tuple[Any, list[str]]:
    """The data set with every row's split, made here when the data brings none, and words about that."""
    from auditcore.datasets.splits import training_splits

    frame = training_splits(dataset.frame, spec.data.labels, spec.seed)
    dataset = dataset.select(np.arange(len(frame)), frame=frame)
    if "split" in spec.data.roles:
        return dataset, []
    counts = ", ".join(f"{split} {int(n):,} rows" for split, n in frame["split"].value_counts().items())
    return dataset, [f"The data has no split; subjects were assigned at random, stratified by label: {counts}."]


def used_rows(spec: SurfaceLoraSpec, dataset: Any) -> tuple[Any, list[str]]:
    """Keep the rows that are trained on, choose a checkpoint or test the choice; and words for what is left out."""
    used = {*spec.train_splits, *spec.adversary_splits, "bal_train", "bal_val", sealed.TEST}
    used |= {FIT} if needs_fit(spec) else set()
    split = dataset.frame["split"]
    keep = split.isin(list(used)).to_numpy(dtype=bool)
    if spec.membership_rows:
        keep = keep | dataset.frame["member"].notna().to_numpy(dtype=bool)
    notes = [
        f"{n:,} rows of {name} take no part." for name, n in split[~keep].fillna("no split").value_counts().items()
    ]
    waiting = int(split.eq(sealed.TEST).sum())
    if waiting:
        notes.append(
            f"{waiting:,} rows of bal_test were sealed when the run began: no model sees them before a choice is "
            "declared and locked."
        )
    else:
        notes.append("There are no bal_test rows: checkpoints can be compared, but no choice can be tested.")
    return dataset.select(np.flatnonzero(keep)), notes


def without_test(rows: Rows) -> Rows:
    """The rows that a model may see before a choice of a checkpoint is declared."""
    seen = np.flatnonzero(rows.frame["split"].ne(sealed.TEST).to_numpy(dtype=bool))
    return rows.select(seen)


def training_rows(spec: SurfaceLoraSpec, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the rows whose summaries are learnt, and of those whose prompts the adversaries read."""
    train = np.flatnonzero(frame["split"].isin(spec.train_splits).to_numpy(dtype=bool))
    if not len(train):
        raise DatasetError(f"nothing to train on: no row is in {' or '.join(spec.train_splits)}.")
    wrong = (frame["member"].astype("boolean").iloc[train] == False).fillna(False).to_numpy(dtype=bool)  # noqa: E712
    if wrong.any():
        first = frame["example_id"].iloc[train[int(wrong.argmax())]]
        raise DatasetError(f"{int(wrong.sum()):,} rows to train on have member = false, first '{first}'.")
    return train, np.flatnonzero(frame["split"].isin(spec.adversary_splits).to_numpy(dtype=bool))


class _Log:
    """The training log as far as it is known; a page can read it while the training goes on."""

    def __init__(self, context: Context) -> None:
        self.run, self.written = context.run, time.monotonic()
        old = self.run.read("training_log").to_dict("records") if self.run.has("training_log") else []
        self.rows: dict[int, dict[Any, Any]] = {int(row["step"]): row for row in old}

    def add(self, row: dict[str, Any]) -> None:
        self.rows[row["step"]] = row
        if time.monotonic() - self.written > LOG_EVERY:
            self.write()

    def write(self) -> None:
        from auditcore.training.results import log_table
        from auditcore.training.surfacelora import LOG_COLUMNS

        self.run.write("training_log", log_table([self.rows[step] for step in sorted(self.rows)], LOG_COLUMNS))
        self.written = time.monotonic()
