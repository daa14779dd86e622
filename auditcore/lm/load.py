"""Loading. In: a ModelSpec. Out: an LM (model, tokenizer, fingerprint), or a pair of them that shares one base.

Never remote code, never pickled weights. torch and transformers are imported inside functions, so that asking what a
source is (`resolve`, `fingerprint`) costs neither.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditcore.errors import ModelError, SpecError
from auditcore.lm.bundled import convert_gguf, drop_quantisation, ensure_bundled
from auditcore.lm.memory import keep_freed
from auditcore.lm.sources import (
    Source,
    changes_biases,
    fingerprint,
    local_folder,
    models_home,
    read_json,
    resolve,
    tokenizer_file,
)
from auditcore.spec import ModelSpec

if TYPE_CHECKING:
    import torch

__all__ = [
    "LM",
    "Pair",
    "Source",
    "ensure_bundled",
    "fingerprint",
    "load_model",
    "load_pair",
    "load_tokenizer",
    "models_home",
    "quiet",
    "resolve",
    "same_tokenizer",
    "tokenizer_file",
]

# What opening a broken or unsuitable model raises, besides SafetensorError, which derives from Exception alone.
_LOADING_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError, AttributeError, TypeError)


@dataclass(frozen=True)
class LM:
    """A causal language model ready to be asked, in evaluation mode."""

    model: Any  # transformers.PreTrainedModel or peft.PeftModel
    tokenizer: Any
    fingerprint: str
    source: str
    kind: str
    dtype: str  # float32 | bfloat16 | float16, of the stored weights
    device: str
    base: str | None = None  # the base of an adapter
    precision: str = "full"  # bf16: body in bfloat16, head in float32
    adapter_off: bool = False  # this is the base, seen through a model that carries an adapter

    @property
    def causal(self) -> Any:
        """The causal LM itself, without PEFT's wrapper (its layers still carry the adapter)."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def active(self) -> AbstractContextManager[Any]:
        """Context in which the model computes what this LM stands for (the adapter switched off, if need be)."""
        return self.model.disable_adapter() if self.adapter_off else nullcontext()


@dataclass(frozen=True)
class Pair:
    """The fine-tuned model and the one before fine-tuning; `shared` when both are one base in memory."""

    target: LM
    reference: LM | None
    shared: bool = False


def load_model(spec: ModelSpec, source: str | None = None) -> LM:
    """Load `source` (default: spec.source) with the spec's dtype, device and precision.

    Raises ModelError: missing or broken files, not a causal LM, no tokenizer, adapter that does not fit its base.
    """
    found = resolve(source if source is not None else spec.source, spec.base)
    device = pick_device(spec.device)
    if device == "cpu":
        keep_freed()
    with quiet():
        model, tokenizer = _open(found, spec, device)
    if spec.precision == "bf16":
        body_to_bfloat16(model)
    if tokenizer.pad_token is None:  # in memory only: padding is known from lengths, the id never matters
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    model.eval()
    return LM(
        model=model,
        tokenizer=tokenizer,
        fingerprint=fingerprint(found),
        source=found.text,
        kind=found.kind,
        dtype=spec.dtype,
        device=device,
        base=str(found.base) if found.base else None,
        precision=spec.precision,
    )


def with_adapter(base: LM, source: str | Path) -> LM:
    """The base with an adapter put on its own copy in memory; `without_adapter` takes it off again.

    Raises ModelError when it cannot be applied; the base is then no longer to be used.
    """
    found = resolve(source, base.source)
    with quiet():
        model = _open_adapter(found, base.model, base.device)
    model.eval()
    return replace(
        base, model=model, fingerprint=fingerprint(found), source=found.text, kind="adapter", base=base.source
    )


def without_adapter(adapted: LM) -> None:
    """Take the adapter off: the base that it was put on is as it was."""
    adapted.model.unload()


def load_tokenizer(source: str, base: str | None = None) -> Any:
    """Open the tokenizer that `source` uses, without its weights. Raises ModelError like `load_model`."""
    found = resolve(source, base)
    with quiet():
        return _open_tokenizer(found, _tokenizer_folder(found))


