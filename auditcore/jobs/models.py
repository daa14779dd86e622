"""The models of one membership audit. In: its spec. Out: each model when it is first asked for, and its fingerprint.

An adapter and its base share one copy. Two models that do not fit into memory together are loaded one after the other.
"""

from collections.abc import Callable
from typing import Any

from auditcore.errors import ModelError, SpecError
from auditcore.spec import MembershipSpec, ModelSpec

TOGETHER = "Target and reference do not fit into memory together"


class Models:
    """Loads what is asked for and keeps it as long as there is room. Not for other threads.

    Names: `target`; `base`, the model before fine-tuning; `reference`, what attacks compare with (the base, unless the
    audit fine-tunes one); and whatever else `add` brings.
    """

    def __init__(self, spec: MembershipSpec, on_load: Callable[[Any], None] | None = None):
        self._on_load = on_load
        base = spec.model.model_copy(update={"source": reference_source(spec), "reference": None})
        self.sources: dict[str, ModelSpec] = {"target": spec.model, "base": base, "reference": base}
        self.apart = False  # models had to make room for each other
        self._loaded: dict[tuple[str, str | None], Any] = {}
        self._prints: dict[str, str] = {}

    def add(self, name: str, source: ModelSpec) -> None:
        """Name another model, or put another in its place."""
        self.sources[name] = source
        self._prints.pop(name, None)

    def fingerprint(self, which: str) -> str:
        """Hash of everything that decides what the model computes."""
        from auditcore.lm.load import fingerprint

        if which not in self._prints:
            one = self.sources[which]
            self._prints[which] = fingerprint(one.source, one.base)
        return self._prints[which]

    def check_tokenizers(self) -> None:
        """Raise ModelError, before any weights are read, unless target and base cut texts alike."""
        from auditcore.lm.load import load_tokenizer, same_tokenizers

        target, base = self.sources["target"], self.sources["base"]
        mine, theirs = load_tokenizer(target.source, target.base), load_tokenizer(base.source, base.base)
        same_tokenizers(mine, theirs, target.source, base.source)

    def no_difference(self) -> list[str]:
        """For a plan: that target and reference are one and the same model, as far as their names tell."""
        from auditcore.lm.load import resolve

        target, base = (resolve(one.source, one.base) for one in (self.sources["target"], self.sources["base"]))
        same = target.text == base.text
        if target.path is not None and base.path is not None:
            same = target.path.resolve() == base.path.resolve()
        if not same:
            return []
        return [
            f"Target and reference are the same model ({target}): every shift between them will be 0, and attacks that "
            "compare them can show nothing. Name the model as it was before fine-tuning as model.reference."
        ]

    def room(self) -> list[str]:
        """What memory says of target and base, for a plan: that one does not fit, or not beside the other."""
        from auditcore.lm import memory
        from auditcore.lm.load import pick_device, shares_base

        target, base = self.sources["target"], self.sources["base"]
        device = pick_device(target.device)
        try:
            for one in (target, base):
                memory.require_room(one, device)
        except ModelError as error:
            return [str(error)]
        free = memory.free_bytes(device)
        both = memory.needed_bytes(target) + memory.needed_bytes(base)
        if free is None or both <= free or shares_base(target, base.source):
            return []
        sizes = f"about {both / 1e9:,.1f} GB, {free / 1e9:,.1f} GB are free on {device}"
        return [f"{TOGETHER} ({sizes}): they will be loaded one after the other."]

    def get(self, which: str) -> Any:
        """The `lm.load.LM`. Raises ModelError when it cannot be loaded or does not fit into memory."""
        from auditcore.lm.load import as_base, load_model, shares_base

        one, target = self.sources[which], self.sources["target"]
        if which != "target" and one == self.sources["base"] and shares_base(target, one.source):
            return as_base(self.get("target"), one.source)
        name = (one.source, one.base)
        if name not in self._loaded:
            self._make_room(one)
            self._loaded[name] = load_model(one)
            if self._on_load is not None:
                self._on_load(self._loaded[name])
        return self._loaded[name]

    def release(self) -> None:
        """Forget all models: something else needs the memory."""
        from auditcore.lm.load import pick_device

        self._loaded.clear()
        _collect(pick_device(self.sources["target"].device))

    def release_target(self) -> None:
        """Forget the target after its last pass, unless the reference is its own base: half of the memory, for free."""
        from auditcore.lm.load import shares_base

        if not shares_base(self.sources["target"], self.sources["reference"].source):
            self.release()

    def _make_room(self, wanted: ModelSpec) -> None:
        from auditcore.lm import memory
        from auditcore.lm.load import pick_device

        device = pick_device(wanted.device)
        free = memory.free_bytes(device)
        if self._loaded and free is not None and memory.needed_bytes(wanted) > free:
            self.apart = True
            self.release()
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
