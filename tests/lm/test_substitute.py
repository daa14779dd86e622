"""Neighbours: what may be replaced by what, copies in pairs, the same for a row wherever it stands."""

import numpy as np
import pytest
import torch

from auditcore.lm.encode import Encoded, encode
from auditcore.lm.load import load_model
from auditcore.lm.substitute import substitute
from auditcore.lm.tokens import pieces_of
from auditcore.spec import ModelSpec
from tests.tiny_models import ARCHITECTURES, TEXTS, build_folder


@pytest.fixture(scope="module")
def lm(tmp_path_factory, one_thread):
    """A vocabulary in which most words of the texts are one token."""
    folder = build_folder(tmp_path_factory.mktemp("words"), "llama", vocabulary=640)
    return load_model(ModelSpec(source=str(folder)))


def rows_of(lm, texts=TEXTS, target=None):
    return encode(lm.tokenizer, "{t}", {"t": list(texts)}, target, 200)


def changed(encoded, made, copy):
    """Per row: positions that differ in a copy."""
    rows = zip(encoded.ids, made.apply(encoded, copy).ids, strict=True)
    return [np.flatnonzero(before != after) for before, after in rows]


def test_whole_words_give_way_to_other_whole_words(lm):
    encoded = rows_of(lm)
    made = substitute(lm, encoded, copies=6, share=0.3, seed=0)
    assert len(made) == 6
    pieces = pieces_of(lm.tokenizer, np.arange(len(lm.tokenizer)))
    replaced = 0
    for copy in range(6):
        for row, places in enumerate(changed(encoded, made, copy)):
            assert len(made.apply(encoded, copy).ids[row]) == len(encoded.ids[row])
            assert 0 not in places
            for place in places:
                before, after = encoded.ids[row][place], made.apply(encoded, copy).ids[row][place]
                for token in (before, after):
                    assert pieces[token].startswith(" ")
                    assert pieces[token].strip().isalpha()
                follows = pieces[encoded.ids[row][place + 1]] if place + 1 < len(encoded.ids[row]) else " "
                assert not follows[:1].isalnum()
                replaced += 1
    assert replaced >= 6 * len(TEXTS)


def test_the_copies_of_a_pair_change_the_same_places_differently(lm):
    encoded = rows_of(lm)
    made = substitute(lm, encoded, copies=4, share=0.3, seed=0)
    for pair in (0, 2):
        for one, other in zip(changed(encoded, made, pair), changed(encoded, made, pair + 1), strict=True):
            np.testing.assert_array_equal(one, other)
        for a, b in zip(made.apply(encoded, pair).ids, made.apply(encoded, pair + 1).ids, strict=True):
            assert (a != b).any()
    places = [np.concatenate(changed(encoded, made, copy)) for copy in (0, 2)]
    assert len(places[0]) != len(places[1]) or (places[0] != places[1]).any()


def test_a_row_draws_the_same_alone_and_among_others_and_the_first_copies_do_not_know_the_rest(lm):
    encoded = rows_of(lm)
    together = substitute(lm, encoded, copies=4, share=0.2, seed=3)
    for row in range(len(TEXTS)):
        alone = rows_of(lm, [TEXTS[row]])
        made = substitute(lm, alone, copies=3, share=0.2, seed=3, batch_size=1)
        for copy in range(3):
            np.testing.assert_array_equal(made.apply(alone, copy).ids[0], together.apply(encoded, copy).ids[row])
    other = substitute(lm, encoded, copies=4, share=0.2, seed=4)
    assert (np.concatenate(other.apply(encoded, 0).ids) != np.concatenate(together.apply(encoded, 0).ids)).any()


def test_proposals_are_the_models_likeliest_words(lm):
    """With one word to replace and every proposal drawn often, the likeliest word comes most often."""
    text = "He was discharged home in good condition"
    encoded = rows_of(lm, [text])
    ids = encoded.ids[0]
    with torch.inference_mode():
        logits = lm.model(input_ids=torch.from_numpy(ids)[None]).logits[0].float()
    pieces = pieces_of(lm.tokenizer, np.arange(len(lm.tokenizer)))
    word = np.array([p[:1].isspace() and p.strip().isalpha() for p in pieces])
    counts: dict[int, dict[int, int]] = {}
    for seed in range(60):
        made = substitute(lm, encoded, copies=1, share=0.01, seed=seed)
        ((place, token),) = [(int(p), int(t)) for p, t in zip(made.place, made.token_id, strict=True)]
        counts.setdefault(place, {}).setdefault(token, 0)
        counts[place][token] += 1
    assert len(counts) > 1  # not always the same place
    for place, drawn in counts.items():
        allowed = logits[place - 1].masked_fill(torch.from_numpy(~word), -torch.inf)
        allowed[int(ids[place])] = -torch.inf
        assert set(drawn) <= set(allowed.topk(20).indices.tolist())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_proposes(tiny_folders, architecture):
    lm = load_model(ModelSpec(source=str(tiny_folders[architecture])))
    encoded = rows_of(lm)
    made = substitute(lm, encoded, copies=2, share=0.2, seed=0)
    assert all(len(places) for places in changed(encoded, made, 0))


def test_rows_without_words_and_rows_without_evidence(lm):
    encoded = rows_of(lm, ["", "a", "12345 67890", "東京東京"])
    seen = []
    made = substitute(lm, encoded, copies=3, share=0.5, seed=0, on_batch=lambda *x: seen.append(x))
    for copy in range(3):
        places = changed(encoded, made, copy)
        assert [len(p) for p in places[:2]] == [0, 0]
        assert min(len(p) for p in places[2:]) > 0
    assert seen[-1] == (2, 2)
    special = set(lm.tokenizer.all_special_ids)
    assert not special & set(made.token_id.tolist())
    nothing = Encoded([], np.empty(0, np.int64), np.empty(0, bool), np.empty(0, bool))
    assert len(substitute(lm, nothing, copies=2, share=0.5, seed=0).apply(nothing, 1).ids) == 0


@pytest.mark.parametrize("score", ["target", "all"])
def test_only_tokens_that_count_are_replaced(lm, score):
    encoded = rows_of(lm, TEXTS[:2], target=["The patient was admitted", "with fever and cough"])
    made = substitute(lm, encoded, copies=8, share=0.5, seed=0, score=score)
    least = [min(int(changed(encoded, made, c)[row].min()) for c in range(8)) for row in range(2)]
    assert all(p >= n for p, n in zip(least, encoded.prompt_lengths, strict=True)) == (score == "target")
