"""Copies of rows with a few words replaced. In: rows and models. Out: their mean log-probs, copy by copy.

Proposed by the base, scored by whichever model is asked; each copy under each model is cached by content, so that a run
that was killed goes on at the copy it had reached.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from auditcore.jobs import cache, evidence, self_prompt
from auditcore.jobs.context import Context, OnProgress, shifted
from auditcore.jobs.models import Models
from auditcore.jobs.rows import Rows
from auditcore.spec import MembershipSpec

SPV = "self_prompt"  # folder of the self-prompted reference of `spv`, and the name of that model


def copies_needed(spec: MembershipSpec, needed: frozenset[str]) -> int:
    """Copies with other words that these needs of attacks ask for; attacks share them."""
    one = spec.neighbours.count if "neighbours" in needed else 0
    return max(one, 2 * spec.spv.pairs if "self_prompt" in needed and spec.spv.domain == "words" else 0)


@dataclass(frozen=True)
class Copy:
    """One version of all rows: made when it is asked for, since all at once would be many times the data."""

    encoded: Callable[[], Any]
    noise: Any = None  # lm.noise.Noise


def measure(
    context: Context, rows: Rows, models: Models, needed: frozenset[str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Numbers of the copies, as `membership.scores.Tokens` holds them in `copies` and `rows`.

    Stages `neighbours` and, for `spv`, `self-prompt texts`, `self-prompt reference`, `self-prompt scores`.
    """
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    count, n = copies_needed(spec, needed), len(rows.frame)
    worded: list[Copy] = []
    copies = {}
    if count:
        with context.again("neighbours", (1 + count) * n) as on_progress:
            made = propose(spec, models, rows.encoded, count, shifted(on_progress, 0, (1 + count) * n))
            worded = in_words(rows.encoded, made)
            means = score(spec, models, "target", worded, shifted(on_progress, n, (1 + count) * n))
        if "neighbours" in needed:
            copies["neighbours"] = means[: spec.neighbours.count]
    if "self_prompt" not in needed:
        return copies, {}
    texts = self_prompt.write_texts(context, models, "spv")
    every = np.arange(len(texts.ids))
    models.add(SPV, self_prompt.train(context, models, spec.spv, texts, every, SPV, "self-prompt reference"))
    altered = worded[: 2 * spec.spv.pairs] if spec.spv.domain == "words" else with_noise(rows.encoded, spec)
    total = (1 + 2 * len(altered)) * n
    with context.again("self-prompt scores", total) as on_progress:
        # From the cache where these are the neighbours that the target was asked about just now.
        copies["varied"] = score(spec, models, "target", altered, shifted(on_progress, 0, total))
        both = [Copy(lambda: rows.encoded), *altered]
        own, *theirs = score(spec, models, SPV, both, shifted(on_progress, len(altered) * n, total))
    copies["self_prompt"] = np.stack(theirs)
    return copies, {"self_prompt": own}


def in_words(encoded: Any, made: Any) -> list[Copy]:
    """Copies with other words. made: `lm.substitute.Substitutions`."""
    return [Copy(partial(made.apply, encoded, k)) for k in range(len(made))]


def with_noise(encoded: Any, spec: MembershipSpec) -> list[Copy]:
    """Copies with noise on their embeddings, two to each step, one on either side."""
    from auditcore.lm.noise import Noise

    steps = [(pair, sign) for pair in range(spec.spv.pairs) for sign in (1, -1)]
    return [Copy(lambda: encoded, Noise(spec.seed, pair, sign, spec.spv.noise)) for pair, sign in steps]


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
    copies: Sequence[Copy],
    on_progress: OnProgress | None,
    keep: bool = True,
) -> np.ndarray:
    """Mean log-probability of every copy of every row under one model, float64 [copies, n]; NaN without evidence."""
    means = []
    for k, copy in enumerate(copies):
        one = evidence.Pass("copy", which, copy.encoded(), False, spec.score, copy.noise)
        n = len(one.encoded.ids)
        name = one.key(spec, models.fingerprint(which), False)
        found = cache.load("means", name) if keep else None
        if found is None:
            on_batch = None if on_progress is None else shifted(on_progress, k * n, len(copies) * n)
            found = {"mean": evidence.mean_per_row(one.run(spec, models.get(which), on_batch))}
            if keep:
                cache.save("means", name, found)
        means.append(found["mean"])
        if on_progress is not None:
            on_progress((k + 1) * n, len(copies) * n)
    return np.stack(means)
