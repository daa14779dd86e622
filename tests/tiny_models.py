"""Tiny random models on disk. In: an architecture's name and a folder. Out: config, safetensors and a tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEXTS = [
    "The patient was admitted with fever and cough. Chest X-ray showed no acute process.",
    "Wall Street stocks fell on Monday; oil prices rose to $55.80 a barrel, a record high.",
    "He was discharged home in good condition, follow-up in two weeks. Naïve café – 東京 🙂",
    'She said: "the quick brown fox jumps over the lazy dog", 1234567890 times.\n\tThen left.',
]
ARCHITECTURES = ("llama", "gpt2", "gptj", "qwen2")


def build_tokenizer(vocabulary: int = 384, texts: Sequence[str] = TEXTS) -> Any:
    """A byte-level BPE tokenizer with an end-of-sequence token and no pad token, trained on `texts`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def build_config(architecture: str, vocabulary: int) -> Any:
    """A config of 3 layers, width 32, 2 heads and 256 positions."""
    from transformers import GPT2Config, GPTJConfig, LlamaConfig, Qwen2Config

    common = {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    gpt = {"n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 256, "initializer_range": 0.2}
    decoder = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
    }
    if architecture == "llama":
        return LlamaConfig(**common, **decoder, tie_word_embeddings=True)
    if architecture == "qwen2":
        return Qwen2Config(**common, **decoder, tie_word_embeddings=False)
    if architecture == "gpt2":
        return GPT2Config(**common, **gpt)
    return GPTJConfig(**common, **gpt, rotary_dim=8, tie_word_embeddings=False)


def build_model(architecture: str, vocabulary: int, seed: int = 0) -> Any:
    """A random model whose biases are random too (they start at zero, which would hide a forgotten one)."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(build_config(architecture, vocabulary))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def build_folder(
    folder: Path, architecture: str = "llama", seed: int = 0, vocabulary: int = 384, texts: Sequence[str] = TEXTS
) -> Path:
    """Write a tiny model with its tokenizer and return the folder."""
    from auditcore.lm.load import quiet

    tokenizer = build_tokenizer(vocabulary, texts)
    with quiet():
        build_model(architecture, len(tokenizer), seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def build_adapter(
    folder: Path,
    base: Path,
    *,
    seed: int = 1,
    scale: float = 0.2,
    modules_to_save: list[str] | None = None,
    bias: Any = "none",
) -> Path:
    """Write a LoRA adapter with random weights (a fresh one would change nothing) on the model in `base`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from auditcore.lm.load import quiet

    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        more = {"modules_to_save": modules_to_save, "bias": bias, "task_type": "CAUSAL_LM"}
        shape = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", **more)
        adapted = get_peft_model(model, shape)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name or (bias != "none" and parameter.requires_grad):
                torch.nn.init.normal_(parameter, std=scale)
        adapted.save_pretrained(folder)
    return folder
