"""What each attack of a run reads and costs. In: a spec. Out: rows of a table: paper, access, passes, training."""

from typing import Any

from auditcore.spec import MembershipSpec, parse_spec

BLIND = {"attack": "bow", "paper": "none", "access": "the texts alone, no model", "passes": 0, "training": ""}


def attack_costs(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict per attack of a membership spec, and one for the blind baseline that always runs beside them."""
    from auditcore.membership.cost import as_dicts, costs  # here: scipy is slow to import

    parsed = parse_spec(spec)
    return [*as_dicts(costs(parsed)), BLIND] if isinstance(parsed, MembershipSpec) else []
