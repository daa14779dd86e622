"""Rows that are chats. In: a column of JSON lists of {role, content}. Out: lists of messages, and each row as one text.

Takes what TRL takes: `from` and `value` are read as role and content, keys without a value are left out.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from auditcore.errors import DatasetError

Message = dict[str, Any]  # role (str), content (str); more keys go to the chat template as they are


def parse_messages(column: pd.Series, path: Path) -> list[list[Message]]:
    """Read one conversation a row; an empty cell is a conversation without messages.

    Raises DatasetError naming row, column and message.
    """
    made = []
    for row, text in enumerate(column.tolist(), 1):
        where = f"{path}: row {row}, column '{column.name}'"
        made.append([] if pd.isna(text) else _conversation(text, where))
    return made


def _conversation(text: str, where: str) -> list[Message]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise DatasetError(
            f'{where} is no list of messages; write it as [{{"role": "user", "content": "..."}}, ...] in JSON.'
        )
    return [_message(raw, f"{where}, message {number}") for number, raw in enumerate(found, 1)]


def _message(raw: Any, where: str) -> Message:
    if not isinstance(raw, dict):
        raise DatasetError(f"{where} is no object with role and content.")
    message: Message = {_KEYS.get(key) or key: value for key, value in raw.items() if value is not None}
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role.strip():
        raise DatasetError(f"{where} has no role (such as user or assistant).")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        message["content"] = content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
        raise DatasetError(f"{where} has no content that is text.")
    return message


_KEYS = {"from": "role", "value": "content"}


def as_text(conversation: Sequence[Message]) -> str:
    """One text that holds all that is said, by whom: to tell rows apart, not what a model reads."""
    return "\n".join(f"{message['role']}: {_said(message)}" for message in conversation)


def said(text: str) -> str:
    """The contents in one cell, for counting; the cell itself where it is no conversation."""
    try:
        return "\n".join(str(message["content"]) for message in _conversation(text, "") if "content" in message)
    except DatasetError:
        return text


def _said(message: Message) -> str:
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    return str(message.get("content", "")) + (f" {json.dumps(more, sort_keys=True)}" if more else "")


def lowered(conversation: Sequence[Message]) -> list[Message]:
    """The same messages with what they say in lower case."""
    return [{**m, "content": m["content"].lower()} if "content" in m else dict(m) for m in conversation]
