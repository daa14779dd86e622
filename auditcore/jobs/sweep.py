"""Does the fine-tuning method decide? In: a sweep spec. Out: leakage of every checkpoint, and pairs of equal loss.

Each variant is a stage: it is fine-tuned, its checkpoints are scored and, where they are whole models, deleted again.
"""

import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import SpecError
from auditcore.jobs import evidence
from auditcore.jobs.context import Context, OnProgress
from auditcore.jobs.membership import blind_baseline, without_duplicates
from auditcore.jobs.rows import Rows, load
from auditcore.spec import FinetuneSpec, MembershipSpec, SweepSpec, dump_spec, parse_spec

_SERVED = {"reference", "moments", "reference_moments", "lowercase", "zlib"}  # what forward passes give
CHECKPOINT = ["variant", "method", "rank", "learning_rate", "step", "epoch", "train_loss", "validation_loss"]


def audit(context: Context) -> None:
    """Run the stages rows, duplicates, blind baseline, one per variant, and metrics."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import fingerprint, load_tokenizer
    from auditcore.training.rows import select_rows

    spec = context.spec
    assert isinstance(spec, SweepSpec)
    _only_cheap(spec)
    variants = trainings(spec)
    dataset = load_dataset(spec.data, spec.prompt_template)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    rows = load(context, dataset, tokenizer)
    train, validation = select_rows(rows.frame, next(iter(variants.values())))
    member = rows.frame["member"].astype("boolean")
    unseen = np.setdiff1d(np.flatnonzero(member.fillna(False).to_numpy(dtype=bool)), train)
    member = member.mask(np.isin(np.arange(len(member)), np.union1d(validation, unseen)), pd.NA)
    member = without_duplicates(context, rows, member, spec.on_duplicates)
    blind_baseline(context, rows, member)
    context.record(
        counts={"train_rows": len(train), "validation_rows": len(validation)},
    )
    context.fingerprint(f"variant 1 of {len(variants)}", model=fingerprint(spec.model.source, spec.model.base))

    for number, (name, training) in enumerate(variants.items(), 1):
        stage = f"variant {number} of {len(variants)}"
        if not context.finished(stage):
            with context.stage(stage) as on_progress:
                table = _one(context, rows, name, training, number, (train, validation), member, on_progress)
                context.run.write(_table(number), table)
        if training.method == "full":  # also what a kill left behind
            shutil.rmtree(_folder(context, number), ignore_errors=True)
    if not context.finished("metrics"):
        with context.stage("metrics"):
            _metrics(context, rows, len(variants))


def trainings(spec: SweepSpec) -> dict[str, FinetuneSpec]:
    """Every variant's name and training, in the order of the spec. Raises SpecError when two are the same."""
    found: dict[str, FinetuneSpec] = {}
    whole = dump_spec(spec)
    shared = {key: whole[key] for key in ("model", "data", "template", "max_length", "batch_size", "seed", "threads")}
    shared |= {key: whole[key] for key in ("validation", "schedule", "autocast", "store_text")}
    for variant in spec.variants:
        ranks: list[int | None] = list(variant.rank) if variant.method == "lora" else [None]
        for rank, rate in product(ranks, variant.learning_rate):
            name = f"{variant.method}{f' r{rank}' if rank else ''} {rate:g}"
            if name in found:
                raise SpecError(f"variants: '{name}' is there twice; name each method, rank and learning_rate once.")
            how: dict[str, Any] = {"method": variant.method, "learning_rate": rate, "epochs": variant.epochs}
            if rank:
                lora = {"r": rank, "alpha": 2 * rank, "dropout": variant.dropout}
                how["lora"] = {**lora, "target_modules": variant.target_modules}
            raw = {"kind": "finetune", **shared, **how, "max_steps": variant.max_steps}
            made = parse_spec(raw, f"variant {name}")
            assert isinstance(made, FinetuneSpec)
            found[name] = made
    return found


