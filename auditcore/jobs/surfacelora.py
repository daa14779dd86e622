"""Train the mitigation. In: a surfacelora spec. Out: an adapter every so many steps, training_log, what each one leaks.

Rows of bal_test are named in `examples` and nothing more: they are left out before a model sees a row, and sealed until
the choice of a checkpoint is declared.
"""

import time
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs import sealed
from auditcore.jobs.context import Context
from auditcore.jobs.rows import Rows, load
from auditcore.spec import SurfaceLoraSpec

LOG_EVERY = 20.0  # seconds between two looks that a page can take at the training log


def train(context: Context) -> None:
    """Run the stages rows and training; training continues at its last saved step."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_model, load_tokenizer
    from auditcore.training.prompts import label_codes
    from auditcore.training.rows import text_hashes
    from auditcore.training.surfacelora import surfacelora

    spec, run = context.spec, context.run
    assert isinstance(spec, SurfaceLoraSpec)
    everything, notes = with_splits(spec, load_dataset(spec.data, spec.prompt_template))
    dataset, left_out = used_rows(spec, everything)
    sealed.seal(run, dataset)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    rows = without_test(load(context, dataset, tokenizer, more_notes=[*notes, *left_out]))
    sealed.require_open(rows.dataset, own=run)
    train_rows, adversary_rows = training_rows(spec, rows.frame)
    labels = label_codes(rows.frame, spec.data.labels, adversary_rows)
    model = load_model(spec.model)
    context.fingerprint("training", model=model.fingerprint)
    context.record(
        device=str(model.device),
        dtype=str(model.dtype),
        counts={"train_rows": len(train_rows), "adversary_rows": int((labels.codes >= 0).any(axis=1).sum())},
    )
    if context.finished("training"):
        return
    log = _Log(context)
    with context.stage("training", spec.steps) as on_progress:

        def on_step(step: int, total: int, row: dict[str, Any]) -> None:
            log.add(row)
            on_progress(step, total)

        result = surfacelora(
            model,
            rows.encoded,
            train_rows,
            labels,
            rows.frame["group"].tolist(),
            spec,
            run.path,
            on_step,
            example_ids=rows.frame["example_id"].tolist(),
            text_hashes=text_hashes(rows.dataset.texts()),
        )
        run.write("training_log", result.log)
        context.record(training={"steps": spec.steps, "autocast": result.autocast})
        for note in result.notes:
            context.note(note)


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
    split = dataset.frame["split"]
    keep = split.isin(list(used)).to_numpy(dtype=bool)
    notes = [
        f"{n:,} rows of {name} take no part." for name, n in split[~keep].fillna("no split").value_counts().items()
    ]
    waiting = int(split.eq(sealed.TEST).sum())
    if waiting:
        notes.append(f"{waiting:,} rows of bal_test are sealed: no model sees them before a choice is declared.")
    else:
        notes.append("There are no bal_test rows: checkpoints can be compared, but no choice can be tested.")
    return dataset.select(np.flatnonzero(keep)), notes


def without_test(rows: Rows) -> Rows:
    """The rows that a model may see before a choice of a checkpoint is declared."""
    seen = np.flatnonzero(rows.frame["split"].ne(sealed.TEST).to_numpy(dtype=bool))
    frame = rows.frame.iloc[seen].reset_index(drop=True)
    return Rows(rows.dataset.select(seen), rows.encoded.select(seen), frame)


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
        from auditcore.training.surfacelora import log_table

        self.rows[row["step"]] = row
        if time.monotonic() - self.written > LOG_EVERY:
            self.run.write("training_log", log_table([self.rows[step] for step in sorted(self.rows)]))
            self.written = time.monotonic()
