"""Which training rows does the model remember? In: a membership spec. Out: token statistics, scores, ROC, verdicts."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, SpecError
from auditcore.jobs import cache
from auditcore.jobs.context import Context, OnProgress
from auditcore.jobs.rows import Rows, load
from auditcore.spec import MembershipSpec


def audit(context: Context) -> None:
    """Run all stages that are not finished: rows, token statistics, scores, operating points."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_tokenizer

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    dataset = load_dataset(spec.data, spec.prompt_template)
    reference_source(spec)  # said before any work when it is missing
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    rows = load(context, dataset, tokenizer)
    member = _usable_members(context, rows)

    if not context.finished("token statistics"):
        with context.stage("token statistics", 2 * len(rows.frame)) as on_progress:
            statistics = token_statistics(context, rows, on_progress)
            _warn_when_equal(context, statistics)
            context.run.write("token_stats", _token_frame(rows, statistics, tokenizer, spec.store_text))
    else:
        statistics = token_statistics(context, rows, lambda done, total: None)

    if not context.finished("scores"):
        with context.stage("scores"):
            context.run.write("membership_scores", _scores(spec, rows, statistics, member))

    if not context.finished("operating points"):
        with context.stage("operating points"):
            _operating_points(context, rows)


def reference_source(spec: MembershipSpec) -> str:
    """The model before fine-tuning: the spec's, else the base of an adapter. Raises SpecError when there is none."""
    from auditcore.lm.load import resolve

    if spec.model.reference is not None:
        return spec.model.reference
    base = resolve(spec.model.source, spec.model.base).base
    if base is None:
        raise SpecError("model.reference is missing: name the model as it was before fine-tuning.")
    return base.text


def token_statistics(context: Context, rows: Rows, on_progress: OnProgress) -> Any:
    """Statistics under target and reference, each pass taken from the cache when the same tokens met the same model."""
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    reference = reference_source(spec)
    prints = {"model": _fingerprint(spec.model.source, spec.model.base), "reference": _fingerprint(reference, None)}
    context.record(fingerprints=prints)
    keys = {"target": _pass_key(spec, rows, prints["model"]), "reference": _pass_key(spec, rows, prints["reference"])}
    found = {which: arrays for which, key in keys.items() if (arrays := cache.load("tokens", key)) is not None}
    models = _models(context, [which for which in keys if which not in found])
    n = len(rows.frame)
    for number, which in enumerate(keys):
        if which not in found:
            found[which] = _one_pass(spec, models[which], rows, _shifted(on_progress, number * n, 2 * n))
            cache.save("tokens", keys[which], found[which])
        on_progress((number + 1) * n, 2 * n)
    return _combine(found["target"], found["reference"])


def _shifted(on_progress: OnProgress, start: int, total: int) -> OnProgress:
    return lambda done, _: on_progress(start + done, total)


def _models(context: Context, missing: list[str]) -> dict[str, Any]:
    """Load only what is needed; an adapter and its base share one copy."""
    from auditcore.lm.load import load_model, load_pair

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if not missing:
        return {}
    if len(missing) == 2:
        pair = load_pair(spec.model)
        models: dict[str, Any] = {"target": pair.target, "reference": pair.reference}
    elif missing == ["target"]:
        models = {"target": load_model(spec.model)}
    else:
        models = {"reference": load_model(spec.model, reference_source(spec))}
    one = next(iter(models.values()))
    context.record(device=str(one.device), dtype=str(one.dtype), precision=spec.model.precision)
    return models


def _one_pass(spec: MembershipSpec, model: Any, rows: Rows, on_batch: OnProgress) -> dict[str, np.ndarray]:
    from auditcore.lm.tokens import token_statistics as run_model

    result = run_model(model, None, rows.encoded, score=spec.score, batch_size=spec.batch_size, on_batch=on_batch)
    names = ("offsets", "position", "token_id", "logp_target", "is_error", "scored")
    return {name: np.asarray(getattr(result, name)) for name in names}


