"""Neighbours of rows. In: encoded rows and a model that proposes words. Out: copies with a few words replaced.

The neighbourhood attack (arXiv 2305.18462) and SPV-MIA (arXiv 2311.06062) ask a masked language model for such words.
Ours come from a causal model that the audit loads anyway, so that nothing else has to be fetched: a replaced word is
drawn from what the model expects at its place, the word itself left out. Whole words give way to whole words where a
row has any, token for token, so that copies keep their row's length and scored positions.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from auditcore.lm.encode import Encoded, batches
from auditcore.lm.forward import Batch, pad
from auditcore.lm.load import LM
from auditcore.lm.tokens import Scorer, pieces_of

PROPOSALS = 20  # the most likely words, among which one is drawn
_INSIDE = "'’\ufffd"  # a token that begins with one of these belongs to the word before it, as letters and digits do


@dataclass(frozen=True)
class Substitutions:
    """Copies of n rows. Copy k holds token_id[i] at place[i] for i from starts[k] up to starts[k + 1].

    starts: int64 [copies + 1]; place: int64, positions in all rows' tokens laid end to end; token_id: int32.
    """

    starts: np.ndarray
    place: np.ndarray
    token_id: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def apply(self, encoded: Encoded, copy: int) -> Encoded:
        """The rows as they stand in one copy."""
        if not encoded.ids:
            return encoded
        ids = np.concatenate(encoded.ids)
        here = slice(int(self.starts[copy]), int(self.starts[copy + 1]))
        ids[self.place[here]] = self.token_id[here]
        return replace(encoded, ids=np.split(ids, np.cumsum(encoded.lengths)[:-1]))


@dataclass(frozen=True)
class _Drawn:
    """What is replaced where, before the words are known. Row i owns entries starts[i] to starts[i + 1]."""

    starts: np.ndarray  # int64 [n + 1]
    pair: np.ndarray  # int64: number of the pair of copies
    position: np.ndarray  # int64, in the row
    chance: np.ndarray  # float64 [.., 2], uniform: decides which words the two copies of the pair get
    wordless: np.ndarray  # bool [n]: no whole word to replace, so any token is replaced by any


def substitute(
    lm: LM,
    encoded: Encoded,
    *,
    copies: int,
    share: float,
    seed: int,
    score: Literal["target", "all"] = "target",
    batch_size: int = 16,
    on_batch: Callable[[int, int], None] | None = None,
) -> Substitutions:
    """Draw `copies` copies of every row, each with max(1, share x replaceable positions) tokens replaced.

    lm: the model that proposes, in one forward pass. Copies come in pairs (0 and 1, 2 and 3 ...): both of a pair
    replace the same positions, by different words. A replaceable position is scored and holds a whole word of letters
    in one token; where a row has none, any scored position is. What a row draws depends on the seed and on its own
    tokens, not on the rows beside it, and the first copies do not depend on their number. Rows without a scored
    position are copied as they are. Raises ModelError when a row does not fit into the model.
    """
    kinds = _kinds_of_tokens(lm)
    drawn = _draw(encoded, kinds, score, (copies + 1) // 2, share, seed)
    token_id = np.zeros((len(drawn.position), 2), dtype=np.int32)
    working = np.where(np.diff(drawn.starts) > 0, encoded.lengths, 0)
    done, total = 0, int((working > 0).sum())
    with torch.inference_mode(), lm.active():
        scorer = Scorer(lm, encoded, working)
        for rows in batches(working, batch_size):
            batch = pad([encoded.ids[i] for i in rows], lm.device)
            entries = [np.arange(drawn.starts[i], drawn.starts[i + 1]) for i in rows]
            spots = [np.unique(drawn.position[some], return_inverse=True) for some in entries]
            first = np.cumsum([0, *(len(places) for places, _ in spots)])
            ids, weights = _proposals(scorer, batch, [places for places, _ in spots], kinds, drawn.wordless[rows])
            asked = np.concatenate([start + inverse for start, (_, inverse) in zip(first, spots, strict=False)])
            mine = np.concatenate(entries)
            token_id[mine] = _pick(ids[asked], weights[asked], drawn.chance[mine])
            done += len(rows)
            if on_batch is not None:
                on_batch(done, total)
    return _by_copy(drawn, np.cumsum(encoded.lengths) - encoded.lengths, token_id, copies)


@dataclass(frozen=True)
class _Kinds:
    """Bool [vocabulary] each: a blank and letters; a token that goes on with the word before it; no special token."""

    word: np.ndarray
    inside: np.ndarray
    ordinary: np.ndarray


def _kinds_of_tokens(lm: LM) -> _Kinds:
    known = len(lm.tokenizer)
    width = max(known, int(getattr(lm.causal.config, "vocab_size", 0) or 0))  # some heads are wider than the tokenizer
    word, inside, ordinary = (np.zeros(width, dtype=bool) for _ in range(3))
    pieces = pieces_of(lm.tokenizer, np.arange(known))
    for token, piece in enumerate(pieces):
        word[token] = piece[:1].isspace() and piece.strip().isalpha()
        inside[token] = piece[:1].isalnum() or piece[:1] in _INSIDE
        ordinary[token] = bool(piece)
    special = [i for i in lm.tokenizer.all_special_ids if i is not None and i < width]
    word[special], inside[special], ordinary[special] = False, False, False
    return _Kinds(word, inside, ordinary)


def _draw(
    encoded: Encoded, kinds: _Kinds, score: Literal["target", "all"], pairs: int, share: float, seed: int
) -> _Drawn:
    positions, chances, numbers, counts = [], [], [], []
    wordless = np.zeros(len(encoded.ids), dtype=bool)
    for i, ids in enumerate(encoded.ids):
        follows = np.append(kinds.inside[ids[1:]], False) if len(ids) else np.empty(0, dtype=bool)
        open_ = np.isin(np.arange(len(ids)), encoded.places(i, score))
        usable = np.flatnonzero(open_ & kinds.word[ids] & ~follows)
        if not len(usable):
            wordless[i], usable = True, np.flatnonzero(open_)
        k = min(max(1, round(share * len(usable))), len(usable))
        counts.append(pairs * k)
        if not k:
            continue
        digest = hashlib.sha256(np.asarray(ids, dtype=np.int64).tobytes()).digest()
        rng = np.random.default_rng([seed, 18462, int.from_bytes(digest[:8], "big")])
        for pair in range(pairs):
            positions.append(np.sort(rng.permutation(usable)[:k]))
            chances.append(rng.random((k, 2)))
            numbers.append(np.full(k, pair))
    empty = np.empty(0, dtype=np.int64)
    return _Drawn(
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        np.concatenate([*numbers, empty]),
        np.concatenate([*positions, empty]),
        np.concatenate([*chances, np.empty((0, 2))]),
        wordless,
    )


def _proposals(
    scorer: Scorer, batch: Batch, spots: list[np.ndarray], kinds: _Kinds, wordless: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest allowed tokens at some positions of each row, int64 [p, k], and their weights, float64 [p, k]."""
    device = batch.ids.device
    wanted = torch.zeros_like(batch.mask)
    for row, places in enumerate(spots):
        wanted[row, torch.from_numpy(places).to(device)] = True
    barred = torch.from_numpy(np.stack([~kinds.word, ~kinds.ordinary])).to(device)
    kind = torch.from_numpy(np.repeat(wordless.astype(np.int64), [len(places) for places in spots])).to(device)
    found, seen = [], 0
    for blocks, ids in scorer.logits(batch, wanted):
        bar = barred[kind[seen : seen + len(ids)]]
        seen += len(ids)
        best, best_ids = torch.empty(len(ids), 0, device=device), torch.empty(len(ids), 0, dtype=torch.long).to(device)
        for start, block in blocks:
            shut = bar[:, start : start + block.shape[1]].clone()
            shut = torch.nn.functional.pad(shut, (0, block.shape[1] - shut.shape[1]), value=True)
            own = (ids - start)[:, None] == torch.arange(block.shape[1], device=device)
            block = block.masked_fill(shut | own, -torch.inf)
            top = block.topk(min(PROPOSALS, block.shape[1]), dim=1)
            best, best_ids = torch.cat([best, top.values], 1), torch.cat([best_ids, top.indices + start], 1)
            kept = best.topk(min(PROPOSALS, best.shape[1]), dim=1)
            best, best_ids = kept.values, best_ids.gather(1, kept.indices)
        found.append((best_ids, best.double().softmax(dim=1)))
    ids, weights = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    return ids, np.nan_to_num(weights)


