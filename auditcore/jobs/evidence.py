"""What the attacks read. In: a membership spec and its rows. Out: token statistics under both models, and more per row.

One extraction serves every attack that reads nothing else; each pass of a model is cached by content.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, ModelError, SpecError
from auditcore.jobs import cache
from auditcore.jobs.context import OnProgress
from auditcore.jobs.rows import ids_hash, tokenise
from auditcore.spec import MembershipSpec, parse_template


@dataclass(frozen=True)
class Pass:
    """One model over one version of the rows."""

    name: str
    model: str  # a name of jobs.models.Models
    encoded: Any  # lm.encode.Encoded
    moments: bool
    score: Literal["target", "all"]
    noise: Any = None  # lm.noise.Noise on the model's embeddings

    @cached_property
    def tokens(self) -> str:
        """Hash of the token ids: read once, however often the cache is asked."""
        return ids_hash(self.encoded)

    def key(self, spec: MembershipSpec, fingerprint: str, moments: bool) -> str:
        """What decides the numbers: model, tokens, positions, precision, device."""
        more: dict[str, Any] = {"moments": True} if moments else {}
        # A prompt with an empty target is all of its row, as plain text is, and nothing of it is scored.
        more |= {"has_target": True} if self.encoded.has_target else {}
        more |= {"noise": vars(self.noise)} if self.noise else {}
        return cache.key(version=1, model=fingerprint, tokens=self.tokens, score=self.score, **numerics(spec), **more)

    def cached(self, spec: MembershipSpec, fingerprint: str) -> dict[str, np.ndarray] | None:
        """The arrays of an earlier pass; one with moments serves an attack that needs none."""
        for moments in (True,) if self.moments else (False, True):
            found = cache.load("tokens", self.key(spec, fingerprint, moments))
            if found is not None:
                return found
        return None

    def arrays(
        self, spec: MembershipSpec, fingerprint: str, model: Callable[[], Any], on_batch: OnProgress | None
    ) -> dict[str, np.ndarray]:
        """From the cache where the same tokens met the same model; else the model is run, and what it says is kept."""
        found = self.cached(spec, fingerprint)
        if found is None:
            found = self.run(spec, model(), on_batch)
            cache.save("tokens", self.key(spec, fingerprint, self.moments), found)
        return found

    def run(self, spec: MembershipSpec, model: Any, on_batch: OnProgress | None) -> dict[str, np.ndarray]:
        """Run the model."""
        from auditcore.lm.noise import noisy
        from auditcore.lm.tokens import token_statistics

        try:
            with noisy(model, self.noise):
                result = token_statistics(
                    model,
                    None,
                    self.encoded,
                    score=self.score,
                    batch_size=spec.batch_size,
                    moments=self.moments,
                    on_batch=on_batch,
                )
        except ModelError as error:
            if self.name != "prefixed":
                raise
            more = f"the prefix of attack 'recall' is {spec.recall_shots} whole rows: lower recall_shots"
            raise ModelError(f"{error} Here {more}, or leave the attack out.") from error
        names = ["offsets", "position", "token_id", "logp_target", "is_error", "scored"]
        if self.moments:
            names += ["mean_logp", "std_logp"]
        return {name: np.asarray(getattr(result, name)) for name in names}


def numerics(spec: MembershipSpec) -> dict[str, str]:
    """What else decides a model's numbers: the parts of a cache key that stand for precision and device."""
    from auditcore.lm.load import pick_device

    device = pick_device(spec.model.device).split(":")[0]
    return {"dtype": spec.model.dtype, "precision": spec.model.precision, "device": device}


def needs(attacks: Iterable[str]) -> frozenset[str]:
    """What these attacks read beside the target's log-probabilities."""
    from auditcore.membership.scores import ATTACKS

    return frozenset[str]().union(*(ATTACKS[name].needs for name in attacks))


