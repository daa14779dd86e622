"""The models of one membership audit. In: its spec. Out: each model when it is first asked for, and its fingerprint.

An adapter and its base share one copy. Two models that do not fit into memory together are loaded one after the other.
"""

from collections.abc import Callable
from typing import Any, Literal

from auditcore.errors import SpecError
from auditcore.spec import MembershipSpec, ModelSpec

Which = Literal["target", "reference"]


class Models:
    """Loads what is asked for and keeps it as long as there is room. Not for other threads."""

    def __init__(self, spec: MembershipSpec, on_load: Callable[[Any], None] | None = None):
        self._on_load = on_load
        reference = reference_source(spec)
        self.sources: dict[str, ModelSpec] = {
            "target": spec.model,
            "reference": spec.model.model_copy(update={"source": reference, "base": None, "reference": None}),
        }
        self.apart = False  # models had to make room for each other
        self._loaded: dict[str, Any] = {}
        self._prints: dict[str, str] = {}

    def fingerprint(self, which: str) -> str:
        """Hash of everything that decides what the model computes."""
        from auditcore.lm.load import fingerprint

        if which not in self._prints:
            one = self.sources[which]
            self._prints[which] = fingerprint(one.source, one.base)
        return self._prints[which]

    def check_tokenizers(self) -> None:
        """Raise ModelError, before any weights are read, unless target and reference cut texts alike."""
        from auditcore.lm.load import load_tokenizer, same_tokenizers

        target, reference = self.sources["target"], self.sources["reference"]
        mine, theirs = load_tokenizer(target.source, target.base), load_tokenizer(reference.source)
        same_tokenizers(mine, theirs, target.source, reference.source)

    def get(self, which: str) -> Any:
        """The `lm.load.LM`. Raises ModelError when it cannot be loaded or does not fit into memory."""
        from auditcore.lm.load import as_base, load_model, shares_base

        if which == "reference" and shares_base(self.sources["target"], self.sources["reference"].source):
            return as_base(self.get("target"), self.sources["reference"].source)
        if which not in self._loaded:
            self._make_room(which)
            self._loaded[which] = load_model(self.sources[which])
            if self._on_load is not None:
                self._on_load(self._loaded[which])
        return self._loaded[which]

    def _make_room(self, which: str) -> None:
        from auditcore.lm import memory
        from auditcore.lm.load import pick_device

        wanted = self.sources[which]
        device = pick_device(wanted.device)
        free = memory.free_bytes(device)
        if self._loaded and free is not None and memory.needed_bytes(wanted) > free:
            self.apart = True
            self._loaded.clear()
            _collect(device)
        memory.require_room(wanted, device)


def _collect(device: str) -> None:
    import gc

    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def reference_source(spec: MembershipSpec) -> str:
    """The model before fine-tuning: the spec's, else the base of an adapter. Raises SpecError when there is none."""
    from auditcore.lm.load import resolve

    if spec.model.reference is not None:
        return spec.model.reference
    base = resolve(spec.model.source, spec.model.base).base
    if base is None:
        raise SpecError("model.reference is missing: name the model as it was before fine-tuning.")
    return base.text
