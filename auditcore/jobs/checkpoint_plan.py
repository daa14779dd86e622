"""What training a mitigation and measuring its checkpoints would cost. In: a spec, its rows. Out: passes, bytes, words.

Counts are in forward passes of one token. Times are estimates for this machine; what dominates is said in the notes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from auditcore.decisions import default_declaration
from auditcore.jobs.defences import fit_rows, needs_fit
from auditcore.jobs.estimate import Plan
from auditcore.jobs.plan import power_of, sample
from auditcore.spec import FrontierSpec, SurfaceLoraSpec, dump_spec
from auditcore.words import duration

TEST = "bal_test"
# One fit of one seed on vectors of some 600 numbers and 1,600 rows, two processors; it grows with rows and width.
_PROBE_SECONDS = {"linear": 2.5, "mlp": 4.5}
_OTHER_PROBE_SECONDS = 6.0
_REFIT = 0.02  # of a fit: one refit on permuted labels
_DECODED = 8.0  # tokens forward that one generated token costs: it reads all weights for a few rows


@dataclass(frozen=True)
class Cost:
    """Cost of a planned run."""

    seconds: float
    notes: list[str]


def surfacelora_plan(spec: SurfaceLoraSpec, everything: Any, token_seconds: float) -> Plan:
    """Plan of a whole run. everything: the data set; token_seconds: of one token forward through the model."""
    from auditcore.jobs.surfacelora import used_rows, with_splits

    everything, notes = with_splits(spec, everything)
    dataset, left_out = used_rows(spec, everything)
    bench = _bench(spec, dataset)
    training = training_cost(spec, dataset.frame, bench.prompt_tokens, bench.row_tokens, token_seconds)
    kept = len(spec.checkpoint_steps)
    # Adapter and tokenizer of each checkpoint, and one state to resume from with two moments for each weight.
    size = 4 * _adapter_weights(spec) * (kept + 4) + 3_000_000 * kept
    notes = [*notes, *left_out, *training.notes]
    return _plan("surfacelora", spec, dataset, bench, kept + 1, token_seconds, training.seconds, size, notes)


def frontier_plan(spec: FrontierSpec, everything: Any, token_seconds: float) -> Plan:
    """The same for adapters that are there already."""
    from auditcore.jobs.adapters import used_rows
    from auditcore.lm.adapters import find_adapters

    dataset, notes = used_rows(spec, everything)
    found = find_adapters(spec.checkpoints.folder, spec.checkpoints.base, spec.checkpoints.check_base)
    usable = sum(c.reason is None for c in found)
    notes.append(f"{usable:,} of {len(found):,} folders hold an adapter that can be used.")
    notes += [f"Left out, {c.name}: {c.reason}." for c in found if c.reason is not None]
    return _plan("frontier", spec, dataset, _bench(spec, dataset), usable + 1, token_seconds, 0.0, 0, notes)


@dataclass(frozen=True)
class _Bench:
    """How many rows a checkpoint is measured on, and their mean tokens without and with the target."""

    probed: int
    fitted: int
    summarised: int
    remembered: int
    prompt_tokens: float
    row_tokens: float


def _bench(spec: SurfaceLoraSpec | FrontierSpec, dataset: Any) -> _Bench:
    from auditcore.jobs.checkpoints import CHOOSE, FIT, balanced_rows

    frame = dataset.frame
    seen = dataset.select(np.flatnonzero(frame["split"].ne(TEST).to_numpy(dtype=bool)))
    some = sample(spec, seen)
    rows = [balanced_rows(seen.frame, attribute, spec.seed) for attribute in spec.data.labels]
    set_aside = max(len(fit_rows(seen.frame, a)) for a in spec.data.labels) if needs_fit(spec) else 0
    return _Bench(
        probed=max(len(r[FIT]) + len(r[CHOOSE]) for r in rows) + set_aside,
        fitted=max(len(r[FIT]) for r in rows),
        summarised=min(spec.rouge_rows, int(frame["split"].eq(CHOOSE).sum())),
        remembered=min(2 * spec.membership_rows, int(frame["member"].notna().sum())),
        prompt_tokens=float(np.mean(some.prompt_lengths)),
        row_tokens=float(np.mean(some.lengths)),
    )


def _plan(
    kind: str,
    spec: SurfaceLoraSpec | FrontierSpec,
    dataset: Any,
    bench: _Bench,
    count: int,
    token_seconds: float,
    seconds: float,
    size: int,
    notes: list[str],
) -> Plan:
    """Join what was counted: dataset holds the rows that take part, `count` models are measured."""
    from auditcore.datasets.splits import balanced

    measured = evaluation_cost(spec, bench, token_seconds, count)
    frame, power = dataset.frame, []
    # What is declared unless somebody declares otherwise: the artifacts that are targeted, else all that are audited.
    artifacts = len(default_declaration(dump_spec(spec)).artifacts)
    for attribute in spec.data.labels if frame["split"].eq(TEST).any() else ():
        power.append(power_of(spec, attribute, frame.iloc[balanced(frame, attribute, TEST, spec.seed)], artifacts))
    rows = int(frame["split"].ne(TEST).sum())
    size += 4 * 600 * bench.probed * len(spec.audit) * count
    seconds += measured.seconds + 20
    notes = [*dataset.notes, *notes, *measured.notes]
    return Plan(kind, rows, int(rows * bench.row_tokens), seconds, size, power, [], notes)


def _adapter_weights(spec: SurfaceLoraSpec) -> int:
    """Numbers in an adapter, from the shapes in the headers of the model's files; 0 where they cannot be read."""
    from safetensors import safe_open

    from auditcore.lm.sources import local_folder, resolve

    found = resolve(spec.model.source, spec.model.base)
    if found.kind == "gguf":
        return 0
    total, named = 0, spec.lora.target_modules
    for file in local_folder(found).glob("*.safetensors"):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                shape, owner = tensors.get_slice(name).get_shape(), name.removesuffix(".weight")
                inside = ".layers." in name or ".h." in name
                wanted = (
                    inside
                    if named == "all-linear"
                    else "att" in owner.rsplit(".", 2)[-2]
                    if named is None
                    else (owner.rsplit(".", 1)[-1] in named)
                )
                if len(shape) == 2 and wanted:
                    total += spec.lora.r * sum(shape)
    return total