def _pick(ids: np.ndarray, weights: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Two different tokens of each line of proposals, drawn by their weights: int64 [p, 2]."""
    rows = np.arange(len(ids))
    weights = weights.copy()
    picked = []
    for draw in range(2):
        cumulated = weights.cumsum(axis=1)
        at = (cumulated < chance[:, draw : draw + 1] * cumulated[:, -1:]).sum(axis=1)
        at = np.minimum(at, ids.shape[1] - 1)
        picked.append(ids[rows, at])
        if (weights > 0).sum(axis=1).min(initial=2) > 1:
            weights[rows, at] = 0.0
    return np.stack(picked, axis=1)


def _by_copy(drawn: _Drawn, offsets: np.ndarray, token_id: np.ndarray, copies: int) -> Substitutions:
    place = np.repeat(offsets, np.diff(drawn.starts)) + drawn.position
    order = np.argsort(drawn.pair, kind="stable")
    ends = np.cumsum(np.bincount(drawn.pair, minlength=(copies + 1) // 2))
    parts = np.split(order, ends[:-1])
    chosen = [(parts[copy // 2], copy % 2) for copy in range(copies)]
    starts = np.concatenate([[0], np.cumsum([len(part) for part, _ in chosen])]).astype(np.int64)
    return Substitutions(
        starts,
        np.concatenate([place[part] for part, _ in chosen]).astype(np.int64),
        np.concatenate([token_id[part, side] for part, side in chosen]).astype(np.int32),
    )
