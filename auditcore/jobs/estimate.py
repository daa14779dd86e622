"""What a plan says. In: rows, tokens, seconds, bytes, power. Out: one object for pages; words for a terminal."""

from dataclasses import dataclass, field
from typing import Any

from auditcore.verdict import power_basis
from auditcore.words import duration

ENOUGH = 0.8  # probability of "within budget" when nothing leaks, below which a plan warns
BUSY = 1.5  # from here on a plan says beside its time how much longer the machine's other work makes it


@dataclass(frozen=True)
class Plan:
    """Cost and power of a planned run. seconds and bytes are estimates; seconds are those of a machine that is free."""

    kind: str
    rows: int
    tokens: int
    seconds: float
    bytes: int
    power: list[dict[str, Any]] = field(default_factory=list)
    operating_points: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    attacks: list[dict[str, Any]] = field(default_factory=list)  # membership.cost: paper, access, passes, training
    warnings: list[str] = field(default_factory=list)  # what makes the run pointless as it stands
    slowdown: float = 1.0  # how many times longer it would take beside what the machine does now

    def to_text(self) -> str:
        """The plan for a terminal."""
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        lines = [
            f"{self.rows:,} rows{tokens}; about {time_words(self.seconds, self.slowdown)}, "
            f"about {self.bytes / 1e6:,.0f} MB of disk."
        ]
        for p in self.power:
            lines.append(f"{'' if p['p_within'] >= ENOUGH else 'Warning: '}{power_sentence(p)}")
        for point in self.operating_points:
            lines.append(operating_point_sentence(point))
        lines += [attack["sentence"] for attack in self.attacks]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])


def time_words(seconds: float, slowdown: float) -> str:
    """How long a run takes here when the machine is free, and beside its other work while it has any."""
    busy = f" when it is free (it is busy now: about {duration(seconds * slowdown)} beside that work)"
    return f"{duration(seconds)} on this machine{busy if slowdown >= BUSY else ''}"


def power_sentence(power: dict[str, Any]) -> str:
    """One attribute's power in words."""
    gap = power["smallest_gap"]
    smallest = (
        "No gap could be shown reliably." if gap is None else f"The smallest gap one attacker can show is {gap:.3f}."
    )
    return (
        f"{power['attribute']}: {power['n_subjects']:,} test subjects in {power['n_classes']} classes. "
        f"If nothing leaks, 'within budget' at {power['budget']:g} is reached with probability {power['p_within']:.2f} "
        f"({power['subjects_needed']:,} subjects give 0.80; {power_basis(power['tests'], power['needed_by_one'])}). "
        f"{smallest}"
    )


def operating_point_sentence(point: dict[str, Any]) -> str:
    """One false positive rate in words."""
    words = "can be measured" if point["resolvable"] else f"cannot be measured: {point['needed']:,} are needed"
    return f"TPR at {100 * point['target_fpr']:.6g} % FPR with {point['n_nonmember']:,} non-members {words}."
