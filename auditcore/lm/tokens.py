"""Token statistics. In: a target, a reference, encoded rows. Out: per token, both log-probs and the target's errors.

For a row x_1..x_T, position t >= 2 is scored by log p(x_t | x_<t): logits in float32, logit - logsumexp.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from auditcore.lm.encode import Encoded, batches
from auditcore.lm.forward import (
    BODY_TOKENS,
    Batch,
    Block,
    Head,
    Side,
    arguments,
    can_split,
    check_ids,
    in_blocks,
    pad,
    run_body,
)
from auditcore.lm.load import LM, same_tokenizer


@dataclass(frozen=True)
class TokenStatistics:
    """Every token of every row; row i holds entries offsets[i] to offsets[i + 1].

    Position 0 and positions that are not scored hold NaN log-probs, is_error False and scored False.
    """

    offsets: np.ndarray  # int64 [n + 1]
    position: np.ndarray  # int32 [tokens], from 0 within the row
    token_id: np.ndarray  # int32 [tokens]
    logp_target: np.ndarray  # float32 [tokens], natural logarithm
    logp_reference: np.ndarray | None  # float32 [tokens]
    is_error: np.ndarray  # bool [tokens]: the target's most likely token is another one (ties: the lowest id)
    scored: np.ndarray  # bool [tokens]
    mean_logp: np.ndarray | None = None  # float32: mean of log p under p, that is minus the entropy (moments=True)
    std_logp: np.ndarray | None = None  # float32: standard deviation of log p under p


def token_statistics(
    target: LM,
    reference: LM | None,
    encoded: Encoded,
    *,
    score: Literal["target", "all"] = "target",
    batch_size: int = 16,
    moments: bool = False,
    on_batch: Callable[[int, int], None] | None = None,
    padding_side: Side = "right",
) -> TokenStatistics:
    """Score every position of `encoded` under both models.

    score: of rows with a target only its tokens, of conversations what the assistant writes (what the training loss
    saw), or all of them; rows of plain text are scored whole. on_batch(done rows, rows with a scored position) is
    called after each batch. Results are in data order and do not depend on batch_size or padding_side (1e-4 in
    float32). Rows of 0 or 1 tokens have no scores.

    Raises ModelError when the models do not share a tokenizer, or a row does not fit into them.
    """
    lms = [target] if reference is None else [target, reference]
    if reference is not None:
        same_tokenizer(target, reference)
    lengths = encoded.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(offsets[-1])
    position = (np.arange(total) - np.repeat(offsets[:-1], lengths)).astype(np.int32)
    token_id = np.concatenate([*encoded.ids, np.empty(0, np.int64)]).astype(np.int32)
    scored = encoded.in_loss(score)
    columns = [np.full(total, np.nan, dtype=np.float32) for _ in range(4)]  # target, reference, mean, deviation
    is_error = np.zeros(total, dtype=bool)

    before = np.concatenate([[0], np.cumsum(scored)])
    working = np.where(before[offsets[1:]] > before[offsets[:-1]], lengths, 0)  # the others are not run at all
    rows_to_do = int((working > 0).sum())
    with torch.inference_mode():
        scorers = [Scorer(lm, encoded, working) for lm in lms]
        done = 0
        for rows in batches(working, batch_size):
            batch = pad([encoded.ids[i] for i in rows], target.device, padding_side)
            tokens = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in rows])
            wanted = _wanted(batch, scored[tokens])
            # Row-major order of the mask is the order of the flat arrays, row by row.
            places = tokens[scored[tokens]]
            for model, scorer in enumerate(scorers):
                found = scorer(batch, wanted, moments and model == 0)
                columns[model][places] = found[0]
                if model == 0:
                    is_error[places] = found[1]
                    for column, values in zip(columns[2:], found[2:], strict=False):
                        column[places] = values
            done += len(rows)
            if on_batch is not None:
                on_batch(done, rows_to_do)
    return TokenStatistics(
        offsets=offsets,
        position=position,
        token_id=token_id,
        logp_target=columns[0],
        logp_reference=columns[1] if reference is not None else None,
        is_error=is_error,
        scored=scored,
        mean_logp=columns[2] if moments else None,
        std_logp=columns[3] if moments else None,
    )


def token_frame(
    stats: TokenStatistics, example_ids: Sequence[str], tokenizer: Any, store_text: Literal["full", "none"] = "full"
) -> pd.DataFrame:
    """Table `token_stats`: example_id, position, token_id, token, logp_target, logp_reference, delta, is_error, scored.

    `token` is the exact decoded piece ("" with store_text="none"); a character split over tokens shows as U+FFFD.
    """
    reference = stats.logp_reference
    if reference is None:
        reference = np.full(len(stats.token_id), np.nan, dtype=np.float32)
    ids, inverse = np.unique(stats.token_id, return_inverse=True)
    pieces = pieces_of(tokenizer, ids) if store_text == "full" else [""] * len(ids)
    return pd.DataFrame(
        {
            "example_id": pd.array(list(example_ids), dtype="str").repeat(np.diff(stats.offsets)),
            "position": stats.position,
            "token_id": stats.token_id,
            "token": pd.array(pieces, dtype="str").take(inverse),
            "logp_target": stats.logp_target,
            "logp_reference": reference,
            "delta": stats.logp_target - reference,
            "is_error": stats.is_error,
            "scored": stats.scored,
        }
    )


def pieces_of(tokenizer: Any, ids: np.ndarray) -> list[str]:
    """The text of each token as it stands inside a row, blanks included."""
    # Decoded behind another token, since many decoders drop the blank of a piece that stands first.
    anchor = tokenizer("a", add_special_tokens=False)["input_ids"][-1:]
    before, *texts = _decode(tokenizer, [anchor, *([*anchor, token] for token in ids.tolist())])
    lost = [i for i, text in enumerate(texts) if not text.startswith(before)]
    pieces = [text.removeprefix(before) for text in texts]
    for i, alone in zip(lost, _decode(tokenizer, [[int(ids[i])] for i in lost]), strict=True):
        pieces[i] = alone
    return pieces


def _decode(tokenizer: Any, rows: list[list[int]]) -> list[str]:
    if getattr(tokenizer, "is_fast", False):  # one call for all: a vocabulary takes a second less than row by row
        return tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=False)
    return [tokenizer.decode(row, skip_special_tokens=False, clean_up_tokenization_spaces=False) for row in rows]


def _wanted(batch: Batch, scored: np.ndarray) -> torch.Tensor:
    """Bool [rows, length]: where the real tokens that are scored stand; `scored` [tokens] lists them row by row."""
    wanted = torch.zeros_like(batch.mask)
    wanted[batch.mask] = torch.from_numpy(scored).to(batch.mask.device)
    return wanted


class Scorer:
    """Log-probs of chosen tokens under one model: body, then head on the chosen positions only, if the model allows."""

    def __init__(self, lm: LM, encoded: Encoded, working: np.ndarray) -> None:
        check_ids(lm, encoded.ids)
        self.lm = lm
        with lm.active():
            self.split = bool(working.any()) and can_split(lm, encoded.ids[int(np.argmax(working))][:8])
        self.head = Head(lm) if self.split else None

    def __call__(self, batch: Batch, wanted: torch.Tensor, moments: bool) -> list[np.ndarray]:
        parts: list[tuple[torch.Tensor, ...]] = []
        with self.lm.active():
            for blocks, ids in self.logits(batch, wanted):
                parts.append(measure(blocks, ids, moments))
        return [torch.cat(values).cpu().numpy() for values in zip(*parts, strict=True)]

    def logits(self, batch: Batch, wanted: torch.Tensor) -> Iterator[tuple[Iterator[Block], torch.Tensor]]:
        """Yield (blocks of logits, ids) of the wanted positions, row by row; call it inside `lm.active()`."""
        # The token at position t is predicted by the logits one column before it.
        predicting = torch.roll(wanted, -1, dims=1)
        if self.head is not None:
            # On a CPU wide batches go through the body in slices of rows: as fast, and the activations stay small.
            on_cpu = batch.ids.device.type == "cpu"
            step = max(1, BODY_TOKENS // batch.ids.shape[1]) if on_cpu else len(batch.ids)
            for start in range(0, len(batch.ids), step):
                rows = slice(start, start + step)
                hidden = run_body(self.lm, batch.rows(rows))[predicting[rows]]
                ids = batch.ids[rows][wanted[rows]]
                for part, blocks in self.head.parts(hidden):
                    yield blocks, ids[part]
            return
        # Row by row: slower, but never more than one row's logits in memory.
        causal = self.lm.causal
        for row in range(len(batch.ids)):
            only = slice(row, row + 1)
            logits = causal(**arguments(causal, batch.rows(only))).logits
            yield in_blocks(logits[predicting[only]].float()), batch.ids[only][wanted[only]]


def measure(blocks: Iterable[Block], ids: torch.Tensor, moments: bool = False) -> tuple[torch.Tensor, ...]:
    """Log-prob of ids [n], and whether another token ranks first (ties: the lowest id wins), from blocks of logits.

    Returns (log-prob float32 [n], error bool [n]), with moments also mean and standard deviation of log p under p. The
    blocks are overwritten. Running maximum and sum over the vocabulary (Milakov & Gimelshein 2018).
    """
    lowest = torch.finfo(torch.float32).min  # finite, so that a block of -inf gives 0 and not NaN
    best = torch.full(ids.shape, lowest, device=ids.device)
    chosen, total, first, second = (torch.zeros_like(best) for _ in range(4))
    beaten = torch.zeros_like(ids, dtype=torch.bool)
    for start, block in blocks:
        inside = ((ids >= start) & (ids < start + block.shape[1])).nonzero()[:, 0]
        here, local = block[inside], ids[inside] - start
        chosen[inside] = here.gather(1, local[:, None])[:, 0]
        beaten[inside] = (here.argmax(dim=1) != local) | (best[inside] >= chosen[inside])
        top = torch.maximum(best, block.amax(dim=1))
        down = best - top
        shrink = down.exp()
        shifted = block.sub_(top[:, None])
        if moments:
            down = down.clamp_min(-1e4)
            shifted = shifted.clamp_min(-1e4)  # 0 times -inf would be NaN
            weight = shifted.exp()
            one, two = (weight * shifted).sum(dim=1), (weight * shifted.square()).sum(dim=1)
            second = shrink * (second + 2 * down * first + down.square() * total) + two
            first = shrink * (first + down * total) + one
            total = shrink * total + weight.sum(dim=1)
        else:
            total.mul_(shrink).add_(shifted.exp_().sum(dim=1))
        best = top
    logsum = total.log()
    logp, error = chosen - best - logsum, beaten | (best > chosen)
    if not moments:
        return logp, error
    mean = first / total
    return logp, error, mean - logsum, (second / total - mean.square()).clamp_min(0).sqrt()
