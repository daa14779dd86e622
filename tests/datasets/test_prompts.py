"""Sections are cut out of notes however their lines break; a summary that is left is noticed."""

from hypothesis import given
from hypothesis import strategies as st

from auditcore.datasets.prompts import cut_out, shares_long_ngram

TEXTS = st.text(st.sampled_from("ab \n\t:"), max_size=40)


@given(TEXTS, TEXTS, TEXTS)
def test_a_section_is_found_whatever_its_blanks(before, section, after):
    note = f"{before}|{section}|{after}"
    told = " ".join(section.split())
    rest, found = cut_out(note, [told])
    assert found
    if told and told not in " ".join(before.split()):
        assert rest.startswith(before + "|") or told in " ".join(f"{before}|".split())


def test_other_line_breaks_are_the_same_section():
    note = "A: x\nBrief Hospital Course:\nShe was\n  well and\nwent home.\n\nPlan: y"
    rest, found = cut_out(note, ["She was well and went home."])
    assert found
    assert rest == "A: x\nBrief Hospital Course:\n\n\n\nPlan: y"


def test_a_section_that_is_not_found_is_cut_by_its_heading():
    note = "HPI:\nx\nBrief Hospital Course:\nedited text\n\nMedications on Admission:\nz\nDischarge Instructions:\nrest"
    rest, found = cut_out(note, ["the original text"])
    assert not found
    assert rest == "HPI:\nx\nMedications on Admission:\nz\n"
    assert cut_out("no heading", ["other"]) == ("no heading", False)


def test_thirteen_words_in_a_row_are_noticed_twelve_are_not():
    words = [f"w{i}" for i in range(20)]
    target = " ".join(words)
    assert shares_long_ngram("so: " + ", ".join(words[3:16]).upper(), target)
    assert not shares_long_ngram(" ".join(words[3:15]), target)
    assert not shares_long_ngram(target, "short text")
