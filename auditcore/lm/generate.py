"""Generation. In: a model and encoded rows. Out: one greedy continuation per prompt, as text, in data order."""

from collections.abc import Callable

import torch

from auditcore.errors import ModelError
from auditcore.lm.encode import Encoded, batches
from auditcore.lm.forward import arguments, check_ids, pad
from auditcore.lm.load import LM, quiet


def generate(
    lm: LM,
    encoded: Encoded,
    *,
    max_new_tokens: int,
    batch_size: int = 16,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Continue each prompt (targets are not shown to the model) by its most likely tokens, until end of sequence.

    The model's own generation settings (temperature, repetition penalty ...) are not used: greedy is greedy. An empty
    prompt gives "". Special tokens are left out of the text. Does not depend on batch_size, up to ties.
    Raises ModelError when prompt and new tokens exceed the model's positions.
    """
    from transformers import GenerationConfig

    prompts = encoded.prompts()
    check_ids(lm, prompts.ids)
    lengths = prompts.lengths
    limit = getattr(lm.causal.config, "max_position_embeddings", None)
    longest = int(lengths.max(initial=0))
    if isinstance(limit, int) and longest + max_new_tokens > limit:
        raise ModelError(
            f"{lm.source}: a prompt of {longest} tokens and {max_new_tokens} new ones exceed its {limit} positions."
        )
    texts = [""] * len(lengths)
    done, total = 0, int((lengths > 0).sum())
    eos = lm.tokenizer.eos_token_id
    own = lm.causal.generation_config
    plain = GenerationConfig(
        max_new_tokens=max_new_tokens, do_sample=False, num_beams=1, eos_token_id=eos, pad_token_id=eos if eos else 0
    )
    try:
        lm.causal.generation_config = plain  # generate() fills gaps from here, so it must hold no other settings
        with torch.inference_mode(), lm.active(), quiet():
            for rows in batches(lengths, batch_size):
                batch = pad([prompts.ids[i] for i in rows], lm.device, "left")
                wanted = {k: v for k, v in arguments(lm.causal, batch).items() if k in ("input_ids", "attention_mask")}
                found = lm.causal.generate(**wanted, generation_config=plain)
                for i, row in zip(rows, found[:, batch.ids.shape[1] :].tolist(), strict=True):
                    if eos in row:
                        row = row[: row.index(eos)]
                    texts[i] = lm.tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                done += len(rows)
                if on_batch is not None:
                    on_batch(done, total)
    finally:
        lm.causal.generation_config = own
    return texts