def load_pair(spec: ModelSpec, *, need_reference: bool = True) -> Pair:
    """Load target and reference; when the target is an adapter on the reference, one base serves both.

    The reference is spec.reference, else the base of an adapter. Raises SpecError when there is none and one is
    needed, ModelError when the two do not share a tokenizer.
    """
    target_source = resolve(spec.source, spec.base)
    if spec.reference is not None:
        reference_source: Source | None = resolve(spec.reference, spec.base)
    else:
        reference_source = target_source.base
    if reference_source is None:
        if need_reference:
            raise SpecError(
                "model.reference is missing: name the model as it was before fine-tuning, or leave out the attacks "
                "that compare with it."
            )
        return Pair(load_model(spec), None)
    target = load_model(spec)
    if shares_base(spec, reference_source.text):
        return Pair(target, as_base(target, reference_source.text), shared=True)
    reference = load_model(spec, reference_source.text)
    same_tokenizer(target, reference)
    return Pair(target, reference)


def shares_base(spec: ModelSpec, reference: str) -> bool:
    """Whether the target is an adapter on `reference`, so that one base in memory serves both.

    Not where the adapter changes biases of the base: switched off, it leaves them as it made them.
    """
    target = resolve(spec.source, spec.base)
    if target.base is None or changes_biases(target):
        return False
    return _same_model(target.base, resolve(reference, spec.base))


def as_base(target: LM, reference: str) -> LM:
    """The base of a loaded adapter, seen through the model that carries the adapter."""
    found = resolve(reference)
    return replace(
        target, fingerprint=fingerprint(found), source=found.text, kind=found.kind, base=None, adapter_off=True
    )


def same_tokenizer(target: LM, reference: LM) -> None:
    """Raise ModelError unless both turn the same text into the same ids, and the reference knows every id."""
    same_tokenizers(target.tokenizer, reference.tokenizer, target.source, reference.source)


def same_tokenizers(one: Any, two: Any, target: str, reference: str) -> None:
    """The same for two tokenizers and the names of their models."""
    if one is two or one is None or two is None:
        return
    probe = 'Hello, world!\n\tA "quoted" 3.14 naïve café – 東京 🙂  <b>x</b> $y$'
    if one.get_vocab() == two.get_vocab() and one(probe)["input_ids"] == two(probe)["input_ids"]:
        return
    raise ModelError(
        f"target {target} ({len(one)} tokens) and reference {reference} ({len(two)} tokens) use different tokenizers, "
        "so their per-token probabilities cannot be compared. Use the model the target was fine-tuned from."
    )


def pick_device(device: str) -> str:
    """auto -> cuda, mps or cpu. Raises ModelError for a device this machine does not have."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind == "cuda" and (not torch.cuda.is_available() or int(number or 0) >= torch.cuda.device_count()):
        raise ModelError(
            f"device {device}: this machine has {torch.cuda.device_count()} CUDA devices; use auto or cpu."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ModelError("device mps: not available on this machine; use auto or cpu.")
    return device


def body_to_bfloat16(model: Any) -> None:
    """Turn the body's weights to bfloat16 in place; embeddings and head stay float32.

    The embedding matrix is often the head's too, so its output is cast instead of its weights: the same numbers,
    without a second copy.
    """
    import torch

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    embeddings = causal.get_input_embeddings()
    kept = {id(p) for m in (embeddings, causal.get_output_embeddings()) if m is not None for p in m.parameters()}
    for tensor in [*causal.base_model.parameters(), *causal.base_model.buffers()]:
        if id(tensor) not in kept and tensor.dtype == torch.float32 and not _is_rotary(causal.base_model, tensor):
            tensor.data = tensor.data.to(torch.bfloat16)
    embeddings.register_forward_hook(lambda _module, _inputs, output: output.to(torch.bfloat16))
    causal.get_output_embeddings().register_forward_pre_hook(lambda _module, inputs: (inputs[0].float(),))


def _is_rotary(body: Any, tensor: "torch.Tensor") -> bool:
    # Rotary frequencies lose positions in bfloat16; transformers keeps them in float32 too.
    return any(tensor is b for name, b in body.named_buffers() if "inv_freq" in name)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep progress bars and advice of the loading libraries off the screen; errors still come through."""
    from transformers.utils import logging as hf_logging

    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    peft_level = logging.getLogger("peft").level
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    logging.getLogger("peft").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(level)
        logging.getLogger("peft").setLevel(peft_level)
        if bars:
            hf_logging.enable_progress_bar()


