"""What a sweep over layers costs in memory. In: sizes. Out: anonymous memory at its peak, one layer against all.

Exports vectors of `--prompts` short prompts from a random model of `--layers` layers and `--width` numbers into files,
as an audit does: the last layer of one artifact, then every layer of several, each in a process of its own. What is
counted is memory that the system cannot take back (RssAnon, Linux), sampled while the model runs: pages of the files
can be. Beside it stands what the same vectors would take if they were kept.

    python -m benchmarks.layer_sweep_memory [--prompts 7000] [--layers 30] [--width 576]
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ARTIFACTS = ("lasttok", "meanpool", "concat")


def main() -> None:
    """Print one line per sweep, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=7000)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--width", type=int, default=576)
    parser.add_argument("--child", choices=("one", "all"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(*measure(options.prompts, options.layers, options.width, options.child == "all"))
        return
    sizes = ["--prompts", str(options.prompts), "--layers", str(options.layers), "--width", str(options.width)]
    found = {}
    for which in ("one", "all"):
        command = [sys.executable, "-m", "benchmarks.layer_sweep_memory", "--child", which, *sizes]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        before, peak, written, seconds = (float(v) for v in done.stdout.split()[-4:])
        found[which] = peak - before
        print(
            f"{which:>3} layers: {peak - before:7.0f} MB more than the loaded model while it exports, "
            f"{written:7.0f} MB of vectors written, {seconds:.0f} s"
        )
    print(f"all / one: {found['all'] / max(found['one'], 1):.2f}")


def measure(prompts: int, layers: int, width: int, every: bool) -> tuple[float, float, float, float]:
    """Anonymous megabytes before and at the peak of the export, megabytes written, seconds."""
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from auditcore.datasets.vector_store import create_vectors
    from auditcore.lm.encode import Encoded
    from auditcore.lm.load import load_model, quiet
    from auditcore.lm.vectors import extract_vectors
    from auditcore.spec import ModelSpec
    from tests.tiny_models import build_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        config = LlamaConfig(
            vocab_size=384, hidden_size=width, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
            num_key_value_heads=1, head_dim=16,
        )  # fmt: skip
        with quiet():
            LlamaForCausalLM(config).save_pretrained(Path(folder) / "model")
            build_tokenizer().save_pretrained(Path(folder) / "model")
        lm = load_model(ModelSpec(source=str(Path(folder) / "model")))
        rng = np.random.default_rng(0)
        ids = [rng.integers(0, 384, n).astype(np.int64) for n in rng.integers(4, 12, prompts)]
        lengths = np.array([len(i) for i in ids])
        nothing = np.zeros(prompts, dtype=bool)
        encoded = Encoded(ids, lengths, nothing, nothing)
        written = 0

        def allocate(artifact: str, layer: int, shape: tuple[int, int]) -> np.ndarray:
            nonlocal written
            written += 4 * shape[0] * shape[1]
            return create_vectors(Path(folder) / f"{artifact}-{layer}", shape)

        torch.set_num_threads(1)
        extract_vectors(lm, encoded.select(np.arange(32)), ["lasttok"], [-1])  # warm
        before, peak, stop = anonymous(), [0.0], threading.Event()

        def watch() -> None:
            while not stop.wait(0.02):
                peak[0] = max(peak[0], anonymous())

        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        extract_vectors(lm, encoded, ARTIFACTS if every else ARTIFACTS[:1], "all" if every else [-1], allocate=allocate)
        seconds = time.perf_counter() - started
        stop.set()
        watcher.join()
    return before, max(peak[0], before), written / 1e6, seconds


def anonymous() -> float:
    """Megabytes of this process that no file backs."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


if __name__ == "__main__":
    main()
