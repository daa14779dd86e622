"""Copies of rows with a few words replaced. In: rows and models. Out: their mean log-probs, copy by copy.

Proposed by the reference, scored by whichever model is asked; each copy under each model is cached by content, so that
a run that was killed goes on at the copy it had reached.
"""

from typing import Any

import numpy as np

from auditcore.jobs import cache, evidence
from auditcore.jobs.context import OnProgress
from auditcore.jobs.models import Models
from auditcore.spec import MembershipSpec


def copies_needed(spec: MembershipSpec, needed: frozenset[str]) -> int:
    """Copies of every row that these needs of attacks ask for."""
    return spec.neighbours.count if "neighbours" in needed else 0


def propose(
    spec: MembershipSpec, models: Models, encoded: Any, copies: int, on_progress: OnProgress | None, keep: bool = True
) -> Any:
    """`lm.substitute.Substitutions` of the rows, from the cache where it has them. keep: use the cache at all."""
    from auditcore.lm.substitute import Substitutions, substitute

    how = {"copies": copies, "share": spec.neighbours.share, "seed": spec.seed, "score": spec.score}
    name = cache.key(
        version=1,
        model=models.fingerprint("reference"),
        tokens=evidence.ids_hash(encoded),
        **how,
        **evidence.numerics(spec),
    )
    found = cache.load("neighbours", name) if keep else None
    if found is not None:
        return Substitutions(**found)
    made = substitute(models.get("reference"), encoded, **how, batch_size=spec.batch_size, on_batch=on_progress)  # type: ignore[arg-type]
    if keep:
        cache.save("neighbours", name, vars(made))
    return made


def score(
    spec: MembershipSpec,
    models: Models,
    which: str,
    encoded: Any,
    made: Any,
    on_progress: OnProgress | None,
    keep: bool = True,
) -> np.ndarray:
    """Mean log-probability of every copy of every row under one model, float64 [copies, n]; NaN without evidence."""
    n = len(encoded.ids)
    means = np.full((len(made), n), np.nan)
    for k in range(len(made)):
        one = evidence.Pass(f"neighbour {k + 1}", which, made.apply(encoded, k), False, spec.score)
        name = one.key(spec, models.fingerprint(which), False)
        found = cache.load("means", name) if keep else None
        if found is None:
            on_batch = None if on_progress is None else shifted(on_progress, k * n, len(made) * n)
            found = {"mean": evidence.mean_per_row(one.run(spec, models.get(which), on_batch))}
            if keep:
                cache.save("means", name, found)
        means[k] = found["mean"]
        if on_progress is not None:
            on_progress((k + 1) * n, len(made) * n)
    return means


def shifted(on_progress: OnProgress, start: int, total: int) -> OnProgress:
    """Report a part of a stage as a part of the whole."""
    return lambda done, _: on_progress(start + done, total)
