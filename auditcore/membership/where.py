"""Where the evidence of EZ lies. In: sums of raised and lowered shifts by token. Out: their shares by kind of token.

Only the error zone counts: positions where the target's first guess is wrong.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

KINDS = ("number", "name-like", "rare", "punctuation", "other words")
RARE = 2  # a token that occurs no more often than this in the data is rare
POSITIONS = ((1, 7), (8, 15), (16, 31), (32, 63), (64, 127), (128, None))
SURPRISES = ((0, 1), (1, 3), (3, 6), (6, 10), (10, None))  # nats of the reference

_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"\w")


def token_kinds(tokens: Sequence[str], occurrences: Sequence[int]) -> np.ndarray:
    """Name the kind of each token: object [n]. First match wins: number, punctuation, name-like, rare, other words.

    name-like: begins with a capital letter and is longer than one character. occurrences: how often it stands in the
    data; at most 2 is rare. Ours: rules on the token alone, in any language with capitals.
    """
    kinds = []
    for token, n in zip(tokens, occurrences, strict=True):
        text = token.strip()
        if _DIGIT.search(text):
            kinds.append("number")
        elif not _WORD.search(text):
            kinds.append("punctuation")
        elif text[:1].isupper() and len(text) > 1:
            kinds.append("name-like")
        elif n <= RARE:
            kinds.append("rare")
        else:
            kinds.append("other words")
    return np.array(kinds, dtype=object)


def shares(sums: pd.DataFrame, by: str, order: Sequence[str]) -> pd.DataFrame:
    """Add up sums by the column `by`, in the given order; groups without a token are left out.

    sums: columns `by`, member (bool), n_tokens, p_sum, n_sum. Returns one row per group: `by`, n_tokens (members'),
    p_share and n_share (of all that members' tokens were raised, or lowered), ratio and ratio_others (P/N of members
    and of non-members; NaN where N is 0).
    """
    added = sums.groupby([by, "member"], observed=True)[["n_tokens", "p_sum", "n_sum"]].sum().reset_index()
    lines = {(row[by], bool(row["member"])): row for row in added.to_dict("records")}
    mine = sums[sums["member"]]
    all_p, all_n = float(mine["p_sum"].sum()), float(mine["n_sum"].sum())
    rows = []
    for name in order:
        member, other = lines.get((name, True)), lines.get((name, False))
        if member is None:
            continue
        rows.append(
            {
                by: name,
                "n_tokens": int(member["n_tokens"]),
                "p_share": member["p_sum"] / all_p if all_p > 0 else np.nan,
                "n_share": member["n_sum"] / all_n if all_n > 0 else np.nan,
                "ratio": _ratio(member),
                "ratio_others": np.nan if other is None else _ratio(other),
            }
        )
    return pd.DataFrame(rows, columns=[by, "n_tokens", "p_share", "n_share", "ratio", "ratio_others"])


def _ratio(sums: dict) -> float:
    return float(sums["p_sum"] / sums["n_sum"]) if sums["n_sum"] > 0 else np.nan


def heaviest(sums: pd.DataFrame, n: int = 10) -> pd.DataFrame:
    """The n tokens whose shifts add up to most in members' rows: token_id, token, n_tokens, p_sum, n_sum, p_others.

    sums: columns token_id, token, member, n_tokens, p_sum, n_sum. p_others: P of the same token in non-members' rows.
    """
    mine, others = sums[sums["member"]], sums[~sums["member"]].set_index("token_id")["p_sum"]
    order = (mine["p_sum"] + mine["n_sum"]).sort_values(ascending=False, kind="stable").index[:n]
    top = mine.loc[order, ["token_id", "token", "n_tokens", "p_sum", "n_sum"]].reset_index(drop=True)
    return top.assign(p_others=others.reindex(top["token_id"]).fillna(0.0).to_numpy())


def band(low: int, high: int | None, unit: str = "") -> str:
    """Write a range: "1 to 7", "128 or more"."""
    return f"{low}{unit} or more" if high is None else f"{low} to {high}{unit}"
