"""From text to token ids. In: a template, its columns, optional targets. Out: unpadded ids per row, within max_length.

Only the user's text is cut, at its end; the template's own words are never cut, and every cut is recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from auditcore.errors import ModelError, SpecError, did_you_mean
from auditcore.spec import parse_template

_CHUNK = 1000  # rows tokenised at once: bounds memory, long enough for the tokenizer's own speed


@dataclass(frozen=True)
class Encoded:
    """Token ids of n rows, in data order, without padding."""

    ids: list[np.ndarray]  # n arrays of int64, possibly of length 0
    prompt_lengths: np.ndarray  # int64 [n]; equals len(ids[i]) when there is no target
    truncated: np.ndarray  # bool [n]: the user's prompt text was cut
    target_truncated: np.ndarray  # bool [n]: the target was cut too (it then ends without eos)
    has_target: bool = False
    learnt: list[np.ndarray] | None = None  # conversations: n arrays of bool, true on what the assistant writes

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per row, int64 [n]."""
        return np.array([len(row) for row in self.ids], dtype=np.int64)

    def places(self, row: int, score: Literal["target", "all"] = "target") -> np.ndarray:
        """Positions in a row that the training loss sees, int64: the assistant's, the target's, or all of plain text.

        With `all` every position. Never the first: nothing comes before it that could predict it.
        """
        if score == "target" and self.learnt is not None:
            return np.flatnonzero(self.learnt[row][1:]) + 1
        start = int(self.prompt_lengths[row]) if score == "target" and self.has_target else 1
        return np.arange(max(start, 1), len(self.ids[row]))

    def in_loss(self, score: Literal["target", "all"] = "target") -> np.ndarray:
        """The same for all rows, one after another: bool [tokens]."""
        lengths = self.lengths
        starts = np.cumsum(lengths) - lengths
        position = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        if score == "target" and self.learnt is not None:
            return np.concatenate([*self.learnt, np.zeros(0, dtype=bool)]) & (position > 0)
        first = np.maximum(self.prompt_lengths, 1) if score == "target" and self.has_target else np.ones_like(lengths)
        return position >= np.repeat(first, lengths)

    def hash_into(self, digest: Any) -> None:
        """Feed a hashlib object everything that decides what a model is given and what its loss sees."""
        for row, (ids, prompt) in enumerate(zip(self.ids, self.prompt_lengths, strict=True)):
            digest.update(np.array([len(ids), prompt], dtype=np.int64).tobytes())
            digest.update(np.asarray(ids, dtype=np.int64).tobytes())
            if self.learnt is not None:
                digest.update(np.packbits(self.learnt[row]).tobytes())

    def prompts(self) -> "Encoded":
        """The same rows without their targets."""
        ids = [row[:n] for row, n in zip(self.ids, self.prompt_lengths, strict=True)]
        return Encoded(ids, self.prompt_lengths, self.truncated, np.zeros(len(ids), dtype=bool))

    def exchanged(self, rows: np.ndarray, other: "Encoded") -> "Encoded":
        """The same with those of `other`, in its order, at the positions `rows`; for rows without targets."""
        ids, lengths, truncated = list(self.ids), self.prompt_lengths.copy(), self.truncated.copy()
        for place, row in enumerate(rows):
            ids[row] = other.ids[place]
        lengths[rows], truncated[rows] = other.prompt_lengths, other.truncated
        return Encoded(ids, lengths, truncated, np.zeros(len(ids), dtype=bool))

    def select(self, rows: np.ndarray) -> "Encoded":
        """The rows at these positions (int64), in that order."""
        return Encoded(
            [self.ids[i] for i in rows],
            self.prompt_lengths[rows],
            self.truncated[rows],
            self.target_truncated[rows],
            self.has_target,
            None if self.learnt is None else [self.learnt[i] for i in rows],
        )


def encode(
    tokenizer: Any,
    template: str,
    fields: Mapping[str, Sequence[str]],
    target: Sequence[str] | None,
    max_length: int,
) -> Encoded:
    """Tokenise n rows.

    The rendered template is tokenised as one string with the tokenizer's default special tokens. A row that is too
    long loses the end of its last column's text (then of the one before it, if that is not enough). A target is
    tokenised on its own as " " + target (without the blank when the template ends in white space), followed by eos,
    and joined; an empty target adds nothing. The target is cut only if it does not fit beside the bare template.

    Raises SpecError when a column is missing or the template alone exceeds max_length.
    """
    pieces = parse_template(template)
    columns = [name for _, name in pieces if name is not None]
    for name in columns:
        if name not in fields:
            raise SpecError(f"template {template!r}: there is no column '{name}'.{did_you_mean(name, fields)}")
    if max_length < 2:
        raise SpecError(f"max_length: {max_length} is too small; at least 2 tokens are needed.")
    n = len(fields[columns[0]])
    ids: list[np.ndarray] = []
    prompt_lengths = np.zeros(n, dtype=np.int64)
    truncated = np.zeros(n, dtype=bool)
    target_truncated = np.zeros(n, dtype=bool)
    cutter = _Cutter(tokenizer, pieces, template)
    for start in range(0, n, _CHUNK):
        rows = range(start, min(start + _CHUNK, n))
        texts = [[str(fields[name][i]) for name in columns] for i in rows]
        prompts = _tokenise(tokenizer, [cutter.render(values) for values in texts])
        targets: list[list[int]] = [[] for _ in rows]
        if target is not None:
            targets = _tokenise_targets(tokenizer, template, [str(target[i]) for i in rows])
        for i, values, prompt, wanted in zip(rows, texts, prompts, targets, strict=True):
            if len(prompt) + len(wanted) > max_length:
                bare = cutter.bare_length(max_length)
                room = max(max_length - bare, 0)
                if len(wanted) > room:
                    wanted, target_truncated[i] = wanted[:room], True
                if len(prompt) + len(wanted) > max_length:
                    prompt, truncated[i] = cutter.cut(values, prompt, max_length - len(wanted)), True
            ids.append(np.array(prompt + wanted, dtype=np.int64))
            prompt_lengths[i] = len(prompt)
    return Encoded(ids, prompt_lengths, truncated, target_truncated, has_target=target is not None)


def batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Row positions in batches of about equal length, longest first (a batch that does not fit fails at once).

    lengths: tokens per row. Rows of length 0 are left out. Returns int64 arrays of at most batch_size positions.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


def _tokenise(tokenizer: Any, texts: list[str], **options: Any) -> list[list[int]]:
    return tokenizer(texts, padding=False, truncation=False, verbose=False, **options)["input_ids"]


def _tokenise_targets(tokenizer: Any, template: str, targets: list[str]) -> list[list[int]]:
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer has no end-of-sequence token, which a row with a target must end in.")
    blank = "" if template[-1:].isspace() else " "
    found = _tokenise(tokenizer, [blank + text for text in targets], add_special_tokens=False)
    return [[*row, tokenizer.eos_token_id] if text else [] for row, text in zip(found, targets, strict=True)]


class _Cutter:
    """Shortens rendered templates by cutting the text of their columns, last column first."""

    def __init__(self, tokenizer: Any, pieces: list[tuple[str, str | None]], template: str) -> None:
        self.tokenizer = tokenizer
        self.pieces = pieces
        self.template = template
        self.columns = sum(name is not None for _, name in pieces)
        self._bare: int | None = None

    def render(self, values: Sequence[str]) -> str:
        """The template with its columns filled in, in order of appearance."""
        return "".join(text for text, _ in self._spans(values))

    def bare_length(self, max_length: int) -> int:
        """Tokens of the template with every column empty. Raises SpecError when nothing fits beside them."""
        if self._bare is None:
            self._bare = len(_tokenise(self.tokenizer, [self.render([""] * self.columns)])[0])
        if self._bare >= max_length:
            raise SpecError(
                f"template {self.template!r} alone takes {self._bare} tokens, max_length is {max_length}: nothing of "
                "the text would be left."
            )
        return self._bare

    def cut(self, values: Sequence[str], ids: list[int], limit: int) -> list[int]:
        """Ids of the row with as much of its text as fits into `limit` tokens.

        Where nothing follows the text, the first tokens stay as they are, as with truncation=True elsewhere; otherwise
        the text is shortened and the row is rendered and tokenised again.
        """
        values = list(values)
        plain = self._cut_tokens(values, ids, limit)
        if plain is not None:
            return plain
        for column in reversed(range(self.columns)):
            while values[column] and len(ids) > limit:
                values[column] = self._shorten(values, column, len(ids) - limit)
                ids = _tokenise(self.tokenizer, [self.render(values)])[0]
        return ids

    def _spans(self, values: Sequence[str]) -> list[tuple[str, int | None]]:
        spans: list[tuple[str, int | None]] = []
        column = 0
        for literal, name in self.pieces:
            spans.append((literal, None))
            if name is not None:
                spans.append((values[column], column))
                column += 1
        return spans

    def _place(self, values: Sequence[str], column: int) -> tuple[int, int]:
        start = 0
        for text, owner in self._spans(values):
            if owner == column:
                return start, start + len(text)
            start += len(text)
        raise AssertionError(column)

    def _offsets(self, values: Sequence[str]) -> list[tuple[int, int]] | None:
        # One (start, end) per token, (0, 0) for special ones; None when the tokenizer cannot say.
        if not getattr(self.tokenizer, "is_fast", False):
            return None
        return self.tokenizer(self.render(values), return_offsets_mapping=True, verbose=False)["offset_mapping"]

    def _cut_tokens(self, values: Sequence[str], ids: list[int], limit: int) -> list[int] | None:
        if self.pieces[-1][1] is None:
            return None
        offsets = self._offsets(values)
        if offsets is None:
            return None
        tail = 0  # special tokens that the tokenizer puts at the end
        while tail < len(ids) and offsets[len(ids) - 1 - tail] == (0, 0):
            tail += 1
        kept = limit - tail
        start, _ = self._place(values, self.columns - 1)
        if kept < 0 or offsets[kept][0] < start or offsets[kept] == (0, 0):
            return None
        return ids[:kept] + ids[len(ids) - tail :]

    def _shorten(self, values: Sequence[str], column: int, excess: int) -> str:
        text = values[column]
        offsets = self._offsets(values)
        if offsets is None:
            tokens = len(_tokenise(self.tokenizer, [self.render(values)])[0])
            return text[: min(len(text) - 1, int(len(text) * (1 - excess / tokens)))]
        start, end = self._place(values, column)
        own = [first for first, last in offsets if last > first and first < end and last > start]
        if len(own) <= excess:
            return ""
        return text[: max(own[len(own) - excess] - start, 0)]
