"""Membership scores. In: token statistics under target and reference, and attacks. Out: table `membership_scores`.

Higher always means "more likely a member". `score` is the number an attack defines; `rank_score` is the row's place in
the ranking: finite for every row with evidence and comparable between runs, so that a threshold found in one run can
classify a text scored later.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from auditcore.errors import SpecError, did_you_mean
from auditcore.membership import sums
from auditcore.membership.arrays import Tokens, tokens_from_frame
from auditcore.membership.attacks import ATTACKS, FORCED_FROM, Attack, Options, Scores
from auditcore.spec import LiraVariant

__all__ = [
    "ATTACKS",
    "FORCED_FROM",
    "Attack",
    "Options",
    "Scores",
    "Tokens",
    "score_table",
    "status_counts",
    "tokens_from_frame",
]


def score_table(
    tokens: Tokens,
    attacks: Sequence[str],
    example_ids: Sequence[str],
    member: Any,
    *,
    ez_policy: Literal["paper", "official"] = "paper",
    skip_first: bool = True,
    lira_variant: LiraVariant = "online",
    silent: Collection[str] = (),
) -> pd.DataFrame:
    """Score every row with every attack: table `membership_scores`, attack by attack, rows in the order given.

    tokens: n rows; example_ids: n names; member: n values true, false or
    missing (pandas boolean, or a list with None). A row without a scored position is `no_evidence`: neither score nor
    rank, never an exception; so is a row with a NaN or infinite log-probability where the attack takes a mean (`ez`
    says what it does). silent: attacks whose comparison is known to hold nothing (target and reference are one): all
    their rows are `no_evidence`, since a score of 0 for every row would read as "nothing leaks".
    Raises SpecError for an unknown attack, an unknown policy or a missing reference; ValueError for unequal lengths.
    """
    n = len(tokens.offsets) - 1
    known = pd.array(member, dtype="boolean")
    if len(example_ids) != n or len(known) != n:
        raise ValueError(f"{n} rows of tokens, {len(example_ids)} example ids, {len(known)} member values")
    options = Options(ez_policy, skip_first, lira_variant)
    tables = []
    for name in attacks:
        if name not in ATTACKS:
            raise SpecError(f"attacks: '{name}' is unknown.{did_you_mean(name, ATTACKS)}")
        result = _nothing(tokens) if name in silent else ATTACKS[name].fn(tokens, options)
        table = pd.DataFrame(
            {
                "example_id": pd.Series(list(example_ids), dtype="str"),
                "member": known,
                "attack": pd.Series([name] * n, dtype="str"),
                "score": result.score,
                "rank_score": result.rank_score,
                "status": pd.Series(result.status, dtype="str"),
                "n_scored": result.n_scored,
            }
        )
        table["n_errors"] = pd.array(np.full(n, None) if result.n_errors is None else result.n_errors, dtype="Int64")
        table["p_sum"] = np.nan if result.p_sum is None else result.p_sum
        table["n_sum"] = np.nan if result.n_sum is None else result.n_sum
        tables.append(table)
    if not tables:
        raise SpecError(f"attacks: name at least one.{did_you_mean('', ATTACKS)}")
    return pd.concat(tables, ignore_index=True)


def _nothing(tokens: Tokens) -> Scores:
    n_scored = sums.count(sums.rows_of(tokens)[tokens.scored.astype(bool)], len(tokens.offsets) - 1)
    none = np.full(len(n_scored), np.nan)
    return Scores(none, none.copy(), np.full(len(n_scored), "no_evidence", dtype=object), n_scored)


def status_counts(scores: pd.DataFrame) -> pd.DataFrame:
    """Count rows per attack and status: attack, status, forced, n_member, n_nonmember, n_unknown.

    forced: the row stands at the top of the ranking without a ratio. Such rows are shown beside every EZ number, since
    boilerplate that any model predicts has no errors either.
    """
    frame = scores[["attack", "status"]].copy()
    member = scores["member"].astype("boolean")
    frame["n_member"] = member.fillna(False).astype("int64")
    frame["n_nonmember"] = (~member).fillna(False).astype("int64")
    frame["n_unknown"] = member.isna().astype("int64")
    frame["forced"] = scores["rank_score"] >= FORCED_FROM
    counts = frame.groupby(["attack", "status", "forced"], sort=False, as_index=False).sum()
    return counts[["attack", "status", "forced", "n_member", "n_nonmember", "n_unknown"]]
