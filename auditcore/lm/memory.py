"""Does a model fit? In: a model source. Out: its number of weights, the bytes they take, and the memory that is free.

Read from headers alone; imports torch only to ask a GPU.
"""

import contextlib
import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from auditcore.errors import ModelError
from auditcore.lm.sources import local_folder, resolve
from auditcore.spec import ModelSpec

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SLACK = 1.15  # weights are not all that a loaded model takes
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
KEPT = 32 * 2**20  # bytes; the most that glibc takes for the second


def parameters(source: str, base: str | None = None) -> int:
    """Number of weights, an adapter's base included, from the headers of the safetensors files; 0 where unknown."""
    from safetensors import safe_open

    found = resolve(source, base)
    total = 0
    for place in filter(None, (found, found.base)):
        if place.kind == "gguf":
            continue
        for file in local_folder(place).glob("*.safetensors"):
            with safe_open(file, framework="numpy") as tensors:
                total += sum(int(np.prod(tensors.get_slice(k).get_shape())) for k in tensors.keys())  # noqa: SIM118
    return total


def needed_bytes(spec: ModelSpec) -> int:
    """Memory that `spec.source` takes once it is loaded; 0 where unknown."""
    return int(SLACK * BYTES[spec.dtype] * parameters(spec.source, spec.base))


def free_bytes(device: str) -> int | None:
    """Memory that can still be used on a device (cpu, cuda, cuda:N), None where that cannot be known."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if device != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def require_room(spec: ModelSpec, device: str) -> None:
    """Raise ModelError when the model will not fit, before hours of work end in a killed process."""
    needed, free = needed_bytes(spec), free_bytes(device)
    if free is not None and needed > free:
        half = "dtype: bfloat16 (half of that), " if spec.dtype == "float32" else ""
        raise ModelError(
            f"{spec.source}: takes about {needed / 1e9:,.1f} GB of memory in {spec.dtype}, and {free / 1e9:,.1f} GB "
            f"are free on {device}. Use {half}a smaller model, or a machine with more memory."
        )


@cache
def keep_freed() -> None:
    """Let this process keep the memory it frees, where its C library is glibc; elsewhere nothing happens.

    A model's layers ask for the same buffers again and again. Given back to the system in between, their pages are
    cleared each time they are touched anew, which takes a tenth to a fifth of a forward pass on a CPU.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no such library, or no mallopt in it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, KEPT)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
