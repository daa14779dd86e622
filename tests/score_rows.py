"""Rows of log-probabilities for tests of scores. In: golden cases or plain lists. Out: Tokens and their scores."""

import json
from pathlib import Path

import numpy as np

from auditcore.membership.scores import (
    Tokens,
    score_table,
)

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = ["score", "rank_score", "n_scored", "p_sum", "n_sum"]


def cases(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())["cases"]


def floats(values):
    return np.array([float(v) for v in values], dtype=np.float32)


def pack(rows):
    """Rows of (logp_target, logp_reference, is_error, scored), each from position 1 on -> Tokens.

    What some attacks need besides is made from these, so that it belongs to the row wherever the row stands.
    """
    parts = [[np.append(first, np.asarray(column)) for first, column in zip(START, row, strict=True)] for row in rows]
    columns = [np.concatenate([p[i] for p in parts]) if parts else np.empty(0) for i in range(4)]
    lengths = [len(p[0]) for p in parts]
    position = np.concatenate([np.arange(n) for n in lengths]) if lengths else np.empty(0)
    target, other = columns[0].astype(np.float32), columns[1].astype(np.float32)
    size = np.array(lengths, dtype=np.float64)
    return Tokens(
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        position=position.astype(np.int32),
        logp_target=target,
        logp_reference=other,
        is_error=columns[2].astype(bool),
        scored=columns[3].astype(bool),
        moments=(np.full_like(target, -2.0), np.full_like(target, 0.5)),
        reference_moments=(np.full_like(other, -2.5), np.full_like(other, 0.75)),
        rows={"zlib": size + 8, "lowercase": -size, "prefixed": -0.5 * size, "self_prompt": -size},
        copies={name: np.stack([-size, -2 * size]) for name in ("neighbours", "varied", "self_prompt")},
        # Variances are shared between rows: equal shadows for all, so that a row scores alone as it does among others.
        shadows=(
            np.tile([[-1.0], [-2.0], [-3.0], [-5.0]], len(size)),
            np.tile([[True], [True], [False], [False]], len(size)),
        ),
    )


START = (np.nan, np.nan, False, False)  # position 0 is never predicted


def score(rows, attacks=("ez",), **options):
    tokens = rows if isinstance(rows, Tokens) else pack(rows)
    n = len(tokens.offsets) - 1
    return score_table(tokens, attacks, [f"r{i}" for i in range(n)], [None] * n, **options)
