"""Conversations: scored and trained are exactly the tokens of an assistant-only loss, whatever the template."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from auditcore.errors import DatasetError, ModelError
from auditcore.lm.chat import encode_messages, has_marks, note
from auditcore.lm.load import load_model
from auditcore.lm.tokens import token_statistics
from auditcore.spec import ModelSpec
from auditcore.training.batches import collate, tokens_in_loss
from tests.tiny_models import build_tokenizer

# ChatML with a default system message, in the form of the bundled model's template; then the same with marks, placed
# where TRL's training templates for ChatML models place them: the answer and its end of turn.
_HELP = "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"
_SYSTEM = "{% if loop.first and messages[0]['role'] != 'system' %}" + _HELP + "{% endif %}"
_TURN = "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
_PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
_ANSWER = (
    "{{ '<|im_start|>assistant\n' }}{% generation %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endgeneration %}"
)
CHATML = "{% for message in messages %}" + _SYSTEM + _TURN + "{% endfor %}" + _PROMPT
MARKED = (
    "{% for message in messages %}"
    + _SYSTEM
    + "{% if message['role'] == 'assistant' %}"
    + _ANSWER
    + "{% else %}"
    + _TURN
    + "{% endif %}{% endfor %}"
    + _PROMPT
)
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] "
    "+ ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('only user and assistant') }}{% endif %}{% endfor %}"
)
ASK = {"role": "user", "content": "Any fever?"}
SAY = {"role": "assistant", "content": "No fever, a cough."}


def tokenizer(template: str | None) -> Any:
    made = build_tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made.chat_template = template
    return made


PLAIN, WITH_MARKS = tokenizer(CHATML), tokenizer(MARKED)


def trl_labels(tok: Any, conversation: list[dict], max_length: int) -> list[int]:
    """What TRL's SFTTrainer makes of it: -100 outside the assistant mask, the first max_length tokens kept."""
    found = tok.apply_chat_template(conversation, return_dict=True, return_assistant_tokens_mask=True)
    pairs = zip(found["input_ids"], found["assistant_masks"], strict=True)
    return [token if mask else -100 for token, mask in pairs][:max_length]


def our_labels(encoded: Any, row: int) -> list[int]:
    labels = np.full(len(encoded.ids[row]), -100)
    labels[encoded.learnt[row]] = encoded.ids[row][encoded.learnt[row]]
    return labels.tolist()


def said(tok: Any, encoded: Any, row: int = 0) -> str:
    return tok.decode(encoded.ids[row][encoded.places(row)], skip_special_tokens=False)


@pytest.mark.parametrize("tok", [PLAIN, WITH_MARKS], ids=["no marks", "marks"])
def test_the_assistants_words_and_its_end_of_turn_are_learnt(tok) -> None:
    chat = [ASK, SAY, {"role": "user", "content": "Since when?"}, {"role": "assistant", "content": "Monday."}]
    encoded = encode_messages(tok, [chat], 512)
    assert tok.decode(encoded.ids[0]) == (
        "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nAny fever?<|im_end|>\n"
        "<|im_start|>assistant\nNo fever, a cough.<|im_end|>\n<|im_start|>user\nSince when?<|im_end|>\n"
        "<|im_start|>assistant\nMonday.<|im_end|>\n"
    )
    assert said(tok, encoded) == "No fever, a cough.<|im_end|>\nMonday.<|im_end|>\n"
    assert encoded.has_target
    assert not encoded.truncated[0]


def test_golden_labels_worked_out_by_hand() -> None:
    """Words, line feeds and control tokens; a 1 where an assistant-only loss trains."""
    by_hand = (
        *("0 <|im_start|>", "0 system", "0 LF", "0 You", "0 _help.", "0 <|im_end|>", "0 LF"),
        *("0 <|im_start|>", "0 user", "0 LF", "0 Any", "0 _fever?", "0 <|im_end|>", "0 LF"),
        *("0 <|im_start|>", "0 assistant", "0 LF", "1 No", "1 _fever.", "1 <|im_end|>", "1 LF"),
        *("0 <|im_start|>", "0 user", "0 LF", "0 Sure?", "0 <|im_end|>", "0 LF"),
        *("0 <|im_start|>", "0 assistant", "0 LF", "1 Yes.", "1 <|im_end|>", "1 LF"),
    )
    learnt = [line.startswith("1") for line in by_hand]
    words = [line[2:] if "|" in line else line[2:].replace("LF", "\n").replace("_", " ") for line in by_hand]
    known = Tokenizer(models.WordLevel({word: k for k, word in enumerate(dict.fromkeys(words))}, unk_token="No"))
    known.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n| ?[^ \n]+"), "isolated")
    tok = PreTrainedTokenizerFast(tokenizer_object=known, additional_special_tokens=["<|im_start|>", "<|im_end|>"])
    turns = ["Any fever?", "No fever.", "Sure?", "Yes."]
    chat = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(turns)]
    for template in (CHATML, MARKED):
        tok.chat_template = template
        encoded = encode_messages(tok, [chat], 512)
        assert tok.convert_ids_to_tokens(encoded.ids[0].tolist()) == words
        assert encoded.learnt[0].tolist() == learnt
        assert encoded.prompt_lengths[0] == learnt.index(True)
        assert trl_labels(tok, chat, 512) == our_labels(encoded, 0) or template == CHATML