def _same_model(one: Source, two: Source) -> bool:
    if one.path is not None and two.path is not None and one.path.resolve() == two.path.resolve():
        return True
    return fingerprint(one) == fingerprint(two)


def _open(source: Source, spec: ModelSpec, device: str) -> tuple[Any, Any]:
    if source.kind != "adapter":
        folder = _folder_of(source)
        return _open_causal(source, folder, spec, device), _open_tokenizer(source, folder)
    assert source.base is not None
    assert source.path is not None
    base = _folder_of(source.base)
    tokenizer = _open_tokenizer(source, _tokenizer_folder(source))
    model = _open_causal(source.base, base, spec, device)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"adapter {source} has a tokenizer of {len(tokenizer)} tokens, its base {source.base} embeds {rows}: they "
            "do not belong together. Name the right base as model.base."
        )
    return _open_adapter(source, model, device), tokenizer


def _tokenizer_folder(source: Source) -> Path:
    """An adapter's own folder when it has a tokenizer, else its base's."""
    if source.base is None or source.path is None:
        return _folder_of(source)
    own = any((source.path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return source.path if own else _folder_of(source.base)


def _folder_of(source: Source) -> Path:
    if source.kind == "gguf":
        assert source.path is not None
        return convert_gguf(source.path)
    return local_folder(source)


def _open_causal(source: Source, folder: Path, spec: ModelSpec, device: str) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    _check_architecture(source, folder)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, spec.dtype),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise ModelError(f"{source}: its safetensors file is damaged ({error}). Copy it again.") from None
    except _LOADING_ERRORS as error:
        raise ModelError(f"{source}: cannot be loaded ({_first_line(error)}).") from error
    model, info = loaded
    missing = sorted(map(str, info.get("missing_keys") or ()))
    if missing:
        raise ModelError(
            f"{source}: {len(missing)} weights are missing from its files ({', '.join(missing[:3])} ...), so it would "
            "answer at random. Is it a causal language model, and are all its files there?"
        )
    drop_quantisation(model)
    # What a later adapter records as its base: the name the user knows, not where a cache happens to lie.
    model.name_or_path = source.text
    return model.to(device)


def _check_architecture(source: Source, folder: Path) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(kind))
    if known is None:
        own = " It needs code of its own, and remote code is never run." if config.get("auto_map") else ""
        raise ModelError(f"{source}: model_type {kind!r} is not a causal language model that transformers knows.{own}")
    names = (known,) if isinstance(known, str) else tuple(known)
    written = config.get("architectures") or []
    if config.get("is_encoder_decoder") or (written and not any(name in names for name in written)):
        raise ModelError(
            f"{source}: architecture {', '.join(map(str, written)) or kind} is not a causal language model "
            f"(expected {', '.join(names)})."
        )


def _open_tokenizer(source: Source, folder: Path) -> Any:
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt")):
        raise ModelError(f"{source}: no tokenizer in {folder}. Copy tokenizer.json and tokenizer_config.json there.")
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a broken file
        raise ModelError(f"{source}: its tokenizer cannot be read ({_first_line(error)}).") from error


def _open_adapter(source: Source, model: Any, device: str) -> Any:
    from peft import PeftModel
    from safetensors import SafetensorError

    assert source.path is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            adapted = PeftModel.from_pretrained(model, source.path, is_trainable=False)
        except SafetensorError as error:
            raise ModelError(f"{source}: adapter_model.safetensors is damaged ({error}). Copy it again.") from None
        except _LOADING_ERRORS as error:
            text = str(error)
            reason = "their sizes differ" if "size mismatch" in text else "it cannot be applied"
            detail = _first_line(error, "size mismatch")
            raise ModelError(
                f"adapter {source} does not fit its base {source.base}: {reason} ({detail}). "
                "Name the right base as model.base."
            ) from error
    lost = [str(w.message) for w in caught if "missing adapter keys" in str(w.message).lower()]
    if lost:
        raise ModelError(f"adapter {source} does not fit its base {source.base}: {lost[0].splitlines()[0]}")
    return adapted.to(device)


def _first_line(error: Exception, prefer: str = "") -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = next((line for line in lines if prefer and prefer in line), lines[0] if lines else "")
    return chosen or type(error).__name__
