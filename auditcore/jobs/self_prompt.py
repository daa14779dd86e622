"""Texts that the target writes, and the base fine-tuned on them. In: a run and its models. Out: a model more.

The self-prompted reference of SPV-MIA (arXiv 2311.06062): what a fine-tuned model writes resembles what it was trained
on, so that a model trained on its texts knows the domain and not the rows. Texts are cached in parts and the training
is resumed at its last state, so that a run that was killed repeats little.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, SpecError
from auditcore.jobs import cache, evidence
from auditcore.jobs.context import Context, OnProgress, shifted
from auditcore.jobs.models import Models
from auditcore.jobs.prompts import PROMPTS
from auditcore.jobs.recipes import trained_model, training_spec
from auditcore.spec import MembershipSpec, ModelSpec, RecipeSpec, SelfPromptSpec

TABLE, STAGE = "self_prompt_texts", "self-prompt texts"
PART = 64  # texts that are written, and kept, at once
LONGEST_PROMPT = 16  # tokens, as the authors' prompts are; the rest of a longer one is left out


def prompts(spec: SelfPromptSpec) -> list[str]:
    """The prompts as texts. Raises DatasetError when a file of them cannot be read or holds none."""
    if spec.prompts is None:
        return list(PROMPTS)
    if isinstance(spec.prompts, list):
        return [p.strip() for p in spec.prompts if p.strip()]
    path = Path(spec.prompts).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DatasetError(f"self_prompt.prompts: {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"self_prompt.prompts: {path} is not UTF-8 text (byte {error.start}).") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise DatasetError(f"self_prompt.prompts: {path} holds no prompt; write one a line.")
    return found


def write_texts(context: Context, models: Models, what: str) -> Any:
    """`lm.encode.Encoded` of what the target writes behind the prompts, the prompt's own tokens included.

    what: for whom, said in a note. Stage `self-prompt texts`, table `self_prompt_texts`: prompt, text, n_tokens (no
    text under store_text: none).
    """
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    asked = ask(spec, models)
    rows = [asked[i % len(asked)] for i in range(spec.self_prompt.texts)]
    with context.again(STAGE, len(rows)) as on_progress:
        written: list[np.ndarray] = []
        for part in range(0, len(rows), PART):
            here = rows[part : part + PART]
            written += _part(spec, models, here, part // PART, shifted(on_progress, part, len(rows)))
            on_progress(part + len(here), len(rows))
        if not context.finished(STAGE):
            context.run.write(TABLE, _table(spec, models, rows, written))
            new = sum(len(ids) for ids in written) - sum(len(ids) for ids in rows)
            context.note(
                f"{what}: the target wrote {len(rows):,} texts of {new:,} tokens behind {len(asked):,} public prompts."
            )
    return _encoded(written)


def train(
    context: Context, models: Models, recipe: RecipeSpec, encoded: Any, rows: np.ndarray, name: str, stage: str
) -> ModelSpec:
    """Fine-tune the base on some rows of `encoded`, in run folder/`name`; returns what to load."""
    from auditcore.lm.load import load_model
    from auditcore.training.finetune import finetune

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    source, folder = models.sources["base"].source, context.run.path / name
    if not context.finished(stage):
        with context.stage(stage) as on_progress:
            training = training_spec(spec, recipe, source, spec.seed)
            models.release()
            finetune(
                load_model(training.model),
                encoded,
                rows,
                np.empty(0, dtype=np.int64),
                training,
                folder,
                on_step=lambda step, total, _: on_progress(step, total),
            )
    return trained_model(spec, recipe, folder / "checkpoints" / "last", source)


def ask(spec: MembershipSpec, models: Models) -> list[np.ndarray]:
    """Token ids of the prompts, cut where they are long. Raises SpecError when no room is left to write."""
    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_tokenizer

    target = models.sources["target"]
    tokenizer = load_tokenizer(target.source, target.base)
    room = spec.max_length - spec.written_tokens
    if room < 1:
        raise SpecError(
            f"self_prompt.new_tokens: {spec.written_tokens} new tokens and a prompt do not fit into max_length "
            f"{spec.max_length}; lower new_tokens or raise max_length."
        )
    found = encode(tokenizer, "{text}", {"text": prompts(spec.self_prompt)}, None, max(min(LONGEST_PROMPT, room), 2))
    return [ids[:room] for ids in found.ids]


def _part(
    spec: MembershipSpec, models: Models, rows: Sequence[np.ndarray], number: int, on_progress: OnProgress
) -> list[np.ndarray]:
    """Texts of one part, from the cache where it has them."""
    from auditcore.lm.generate import sample

    how = spec.self_prompt
    settings: dict[str, Any] = {
        "max_new_tokens": spec.written_tokens,
        "temperature": how.temperature,
        "top_p": how.top_p,
    }
    name = cache.key(
        version=1,
        model=models.fingerprint("target"),
        prompts=evidence.ids_hash(_encoded(rows)),
        part=number,
        seed=spec.seed,
        batch_size=spec.batch_size,
        **settings,
        **evidence.numerics(spec),
    )
    found = cache.load("texts", name)
    if found is None:
        seed = int(np.random.default_rng([spec.seed, 6062, number]).integers(2**31))
        written = sample(
            models.get("target"), rows, **settings, seed=seed, batch_size=spec.batch_size, on_batch=on_progress
        )
        found = {"ids": np.concatenate(written), "ends": np.cumsum([len(ids) for ids in written])}
        cache.save("texts", name, found)
    return np.split(found["ids"], found["ends"][:-1])


def _encoded(rows: Sequence[np.ndarray]) -> Any:
    from auditcore.lm.encode import Encoded

    nothing = np.zeros(len(rows), dtype=bool)
    return Encoded(list(rows), np.array([len(ids) for ids in rows], dtype=np.int64), nothing, nothing)


def _table(
    spec: MembershipSpec, models: Models, asked: Sequence[np.ndarray], written: Sequence[np.ndarray]
) -> pd.DataFrame:
    from auditcore.lm.load import load_tokenizer

    target = models.sources["target"]
    tokenizer = load_tokenizer(target.source, target.base)

    def text(ids: np.ndarray) -> str:
        if spec.store_text == "none":
            return ""
        return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    pairs = list(zip(asked, written, strict=True))
    return pd.DataFrame(
        {
            "prompt": pd.Series([text(prompt) for prompt, _ in pairs], dtype="str"),
            "text": pd.Series([text(ids[len(prompt) :]) for prompt, ids in pairs], dtype="str"),
            "n_tokens": np.array([len(ids) - len(prompt) for prompt, ids in pairs], dtype=np.int32),
        }
    )
