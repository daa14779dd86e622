"""The first stage of every job. In: a spec. Out: the data set, its tokens, and the table `examples`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, RunError
from auditcore.jobs.context import Context


@dataclass(frozen=True)
class Rows:
    """A data set and its token ids, row by row."""

    dataset: Any  # datasets.roles.Dataset
    encoded: Any  # lm.encode.Encoded; None when the vectors come from a file
    frame: pd.DataFrame  # the table `examples`
    alone: Any = None  # lm.encode.Encoded of the prompts by themselves, where they were cut to leave room for a target

    @property
    def exported(self) -> Any:
        """`lm.encode.Encoded` of the prompts as their vectors are exported: alone, each with all of max_length."""
        return self.encoded.prompts() if self.alone is None else self.alone

    def select(self, positions: np.ndarray) -> "Rows":
        """The rows at these positions (int64), in that order."""
        return Rows(
            self.dataset.select(positions),
            self.encoded.select(positions),
            self.frame.iloc[positions].reset_index(drop=True),
            None if self.alone is None else self.alone.select(positions),
        )

    def with_exported(self, tokenizer: Any, max_length: int) -> "Rows":
        """The same rows; prompts that were cut to leave room for their target are tokenised once more, alone."""
        cut = np.flatnonzero(self.encoded.truncated)
        if not len(cut) or not self.encoded.has_target:
            return self
        again = tokenise(tokenizer, replace(self.dataset.select(cut), target=None), max_length)
        return replace(self, alone=self.encoded.prompts().exchanged(cut, again))

    @property
    def ids_hash(self) -> str:
        """SHA-256 over every row's token ids and prompt length: what the model is given, whatever it was made from."""
        return ids_hash(self.encoded)


def ids_hash(encoded: Any) -> str:
    """SHA-256 over token ids, prompt lengths and the assistant's tokens of an `Encoded`."""
    digest = hashlib.sha256()
    encoded.hash_into(digest)
    return digest.hexdigest()


def tokenise(tokenizer: Any, dataset: Any, max_length: int, numbers: Sequence[int] | None = None) -> Any:
    """`lm.encode.Encoded` of a data set: conversations by the tokenizer's chat template, other rows by their own.

    numbers: the rows' numbers in messages, where these are not all of a file.
    """
    if dataset.messages is not None:
        from auditcore.lm.chat import encode_messages

        return encode_messages(tokenizer, dataset.messages, max_length, numbers)
    from auditcore.lm.encode import encode

    return encode(tokenizer, dataset.template, dataset.fields, dataset.target, max_length)


def load(context: Context, dataset: Any, tokenizer: Any, more_notes: Sequence[str] = ()) -> Rows:
    """Tokenise the data set, write `examples`, and record what was read, cut and skipped (stage `rows`)."""
    spec = context.spec
    n = len(dataset.frame)
    if n == 0:
        raise DatasetError(f"{spec.data.path}: has no rows.")
    encoded = None
    frame = dataset.frame.assign(n_tokens=pd.array([pd.NA] * n, dtype="Int32"), truncated=False)
    if tokenizer is not None:
        encoded = tokenise(tokenizer, dataset, spec.max_length)
        lengths = np.asarray([len(ids) for ids in encoded.ids], dtype=np.int32)
        frame = dataset.frame.assign(n_tokens=lengths, truncated=np.asarray(encoded.truncated, dtype=bool))
    rows = Rows(dataset, encoded, frame)
    if context.finished("rows"):
        known = context.run.manifest.get("data", {}).get("sha256")
        if known != dataset.sha256:
            raise DatasetError(f"{spec.data.path}: has changed since this run began; start a new run.")
        require_same_template(context.run.manifest, dataset, tokenizer, context.run.id)
        return rows
    named = context.run.manifest["spec"]["data"]["path"]  # the corpus, where rows were made from one
    with context.stage("rows", n):
        context.run.write("examples", frame)
        notes = [*dataset.notes, *more_notes, *_cuts(rows, spec.max_length), *_chat_notes(rows, tokenizer)]
        context.record(
            data={"path": named, "sha256": dataset.sha256, "rows": n, "notes": notes},
            counts={"rows": n, "tokens": int(frame["n_tokens"].sum()), "truncated": int(frame["truncated"].sum())},
            fingerprints={
                "data": dataset.sha256,
                "template": _template_hash(dataset, tokenizer),
                "tokens": rows.ids_hash if encoded is not None else None,
            },
        )
    return rows


def _cuts(rows: Rows, max_length: int) -> list[str]:
    if rows.encoded is None:
        return []
    n, cut = len(rows.frame), int(rows.frame["truncated"].sum())
    target_cut, empty = int(np.sum(rows.encoded.target_truncated)), int((rows.frame["n_tokens"] < 2).sum())
    notes = []
    if cut:
        notes.append(f"{cut:,} of {n:,} rows were longer than {max_length} tokens; their end was cut.")
    if target_cut and rows.encoded.learnt is not None:
        notes.append(f"In {target_cut:,} of them the assistant's own tokens were cut.")
    elif target_cut:
        notes.append(f"In {target_cut:,} rows the target alone did not fit into {max_length} tokens; it was cut.")
    if empty:
        notes.append(f"{empty:,} rows have fewer than two tokens and hold no evidence.")
    return notes


def _chat_notes(rows: Rows, tokenizer: Any) -> list[str]:
    if rows.encoded is None or rows.encoded.learnt is None:
        return []
    from auditcore.lm import chat

    counts = np.array([len(rows.encoded.places(i)) for i in range(len(rows.frame))])
    notes = [chat.note(tokenizer)]
    if silent := int((counts == 0).sum()):
        notes.append(f"{silent:,} of {len(counts):,} conversations hold no token that the assistant writes.")
    return notes


def require_same_template(manifest: dict[str, Any], dataset: Any, tokenizer: Any, run_id: str) -> None:
    """Raise RunError when conversations would be written otherwise than this run wrote them.

    A model's fingerprint is made of weights and tokenizer; the chat template is not part of it.
    """
    known = manifest.get("fingerprints", {}).get("template")
    if dataset.messages is not None and known != _template_hash(dataset, tokenizer):
        raise RunError(f"Run {run_id}: the model's chat template has changed since; start a new run.")


def _template_hash(dataset: Any, tokenizer: Any) -> str:
    return hashlib.sha256(_template(dataset, tokenizer).encode()).hexdigest()


def _template(dataset: Any, tokenizer: Any) -> str:
    if dataset.messages is None or tokenizer is None:
        return dataset.template
    from auditcore.lm import chat

    return chat.template_of(tokenizer)
