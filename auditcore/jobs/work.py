"""How much work a membership audit is. In: its spec and the size of its data. Out: forward passes, disk, and words.

The unit is one forward pass of the target over all rows; what is trained counts three per row and epoch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from auditcore.spec import MembershipSpec, RecipeSpec
from auditcore.words import duration

WRITING = 5.0  # a token that is written takes as long as so many that are read: 135 M weights, 16 rows at once, CPU
TRAINING = 3.0  # forward and backward


@dataclass(frozen=True)
class Size:
    """Rows of the data, their tokens, and how many of them are of known membership."""

    rows: int
    tokens: int
    known: int
    reference_rows: int = 0  # non-members that train an sft reference


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
    texts = spec.self_prompt.texts * spec.written_tokens / max(size.tokens, 1)
    if "self_prompt" in needed:
        noisy = 2 * spec.spv.pairs if spec.spv.domain == "embeddings" else 0  # under the target too
        total += 1 + 2 * spec.spv.pairs + noisy + texts * TRAINING * _epochs(spec.spv, spec.self_prompt.texts)
    if needed & {"reference", "reference_moments"}:
        if spec.reference.kind == "sft":
            share = size.reference_rows / max(size.rows, 1)
            total += TRAINING * _epochs(spec.reference, size.reference_rows) * share
        elif spec.reference.kind == "distillation":
            total += texts * TRAINING * _epochs(spec.reference, spec.self_prompt.texts)
    if writes(spec, needed):
        total += WRITING * texts
    return total


def whole(spec: MembershipSpec, size: Size) -> float:
    """The same for the whole audit: a fine-tuned reference is made even where no attack reads it."""
    return passes(spec, {*spec.attacks, "reference"}, size)


def writes(spec: MembershipSpec, needed: frozenset[str]) -> bool:
    """Whether the target is asked to write texts."""
    return "self_prompt" in needed or (spec.reference.kind == "distillation" and "reference" in needed)


def _epochs(recipe: RecipeSpec, rows: float) -> float:
    """Epochs that are really trained: max_steps may end them early."""
    per_epoch = max(rows / recipe.batch_size, 1.0)
    return recipe.epochs if recipe.max_steps is None else min(recipe.epochs, recipe.max_steps / per_epoch)


def disk(spec: MembershipSpec, weights: int) -> int:
    """Bytes of the models that a run keeps, or holds for a while."""
    from auditcore.jobs.evidence import needs

    needed, adapter, whole = needs(spec.attacks), 20_000_000, 4 * weights
    total = 0
    if "shadows" in needed:
        total += spec.shadows.count * adapter if spec.shadows.method == "lora" else whole
    if "self_prompt" in needed:
        total += adapter if spec.spv.method == "lora" else whole
    if spec.reference.kind != "base":
        total += adapter if spec.reference.method == "lora" else whole
    return total


def notes(spec: MembershipSpec, size: Size) -> list[str]:
    """What is trained, in words."""
    from auditcore.jobs.evidence import needs

    needed, found = needs(spec.attacks), []
    if "shadows" in needed:
        shadows = spec.shadows
        how = f"{shadows.method}, {shadows.epochs} epochs, half of the known rows each"
        found.append(f"{shadows.count} shadow models are fine-tuned ({how}).")
    if writes(spec, needed | {"reference"}):
        texts = f"{spec.self_prompt.texts:,} texts of up to {spec.written_tokens} tokens"
        found.append(f"The target writes {texts}.")
    if "self_prompt" in needed:
        found.append(f"For spv a reference is fine-tuned on them ({spec.spv.method}, {spec.spv.epochs} epochs).")
    if spec.reference.kind != "base":
        what = {"sft": f"{size.reference_rows:,} non-members, which leave the evaluation", "distillation": "them"}
        how = f"{spec.reference.method}, {spec.reference.epochs} epochs"
        found.append(f"The reference of all attacks is fine-tuned on {what[spec.reference.kind]} ({how}).")
    return found


def attacks_alone(spec: MembershipSpec, size: Size, seconds_per_pass: float) -> list[dict[str, Any]]:
    """What `membership.cost` says of each attack, with the time it would take here, were it the only one."""
    from auditcore.membership.cost import as_dicts, costs

    found = as_dicts(costs(spec))
    for one in found:
        one["seconds"] = passes(spec, [one["attack"]], size) * seconds_per_pass
        one["sentence"] = f"{one['sentence'].removesuffix('.')}; about {duration(one['seconds'])} here."
    return found