def _only_cheap(spec: SweepSpec) -> None:
    for attack in spec.attacks:
        dear = evidence.needs([attack]) - _SERVED
        if dear:
            raise SpecError(
                f"attacks: '{attack}' trains or generates for every checkpoint; a sweep takes attacks that need "
                "forward passes only. Audit single checkpoints with kind: membership."
            )


def _one(
    context: Context,
    rows: Rows,
    name: str,
    training: FinetuneSpec,
    number: int,
    used: tuple[np.ndarray, np.ndarray],
    member: pd.Series,
    on_progress: OnProgress,
) -> pd.DataFrame:
    """Train one variant and score all rows under each of its checkpoints."""
    from auditcore.lm.load import load_model
    from auditcore.training.finetune import finetune
    from auditcore.training.trainer import Task

    spec = context.spec
    assert isinstance(spec, SweepSpec)
    per_epoch = Task(rows.encoded, *used, training, "", None).steps_per_epoch
    every = max(1, per_epoch // spec.checkpoints_per_epoch)
    training = training.model_copy(update={"checkpoint_every": every})
    base = load_model(training.model)
    result = finetune(
        base,
        rows.encoded,
        *used,
        training,
        _folder(context, number),
        on_step=lambda step, total, _: on_progress(step, total + 1),
    )
    del base
    told = result.log[result.log["step"] % every == 0]
    last = result.log[result.log["step"] == result.steps]
    kept = pd.concat([told, last]).drop_duplicates("step")
    tables = []
    for line in kept.to_dict("records"):
        folder = _folder(context, number) / "checkpoints" / f"step-{int(line['step']):06d}"
        before = result.log[(result.log["step"] <= line["step"]) & (result.log["step"] > line["step"] - every)]
        facts = {
            "variant": name,
            "method": training.method,
            "rank": training.lora.r if training.method == "lora" else None,
            "learning_rate": training.learning_rate,
            "step": int(line["step"]),
            "epoch": float(line["epoch"]),
            "train_loss": float(before["lm_loss"].mean()),
            "validation_loss": line["validation_loss"],
        }
        table = _scores(context, rows, folder, member)
        tables.append(table.assign(**{key: facts[key] for key in CHECKPOINT}))
    return pd.concat(tables, ignore_index=True).astype({"rank": "Int64", "validation_loss": "float64"})


def _scores(context: Context, rows: Rows, folder: Path, member: pd.Series) -> pd.DataFrame:
    """Table `membership_scores` of one checkpoint against the model it started from."""
    from auditcore.lm.load import fingerprint, load_model, load_tokenizer
    from auditcore.membership.scores import score_table

    spec = context.spec
    assert isinstance(spec, SweepSpec)
    one = _membership(spec, folder)
    needed = evidence.needs(spec.attacks)
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    prints = {
        "target": fingerprint(one.model.source, one.model.base),
        "reference": fingerprint(spec.model.source, spec.model.base),
    }
    found: dict[str, dict[str, np.ndarray]] = {}
    models: dict[str, Any] = {}

    def model(which: str) -> Any:
        if which not in models:
            models.clear()  # one whole model at a time
            models[which] = load_model(one.model, None if which == "target" else spec.model.source)
        return models[which]

    for step in evidence.plan(one, rows.dataset, rows.encoded, tokenizer, needed):
        found[step.name] = step.arrays(
            one, prints[step.model], partial(model, step.model), lambda done, total: context.check_cancelled()
        )
    tokens = evidence.tokens(one, rows.dataset, rows.encoded, tokenizer, needed, found, None)
    ids = rows.frame["example_id"].tolist()
    table = score_table(tokens, spec.attacks, ids, member, ez_policy=spec.ez_policy, skip_first=spec.skip_first)
    return table[["example_id", "member", "attack", "rank_score", "status"]]


def _membership(spec: SweepSpec, folder: Path) -> MembershipSpec:
    """The membership audit of one checkpoint."""
    whole = dump_spec(spec)
    keys = ("data", "template", "max_length", "batch_size", "seed", "threads", "attacks", "ez_policy", "skip_first")
    model = {**whole["model"], "source": str(folder), "reference": spec.model.source}
    if (folder / "adapter_config.json").is_file():
        model["base"] = spec.model.source
    raw = {"kind": "membership", "model": model, "score": spec.score, **{key: whole[key] for key in keys}}
    made = parse_spec(raw)
    assert isinstance(made, MembershipSpec)
    return made


def _metrics(context: Context, rows: Rows, count: int) -> None:
    """Tables `sweep` (checkpoint x attack x metric) and `matched` (method pair x attack x metric)."""
    from auditcore.claims import claim
    from auditcore.membership.roc import attack_metrics

    spec = context.spec
    assert isinstance(spec, SweepSpec)
    groups = rows.frame.set_index("example_id")["group"]
    scores: dict[int, pd.DataFrame] = {}
    lines: list[pd.DataFrame] = []
    facts: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        table = context.run.read(_table(number))
        for _, one in table.groupby("step", sort=True):
            metrics, _ = attack_metrics(one, groups, spec.target_fprs, spec.n_boot, spec.seed)
            about = {key: one[key].iloc[0] for key in CHECKPOINT}
            scores[len(facts)] = one
            facts.append(about)
            lines.append(metrics.assign(**about)[[*CHECKPOINT, *metrics.columns]])
    checkpoints = pd.DataFrame(facts, columns=CHECKPOINT)
    context.run.write("sweep", pd.concat(lines, ignore_index=True).astype({"rank": "Int64"}))
    context.run.write("matched", _matched(context, checkpoints, scores, groups.to_dict()))
    first = scores[0]
    known = first.loc[first["attack"] == spec.attacks[0], "member"].astype("boolean")
    counts = {"members": int(known.fillna(False).sum()), "nonmembers": int((~known).fillna(False).sum())}
    context.record(counts=counts)
    context.record(claim=claim(context.run.manifest, pd.DataFrame()))


def _matched(
    context: Context, checkpoints: pd.DataFrame, scores: dict[int, pd.DataFrame], groups: dict[Any, Any]
) -> pd.DataFrame:
    from auditcore.membership.matched import difference_at_equal_loss, pair_at_equal_loss

    spec = context.spec
    assert isinstance(spec, SweepSpec)
    columns = ["variant_a", "step_a", "loss_a", "variant_b", "step_b", "loss_b", "matched", "attack", "metric"]
    columns += ["target_fpr", "value_a", "value_b", "difference", "low", "high", "n_member", "n_nonmember"]
    pair = pair_at_equal_loss(checkpoints, "full", "lora", spec.tolerance)
    if pair is None:
        context.warn("No pair at equal validation loss: it takes variants of both methods, and validation rows.")
        return pd.DataFrame(columns=columns)
    a, b = checkpoints.iloc[pair.a], checkpoints.iloc[pair.b]
    if not pair.matched:
        context.warn(
            f"The two methods have no checkpoints of equal validation loss: the nearest are {a['variant']} step "
            f"{a['step']} with {pair.loss_a:.3f} and {b['variant']} step {b['step']} with {pair.loss_b:.3f} nats per "
            f"token (tolerance {spec.tolerance:g}). Part of their difference is how much they learnt; more epochs, "
            "other rates or more checkpoints_per_epoch bring them nearer."
        )
    found = difference_at_equal_loss(pair, scores, groups, spec.target_fprs, spec.n_boot, spec.seed)
    found = found.assign(
        variant_a=a["variant"], step_a=int(a["step"]), loss_a=pair.loss_a,
        variant_b=b["variant"], step_b=int(b["step"]), loss_b=pair.loss_b, matched=pair.matched,
    )  # fmt: skip
    return found.reindex(columns=columns)


def _folder(context: Context, number: int) -> Path:
    return context.run.path / "variants" / f"{number:02d}"


def _table(number: int) -> str:
    return f"variant_{number:02d}"
