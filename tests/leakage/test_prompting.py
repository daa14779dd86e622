"""Directives in front of a template, terms as whole words, contamination against the undirected prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditcore.leakage.prompting import contamination, found_terms, shipped, with_directive
from auditcore.spec import parse_spec, parse_template
from auditcore.verdict import wilson


def test_three_directives_are_shipped_with_their_words():
    found = shipped()
    assert len(found.directives) == 3
    data = {"path": "x.csv", "roles": {"label": "sex"}}
    parse_spec({"kind": "vectors", "model": {"source": "a"}, "data": data, "directives": found.directives})
    assert len(set(found.meta_terms)) == len(found.meta_terms) > 10


@given(st.text(max_size=60))
def test_a_directive_is_read_as_written_whatever_it_holds(text):
    pieces = parse_template(with_directive("{prompt}\nSummary:", text))
    assert "".join(literal for literal, _ in pieces) == text + "\n\n\nSummary:"
    assert [name for _, name in pieces if name] == ["prompt"]


def test_terms_are_whole_words_case_and_blanks_folded():
    terms = ["race", "social group", "c++", "neutral"]
    assert found_terms("His RACE is Social\n group", terms) == ["race", "social group"]
    assert found_terms("traced embrace neutrality grace", terms) == []
    assert found_terms("c++ (neutral).", terms) == ["c++", "neutral"]
    assert found_terms("", terms) == []


def test_contamination_is_a_share_and_a_paired_change():
    hit = np.array([True] * 30 + [False] * 70)
    plain = np.array([True] * 10 + [False] * 90)
    groups = np.arange(100).astype(str)
    found = contamination(hit, plain, groups)
    assert (found.value, found.change) == (0.3, pytest.approx(0.2))
    assert found.low < 0.3 < found.high
    assert 0.1 < found.change_low < 0.2 < found.change_high < 0.3
    same = contamination(hit, hit, groups)
    assert (same.change, -same.change_low) == (0, same.change_high)  # none of 100 changed: not proof that none would
    assert same.change_high == pytest.approx(wilson(0.0, 100)[1])


def test_no_hit_is_not_proof_of_none_and_subjects_count_once():
    none = np.zeros(50, dtype=bool)
    many = contamination(none, None, np.arange(50).astype(str))
    few = contamination(none, None, np.repeat(np.arange(5), 10).astype(str))
    assert many.low == 0 < many.high < few.high
    assert np.isnan(many.change)
    assert np.isnan(contamination(none[:0], None, np.array([])).value)
