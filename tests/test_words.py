"""Wording and escaping: nothing a user wrote can become markup."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore import words
from auditcore.words import Strong


@given(st.text())
def test_escape_leaves_no_markup_and_loses_no_text(text: str) -> None:
    escaped = words.escape(text)
    assert not set(escaped) & set("<>\"'")
    hidden = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    assert not re.search(hidden, escaped)
    assert html.unescape(escaped) == re.sub(hidden, "\ufffd", text)


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_markdown_escapes_every_special_character(text: str) -> None:
    escaped = words.markdown(text)
    assert re.sub(r"\\(.)", r"\1", escaped) == text
    bare = re.sub(r"\\.", "", escaped)
    assert not set(bare) & set("*_`$[]<>:#!")


def test_strong_parts_are_bold_and_everything_is_escaped() -> None:
    parts = ("a <b> ", Strong("<script>"), " c")
    assert words.sentence_html(parts) == "a &lt;b&gt; <b>&lt;script&gt;</b> c"
    assert words.plain(parts) == "a <b> <script> c"


@given(st.text(max_size=200), st.integers(8, 80))
def test_shorten_never_exceeds_the_limit(text: str, limit: int) -> None:
    assert len(words.shorten(text, limit)) <= limit


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "x"])
def test_unknown_numbers_are_a_dash(value: object) -> None:
    for write in (words.number, words.signed, words.percent, words.count, words.size):
        assert write(value) == words.NONE
    assert words.interval(value, 1) == words.NONE
    assert words.percent_interval(0.1, value) == words.NONE


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (words.percent(0.8457), "84.6\u202f%"),
        (words.signed(-0.0213), "−0.021"),
        (words.percent_interval(0.798, 0.881), "79.8 to 88.1\u202f%"),
        (words.count(3000.0), "3,000"),
        (words.counted(1, "class", "classes"), "1 class"),
        (words.counted(2, "class", "classes"), "2 classes"),
        (words.listed(["a", "b", "c"]), "a, b and c"),
        (words.listed([]), ""),
        (words.duration(0.2), "1 second"),
        (words.duration(89), "89 seconds"),
        (words.duration(600), "10 minutes"),
        (words.duration(7800), "2 h 10 min"),
        (words.duration(None), "an unknown time"),
        (words.size(4_840_000), "4.8\u202fMB"),
        (words.size(512), "512\u202fbytes"),
        (words.when("2026-11-29T21:14:03+00:00"), "29 Nov 2026, 21:14"),
        (words.when(None), words.NONE),
    ],
)
def test_numbers_and_times_read_well(made: str, expected: str) -> None:
    assert made == expected


@given(st.integers(1, 4000), st.data(), st.integers(0, 3))
def test_a_ratio_of_counts_is_rounded_as_its_own_decimals_are(of: int, data: st.DataObject, digits: int) -> None:
    rows = data.draw(st.integers(0, of))
    units, left = divmod(100 * 10**digits * rows, of)
    units += 2 * left >= of  # half up, in whole numbers
    wanted = f"{units // 10**digits}" + (f".{units % 10**digits:0{digits}d}" if digits else "")
    assert words.percent(rows / of, digits) == f"{wanted}\u202f%"
    if rows:
        assert words.number(-100 * rows / of, digits) == f"−{wanted}"


def test_halves_go_one_way_on_one_card() -> None:
    assert words.percent_interval(61 / 400, 121 / 400) == "15.3 to 30.3\u202f%"
    assert words.percent(83 / 400) == "20.8\u202f%"
    assert words.signed(0.2505 - 0.2) == "+0.051"
    assert words.number(8.9e201, 1).startswith("88")  # as large as it is, not an error
