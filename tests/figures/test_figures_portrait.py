"""Pictures of a data set: shares add up, lengths cover every row, words are escaped and marked."""

import numpy as np
import pandas as pd
import pytest

from auditcore.figures.portrait import balance_figure, length_figure, words_table
from auditcore.findings.portrait import balance_sentence, length_sentence, words_sentence
from auditcore.words import plain

BALANCE = pd.DataFrame(
    [("sex", s, c, n, n) for s, c, n in (("train", "F", 30), ("train", "M", 10), ("bal_test", "F", 5))],
    columns=["attribute", "split", "class", "subjects", "rows"],
)
WORDS = pd.DataFrame(
    [("sex", "F", "<she>", 9.0, 0.8, 0.1, 40, True), ("sex", "M", "home", 0.2, 0.5, 0.4, 40, False)],
    columns=["attribute", "class", "word", "z", "share", "share_rest", "subjects", "marked"],
)


def test_shares_of_a_split_add_up_and_a_missing_class_is_none():
    fig = balance_figure(BALANCE)
    shares = np.array([list(t.x) for t in fig.data])
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    assert shares[1].tolist() == [0.25, 0.0]
    assert "M in train, 10 subjects" not in plain(balance_sentence(BALANCE, "sex"))
    assert "the smallest cell is F in bal_test, 5 subjects." in plain(balance_sentence(BALANCE, "sex"))


@pytest.mark.parametrize("limit", [None, 50])
def test_the_histogram_holds_every_row_and_says_what_is_cut(limit):
    lengths = np.arange(1, 101)
    fig = length_figure(lengths, "tokens", limit)
    assert sum(fig.data[0].y) == pytest.approx(1)
    text = plain(length_sentence(lengths, "tokens", limit))
    assert "at most 51 tokens, 95 of 100 at most 96" in text
    assert ("50.0\u202f% are longer than 50" in text) == (limit is not None)


def test_a_sample_of_lengths_says_of_how_many_rows():
    lengths = np.arange(1, 101)
    said = "Measured on an even sample of 100 of 5,000 rows."
    assert said in plain(length_sentence(lengths, "tokens", None, 5_000))
    assert said in plain(length_sentence(lengths, "tokens", 50, 5_000))
    assert "sample" not in plain(length_sentence(lengths, "tokens", None, 100))


def test_one_length_and_no_length_are_drawn_or_said():
    assert sum(length_figure(np.full(5, 7), "words", None).data[0].y) == pytest.approx(1)
    assert plain(length_sentence(np.zeros(0, dtype=int), "words", 5)) == "No row has a text."


def test_words_are_escaped_and_proxies_marked():
    html = words_table(WORDS)
    assert "&lt;she&gt;" in html
    assert "<she>" not in html
    assert html.count("▲ proxy") == 1
    assert "at least 1 is a proxy" in plain(words_sentence(WORDS, "sex", 200))
    assert "None of 200 words" in plain(words_sentence(WORDS[1:], "sex", 200))
    assert "enough subjects" in plain(words_sentence(WORDS[:0], "sex", 0))
