"""Tiny models for training tests: random weights, a word tokenizer, nothing fetched."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from auditcore.lm.encode import Encoded
from auditcore.lm.load import LM
from auditcore.spec import FinetuneSpec, parse_spec

VOCABULARY = 61


def build_model(architecture: str = "llama", **more: Any) -> Any:
    """A causal LM of about 20,000 weights, seeded."""
    torch.manual_seed(0)
    if architecture == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64, **more)
        )
    if architecture == "gptj":
        return GPTJForCausalLM(
            GPTJConfig(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64, rotary_dim=4, **more)
        )
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        **more,
    }
    if architecture == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**shape))
    return LlamaForCausalLM(LlamaConfig(**shape))


def build_lm(architecture: str = "llama", **more: Any) -> LM:
    """That model with a tokenizer whose pad token exists in memory only."""
    words = {f"w{i}": i for i in range(VOCABULARY - 1)} | {"<eos>": VOCABULARY - 1}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<eos>", unk_token="w0")
    tokenizer.pad_token = tokenizer.eos_token
    model = build_model(architecture, **more).eval()
    return LM(model, tokenizer, "tiny", f"tiny-{architecture}", "folder", "float32", "cpu")


def build_rows(n: int = 24, *, targets: bool = False, seed: int = 0) -> Encoded:
    """Random rows of 3 to 20 tokens; with targets, the last 1 to 8 of them are the target."""
    rng = np.random.default_rng(seed)
    ids = [rng.integers(1, VOCABULARY - 1, size=rng.integers(3, 21)).astype(np.int64) for _ in range(n)]
    prompts = np.array([len(row) - (rng.integers(1, min(len(row), 9)) if targets else 0) for row in ids])
    no = np.zeros(n, dtype=bool)
    return Encoded(ids, prompts.astype(np.int64), no, no, has_target=targets)


def build_spec(**changes: Any) -> FinetuneSpec:
    """A spec of a short training at a high rate."""
    raw = {
        "kind": "finetune",
        "model": {"source": "smollm2-135m"},
        "data": {"path": "rows.csv", "roles": {"text": "text"}},
        "batch_size": 4,
        "learning_rate": 0.01,
        "epochs": 2,
        "lora": {"r": 4, "alpha": 8, "dropout": 0.1},
        **changes,
    }
    found = parse_spec(raw)
    assert isinstance(found, FinetuneSpec)
    return found


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_lm() -> Callable[..., LM]:
    return build_lm


@pytest.fixture
def make_rows() -> Callable[..., Encoded]:
    return build_rows


@pytest.fixture
def make_spec() -> Callable[..., FinetuneSpec]:
    return build_spec
