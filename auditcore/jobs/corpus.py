"""Rows of a public corpus, made once. In: a spec whose data names a corpus. Out: the same spec over a plain file."""

import hashlib

from auditcore import store
from auditcore.datasets.importers import Tokens, rows_in
from auditcore.spec import AnySpec


def plain_data(spec: AnySpec) -> AnySpec:
    """The spec with data.path naming rows made from the corpus (kept in the cache); a plain spec comes back as it is.

    Raises DatasetError and ModelError like the import itself.
    """
    how = spec.data.corpus
    if how is None:
        return spec
    tokens = None
    if how.unit == "tokens" and spec.model is not None:
        tokens = tokens_of(spec.model.source, spec.model.base)
    return spec.model_copy(update={"data": rows_in(store.cache() / "corpora", spec.data, tokens)})


def tokens_of(source: str, base: str | None = None) -> Tokens:
    """Cut by the tokens of this model. Raises ModelError when it has no tokenizer that tells where its tokens stand."""
    from tokenizers import Tokenizer

    from auditcore.errors import ModelError
    from auditcore.lm.load import load_tokenizer

    tokenizer = load_tokenizer(source, base)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"{source}: its tokenizer does not tell where tokens stand in a text; cut by words instead.")
    # A copy of vocabulary and rules alone: faster, and a checkpoint's copy of the tokenizer cuts like the original.
    rules = tokenizer.backend_tokenizer.to_str()
    backend = Tokenizer.from_str(rules)
    backend.no_truncation()
    backend.no_padding()

    def spans(text: str) -> list[tuple[int, int]]:
        return backend.encode(text, add_special_tokens=False).offsets

    return Tokens(spans, hashlib.sha256(rules.encode()).hexdigest()[:32])
