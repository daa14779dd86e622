"""Two membership runs on the same rows. In: both tables `membership_scores`. Out: paired differences per attack.

Rows are paired by example id: a difference of two rates has a much narrower interval than the rates themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.membership.bootstrap import paired_difference
from auditcore.membership.thresholds import resolvable


@dataclass(frozen=True)
class Comparison:
    """differences: one row per attack that both runs have and metric, columns of `paired_difference` after `attack`.

    TPR values at a rate that the shared non-members do not resolve are null. shared: rows with the same known
    membership in both runs; left_out: rows that only one run has, or on whose membership the runs disagree.
    """

    differences: pd.DataFrame
    shared: int
    left_out: int


def compare(
    a: pd.DataFrame,
    b: pd.DataFrame,
    groups: Mapping[Any, Any] | None = None,
    target_fprs: Sequence[float] = (0.01,),
    n_boot: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare runs a and b: a minus b, with 95 % intervals, for every attack of both, on the rows they share."""
    attacks = [name for name in pd.unique(a["attack"]) if (b["attack"] == name).any()]
    tables, shared, left_out = [], 0, 0
    for attack in attacks:
        mine, theirs = (t[t["attack"] == attack].set_index("example_id").sort_index() for t in (a, b))
        both = mine.merge(theirs, left_index=True, right_index=True, suffixes=("", "_b"))
        member, other = both["member"].astype("boolean"), both["member_b"].astype("boolean")
        agreed = (member == other).fillna(False).to_numpy(dtype=bool)
        unknown = (member.isna() & other.isna()).to_numpy(dtype=bool)
        shared = int(agreed.sum())
        left_out = len(mine.index.union(theirs.index)) - shared - int(unknown.sum())
        used = both[agreed]
        label = used["member"].astype("boolean").to_numpy(dtype=bool)
        subjects = None if groups is None else [groups.get(name, name) for name in used.index]
        ranks = (used["rank_score"].to_numpy(dtype=np.float64), used["rank_score_b"].to_numpy(dtype=np.float64))
        told = label[np.isfinite(ranks).all(axis=0)]
        if not told.any() or told.all():
            continue
        table = paired_difference(label, *ranks, subjects, target_fprs, n_boot, seed)
        weak = (table["metric"] == "tpr") & ~table.apply(_resolved, axis=1)
        table.loc[weak, ["value_a", "value_b", "difference", "low", "high", "p_value"]] = np.nan
        tables.append(table.assign(attack=attack))
    found = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["attack", "metric"])
    return Comparison(found, shared, left_out)


def _resolved(row: pd.Series) -> bool:
    return row["metric"] != "tpr" or resolvable(int(row["n_nonmember"]), float(row["target_fpr"]))