def training_cost(
    spec: SurfaceLoraSpec, frame: Any, prompt_tokens: float, row_tokens: float, token_seconds: float
) -> Cost:
    """Cost of the training alone.

    frame: the rows that take part; prompt_tokens, row_tokens: mean per row, without and with the target; token_seconds:
    of one token forward through the model.
    """
    from auditcore.jobs.surfacelora import training_rows

    train, adversary = training_rows(spec, frame)
    shape = spec.discriminator
    summarised = spec.batch_size * spec.gradient_accumulation
    # With frozen weights a backward pass costs about as much as the forward one.
    passes = summarised * row_tokens * (3.0 if spec.activation_checkpointing else 2.0)
    bank = 0.0
    turned = spec.steps - spec.lambda_begin if spec.strength else 0
    if turned:
        more = max(shape.rows - summarised, 0)
        each = summarised * prompt_tokens + more * prompt_tokens * (3.0 if spec.activation_checkpointing else 2.0)
        windows = -(-turned // shape.bank_every)
        fold = len(adversary) / max(shape.bank_kept + 1, len(adversary) // shape.bank_rows)
        bank = (windows + shape.bank_kept - 1) * fold * prompt_tokens
        passes += each * turned / spec.steps
    seconds = token_seconds * (passes * spec.steps + bank)
    notes = [
        f"{len(train):,} rows to summarise, {len(adversary):,} prompts for the adversaries; about "
        f"{duration(seconds / spec.steps)} a step."
    ]
    if spec.lora.upper_layers is not None:
        notes.append("The layers below the adapters are computed once a row and kept; the time above is without that.")
    seen = summarised * spec.steps / max(len(train), 1)
    notes.append(f"{spec.steps:,} steps of {summarised} summaries pass over the training rows {seen:.1f} times.")
    return Cost(seconds, notes)


def evaluation_cost(spec: SurfaceLoraSpec | FrontierSpec, bench: _Bench, token_seconds: float, count: int) -> Cost:
    """Cost of measuring `count` checkpoints, the model before training among them."""
    new_tokens = float(spec.max_new_tokens or max(bench.row_tokens - bench.prompt_tokens, 1.0))
    vectors = bench.probed * bench.prompt_tokens * token_seconds
    fits = 0.0
    for probe in spec.probes:
        one = _PROBE_SECONDS.get(probe, _OTHER_PROBE_SECONDS) * (len(spec.seeds) + _REFIT * spec.permutations)
        fits += one * sum(3.0 if artifact == "concat" else 1.0 for artifact in spec.audit)
    fits *= len(spec.data.labels) * max(bench.fitted / 1600, 0.1) * (1 + len(spec.defences))
    summaries = bench.summarised * (bench.prompt_tokens + _DECODED * new_tokens) * token_seconds
    membership = bench.remembered * bench.row_tokens * token_seconds
    each = vectors + fits + summaries + membership
    parts = [("vectors", vectors), ("probes", fits), ("summaries", summaries), ("membership", membership)]
    words = ", ".join(f"{duration(seconds)} for {name}" for name, seconds in parts if seconds)
    return Cost(each * count, [f"Each of {count} checkpoints is measured in about {duration(each)}: {words}."])
