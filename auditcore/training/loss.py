"""Next-token cross-entropy. In: a causal model and a batch. Out: the loss over the positions in it, and its gradients.

The head runs on the positions in the loss only, in chunks, and its gradients are made in the same sweep: the logits of
a whole batch are never in memory at once (as in Liger kernel's fused linear cross-entropy, arXiv 2410.10989).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from auditcore.lm.prefix import told
from auditcore.training.batches import Batch

_LOGITS_AT_ONCE = 2**24  # 64 MiB in float32
_SHORT = 256  # below this width the unfused attention is the faster one for bfloat16 on a CPU (four times at 56)


def has_bfloat16_units(device: str) -> bool:
    """Whether products in bfloat16 are faster than in float32 there: CUDA since Ampere, CPUs with AMX."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    supported: Callable[[], bool] = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return kind == "cpu" and supported()


class NextTokenLoss:
    """Sum of cross-entropies over a batch's positions, with gradients for whatever is trainable.

    causal: a transformers causal LM (adapters may sit in its layers); bf16: autocast for the body.
    """

    def __init__(self, causal: Any, device: str, *, bf16: bool = False) -> None:
        self.causal = causal
        self.device = torch.device(device)
        self.bf16 = bf16
        self.head = _plain_head(causal, self.device)
        # Without such units float32 is the faster and the more exact product for the largest matrix of small models.
        self._head_dtype = torch.bfloat16 if bf16 and has_bfloat16_units(device) else torch.float32

    def __call__(self, batch: Batch, scale: float = 1.0) -> torch.Tensor:
        """Return scale x sum of -log p(label), a float32 scalar that can be differentiated."""
        return self.with_hidden(batch, scale)[0]

    def with_hidden(self, batch: Batch, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """The same loss, and the hidden states after the final norm [rows, width, d] of the pass that made it."""
        input_ids = torch.from_numpy(batch.input_ids).to(self.device)
        positions = torch.from_numpy(batch.positions).to(self.device)
        labels = torch.from_numpy(batch.labels).to(self.device)
        if self.head is None:
            seen: list[torch.Tensor] = []
            handle = self.causal.base_model.register_forward_hook(
                lambda _module, _inputs, output: seen.append(output.last_hidden_state)
            )
            try:
                with self._precision(batch.input_ids.shape[1]):
                    logits = self.causal(input_ids=input_ids, use_cache=False).logits
            finally:
                handle.remove()
            chosen = logits.flatten(0, 1).index_select(0, positions).float()
            return F.cross_entropy(chosen, labels, reduction="sum") * scale, seen[0]
        hidden = self.body(input_ids, batch.lengths)
        chosen = hidden.flatten(0, 1).index_select(0, positions)
        loss = _HeadLoss.apply(
            chosen, self.head.weight, self.head.bias, labels, scale, self._head_dtype, torch.is_grad_enabled()
        )
        return loss, hidden

    def body(self, input_ids: torch.Tensor, lengths: np.ndarray) -> torch.Tensor:
        """Hidden states after the final norm [rows, width, d] of int64 ids [rows, width], padded on the right.

        lengths: real tokens of each row, int64 [rows].
        """
        with self._precision(input_ids.shape[1]), told(self.causal, lengths.tolist()):
            return self.causal.base_model(input_ids=input_ids, use_cache=False).last_hidden_state

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> float:
        """Sum of cross-entropies in float32, without autocast."""
        bf16, dtype = self.bf16, self._head_dtype
        self.bf16, self._head_dtype = False, torch.float32
        try:
            return float(self(batch))
        finally:
            self.bf16, self._head_dtype = bf16, dtype

    @contextmanager
    def _precision(self, width: int) -> Iterator[None]:
        if not self.bf16:
            yield
            return
        with torch.autocast(self.device.type, torch.bfloat16):
            if self.device.type == "cpu" and width <= _SHORT:
                with sdpa_kernel(SDPBackend.MATH):
                    yield
            else:
                yield


class _HeadLoss(torch.autograd.Function):
    """Head and cross-entropy over chunks of positions; hidden [n, width], weight [vocabulary, width]."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        scale: float,
        dtype: torch.dtype,
        training: bool,
    ) -> torch.Tensor:
        wanted = [training and need for need in ctx.needs_input_grad[:3]]
        inputs, matrix = hidden.to(dtype), weight.to(dtype)
        grads = [torch.zeros_like(inputs) if wanted[0] else None]
        grads += [
            torch.zeros_like(t, dtype=torch.float32) if want and t is not None else None
            for want, t in zip(wanted[1:], (weight, bias), strict=True)
        ]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for part in _chunks(len(hidden), weight.shape[0]):
            logits = (inputs[part] @ matrix.t()).float()
            if bias is not None:
                logits += bias.float()
            log_p = F.log_softmax(logits, dim=-1)
            target = labels[part, None]
            total -= log_p.gather(1, target).sum()
            if any(wanted):
                slope = log_p.exp_()  # d loss / d logits = p - 1[label]
                slope.scatter_add_(1, target, torch.full_like(target, -1, dtype=slope.dtype))
                _accumulate(grads, slope.mul_(scale), inputs, matrix, part)
        dtypes = (hidden.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.grads = [None if g is None else g.to(kind) for g, kind in zip(grads, dtypes, strict=True)]
        return total * scale

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        grads, ctx.grads = ctx.grads, None
        if float(outer[0]) != 1.0:
            grads = [g if g is None else g * outer[0] for g in grads]
        return (*grads, None, None, None, None)


def _accumulate(grads: list[Any], slope: torch.Tensor, inputs: torch.Tensor, matrix: torch.Tensor, part: slice) -> None:
    narrow = slope.to(inputs.dtype)
    if grads[0] is not None:
        torch.mm(narrow, matrix, out=grads[0][part])
    if grads[1] is not None:
        if narrow.dtype == grads[1].dtype:
            grads[1].addmm_(narrow.t(), inputs[part])
        else:
            grads[1] += narrow.t() @ inputs[part]
    if grads[2] is not None:
        grads[2] += slope.sum(0)


def _chunks(n: int, vocabulary: int) -> Iterator[slice]:
    parts = max(1, -(-n * vocabulary // _LOGITS_AT_ONCE))
    size = max(1, -(-n // parts))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


@torch.no_grad()
def _plain_head(causal: Any, device: torch.device) -> Any:
    """Return the head if logits are just head(last hidden state); None where the model does more (soft caps, scales).

    Tried on a few tokens rather than guessed from the configuration.
    """
    head = causal.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        return None
    training = causal.training
    causal.eval()
    ids = torch.arange(8, device=device)[None] % head.weight.shape[0]
    full = causal(input_ids=ids, use_cache=False).logits
    hidden = causal.base_model(input_ids=ids, use_cache=False).last_hidden_state
    causal.train(training)
    same = full.shape[:2] == hidden.shape[:2] and torch.allclose(
        F.linear(hidden.to(head.weight.dtype), head.weight, head.bias).float(), full.float(), rtol=1e-3, atol=1e-3
    )
    return head if same else None
