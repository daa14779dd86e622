"""The token map: every text is escaped, every number stands where it belongs."""

import html as stdlib_html
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditcore.figures import tokens as figures
from tests.fake_parts import HOSTILE

ALLOWED = {"div", "span", "i", "br", "wbr", "b"}


def frame(**changes) -> pd.DataFrame:
    data = {
        "position": [0, 1, 2, 3, 4],
        "token_id": [5, 6, 7, 8, 9],
        "token": ["Or", "acle", " wins", "\n", " big"],
        "logp_target": [np.nan, -0.1, -1.0, -2.0, -0.5],
        "logp_reference": [np.nan, -0.2, -4.0, -1.0, -0.5],
        "delta": [np.nan, 0.1, 3.0, -1.0, 0.0],
        "is_error": [False, True, True, True, False],
        "scored": [False, True, True, True, True],
    }
    return pd.DataFrame({**data, **changes})


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.text, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text.append(data)


def parsed(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    return tags


def spans(html: str) -> list[str]:
    return re.findall(r"<span[^>]*>", html)


def test_one_span_per_token_coloured_by_its_shift_and_marked_where_it_counts():
    found = spans(figures.token_map(frame()))
    assert len(found) == 5
    assert 'class="u"' in found[0]  # not scored: quiet, no colour
    assert "--a" not in found[0]
    assert 'class="s' in found[1]  # the first predicted position is not part of the error zone
    assert 'class="e r" style="--a:0.62"' in found[2]
    assert 'class="e l"' in found[3]
    assert "class" not in found[4]  # no shift, no error


def test_without_skip_first_the_first_predicted_position_counts():
    assert 'class="e' in spans(figures.token_map(frame(), skip_first=False))[1]


def test_hover_names_both_probabilities_shift_and_zone():
    text = stdlib_html.unescape(spans(figures.token_map(frame()))[2])
    assert "position 2, token id 7" in text
    assert "after fine-tuning 37 %, before 1.8 %" in text
    assert "shift +3.00 nats" in text
    assert "counts for P and N" in text


def test_hidden_text_leaves_positions_only():
    html = figures.token_map(frame(), hide_text=True)
    for word in ("Or", "acle", "wins", "big"):
        assert f"{word}<" not in html
    assert [t.strip() for t in parsed(html).text if t.strip()] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_stay_text(text):
    html = figures.token_map(frame(token=[text] * 5))
    assert set(parsed(html).found) <= ALLOWED
    assert set(parsed(html).attributes) <= {"class", "style", "data-t"}


@given(st.text(max_size=40), st.floats(allow_nan=True), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_token_gives_only_our_tags_and_all_of_its_characters(text, delta, error, scored):
    data = frame().head(1).assign(token=[text], delta=[delta], is_error=[error], scored=[scored], position=[3])
    html = figures.token_map(data)
    tags = parsed(html)
    assert set(tags.found) <= ALLOWED
    shown = "".join(tags.text)
    for character in text:
        visible = (
            character in shown or f"U+{ord(character):04X}" in shown or character in " \n\r\t" or "\ufffd" in shown
        )
        assert visible


def test_invisible_and_direction_changing_characters_are_named():
    body, breaks = figures.visible("a\u200bb\u202e\nc")
    assert "U+200B" in body
    assert "U+202E" in body
    assert "\u202e" not in body
    assert "↵" in body
    assert breaks == "<br>"


@given(st.floats(-50, 50))
def test_opacity_is_even_monotone_and_capped(delta):
    assert 0 <= figures.opacity(delta) <= figures.STRONGEST
    assert figures.opacity(delta) == figures.opacity(-delta)
    assert figures.opacity(delta) <= figures.opacity(abs(delta) + 1)


def test_opacity_of_a_missing_shift_is_none():
    assert figures.opacity(float("nan")) == 0.0


def contrast(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("hue", [(213, 94, 0), (0, 114, 178)])
@pytest.mark.parametrize(("paper", "ink"), [((252, 252, 250), (27, 36, 48)), ((18, 24, 31), (230, 233, 228))])
def test_text_on_the_strongest_colour_stays_readable(hue, paper, ink):
    a = figures.STRONGEST
    mixed = tuple(a * h + (1 - a) * p for h, p in zip(hue, paper, strict=True))
    assert contrast(mixed, ink) >= 4.5


def test_pn_bar_is_proportional_and_says_both_numbers():
    html = figures.pn_bar(3.0, 1.0)
    assert 'class="tk-p" style="width:75%"' in html
    assert "P = <b>3.00</b> nats raised · P/N = 3.00" in html
    assert "N = 0" in figures.pn_bar(3.0, 0.0)
    assert figures.pn_bar(None, 1.0) == ""
    assert 'class="tk-p"' not in figures.pn_bar(0.0, 0.0)


def test_table_behind_the_map_holds_the_probabilities():
    table = figures.token_table(frame())
    assert table["p after"].iloc[2] == pytest.approx(np.exp(-1.0))
    assert np.isnan(table["p after"].iloc[0])
    hidden = figures.token_table(frame(), hide_text=True)
    assert "token" not in hidden.columns
    assert "token" not in figures.token_table(frame(token=[""] * 5)).columns


def test_sentence_counts_zone_shifts_and_what_is_left_out():
    broken = frame(delta=[np.nan, 0.1, np.nan, -1.0, 0.0])
    text = "".join(figures.tokens_sentence(broken, 9))
    assert "5 of 9 tokens, 2 in the error zone: 0 raised, 1 lowered. 1 not scored." in text
    assert "1 without a finite shift have no colour" in text


def test_the_page_of_two_thousand_tokens_stays_small():
    many = pd.concat([frame()] * 400, ignore_index=True).assign(position=range(2000))
    assert len(figures.token_map(many)) < 700_000
