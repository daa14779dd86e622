"""Several processes that train one run, as `accelerate launch` starts them. In: a spec. Out: nothing but their share.

The first process keeps the run: it alone writes, measures and asks. The others read the same rows, load the same model
each on its own device, wait for the training to begin, and leave when it is done.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from auditcore.errors import SpecError
from auditcore.spec import AnySpec, SurfaceLoraSpec


def number() -> int:
    """Which of the processes started together this one is; 0 for the first, and for a process alone."""
    return int(os.environ.get("RANK", "0")) if several() else 0


def several() -> bool:
    """Whether this process was started together with others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def require_one(spec: AnySpec) -> None:
    """Raise SpecError for work that several processes would each do anew."""
    if several() and not isinstance(spec, SurfaceLoraSpec):
        raise SpecError(f"kind {spec.kind} runs in one process; several train kind surfacelora only.")


def meet(spec: SurfaceLoraSpec) -> Any:
    """`training.workers.Workers`: wait until every process is there. Nothing is awaited by a process alone."""
    from auditcore.lm.load import pick_device
    from auditcore.training.workers import Workers

    return Workers(pick_device(spec.model.device))


def dismiss(spec: AnySpec) -> None:
    """Tell the other processes, where there are any, that nothing is left to train."""
    if several():
        assert isinstance(spec, SurfaceLoraSpec)
        meet(spec).told(None)


def follow(spec: AnySpec) -> None:
    """Take part in the training of the run that the first process keeps."""
    from auditcore.jobs.corpus import plain_data
    from auditcore.jobs.rows import Rows, tokenise
    from auditcore.jobs.surfacelora import lower_layers, split_rows, start_above, training_rows, without_test
    from auditcore.lm.load import load_model, load_tokenizer
    from auditcore.training.prompts import label_codes
    from auditcore.training.surfacelora import surfacelora

    require_one(spec)
    plain = plain_data(spec)
    assert isinstance(plain, SurfaceLoraSpec)
    folder = meet(plain).told(None)
    if folder is None:  # there is nothing left to train
        return
    dataset, _ = split_rows(plain)
    tokenizer = load_tokenizer(plain.model.source, plain.model.base)
    encoded = tokenise(tokenizer, dataset, plain.max_length)
    rows = without_test(Rows(dataset, encoded, dataset.frame)).with_exported(tokenizer, plain.max_length)
    train_rows, adversary_rows = training_rows(plain, rows.frame)
    labels = label_codes(rows.frame, plain.data.labels, adversary_rows)
    model = load_model(plain.model)
    start_above(plain, model, lower_layers(plain))
    groups = rows.frame["group"].tolist()
    surfacelora(
        model, rows.encoded, np.asarray(train_rows), labels, groups, plain, Path(folder), exported=rows.exported
    )
