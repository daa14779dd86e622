"""Blind comparison of summaries. In: generated texts of two or three checkpoints, votes. Out: ballots and a tally.

Which rows are compared and in which order they stand is decided by a hash, so that nobody picks them; the order differs
from row to row and from reviewer to reviewer, so that a letter says nothing about a checkpoint.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import pandas as pd

Candidate = tuple[str, int]  # run id and step
ROWS = 10


@dataclass(frozen=True)
class Ballot:
    """One row to vote on: the texts of the candidates in a hidden order."""

    example_id: str
    reference: str
    order: tuple[Candidate, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Tally:
    """Votes counted. p: exact two-sided sign test of the two candidates; None for three, or without a preference."""

    wins: dict[Candidate, int]
    no_difference: int
    reviewers: int
    rows: int
    p: float | None


def ballots(texts: Mapping[Candidate, pd.DataFrame], reviewer: str, key: str, rows: int = ROWS) -> list[Ballot]:
    """Choose `rows` rows that every candidate has a text for, and hide who wrote which.

    texts: candidate -> rows of `generations` of its step (example_id, reference, generated); key: of the meeting (the
    run's id), decides the rows for every reviewer alike. Rows without a text are left out.
    """
    kept = {
        c: f[f["generated"].notna()].drop_duplicates("example_id").set_index("example_id") for c, f in texts.items()
    }
    shared = set.intersection(*(set(f.index) for f in kept.values())) if kept else set()
    chosen = sorted(shared, key=lambda example: _hash(key, example))[:rows]
    made = []
    for example in chosen:
        order = tuple(sorted(kept, key=lambda c: _hash(key, example, reviewer, c[0], str(c[1]))))
        reference = next(iter(kept.values())).loc[example, "reference"]
        shown = tuple(str(kept[c].loc[example, "generated"]) for c in order)
        made.append(Ballot(str(example), "" if pd.isna(reference) else str(reference), order, shown))
    return made


def vote(ballot: Ballot, place: int | None) -> dict[str, Any]:
    """What is recorded of a vote. place: of the preferred text, None for no difference."""
    chosen = None if place is None else list(ballot.order[place])
    return {"example_id": ballot.example_id, "order": [list(c) for c in ballot.order], "choice": chosen}


def counted(records: Sequence[Mapping[str, Any]], candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Votes on exactly these candidates, the last one of each reviewer on each row: by, example_id, choice."""
    wanted, last = set(candidates), {}
    for record in records:
        content = record["content"]
        if {(str(r), int(s)) for r, s in content["order"]} != wanted:
            continue
        choice = content["choice"]
        last[record["by"], content["example_id"]] = {
            "by": record["by"],
            "example_id": content["example_id"],
            "choice": None if choice is None else (str(choice[0]), int(choice[1])),
        }
    return list(last.values())


def tally(votes: Sequence[Mapping[str, Any]], candidates: Sequence[Candidate]) -> Tally:
    """Count votes of `counted`. The sign test leaves out votes without a preference."""
    wins = {c: sum(v["choice"] == c for v in votes) for c in candidates}
    same = sum(v["choice"] is None for v in votes)
    p = sign_test(*wins.values()) if len(candidates) == 2 and sum(wins.values()) else None
    return Tally(wins, same, len({v["by"] for v in votes}), len({v["example_id"] for v in votes}), p)


def sign_test(a: int, b: int) -> float:
    """Exact two-sided p-value that a and b of a + b fair coin tosses differ at least this much."""
    n, most = a + b, max(a, b)
    return min(1.0, 2 * sum(comb(n, k) for k in range(most, n + 1)) / 2**n)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
