"""A fair comparison of fine-tuning methods. In: checkpoints with their validation loss. Out: pairs of equal loss.

A method that learnt less leaks less, whatever it is: only checkpoints that fit unseen text equally well say something
about the method itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.membership.compare import compare


@dataclass(frozen=True)
class Pair:
    """Two checkpoints, named by their place in the table of checkpoints."""

    a: int
    b: int
    loss_a: float  # nats per token
    loss_b: float
    matched: bool  # |loss_a - loss_b| is within the tolerance


def pair_at_equal_loss(checkpoints: pd.DataFrame, a: str, b: str, tolerance: float) -> Pair | None:
    """Pair one checkpoint of method `a` with one of `b` at the lowest validation loss that both methods reach.

    checkpoints: one row each, columns variant, method, step, validation_loss (nats per token; null: not measured). A
    variant's checkpoints past its lowest loss are left out: nobody ships them, and they have memorised without fitting
    better. Of each method the checkpoint nearest to the common loss is taken, at a tie the earlier one. None when a
    method has no checkpoint with a loss.
    """
    told = checkpoints[checkpoints["validation_loss"].notna()]
    best = told.loc[told.groupby("variant")["validation_loss"].idxmin()].set_index("variant")["step"]
    fit = told[told["step"] <= told["variant"].map(best)]
    sides = [fit[fit["method"] == name] for name in (a, b)]
    if any(side.empty for side in sides):
        return None
    common = max(float(side["validation_loss"].min()) for side in sides)
    places = []
    for side in sides:
        away = (side["validation_loss"] - common).abs()
        order = np.lexsort([side["variant"].to_numpy(dtype=str), side["step"].to_numpy(), away.to_numpy()])
        places.append(side.index[order[0]])
    loss_a, loss_b = (float(fit["validation_loss"].loc[place]) for place in places)
    return Pair(int(places[0]), int(places[1]), loss_a, loss_b, abs(loss_a - loss_b) <= tolerance)


def difference_at_equal_loss(
    pair: Pair,
    scores: Mapping[int, pd.DataFrame],
    groups: Mapping[Any, Any] | None,
    target_fprs: Sequence[float],
    n_boot: int,
    seed: int,
) -> pd.DataFrame:
    """Paired differences of every attack between the two checkpoints, a minus b: columns of `compare.compare`.

    scores: table `membership_scores` of each checkpoint, by its place.
    """
    return compare(scores[pair.a], scores[pair.b], groups, target_fprs, n_boot, seed).differences