CONTENT = st.text("ab .,\n<|im_end|>é🙂", max_size=24)
CHATS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": CONTENT}),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(chat=CHATS, max_length=st.integers(2, 60))
def test_labels_equal_trls_with_and_without_marks(chat, max_length) -> None:
    marked = encode_messages(WITH_MARKS, [chat], max_length)
    expected = trl_labels(WITH_MARKS, chat, max_length)
    assert our_labels(marked, 0) == expected
    if chat[0]["role"] == "assistant":
        with pytest.raises(DatasetError, match="begins with the assistant"):
            encode_messages(PLAIN, [chat], max_length)
        return
    plain = encode_messages(PLAIN, [chat], max_length)
    assert our_labels(plain, 0) == expected
    assert plain.ids[0].tolist() == marked.ids[0].tolist()
    assert (plain.truncated == marked.truncated).all()
    assert (plain.target_truncated == marked.target_truncated).all()


def test_labels_of_a_template_without_a_generation_prompt() -> None:
    tok = tokenizer(INST)
    encoded = encode_messages(tok, [[ASK, SAY, ASK, SAY]], 512)
    assert said(tok, encoded) == " No fever, a cough.</s> No fever, a cough.</s>"
    assert tok.convert_ids_to_tokens(encoded.ids[0][:1].tolist()) == ["<s>"]  # once: the template writes it


def test_what_a_prompt_and_completion_trains_in_trl_is_learnt() -> None:
    """TRL's rule for a conversation given in two parts: everything behind the prompt with its generation prompt."""
    encoded = encode_messages(PLAIN, [[ASK, SAY]], 512)
    prompt = PLAIN.apply_chat_template([ASK], add_generation_prompt=True, return_dict=True)["input_ids"]
    whole = PLAIN.apply_chat_template([ASK, SAY], return_dict=True)["input_ids"]
    assert whole[: len(prompt)] == prompt
    assert encoded.learnt[0].tolist() == [False] * len(prompt) + [True] * (len(whole) - len(prompt))


def test_cuts_are_at_the_end_and_told() -> None:
    whole = encode_messages(PLAIN, [[ASK, SAY]], 512)
    n, first = len(whole.ids[0]), int(whole.prompt_lengths[0])
    for limit, truncated, lost in ((n, False, False), (n - 1, True, True), (first + 1, True, True)):
        cut = encode_messages(PLAIN, [[ASK, SAY]], limit)
        assert cut.ids[0].tolist() == whole.ids[0][:limit].tolist()
        assert (cut.truncated[0], cut.target_truncated[0]) == (truncated, lost)
        assert len(cut.places(0)) == limit - first
    assert len(encode_messages(PLAIN, [[ASK, SAY]], first).places(0)) == 0
    late = encode_messages(PLAIN, [[ASK, SAY, ASK]], n + 2)
    assert (late.truncated[0], late.target_truncated[0]) == (True, False)


def test_conversations_without_an_answer_have_nothing_to_learn() -> None:
    encoded = encode_messages(PLAIN, [[], [ASK], [ASK, SAY]], 512)
    assert tokens_in_loss(encoded).tolist()[:2] == [0, 0]
    assert encoded.lengths.tolist()[0] == 0
    assert encoded.in_loss().sum() == tokens_in_loss(encoded).sum() > 0


