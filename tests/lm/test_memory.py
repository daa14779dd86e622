"""Memory: weights are counted from headers, and a model that cannot fit is refused before it is loaded."""

import platform
import subprocess
import sys

import pytest

from auditcore.errors import ModelError
from auditcore.lm import memory
from auditcore.lm.load import load_model
from auditcore.spec import ModelSpec


def test_weights_are_those_of_the_loaded_model(tiny_llama, tiny_adapter):
    assert memory.parameters(str(tiny_llama)) == load_model(ModelSpec(source=str(tiny_llama))).model.num_parameters()
    assert memory.parameters(str(tiny_adapter)) > memory.parameters(str(tiny_llama))
    half = memory.needed_bytes(ModelSpec(source=str(tiny_llama), dtype="bfloat16"))
    assert memory.needed_bytes(ModelSpec(source=str(tiny_llama))) == pytest.approx(2 * half, abs=2)


def test_what_does_not_fit_is_refused_with_numbers_and_a_way_out(tiny_llama, monkeypatch):
    memory.require_room(ModelSpec(source=str(tiny_llama)), "cpu")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(ModelError, match=r"takes about 0\.0 GB of memory in float32, .* dtype: bfloat16"):
        memory.require_room(ModelSpec(source=str(tiny_llama)), "cpu")
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)  # unknown: the attempt is allowed
    memory.require_room(ModelSpec(source=str(tiny_llama)), "cpu")


def test_free_memory_of_this_machine_is_known_where_linux_says_it():
    free = memory.free_bytes("cpu")
    assert free is None or free > 0
    assert memory.free_bytes("mps") is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_is_freed_is_used_again_without_new_pages() -> None:
    code = """
import resource, sys
import numpy as np
if sys.argv[1] == "keep":
    from auditcore.lm.memory import keep_freed
    keep_freed()
def use():
    for buffer in [np.empty(8_000_000, dtype=np.uint8) for _ in range(8)]:
        buffer[::4096] = 1
for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {}
    for how in ("as it is", "keep"):
        done = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True)
        faults[how] = int(done.stdout)
    assert faults["keep"] < faults["as it is"] / 10
