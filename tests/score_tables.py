"""Tables of scores for tests of operating points. In: members and ranks. Out: frames; one row of a frame."""

import numpy as np
import pandas as pd


def table(member, **ranks):
    """Scores of some attacks on the same rows."""
    parts = []
    for attack, rank in ranks.items():
        rank = np.asarray(rank, dtype=float)
        parts.append(
            pd.DataFrame(
                {
                    "example_id": [f"r{i}" for i in range(len(rank))],
                    "member": pd.array(member, dtype="boolean"),
                    "attack": attack,
                    "score": rank,
                    "rank_score": rank,
                    "status": np.where(np.isnan(rank), "no_evidence", "ok"),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def normal(n_member=800, n_nonmember=800, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    member = np.arange(n_member + n_nonmember) < n_member
    return member, rng.normal(size=len(member)) + shift * member


def row(frame, **where):
    for key, value in where.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1
    return frame.iloc[0]
