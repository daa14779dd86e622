"""Generation. In: a model and encoded rows or prompts. Out: continuations, greedy as text or sampled as token ids."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from auditcore.errors import ModelError
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.folded import folded
from auditcore.lm.forward import arguments, check_ids, pad
from auditcore.lm.load import LM, quiet

OnBatch = Callable[[int, int], None]


def generate(
    lm: LM,
    encoded: Encoded,
    *,
    max_new_tokens: int,
    batch_size: int = 16,
    on_batch: OnBatch | None = None,
) -> list[str]:
    """Continue each prompt (targets are not shown to the model) by its most likely tokens, until end of sequence.

    The model's own generation settings (temperature, repetition penalty ...) are not used: greedy is greedy. An empty
    prompt gives "". Special tokens are left out of the text. Does not depend on batch_size, up to ties.
    Raises ModelError when prompt and new tokens exceed the model's positions.
    """
    found = _continue(lm, encoded.prompts().ids, {"do_sample": False}, max_new_tokens, batch_size, on_batch)
    return [lm.tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False) for row in found]


def sample(
    lm: LM,
    prompts: Sequence[np.ndarray],
    *,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
    batch_size: int = 16,
    on_batch: OnBatch | None = None,
) -> list[np.ndarray]:
    """Continue each prompt by tokens drawn from the model, until end of sequence; int64 ids, the prompt's own first.

    The same seed, prompts and batch_size give the same texts on one machine. top_p: only the likeliest tokens that make
    up so much probability are drawn. Raises ModelError as `generate` does.
    """
    how = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
    devices = [torch.device(lm.device)] if lm.device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        found = _continue(lm, prompts, how, max_new_tokens, batch_size, on_batch)
    return [np.concatenate([ids, np.array(new, dtype=np.int64)]) for ids, new in zip(prompts, found, strict=True)]


def _continue(
    lm: LM, prompts: Sequence[np.ndarray], how: dict, max_new_tokens: int, batch_size: int, on_batch: OnBatch | None
) -> list[list[int]]:
    """New token ids of each prompt, end of sequence and what follows it left out."""
    from transformers import GenerationConfig

    check_ids(lm, prompts)
    lengths = np.array([len(ids) for ids in prompts], dtype=np.int64)
    limit = getattr(lm.causal.config, "max_position_embeddings", None)
    longest = int(lengths.max(initial=0))
    if isinstance(limit, int) and longest + max_new_tokens > limit:
        raise ModelError(
            f"{lm.source}: a prompt of {longest} tokens and {max_new_tokens} new ones exceed its {limit} positions."
        )
    new: list[list[int]] = [[] for _ in prompts]
    done, total = 0, int((lengths > 0).sum())
    eos = lm.tokenizer.eos_token_id
    own = lm.causal.generation_config
    plain = GenerationConfig(
        max_new_tokens=max_new_tokens, num_beams=1, eos_token_id=eos, pad_token_id=eos if eos else 0, **how
    )
    try:
        lm.causal.generation_config = plain  # generate() fills gaps from here, so it must hold no other settings
        with folded(lm), torch.inference_mode(), quiet():
            for rows in batches(lengths, batch_size):
                batch = pad([prompts[i] for i in rows], lm.device, "left")
                wanted = {k: v for k, v in arguments(lm.causal, batch).items() if k in ("input_ids", "attention_mask")}
                found = lm.causal.generate(**wanted, generation_config=plain)
                for i, row in zip(rows, found[:, batch.ids.shape[1] :].tolist(), strict=True):
                    new[i] = row[: row.index(eos)] if eos in row else row
                done += len(rows)
                if on_batch is not None:
                    on_batch(done, total)
    finally:
        lm.causal.generation_config = own
    return new
