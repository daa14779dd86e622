"""Texts on both sides of the member line. In: texts, membership. Out: which rows have an equal or nearly equal other.

A non-member whose text, or nearly that text, was trained on counts as a false accusation although the model is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

ALIKE = 0.8  # share of common word triples (Jaccard) from which two texts are nearly equal
_PERMUTATIONS = 128
_WORDS = 3


@dataclass(frozen=True)
class Crossing:
    """Rows with a counterpart on the other side: bool [n] each; `near` holds rows without an exact counterpart."""

    exact: np.ndarray
    near: np.ndarray


def across_the_line(texts: Sequence[str], member: Any) -> Crossing:
    """Find members and non-members with equal texts (blanks and case aside), or with 80 % of their word triples alike.

    texts: n; member: n values true, false or missing (rows of unknown membership take no part). Candidates come from
    MinHash with locality-sensitive hashing (datasketch) and are then compared exactly: what is found is alike, while
    one pair in 20,000 at just 80 % is missed. Texts of fewer than 3 words are compared as a whole.
    """
    labels = pd.array(member, dtype="boolean")
    inside = np.flatnonzero(labels.fillna(False).to_numpy(dtype=bool))
    outside = np.flatnonzero((~labels).fillna(False).to_numpy(dtype=bool))
    exact, near = np.zeros(len(labels), dtype=bool), np.zeros(len(labels), dtype=bool)
    plain = {int(i): " ".join(texts[i].casefold().split()) for i in (*inside, *outside)}
    shared = {plain[i] for i in inside.tolist()} & {plain[i] for i in outside.tolist()}
    shared.discard("")
    for i, text in plain.items():
        exact[i] = text in shared
    # Every text once; also those with an equal counterpart, which can be nearly equal to a third.
    one, other = (list({plain[i]: i for i in side.tolist()}.values()) for side in (inside, outside))
    alike = {plain[i] for pair in _alike(one, other, plain) for i in pair}
    for i, text in plain.items():
        near[i] = text in alike and not exact[i]
    return Crossing(exact, near)


def _alike(inside: list[int], outside: list[int], plain: dict[int, str]) -> list[tuple[int, int]]:
    from datasketch import MinHashLSH

    if not inside or not outside:
        return []
    # 25 bands of 5: a pair at 0.8 becomes a candidate with probability 0.99995, one at 0.3 with 0.06.
    index = MinHashLSH(num_perm=_PERMUTATIONS, params=(25, 5))
    triples = {i: _triples(plain[i]) for i in inside}
    for i in inside:
        if triples[i]:
            index.insert(i, _sketch(triples[i]))
    pairs = []
    for j in outside:
        mine = _triples(plain[j])
        if not mine:
            continue
        for i in index.query(_sketch(mine)):
            theirs = triples[i]
            if len(mine & theirs) >= ALIKE * len(mine | theirs):
                pairs.append((i, j))
    return pairs


def _triples(text: str) -> set[str]:
    words = text.split()
    return {" ".join(words[k : k + _WORDS]) for k in range(max(len(words) - _WORDS + 1, 1))} if words else set()


def _sketch(triples: set[str]) -> Any:
    from datasketch import MinHash

    sketch = MinHash(num_perm=_PERMUTATIONS)
    sketch.update_batch([t.encode("utf-8", "surrogatepass") for t in triples])
    return sketch
