"""Passes that the user is told are those of the spec; docs/audits.md names every attack with its default cost."""

from pathlib import Path

import pytest

from auditcore.findings import attack_costs
from auditcore.membership.cost import as_dicts, cost, costs
from auditcore.spec import ATTACKS, dump_spec, parse_spec

AUDITS = Path(__file__).resolve().parents[2] / "docs" / "audits.md"


def spec(**changes):
    data = {"path": "rows.csv", "roles": {"text": "text", "member": "member"}}
    return parse_spec({"kind": "membership", "model": {"source": "a", "reference": "b"}, "data": data, **changes})


def test_the_number_of_passes_follows_the_spec():
    assert cost("ez", spec()).passes == 2
    assert cost("neighbourhood", spec()).passes == 12
    assert cost("neighbourhood", spec(neighbours={"count": 3})).passes == 5
    lira = cost("lira", spec(shadows={"count": 4, "method": "full"}))
    assert (lira.passes, lira.training) == (5, "4 shadow models (full)")
    assert lira.sentence().endswith("5 passes a row; trains 4 shadow models (full).")
    assert "; 1 pass a row." in cost("loss", spec()).sentence()


def test_every_attack_and_the_blind_baseline_are_listed():
    every = spec(attacks=list(ATTACKS))
    listed = as_dicts(costs(every))
    assert [one["attack"] for one in listed] == list(ATTACKS)
    found = attack_costs(dump_spec(every))
    assert [one["attack"] for one in found] == [*ATTACKS, "bow"]
    assert all(one["paper"] and one["access"] for one in found)
    assert found[-1]["passes"] == 0


def test_a_run_of_an_earlier_version_is_shown_without_costs():
    assert attack_costs({**dump_spec(spec()), "shadows": {"count": 2}}) == []
    assert attack_costs({"kind": "vectors"}) == []


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_the_readme_says_what_an_attack_costs(attack):
    (line,) = [line for line in AUDITS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{attack}` |")]
    _, _, paper, _, passes, _ = (cell.strip() for cell in line.split("|"))
    found = cost(attack, spec())
    assert paper == found.paper
    assert passes.split()[0].rstrip(",") == str(found.passes)