def test_all_tokens_can_be_scored_instead() -> None:
    encoded = encode_messages(PLAIN, [[ASK, SAY], [ASK]], 512)
    assert encoded.in_loss("all").sum() == encoded.lengths.sum() - 2
    for row in range(2):
        starts = np.cumsum([0, *encoded.lengths])
        flat = np.flatnonzero(encoded.in_loss("all")[starts[row] : starts[row + 1]])
        assert flat.tolist() == encoded.places(row, "all").tolist()


@pytest.mark.parametrize(
    ("template", "chat", "error", "message"),
    [
        (None, [ASK, SAY], ModelError, "no chat template"),
        (INST, [{"role": "system", "content": "x"}, SAY], DatasetError, "row 1: .* refuses .*only user and assistant"),
        (CHATML, [SAY], DatasetError, r"row 1: the conversation begins with the assistant"),
        (
            "{{ messages | length }}" + CHATML,  # what comes first depends on what comes last
            [ASK, SAY],
            DatasetError,
            r"row 1, message 2: .* nobody can tell",
        ),
    ],
)
def test_what_cannot_be_told_is_said(template, chat, error, message) -> None:
    with pytest.raises(error, match=message):
        encode_messages(tokenizer(template), [chat], 64)
    if template:
        with pytest.raises(error, match="data row 8"):
            encode_messages(tokenizer(template), [chat], 64, [8])


def test_a_template_that_rewrites_earlier_answers_is_refused() -> None:
    """As templates do that drop the reasoning of every answer but the last."""
    forgets = CHATML.replace(_TURN, "{% if loop.last or message['role'] != 'assistant' %}" + _TURN + "{% endif %}")
    assert len(encode_messages(tokenizer(forgets), [[ASK, SAY]], 512).places(0))
    with pytest.raises(DatasetError, match=r"message 2: .* nobody can tell"):
        encode_messages(tokenizer(forgets), [[ASK, SAY, ASK, SAY]], 512)


def test_marks_are_found_however_they_are_written() -> None:
    for mark in ("{% generation %}", "{%- generation -%}", "{%generation%}", "{%+ generation %}"):
        assert has_marks(tokenizer(mark + "{% endgeneration %}"))
    assert not has_marks(PLAIN)
    assert "no generation marks" in note(PLAIN)
    assert "marks what the assistant writes" in note(WITH_MARKS)


@pytest.fixture(scope="module")
def lm(tmp_path_factory, one_thread):
    """A tiny Llama whose tokenizer chats."""
    from auditcore.lm.load import quiet
    from tests.tiny_models import build_model

    folder = tmp_path_factory.mktemp("chat")
    with quiet():
        build_model("llama", len(PLAIN)).save_pretrained(folder)
        PLAIN.save_pretrained(folder)
    return load_model(ModelSpec(source=str(folder)))


ROWS = [
    [ASK, SAY],
    [ASK],
    [ASK, SAY, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Stocks fell on Monday."}],
    [],
]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_scored_positions_and_values_do_not_depend_on_the_batch(lm, side, batch_size) -> None:
    encoded = encode_messages(lm.tokenizer, ROWS, 200)
    stats = token_statistics(lm, None, encoded, batch_size=batch_size, padding_side=side)
    assert stats.scored.tolist() == encoded.in_loss().tolist()
    assert np.isfinite(stats.logp_target[stats.scored]).all()
    assert np.isnan(stats.logp_target[~stats.scored]).all()
    alone = token_statistics(lm, None, encoded, score="all", batch_size=1)
    np.testing.assert_allclose(stats.logp_target[stats.scored], alone.logp_target[stats.scored], atol=1e-4)


def test_what_is_trained_is_what_is_scored(lm) -> None:
    """One loss, three ways: transformers with TRL's labels, our training batches, our token statistics."""
    encoded = encode_messages(lm.tokenizer, ROWS, 200)
    stats = token_statistics(lm, None, encoded)
    for row in (0, 2):
        labels = our_labels(encoded, row)
        ids = torch.tensor(encoded.ids[row])[None]
        with torch.inference_mode():
            loss = float(lm.model(input_ids=ids, labels=torch.tensor(labels)[None]).loss)
        mine = slice(int(stats.offsets[row]), int(stats.offsets[row + 1]))
        logp = stats.logp_target[mine][stats.scored[mine]]
        assert loss == pytest.approx(-float(logp.mean()), abs=1e-4)
        batch = collate(encoded, np.array([row]))
        assert batch.labels.tolist() == stats.token_id[mine][stats.scored[mine]].tolist()
        assert (batch.positions + 1).tolist() == np.flatnonzero(stats.scored[mine]).tolist()
