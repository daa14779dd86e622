"""Copies of rows with a few words replaced. In: rows and models. Out: their mean log-probs, copy by copy.

Proposed by the base, scored by whichever model is asked; each copy under each model is cached by content, so that a run
that was killed goes on at the copy it had reached.
"""

import shutil
from typing import Any

import numpy as np

from auditcore.jobs import cache, evidence, self_prompt
from auditcore.jobs.context import Context, OnProgress, shifted
from auditcore.jobs.models import Models
from auditcore.jobs.rows import Rows
from auditcore.spec import MembershipSpec

SPV = "self_prompt"  # folder of the self-prompted reference of `spv`, and the name of that model


def copies_needed(spec: MembershipSpec, needed: frozenset[str]) -> int:
    """Copies of every row that these needs of attacks ask for; attacks share them."""
    one = spec.neighbours.count if "neighbours" in needed else 0
    return max(one, 2 * spec.spv.pairs if "self_prompt" in needed else 0)


def measure(
    context: Context, rows: Rows, models: Models, needed: frozenset[str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Numbers of the copies, as `membership.scores.Tokens` holds them in `copies` and `rows`.

    Stages `neighbours` and, for `spv`, `self-prompt texts`, `self-prompt reference`, `self-prompt scores`.
    """
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    count, n = copies_needed(spec, needed), len(rows.frame)
    if not count:
        return {}, {}
    with context.again("neighbours", (1 + count) * n) as on_progress:
        made = propose(spec, models, rows.encoded, count, shifted(on_progress, 0, (1 + count) * n))
        target = score(spec, models, "target", rows.encoded, made, count, shifted(on_progress, n, (1 + count) * n))
    copies = {"neighbours": target[: spec.neighbours.count]} if "neighbours" in needed else {}
    if "self_prompt" not in needed:
        return copies, {}
    texts = self_prompt.write_texts(context, models, "spv")
    every = np.arange(len(texts.ids))
    models.add(SPV, self_prompt.train(context, models, spec.spv, texts, every, SPV, "self-prompt reference"))
    varied = 2 * spec.spv.pairs
    with context.again("self-prompt scores", (1 + varied) * n) as on_progress:
        own = _mean(spec, models, SPV, rows.encoded, shifted(on_progress, 0, (1 + varied) * n), True)
        theirs = score(spec, models, SPV, rows.encoded, made, varied, shifted(on_progress, n, (1 + varied) * n))
    return copies | {"varied": target[:varied], "self_prompt": theirs}, {"self_prompt": own}


def forget(context: Context) -> None:
    """Delete the weights of a fully fine-tuned self-prompted reference, once its numbers are in a table."""
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if spec.spv.method == "full":
        shutil.rmtree(context.run.path / SPV, ignore_errors=True)


def propose(
    spec: MembershipSpec, models: Models, encoded: Any, copies: int, on_progress: OnProgress | None, keep: bool = True
) -> Any:
    """`lm.substitute.Substitutions` of the rows, from the cache where it has them. keep: use the cache at all."""
    from auditcore.lm.substitute import Substitutions, substitute

    how = {"copies": copies, "share": spec.neighbours.share, "seed": spec.seed, "score": spec.score}
    name = cache.key(
        version=1,
        model=models.fingerprint("base"),
        tokens=evidence.ids_hash(encoded),
        **how,
        **evidence.numerics(spec),
    )
    found = cache.load("neighbours", name) if keep else None
    if found is not None:
        return Substitutions(**found)
    made = substitute(models.get("base"), encoded, **how, batch_size=spec.batch_size, on_batch=on_progress)  # type: ignore[arg-type]
    if keep:
        cache.save("neighbours", name, vars(made))
    return made


def score(
    spec: MembershipSpec,
    models: Models,
    which: str,
    encoded: Any,
    made: Any,
    copies: int,
    on_progress: OnProgress | None,
    keep: bool = True,
) -> np.ndarray:
    """Mean log-probability of the first copies of every row under one model, float64 [copies, n]; NaN = no evidence."""
    n = len(encoded.ids)
    means = np.full((copies, n), np.nan)
    for k in range(copies):
        on_batch = None if on_progress is None else shifted(on_progress, k * n, copies * n)
        means[k] = _mean(spec, models, which, made.apply(encoded, k), on_batch, keep)
        if on_progress is not None:
            on_progress((k + 1) * n, copies * n)
    return means


def _mean(
    spec: MembershipSpec, models: Models, which: str, encoded: Any, on_batch: OnProgress | None, keep: bool
) -> np.ndarray:
    """Mean log-probability of rows under one model, float64 [n], from the cache where it has it."""
    one = evidence.Pass("copy", which, encoded, False, spec.score)
    name = one.key(spec, models.fingerprint(which), False)
    found = cache.load("means", name) if keep else None
    if found is None:
        found = {"mean": evidence.mean_per_row(one.run(spec, models.get(which), on_batch))}
        if keep:
            cache.save("means", name, found)
    return found["mean"]