def _combine(target: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> Any:
    from auditcore.lm.tokens import TokenStatistics

    return TokenStatistics(**target, logp_reference=reference["logp_target"])


def _pass_key(spec: MembershipSpec, rows: Rows, model: str) -> str:
    return cache.key(
        version=1,
        model=model,
        tokens=rows.ids_hash,
        score=spec.score,
        dtype=spec.model.dtype,
        precision=spec.model.precision,
        device=_device_kind(spec.model.device),
    )


def _fingerprint(source: str, base: str | None) -> str:
    from auditcore.lm.load import fingerprint

    return fingerprint(source, base)


def _device_kind(device: str) -> str:
    from auditcore.lm.load import pick_device

    return pick_device(device).split(":")[0]


def _token_frame(rows: Rows, statistics: Any, tokenizer: Any, store_text: Literal["full", "none"]) -> pd.DataFrame:
    from auditcore.lm.tokens import token_frame

    return token_frame(statistics, rows.frame["example_id"].tolist(), tokenizer, store_text)


def _warn_when_equal(context: Context, statistics: Any) -> None:
    delta = (statistics.logp_target - statistics.logp_reference)[statistics.scored]
    if len(delta) and not np.any(np.nan_to_num(delta)):
        context.warn(
            "No difference between target and reference: they give every token the same probability, "
            "so attacks that compare them can show nothing. Is the reference really the model before fine-tuning?"
        )


def _usable_members(context: Context, rows: Rows) -> pd.Series:
    """The member column, with rows that chose the checkpoint set to unknown; checked against what was trained on."""
    from auditcore.training.rows import agreement, load_trained_on, text_hashes

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    member = rows.frame["member"].astype("boolean")
    trained_on = load_trained_on(Path(spec.model.source))
    if trained_on is None:
        return member
    checked = agreement(member, text_hashes(rows.dataset.texts()), trained_on)
    if checked.n_validation:
        context.record(counts={"validation_rows": checked.n_validation})
        context.warn(
            f"{checked.n_validation:,} rows chose the checkpoint during fine-tuning; they are scored, "
            "but left out of every metric."
        )
    if checked.messages:
        text = " ".join(checked.messages)
        if spec.on_mismatch == "error":
            raise DatasetError(
                f"{spec.data.path}: the member column disagrees with what the checkpoint was trained on. {text} "
                "Correct the column, or set on_mismatch: warn to audit anyway."
            )
        context.warn(f"The member column disagrees with what the checkpoint was trained on. {text}")
    return member.mask(checked.validation, pd.NA)


def _scores(spec: MembershipSpec, rows: Rows, statistics: Any, member: pd.Series) -> pd.DataFrame:
    from auditcore.membership.scores import Tokens, score_table

    tokens = Tokens(
        offsets=statistics.offsets,
        position=statistics.position,
        logp_target=statistics.logp_target,
        logp_reference=statistics.logp_reference,
        is_error=statistics.is_error,
        scored=statistics.scored,
    )
    return score_table(
        tokens,
        spec.attacks,
        rows.frame["example_id"].tolist(),
        member,
        ez_policy=spec.ez_policy,
        skip_first=spec.skip_first,
    )


def _operating_points(context: Context, rows: Rows) -> None:
    from auditcore.claims import claim
    from auditcore.membership.roc import attack_metrics, membership_verdicts

    spec, run = context.spec, context.run
    assert isinstance(spec, MembershipSpec)
    scores = run.read("membership_scores")
    groups = rows.frame.set_index("example_id")["group"]
    metrics, roc = attack_metrics(scores, groups, spec.target_fprs, spec.n_boot, spec.seed)
    verdicts = membership_verdicts(scores, metrics, groups, spec.membership_budget, spec.n_boot, spec.seed)
    known = scores.loc[scores["attack"] == spec.attacks[0], "member"]
    n_member, n_nonmember = int((known == True).sum()), int((known == False).sum())  # noqa: E712 - NA is neither
    context.record(counts={"members": n_member, "nonmembers": n_nonmember})
    if not n_member or not n_nonmember:
        context.warn(
            f"{n_member:,} members and {n_nonmember:,} non-members: without both, rows are scored but no rate "
            "can be measured and no verdict given."
        )
    run.write("attack_metrics", metrics)
    run.write("roc", roc)
    run.write("verdicts", verdicts)
    context.record(claim=claim(run.manifest, verdicts))
