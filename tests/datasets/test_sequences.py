"""Sequences: no document on two sides, nothing lost without being counted, the exact units of the text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.datasets.sequences import MAKERS, Counts, Document, Piece, build, words
from auditcore.errors import DatasetError
from auditcore.spec import SEQUENCES, CorpusSpec


def how(**changes) -> CorpusSpec:
    return CorpusSpec(name="ag_news", **{"length": 4, **changes})


def corpus(*texts: str) -> list[Document]:
    return [Document(f"d{k}", text) for k, text in enumerate(texts)]


def only(kind: str, texts: list[str], **changes) -> tuple[list[Piece], Counts]:
    """All sequences of one side that takes every document, in order."""
    counts = Counts()
    return list(MAKERS[kind](iter(corpus(*texts)), how(**changes), words, counts)), counts


def numbers(start: int, stop: int) -> str:
    return " ".join(map(str, range(start, stop)))


def test_every_kind_of_sequences_has_its_function() -> None:
    assert set(MAKERS) == set(SEQUENCES)


def test_cut_gives_consecutive_pieces_of_one_document_and_counts_the_tail() -> None:
    pieces, counts = only("cut", [numbers(0, 11), numbers(100, 109), "too short"])
    texts = {p.text: p for p in pieces}
    assert set(texts) == {"0 1 2 3", "4 5 6 7", "100 101 102 103", "104 105 106 107"}
    assert texts["4 5 6 7"].number == 2
    assert texts["4 5 6 7"].group == texts["0 1 2 3"].group
    assert (counts.units, counts.too_short) == (22, 1)


def test_a_document_can_give_a_few_of_its_pieces_wherever_they_stand() -> None:
    texts = [numbers(100 * k, 100 * k + 43) for k in range(40)]
    every, _ = only("cut", texts)
    some, counts = only("cut", texts, per_document=2)
    assert len(every) == 400
    assert len(some) == 80
    assert counts.spare == 320
    assert {p.text for p in some} <= {p.text for p in every}
    assert len({p.number for p in some}) == 10
    again, _ = only("cut", texts[::-1], per_document=2)
    names = [f"d{39 - k}" for k in range(40)]  # other documents under these names
    assert len(again) == 80
    assert {p.group for p in again} == set(names)
    assert [p.number for p in again if p.group == "d3"] == [p.number for p in some if p.group == "d3"]


def test_last_takes_the_end_of_every_document() -> None:
    pieces, counts = only("last", [numbers(0, 11), numbers(100, 104), "too short"])
    assert {p.text for p in pieces} == {"7 8 9 10", "100 101 102 103"}
    assert (counts.units, counts.too_short) == (17, 1)


def test_joined_fills_up_with_the_next_document_and_starts_afresh_after_it() -> None:
    pieces, counts = only("joined", [f"{n} {n} {n}" for n in "abcdefgh"])
    assert len(pieces) == 4  # two documents each; what is left of the second is dropped
    for piece in pieces:
        first, second = piece.text.split()[0], piece.text.split()[-1]
        assert piece.text == f"{first} {first} {first} {second}"
        assert len(piece.documents) == 2
    assert counts.units == 24


def test_whole_documents_stay_as_they_are() -> None:
    pieces, counts = only("whole", ["a  b\n", "c d e f g h"])
    assert [(p.text, p.size) for p in pieces] == [("a  b\n", 2), ("c d e f g h", 6)]
    assert counts.units == 8


def test_words_are_joined_by_one_blank_unless_spacing_is_kept() -> None:
    code = "def f(x):\n    return  x\n\n# end"
    plain, _ = only("last", [code, "a b c d"])
    kept, _ = only("last", [code, "a b c d"], keep_spacing=True)
    assert "return x # end" in {p.text for p in plain}
    assert "return  x\n\n# end" in {p.text for p in kept}


def test_empty_and_repeated_documents_are_left_out_and_counted() -> None:
    documents = corpus("a b", " a\nb ", "", " \n", "c d e")
    made, counts = build(documents, how(), "whole", words)
    assert sorted(p.text for pieces in made.values() for p in pieces) == ["a b", "c d e"]
    assert (counts.documents, counts.empty, counts.repeated, counts.units, counts.dropped) == (5, 2, 1, 5, 0)


def test_equal_sequences_of_different_documents_stand_on_one_side_only() -> None:
    documents = corpus(*(f"the same four words {k}" for k in range(6)), "a b c d")
    with pytest.raises(DatasetError, match="give no sequence"):
        build(documents[:6], how(), "cut", words)
    made, counts = build(documents, how(members=1, nonmembers=1), "cut", words)
    assert {p.text for pieces in made.values() for p in pieces} == {"the same four words", "a b c d"}
    assert counts.equal == 6 - 1 - counts.unused


def test_sides_get_what_they_ask_for_and_the_rest_is_counted() -> None:
    documents = corpus(*(numbers(10 * k, 10 * k + 9) for k in range(50)))
    made, counts = build(documents, how(members=7, nonmembers=5, validation=3, seed=4), "cut", words)
    assert {side: len(pieces) for side, pieces in made.items()} == {"members": 7, "nonmembers": 5, "validation": 3}
    assert counts.unused == 50 - 2 - 4 - 3  # two pieces a document
    assert (counts.units, counts.kept, counts.dropped) == (81, 60, 21)
    again, _ = build(documents, how(members=7, nonmembers=5, validation=3, seed=4), "cut", words)
    other, _ = build(documents, how(members=7, nonmembers=5, validation=3, seed=5), "cut", words)
    assert again == made
    assert other != made


def test_asking_for_too_much_says_how_much_there_is() -> None:
    with pytest.raises(DatasetError, match=r"notes.csv: 30 members .*, but .* only 20 sequences of 4 words\."):
        build(corpus(*(numbers(20 * k, 20 * k + 9) for k in range(10))), how(members=30), "cut", words, "notes.csv")
    with pytest.raises(DatasetError, match="left give no sequence of 4 words for the nonmembers"):
        build(corpus(numbers(0, 9)), how(members=1), "cut", words)
    with pytest.raises(
        DatasetError, match=r"9 nonmembers .* only 6 sequences of 4 words after those before them \(4\)"
    ):
        build(corpus(*(numbers(20 * k, 20 * k + 9) for k in range(5))), how(members=4, nonmembers=9), "cut", words)


def test_draws_are_fair_over_seeds() -> None:
    documents = corpus(*(numbers(10 * k, 10 * k + 4) for k in range(20)))
    firsts = [{p.group for p in build(documents, how(seed=s), "cut", words)[0]["members"]} for s in range(60)]
    share = np.mean(["d0" in names for names in firsts])
    assert 0.25 < share < 0.75


WORDS = st.text("ab \n\tß🙂", max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(WORDS, min_size=0, max_size=14),
    kind=st.sampled_from(sorted(SEQUENCES)),
    length=st.integers(2, 5),
    seed=st.integers(0, 3),
    keep=st.booleans(),
)
def test_no_document_is_on_two_sides_and_every_unit_is_accounted_for(texts, kind, length, seed, keep) -> None:
    documents = [Document(f"d{k}", text) for k, text in enumerate(texts)]
    try:
        spec = how(length=length, seed=seed, validation=1, keep_spacing=keep)
        made, counts = build(documents, spec, kind, words)
    except DatasetError:
        return
    sides = {side: {name for p in pieces for name in p.documents} for side, pieces in made.items()}
    assert not sides["members"] & sides["nonmembers"]
    assert not sides["validation"] & (sides["members"] | sides["nonmembers"])
    source = {d.id: d.text.split() for d in documents}
    for pieces in made.values():
        for piece in pieces:
            assert len(piece.text.split()) == piece.size
            assert kind == "whole" or piece.size == length
            assert set(piece.text.split()) <= {w for name in piece.documents for w in source[name]}
    every = [p.text for pieces in made.values() for p in pieces]
    assert len(set(every)) == len(every)
    assert counts.documents == len(texts)
    assert 0 <= counts.dropped <= counts.units <= sum(map(len, source.values()))
    used = counts.documents - counts.empty - counts.repeated - counts.unused
    assert used >= len({name for names in sides.values() for name in names})


def test_tokens_that_share_a_character_do_not_give_it_to_two_pieces() -> None:
    def bytewise(text: str) -> list[tuple[int, int]]:
        spans = []
        for k, character in enumerate(text):
            spans += [(k, k + 1)] * len(character.encode())
        return spans

    made, _ = build(corpus("abc🙂def", "xyz🙂uvw"), how(length=5, unit="tokens"), "cut", bytewise)
    for pieces in (made["members"], made["nonmembers"]):
        assert "".join(p.text for p in pieces) in ("abc🙂def", "xyz🙂uvw")
