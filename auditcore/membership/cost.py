"""What an attack costs and needs. In: a membership spec. Out: per attack its paper, its access, its forward passes."""

from dataclasses import asdict, dataclass
from typing import Any

from auditcore.membership.attacks import ATTACKS
from auditcore.spec import MembershipSpec


@dataclass(frozen=True)
class Cost:
    """One attack under one spec. passes: forward passes per row, all models together, were it the only attack."""

    attack: str
    title: str
    paper: str
    access: str
    passes: int
    training: str  # what is fine-tuned for it; "" = nothing

    def sentence(self) -> str:
        """For a terminal: "ez (arXiv 2601.12104): logits of target and reference; 2 passes a row"."""
        passes = "1 pass" if self.passes == 1 else f"{self.passes:,} passes"
        more = f"; trains {self.training}" if self.training else ""
        return f"{self.attack} ({self.paper}): {self.access}; {passes} a row{more}."


def costs(spec: MembershipSpec) -> list[Cost]:
    """Cost of every attack of the spec, in its order."""
    return [cost(name, spec) for name in spec.attacks]


def cost(attack: str, spec: MembershipSpec) -> Cost:
    """Cost of one attack.

    `neighbourhood` takes one pass of the base for its proposals and one of the target for each copy; `spv` the same for
    two copies a pair, and all but the proposals again under its own reference: one more than the paper's 42, which it
    takes where noise on the embeddings stands for other words.
    """
    one = ATTACKS[attack]
    copies, proposals = 2 * spec.spv.pairs, int(spec.spv.domain == "words")
    more = {"neighbourhood": 1 + spec.neighbours.count, "lira": spec.shadows.count, "spv": 1 + 2 * copies + proposals}
    training = {
        "lira": f"{spec.shadows.count} shadow models ({spec.shadows.method})",
        "spv": f"a reference ({spec.spv.method}) on {spec.self_prompt.texts:,} texts that the target writes",
    }
    if "reference" in one.needs and spec.reference.kind != "base":
        what = {"sft": "known non-members", "distillation": f"{spec.self_prompt.texts:,} texts that the target writes"}
        training[attack] = f"a reference ({spec.reference.method}) on {what[spec.reference.kind]}"
    access = "weights and texts of the target, its base for training"
    reads = access if attack == "spv" and spec.spv.domain == "embeddings" else one.access
    return Cost(attack, one.title, one.paper, reads, one.passes + more.get(attack, 0), training.get(attack, ""))


def as_dicts(found: list[Cost]) -> list[dict[str, Any]]:
    """Plain dicts, for JSON."""
    return [{**asdict(one), "sentence": one.sentence()} for one in found]