def plan(
    spec: MembershipSpec, dataset: Any, encoded: Any, tokenizer: Any, needed: frozenset[str], prefix: Sequence[int] = ()
) -> list[Pass]:
    """The passes that these attacks take. prefix: rows of known non-members for `recall`."""
    passes = [
        Pass("target", "target", encoded, "moments" in needed, spec.score),
        Pass("reference", "reference", encoded, "reference_moments" in needed, spec.score),
    ]
    if "lowercase" in needed:
        passes.append(Pass("lowercase", "target", _lower(spec, dataset, tokenizer), False, spec.score))
    if "prefixed" in needed:
        passes.append(Pass("prefixed", "target", _prefixed(spec, encoded, prefix), False, "target"))
    return passes


def tokens(
    spec: MembershipSpec,
    dataset: Any,
    encoded: Any,
    tokenizer: Any,
    needed: frozenset[str],
    found: dict[str, dict[str, np.ndarray]],
    shadows: tuple[np.ndarray, np.ndarray] | None = None,
    copies: Mapping[str, np.ndarray] | None = None,
    more: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """`membership.scores.Tokens` from the arrays of every pass; shadows, copies and more rows as Tokens holds them."""
    from auditcore.membership.scores import Tokens

    target, reference = found["target"], found.get("reference")
    rows: dict[str, np.ndarray] = dict(more or {})
    for name in ("lowercase", "prefixed"):
        if name in found:
            rows[name] = mean_per_row(found[name])
    if "zlib" in needed:
        rows["zlib"] = compressed_bytes(scored_texts(spec, dataset, encoded, tokenizer))
    return Tokens(
        offsets=target["offsets"],
        position=target["position"],
        logp_target=target["logp_target"],
        logp_reference=None if reference is None else reference["logp_target"],
        is_error=target["is_error"],
        scored=target["scored"],
        moments=_moments(target),
        reference_moments=None if reference is None else _moments(reference),
        rows=rows,
        shadows=shadows,
        copies=copies or {},
    )


def statistics(found: dict[str, dict[str, np.ndarray]]) -> Any:
    """`lm.tokens.TokenStatistics` of target and reference together."""
    from auditcore.lm.tokens import TokenStatistics

    return TokenStatistics(**found["target"], logp_reference=found["reference"]["logp_target"])


def comparing(attacks: Iterable[str]) -> list[str]:
    """Those of the attacks that hold the target against a reference."""
    return [name for name in attacks if needs([name]) & {"reference", "reference_moments", "self_prompt"}]


def no_difference(found: dict[str, dict[str, np.ndarray]]) -> bool:
    """Whether target and reference give every scored token the same probability."""
    target, reference = found["target"], found["reference"]
    scored = target["scored"]
    with np.errstate(invalid="ignore"):  # -inf minus -inf
        delta = (target["logp_target"] - reference["logp_target"])[scored]
    return len(delta) > 0 and not np.any(np.nan_to_num(delta))


def _moments(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    return (arrays["mean_logp"], arrays["std_logp"]) if "mean_logp" in arrays else None


def mean_per_row(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Mean log-probability of each row's scored positions, float64 [n]; NaN where there is none."""
    from auditcore.membership import sums
    from auditcore.membership.scores import Tokens

    tokens = Tokens(
        offsets=arrays["offsets"],
        position=arrays["position"],
        logp_target=arrays["logp_target"],
        logp_reference=None,
        is_error=arrays["is_error"],
        scored=arrays["scored"],
    )
    return sums.mean_per_row(tokens, tokens.logp_target)[0]


def scored_texts(spec: MembershipSpec, dataset: Any, encoded: Any, tokenizer: Any) -> list[str]:
    """The text whose tokens are scored, row by row: what was cut off is not part of it."""
    only_target = encoded.has_target and spec.score == "target"
    if encoded.learnt is not None:
        return [_decoded(tokenizer, ids[encoded.places(i, spec.score)]) for i, ids in enumerate(encoded.ids)]
    texts = list(dataset.target) if only_target else dataset.texts()
    cut = encoded.target_truncated if only_target else encoded.truncated | encoded.target_truncated
    for i in np.flatnonzero(cut):
        ids = encoded.ids[i][encoded.prompt_lengths[i] :] if only_target else encoded.ids[i]
        texts[i] = _decoded(tokenizer, ids)
    return texts


def _decoded(tokenizer: Any, ids: np.ndarray) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def compressed_bytes(texts: Sequence[str]) -> np.ndarray:
    """Bytes of each text after zlib at its default level, float64 [n]; a lone surrogate counts as its escape."""
    return np.array([len(zlib.compress(text.encode("utf-8", "surrogatepass"))) for text in texts], dtype=np.float64)


def _lower(spec: MembershipSpec, dataset: Any, tokenizer: Any) -> Any:
    """The rows in lower case, the template's own words too (those of a chat template stay); cut at the same number of
    tokens."""
    from auditcore.lm.encode import encode

    if dataset.messages is not None:
        from auditcore.datasets.conversations import lowered

        chats = [lowered(conversation) for conversation in dataset.messages]
        return tokenise(tokenizer, replace(dataset, messages=chats), spec.max_length)
    parts = []
    for literal, name in parse_template(dataset.template):
        parts.append(literal.lower().replace("{", "{{").replace("}", "}}"))
        if name is not None:
            parts.append(f"{{{name}}}")
    fields = {name: [text.lower() for text in texts] for name, texts in dataset.fields.items()}
    target = None if dataset.target is None else [text.lower() for text in dataset.target]
    return encode(tokenizer, "".join(parts), fields, target, spec.max_length)


def choose_prefix(spec: MembershipSpec, member: pd.Series, group: pd.Series, lengths: np.ndarray) -> list[int]:
    """Rows of known non-members for the prefix of `recall`, one a subject, drawn by the seed.

    group: subject of each row. Raises DatasetError unless non-members of other subjects are left, as many again.
    """
    usable = np.flatnonzero((member == False).fillna(False).to_numpy(dtype=bool) & (lengths > 1))  # noqa: E712
    drawn = np.random.default_rng([spec.seed, 24061]).permutation(usable)
    one_each = drawn[~group.iloc[drawn].duplicated().to_numpy()]
    chosen = one_each[: spec.recall_shots]
    left = int((~group.iloc[usable].isin(group.iloc[chosen])).sum())
    if len(chosen) < spec.recall_shots or left < spec.recall_shots:
        raise DatasetError(
            f"{spec.data.path}: attack 'recall' takes {spec.recall_shots} rows known not to be members, of different "
            f"subjects, for its prefix and needs as many again of others to compare with; there are {len(usable)} rows "
            f"of {len(one_each)} subjects. Leave it out, or lower recall_shots."
        )
    return sorted(chosen.tolist())


def _prefixed(spec: MembershipSpec, encoded: Any, prefix: Sequence[int]) -> Any:
    from auditcore.lm.encode import Encoded

    if not prefix:
        raise SpecError("attack 'recall' needs its prefix rows, which a new text alone does not bring.")
    head = np.concatenate([encoded.ids[i] for i in prefix])
    only_target = encoded.has_target and spec.score == "target"
    # The first token of a row is not predicted without the prefix: it does not count behind it either.
    first = np.maximum(encoded.prompt_lengths, 1) if only_target else np.ones(len(encoded.ids), dtype=np.int64)
    ids = [np.concatenate([head, row]) if len(row) else row for row in encoded.ids]
    nothing = np.zeros(len(ids), dtype=bool)
    lengths = np.array([min(len(head) + f, len(row)) for f, row in zip(first, ids, strict=True)], dtype=np.int64)
    learnt = None
    if only_target and encoded.learnt is not None:
        learnt = [np.zeros(len(row), dtype=bool) for row in ids]
        for i, mask in enumerate(learnt):
            mask[len(head) + encoded.places(i)] = True
    return Encoded(ids, lengths, nothing, nothing, has_target=True, learnt=learnt)
