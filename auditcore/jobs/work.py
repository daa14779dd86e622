"""How much work a membership audit is. In: its spec and the size of its data. Out: forward passes, disk, and words.

The unit is one forward pass of the target over all rows; what is trained counts three per row and epoch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from auditcore.jobs.context import readable
from auditcore.spec import MembershipSpec, RecipeSpec

WRITING = 5.0  # a token that is written takes as long as so many that are read: 135 M weights, 16 rows at once, CPU
TRAINING = 3.0  # forward and backward


@dataclass(frozen=True)
class Size:
    """Rows of the data, their tokens, and how many of them are of known membership."""

    rows: int
    tokens: int
    known: int


def passes(spec: MembershipSpec, attacks: Iterable[str], size: Size) -> float:
    """Forward passes over all rows that these attacks take together, training and writing included."""
    from auditcore.jobs.evidence import needs
    from auditcore.jobs.neighbours import copies_needed

    needed = needs(attacks)
    copies = copies_needed(spec, needed)
    total = 2.0 + ((1 + copies) if copies else 0) + ("lowercase" in needed)
    total += (1 + spec.recall_shots) * ("prefixed" in needed)
    if "shadows" in needed:
        half = 0.5 * size.known / max(size.rows, 1)
        total += spec.shadows.count * (1 + TRAINING * _epochs(spec.shadows, half * size.rows) * half)
    if "self_prompt" in needed:
        total += 1 + 2 * spec.spv.pairs + _texts(spec, spec.spv, size)
    return total


def _epochs(recipe: RecipeSpec, rows: float) -> float:
    """Epochs that are really trained: max_steps may end them early."""
    per_epoch = max(rows / recipe.batch_size, 1.0)
    return recipe.epochs if recipe.max_steps is None else min(recipe.epochs, recipe.max_steps / per_epoch)


def _texts(spec: MembershipSpec, recipe: RecipeSpec, size: Size) -> float:
    """Writing the texts, and fine-tuning on them."""
    how = spec.self_prompt
    share = how.texts * spec.written_tokens / max(size.tokens, 1)
    return share * (WRITING + TRAINING * _epochs(recipe, how.texts))


def disk(spec: MembershipSpec, weights: int) -> int:
    """Bytes of the models that a run keeps, or holds for a while."""
    from auditcore.jobs.evidence import needs

    needed, adapter, whole = needs(spec.attacks), 20_000_000, 4 * weights
    total = 0
    if "shadows" in needed:
        total += spec.shadows.count * adapter if spec.shadows.method == "lora" else whole
    if "self_prompt" in needed:
        total += adapter if spec.spv.method == "lora" else whole
    return total


def notes(spec: MembershipSpec) -> list[str]:
    """What is trained, in words."""
    from auditcore.jobs.evidence import needs

    needed, found = needs(spec.attacks), []
    if "shadows" in needed:
        shadows = spec.shadows
        how = f"{shadows.method}, {shadows.epochs} epochs, half of the known rows each"
        found.append(f"{shadows.count} shadow models are fine-tuned ({how}).")
    if "self_prompt" in needed:
        how = f"{spec.spv.method}, {spec.spv.epochs} epochs"
        found.append(
            f"The target writes {spec.self_prompt.texts:,} texts of up to {spec.written_tokens} tokens, and a "
            f"reference is fine-tuned on them ({how})."
        )
    return found


def attacks_alone(spec: MembershipSpec, size: Size, seconds_per_pass: float) -> list[dict[str, Any]]:
    """What `membership.cost` says of each attack, with the time it would take here, were it the only one."""
    from auditcore.membership.cost import as_dicts, costs

    found = as_dicts(costs(spec))
    for one in found:
        one["seconds"] = passes(spec, [one["attack"]], size) * seconds_per_pass
        one["sentence"] = f"{one['sentence'].removesuffix('.')}; about {readable(one['seconds'])} here."
    return found
