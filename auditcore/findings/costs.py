"""What each attack of a run reads and costs. In: a spec. Out: rows of a table: paper, access, passes, training."""

from typing import Any

from auditcore.errors import SpecError
from auditcore.spec import MembershipSpec, parse_spec

BLIND = {"attack": "bow", "paper": "none", "access": "the texts alone, no model", "passes": 0, "training": ""}


def attack_costs(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict per attack of a membership spec, and one for the blind baseline that always runs beside them.

    Empty for a spec that is not valid any more: a run of an earlier version is shown all the same.
    """
    from auditcore.membership.cost import as_dicts, costs  # here: scipy is slow to import

    try:
        parsed = parse_spec(spec)
    except SpecError:
        return []
    return [*as_dicts(costs(parsed)), BLIND] if isinstance(parsed, MembershipSpec) else []
