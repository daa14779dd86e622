"""From text to ids: templates, cutting, targets, batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.errors import ModelError, SpecError
from auditcore.lm.encode import batches, encode
from tests.tiny_models import TEXTS, build_tokenizer

TOKENIZER = build_tokenizer()


def ids_of(text, special=True):
    return TOKENIZER(text, add_special_tokens=special)["input_ids"]


def text_of(ids):
    return TOKENIZER.decode(ids, clean_up_tokenization_spaces=False)


def test_template_and_target_are_joined():
    encoded = encode(TOKENIZER, "{a}. {b}\nSummary:", {"a": ["One", "x"], "b": ["two", ""]}, ["three", ""], 64)
    prompt = ids_of("One. two\nSummary:")
    assert encoded.ids[0].tolist() == [*prompt, *ids_of(" three"), TOKENIZER.eos_token_id]
    assert encoded.ids[1].tolist() == ids_of("x. \nSummary:")
    assert encoded.prompt_lengths.tolist() == [len(prompt), len(encoded.ids[1])]
    assert encoded.ids[0].dtype == np.int64
    assert not encoded.truncated.any()
    assert encoded.has_target
    assert [len(row) for row in encoded.prompts().ids] == encoded.prompt_lengths.tolist()
    spaced = encode(TOKENIZER, "{a}\n", {"a": ["One"]}, ["three"], 64)
    assert spaced.ids[0].tolist() == [*ids_of("One\n"), *ids_of("three"), TOKENIZER.eos_token_id]


def test_text_without_target():
    encoded = encode(TOKENIZER, "{t}", {"t": ["", "a", TEXTS[0]]}, None, 64)
    assert encoded.lengths.tolist() == encoded.prompt_lengths.tolist() == [0, 1, len(ids_of(TEXTS[0]))]
    assert not encoded.has_target


def test_only_the_last_columns_text_is_cut_at_its_end():
    fields = {"a": ["Patient:"], "b": [TEXTS[0]]}
    encoded = encode(TOKENIZER, "{a} {b}\nBrief Hospital Course:", fields, None, 40)
    assert len(encoded.ids[0]) <= 40
    assert len(encoded.ids[0]) >= 38
    text = text_of(encoded.ids[0])
    assert text.startswith("Patient: The patient was")
    assert text.endswith("\nBrief Hospital Course:")
    assert TEXTS[0].startswith(text.removeprefix("Patient: ").removesuffix("\nBrief Hospital Course:"))
    assert encoded.truncated.tolist() == [True]


def test_where_the_text_ends_the_row_its_first_tokens_stay_as_they_are():
    encoded = encode(TOKENIZER, "{a}: {b}", {"a": ["x"], "b": [TEXTS[2]]}, None, 17)
    assert encoded.ids[0].tolist() == ids_of("x: " + TEXTS[2])[:17]


def test_the_column_before_is_cut_when_the_last_is_not_enough():
    encoded = encode(TOKENIZER, "{a}. {b}", {"a": [TEXTS[0]], "b": ["cd"]}, None, 12)
    assert len(encoded.ids[0]) <= 12
    text = text_of(encoded.ids[0])
    assert text.endswith(". ")
    assert TEXTS[0].startswith(text.removesuffix(". "))


def test_the_target_is_kept_whole_while_it_fits_beside_the_template():
    target = "home in good condition"
    size = len(ids_of(" " + target)) + 1
    encoded = encode(TOKENIZER, "{t}\nS:", {"t": [TEXTS[0]]}, [target], size + 8)
    assert len(encoded.ids[0]) <= size + 8
    assert text_of(encoded.ids[0]).endswith(f"\nS: {target}</s>")
    assert encoded.truncated[0]
    assert not encoded.target_truncated[0]


def test_a_target_that_does_not_fit_is_cut_and_counted():
    bare = len(ids_of("\nS:"))
    encoded = encode(TOKENIZER, "{t}\nS:", {"t": ["a b c", ""]}, [TEXTS[0], TEXTS[0]], bare + 5)
    assert encoded.target_truncated.tolist() == [True, True]
    assert encoded.truncated.tolist() == [True, False]
    for ids in encoded.ids:
        assert ids.tolist() == [*ids_of("\nS:"), *ids_of(" " + TEXTS[0])[:5]]
    assert encoded.prompt_lengths.tolist() == [bare, bare]


def test_a_template_that_leaves_no_room_is_an_error():
    with pytest.raises(SpecError, match=r"alone takes \d+ tokens, max_length is 4"):
        encode(TOKENIZER, "{t} a long template of many words", {"t": ["text"]}, None, 4)
    with pytest.raises(SpecError, match=r"no column 'txt'\. Did you mean 'text'"):
        encode(TOKENIZER, "{txt}", {"text": ["a"]}, None, 4)
    with pytest.raises(SpecError, match="at least 2"):
        encode(TOKENIZER, "{t}", {"t": ["a"]}, None, 1)


def test_a_tokenizer_without_end_of_sequence_cannot_close_a_target():
    bare = build_tokenizer()
    bare.eos_token = None
    with pytest.raises(ModelError, match="end-of-sequence"):
        encode(bare, "{t}", {"t": ["a"]}, ["b"], 8)


def test_special_tokens_at_both_ends_stay():
    from tokenizers.processors import TemplateProcessing

    framed = build_tokenizer()
    framed.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    encoded = encode(framed, "{t}", {"t": [TEXTS[0], "a"]}, None, 10)
    assert encoded.ids[0].tolist() == [0, *ids_of(TEXTS[0], special=False)[:8], 1]
    assert encoded.ids[1].tolist() == [0, *ids_of("a", special=False), 1]
    cut = encode(framed, "{t} end", {"t": [TEXTS[0]]}, None, 10)
    assert cut.ids[0][0] == 0
    assert cut.ids[0][-1] == 1
    assert len(cut.ids[0]) <= 10


class Slow:
    """A tokenizer that knows no offsets: one token per character."""

    is_fast = False
    eos_token_id = 1

    def __call__(self, texts, **options):
        return {"input_ids": [[ord(c) for c in text] for text in texts]}


def test_without_offsets_the_text_is_shortened_until_it_fits():
    encoded = encode(Slow(), "{t} end", {"t": ["abcdefghij", "ab"]}, None, 8)
    assert ["".join(map(chr, row)) for row in encoded.ids] == ["abcd end", "ab end"]


WORDS = st.text(st.sampled_from("ab cé東🙂\n<&$="), max_size=60)


@settings(max_examples=150, deadline=None)
@given(WORDS, WORDS, st.none() | WORDS, st.integers(6, 40), st.sampled_from(["{a}", "{a}|{b}", "{b}\n{a} :"]))
def test_never_longer_and_never_cut_in_the_template(a, b, target, limit, template):
    encoded = encode(TOKENIZER, template, {"a": [a], "b": [b]}, None if target is None else [target], limit)
    row, n = encoded.ids[0], int(encoded.prompt_lengths[0])
    assert len(row) <= limit
    whole = template.format(a=a, b=b)
    if not encoded.truncated[0]:
        assert row[:n].tolist() == ids_of(whole)
    if template.endswith(" :"):
        assert text_of(row[:n]).endswith(" :")
    if target and not encoded.target_truncated[0]:
        assert row[n:].tolist() == [*ids_of(" " + target), TOKENIZER.eos_token_id]
    fits = len(ids_of(whole)) + (len(ids_of(" " + target)) + 1 if target else 0) <= limit
    assert fits == (not encoded.truncated[0] and not encoded.target_truncated[0])


@given(st.lists(st.integers(0, 30), max_size=50), st.integers(1, 7))
def test_batches_hold_every_row_with_tokens_once_longest_first(lengths, size):
    found = batches(lengths, size)
    rows = [int(i) for batch in found for i in batch]
    assert sorted(rows) == [i for i, n in enumerate(lengths) if n]
    assert [lengths[i] for i in rows] == sorted((n for n in lengths if n), reverse=True)
    assert all(len(batch) == size for batch in found[:-1])
