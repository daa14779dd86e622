"""From conversations to token ids. In: messages and a tokenizer's own chat template. Out: ids, and the trained tokens.

Trained is what an assistant-only loss trains. Where the template marks it ({% generation %}), the marks decide, as in
TRL's SFTTrainer with assistant_only_loss: the same call, so the same labels. Where it has no marks (TRL refuses those),
an assistant message is what follows its generation prompt, its end of turn included; that is where TRL's own marked
templates for ChatML, Gemma and others put the marks, and what it trains of a conversation given as prompt and
completion. (Not for all: TRL's template for Qwen2.5 marks the line feed before the answer too. A model whose folder
holds the template it was trained with is scored by that one.) Rows are cut at max_length from the end, as TRL does.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from auditcore.errors import DatasetError, ModelError
from auditcore.lm.encode import Encoded

Conversation = Sequence[dict[str, Any]]

_MARK = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


def encode_messages(
    tokenizer: Any, conversations: Sequence[Conversation], max_length: int, numbers: Sequence[int] | None = None
) -> Encoded:
    """Tokenise n conversations. `learnt` of the result is true on the tokens that an assistant-only loss trains.

    numbers: the rows' numbers in messages (default: from 1). Raises ModelError (no chat template, a tokenizer that does
    not tell where tokens stand) and DatasetError naming the row (the template refuses it, or does not write what comes
    before an assistant message as the beginning of the whole).
    """
    template_of(tokenizer)
    find = _marked if has_marks(tokenizer) else _by_prefix
    ids: list[np.ndarray] = []
    learnt: list[np.ndarray] = []
    n = len(conversations)
    first, lost, cut = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for i, conversation in enumerate(conversations):
        row, mask = find(tokenizer, conversation, numbers[i] if numbers is not None else i + 1)
        cut[i], lost[i] = len(row) > max_length, bool(mask[max_length:].any())
        row, mask = row[:max_length], mask[:max_length]
        trained = np.flatnonzero(mask)
        first[i] = trained[0] if len(trained) else len(row)
        ids.append(row)
        learnt.append(mask)
    return Encoded(ids, first, cut, lost, has_target=True, learnt=learnt)


def template_of(tokenizer: Any) -> str:
    """The tokenizer's chat template. Raises ModelError when it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise ModelError(
            "the tokenizer has no chat template, which rows of messages are written with. Use a model with one, or map "
            "columns to text, or prompt and target."
        )
    return str(tokenizer.get_chat_template())


def has_marks(tokenizer: Any) -> bool:
    """Whether the template says itself what the assistant writes."""
    return bool(_MARK.search(template_of(tokenizer)))


def note(tokenizer: Any) -> str:
    """How the trained tokens were told apart, for a reader."""
    if has_marks(tokenizer):
        return "The chat template marks what the assistant writes; these tokens are trained and scored."
    return (
        "The chat template has no generation marks: an assistant message is what follows its generation prompt, its "
        "end of turn included; these tokens are trained and scored."
    )


def _marked(tokenizer: Any, conversation: Conversation, number: int) -> tuple[np.ndarray, np.ndarray]:
    if not conversation:
        return _nothing()
    found = _apply(tokenizer, conversation, number, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return np.array(found["input_ids"], dtype=np.int64), np.array(found["assistant_masks"], dtype=bool)


def _by_prefix(tokenizer: Any, conversation: Conversation, number: int) -> tuple[np.ndarray, np.ndarray]:
    if not conversation:
        return _nothing()
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            "the tokenizer does not tell where its tokens stand in a text; rows of messages need that, or a chat "
            "template with {% generation %} marks."
        )
    whole = str(_apply(tokenizer, conversation, number, tokenize=False))
    spans = list(_spans(tokenizer, conversation, number, whole))
    found = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = np.array(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    mask = np.zeros(len(offsets), dtype=bool)
    for start, end in spans:  # every token that shares a character with the span, as the marks are read
        mask |= (offsets[:, 0] < end) & (offsets[:, 1] > start)
    return np.array(found["input_ids"], dtype=np.int64), mask


def _spans(tokenizer: Any, conversation: Conversation, number: int, whole: str) -> Iterator[tuple[int, int]]:
    """Where each assistant message stands in the rendered conversation, in characters."""
    for k, message in enumerate(conversation):
        if message["role"] != "assistant":
            continue
        if k == 0:
            raise DatasetError(
                f"data row {number}: the conversation begins with the assistant, and the chat template does not mark "
                "what it writes; use a template with {% generation %} marks, or leave the row out."
            )
        before = str(_apply(tokenizer, conversation[:k], number, tokenize=False, add_generation_prompt=True))
        last = k + 1 == len(conversation)
        until = whole if last else str(_apply(tokenizer, conversation[: k + 1], number, tokenize=False))
        if not (until.startswith(before) and whole.startswith(until)):
            raise DatasetError(
                f"data row {number}, message {k + 1}: the chat template writes what comes before this message in "
                "another way once it is there, so nobody can tell which tokens a loss trains; use a template with "
                "{% generation %} marks."
            )
        yield len(before), len(until)


def _apply(tokenizer: Any, conversation: Conversation, number: int, **options: Any) -> Any:
    from jinja2.exceptions import TemplateError

    try:
        return tokenizer.apply_chat_template([dict(m) for m in conversation], **options)
    except (TemplateError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DatasetError(f"data row {number}: the chat template refuses this conversation ({reason}).") from None


def _nothing() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
