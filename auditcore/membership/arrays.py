"""Token arrays for attacks. In: table `token_stats`. Out: its numbers as flat arrays, row after row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError


@dataclass(frozen=True)
class Tokens:
    """Token statistics of n rows, one after the other; row i owns entries offsets[i] to offsets[i + 1].

    offsets int64 [n + 1]; position int32 [t], 0-based in the sequence; logp_target and logp_reference float32 [t], nats
    (reference None when there is no reference model); is_error bool [t]: the target's most likely token is another one;
    scored bool [t]: the position counts.

    Only where an attack asks for them (`Attack.needs`): moments and reference_moments, mean and standard deviation of
    log p under p, float32 [t] each; rows, further numbers per row, float64 [n]: "zlib" (bytes of the compressed text),
    and mean log-probabilities of the scored positions under the target of the row's altered text ("lowercase") or of
    the row behind a prefix ("prefixed"), or under the self-prompted reference ("self_prompt"), NaN where there is none;
    shadows, mean log-probabilities under s shadow
    models, float64 [s, n], and which shadow was trained on which row, bool [s, n]; copies, mean log-probabilities of c
    copies of each row with a few words replaced, float64 [c, n]: "neighbours" and "varied" (under the target, for
    `neighbourhood` and `spv`), "self_prompt" (those of "varied" under the self-prompted reference).
    """

    offsets: np.ndarray
    position: np.ndarray
    logp_target: np.ndarray
    logp_reference: np.ndarray | None
    is_error: np.ndarray
    scored: np.ndarray
    moments: tuple[np.ndarray, np.ndarray] | None = None
    reference_moments: tuple[np.ndarray, np.ndarray] | None = None
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    shadows: tuple[np.ndarray, np.ndarray] | None = None
    copies: Mapping[str, np.ndarray] = field(default_factory=dict)


def tokens_from_frame(token_stats: pd.DataFrame, example_ids: Sequence[str]) -> Tokens:
    """Read the table `token_stats` back into arrays, rows in the order of `example_ids`.

    An id without tokens is an empty row; tokens of ids that are not asked for are left out. Order of the table does not
    matter. The reference is None when its column is missing or null throughout. Raises DatasetError for an id asked for
    twice or a position that occurs twice in a row.
    """
    index = pd.Index(list(example_ids), dtype="str")
    if index.has_duplicates:
        raise DatasetError(f"example_id '{index[index.duplicated()][0]}' is asked for twice.")
    codes, names = pd.factorize(token_stats["example_id"])  # every name is looked up once, not once per token
    row = np.append(index.get_indexer(pd.Index(names, dtype="str")), -1)[codes]  # a null id has code -1
    position = token_stats["position"].to_numpy(dtype=np.int32)
    keep: np.ndarray = np.flatnonzero(row >= 0)
    key = row[keep].astype(np.int64) * (2**32) + position[keep]
    if np.any(key[1:] <= key[:-1]):
        order = np.argsort(key, kind="stable")
        keep, key = keep[order], key[order]
        if np.any(key[1:] == key[:-1]):
            twice = keep[1:][key[1:] == key[:-1]][0]
            raise DatasetError(f"token_stats: example_id '{index[row[twice]]}' has position {position[twice]} twice.")
    offsets = np.searchsorted(key, np.arange(len(index) + 1, dtype=np.int64) * (2**32))
    return Tokens(
        offsets=offsets.astype(np.int64),
        position=position[keep],
        logp_target=_floats(token_stats["logp_target"])[keep],
        logp_reference=_reference_column(token_stats, keep),
        is_error=token_stats["is_error"].eq(True).fillna(False).to_numpy(dtype=bool)[keep],
        scored=token_stats["scored"].eq(True).fillna(False).to_numpy(dtype=bool)[keep],
    )


def _reference_column(token_stats: pd.DataFrame, keep: np.ndarray) -> np.ndarray | None:
    if "logp_reference" not in token_stats or token_stats["logp_reference"].isna().all():
        return None
    return _floats(token_stats["logp_reference"])[keep]


def _floats(column: pd.Series) -> np.ndarray:
    return column.to_numpy(dtype=np.float32, na_value=np.nan)
