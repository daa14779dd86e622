"""Conversations in every form a file can hold them; what is none is named by row and message."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditcore.datasets.checks import check
from auditcore.datasets.conversations import as_text, lowered
from auditcore.datasets.guess import guess_roles
from auditcore.datasets.roles import load_dataset
from auditcore.datasets.tables import open_table
from auditcore.errors import DatasetError, SpecError
from auditcore.spec import DataSpec, parse_spec

CHATS = [
    [{"role": "user", "content": 'Say "hi",\n<b>🙂</b>'}, {"role": "assistant", "content": "hi"}],
    [{"role": "user", "content": ""}],
    [],
    [{"role": "system", "content": "=cmd()"}, {"role": "assistant", "content": "B"}],
]
MEMBER = ["1", "0", "", "1"]


def write(folder, form: str):
    path = folder / f"chats.{form}"
    if form == "parquet":
        kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())]))
        chats = pa.array([[{**m, "name": None} for m in chat] for chat in CHATS], type=kind)
        pq.write_table(pa.table({"messages": chats, "member": MEMBER}), path)
    elif form == "jsonl":
        rows = zip(CHATS, MEMBER, strict=True)
        path.write_text("".join(json.dumps({"messages": c, "member": m}) + "\n" for c, m in rows))
    else:
        pd.DataFrame({"messages": [json.dumps(c) for c in CHATS], "member": MEMBER}).to_csv(path, index=False)
    return path


def load(path, **more):
    roles = {"messages": "messages", "member": "member"}
    return load_dataset(DataSpec(path=str(path), roles=roles, **more), "{messages}")


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_conversations_are_read_exactly(tmp_path, form) -> None:
    dataset = load(write(tmp_path, form))
    assert dataset.messages == CHATS
    assert dataset.texts() == [as_text(chat) for chat in CHATS]
    assert dataset.texts()[3] == "system: =cmd()\nassistant: B"
    assert dataset.frame["member"].fillna(False).tolist() == [True, False, False, True]
    kept = dataset.select([3, 0])
    assert kept.messages == [CHATS[3], CHATS[0]]
    assert load(tmp_path / f"chats.{form}", max_rows=2).messages == CHATS[:2]


def test_names_of_other_tools_and_blocks_of_text_are_understood(tmp_path) -> None:
    row = [{"from": "user", "value": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]
    tool = [{"role": "assistant", "tool_calls": [{"name": "f"}]}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"messages": c, "member": "1"}) + "\n" for c in (row, tool)))
    dataset = load(tmp_path / "c.jsonl")
    assert dataset.messages[0] == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert dataset.messages[1] == tool
    assert dataset.texts()[1] == 'assistant:  {"tool_calls": [{"name": "f"}]}'
    assert lowered([{"role": "User", "content": "ABC"}, *tool]) == [{"role": "User", "content": "abc"}, *tool]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("hello", "row 2, column 'messages' is no list of messages"),
        ('{"role": "user"}', "row 2, column 'messages' is no list of messages"),
        ('["hi"]', "row 2, column 'messages', message 1 is no object"),
        ('[{"content": "a"}]', "message 1 has no role"),
        ('[{"role": "user", "content": "a"}, {"role": "user"}]', "message 2 has no content"),
        ('[{"role": "user", "content": [{"type": "image"}]}]', "message 1 has no content"),
        ("[" * 5000, "is no list of messages"),
    ],
)
def test_what_is_no_conversation_is_named(tmp_path, cell, message) -> None:
    frame = pd.DataFrame({"messages": ["[]", cell], "member": ["1", "0"]})
    frame.to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(DatasetError, match=message):
        load(tmp_path / "c.csv")
    report = check(DataSpec(path=str(tmp_path / "c.csv"), roles={"messages": "messages"}), "{messages}", 64)
    assert len(report.errors) == 1


def test_a_list_plays_no_other_role(tmp_path) -> None:
    path = write(tmp_path, "parquet")
    with pytest.raises(DatasetError, match="holds lists"):
        load_dataset(DataSpec(path=str(path), roles={"text": "messages"}), "{text}")


def test_checks_and_guesses_know_conversations(tmp_path) -> None:
    path = write(tmp_path, "jsonl")
    guesses = guess_roles(open_table(path))
    assert guesses["messages"].column == "messages"
    assert "text" not in guesses
    report = check(DataSpec(path=str(path), roles={"messages": "messages", "member": "member"}), "{messages}", 64)
    said = report.to_text()
    assert "4 conversations with 2 messages of the assistant" in said
    assert "2 of 4 conversations have none" in said
    assert not report.errors
    assert report.tables["lengths"].set_index("of")["words"]["longest"] == 4


@pytest.mark.parametrize(
    ("more", "roles", "message"),
    [
        ({"template": "{messages}"}, {}, "own chat template; leave template out"),
        ({}, {"text": "a"}, "either messages or text"),
        ({"kind": "vectors"}, {"label": "b"}, "instead of messages"),
        ({"kind": "surfacelora"}, {"label": "b"}, "instead of messages"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(more, roles, message) -> None:
    data = {"path": "x", "roles": {"messages": "m"}}
    raw = {"kind": "membership", "model": {"source": "m"}, "data": data}
    assert parse_spec(raw).prompt_template == "{messages}"
    with pytest.raises(SpecError, match=message):
        parse_spec({**raw, "data": {**data, "roles": {"messages": "m", **roles}}, **more})
