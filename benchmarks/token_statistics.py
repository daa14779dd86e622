"""Speed and memory of token statistics. In: a CSV of AG News rows. Out: ratios, printed and written as JSON.

    python benchmarks/token_statistics.py AG_NEWS.csv [--rows 192] [--repeats 3] [--json FILE]

Every way is run in a process of its own, so that its peak memory is its own, and the ways take turns, so that a machine
that slows down slows all of them:

straightforward  rows padded to 128, whole log-softmax in float32, scores row by row in Python
ours             auditcore.lm.tokens.token_statistics, one model after the other
floor            two bare forward passes with logits over length-sorted batches, nothing done with them
compiled         ours, the body through torch.compile with lengths left open; its compilation is counted apart
bf16             ours with precision bf16
shared           ours, target = adapter on the reference (one base in memory)
separate         the same adapter, with the base loaded twice
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from anywhere, without installing

WAYS = ("straightforward", "ours", "floor", "compiled", "bf16", "shared", "separate")
MAX_LENGTH, BATCH = 128, 16


def main() -> None:
    """Run the ways in turn and report."""
    options = parse()
    if options.way:
        child(options)
        return
    with tempfile.TemporaryDirectory(prefix="token-statistics-") as scratch:
        home = Path(scratch)
        target = options.target or str(perturbed_copy(home / "target", options.reference))
        adapter = str(random_adapter(home / "adapter", options.reference))
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
        for turn in range(options.repeats):
            for way in options.ways:
                source = adapter if way in ("shared", "separate") else target
                runs[way].append(in_a_process(options, way, source, home / f"{way}.npz"))
                print(f"turn {turn + 1}: {way} {runs[way][-1]}", flush=True)
        report = compare(options, runs, home)
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description="Speed and memory of token statistics.")
    parser.add_argument("csv", type=Path, help="AG News rows with columns title and description")
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--target", help="a fine-tuned model; default: the reference with noise on its weights")
    parser.add_argument("--reference", default="smollm2-135m")
    parser.add_argument("--member", help="column 0/1: also compare the AUC of the scores")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def perturbed_copy(folder: Path, reference: str) -> Path:
    """The reference with a little noise on every weight, so that the two models differ as after fine-tuning."""
    import torch

    from auditcore.lm.load import load_model, quiet
    from auditcore.spec import ModelSpec

    lm = load_model(ModelSpec(source=reference))
    torch.manual_seed(0)
    with torch.no_grad(), quiet():
        for parameter in lm.model.parameters():
            parameter += 0.02 * parameter.std() * torch.randn_like(parameter)
        lm.model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
    return folder


def random_adapter(folder: Path, reference: str) -> Path:
    """A LoRA adapter of rank 16 with random weights on the attention projections of the reference."""
    import torch
    from peft import LoraConfig, get_peft_model

    from auditcore.lm.load import load_model, quiet
    from auditcore.spec import ModelSpec

    torch.manual_seed(0)
    shape = LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
    with quiet():
        model = get_peft_model(load_model(ModelSpec(source=reference)).model, shape)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.02)
        model.save_pretrained(str(folder))
    return folder


def in_a_process(options: argparse.Namespace, way: str, source: str, out: Path) -> dict[str, Any]:
    """Run one way and return its figures."""
    command = [sys.executable, __file__, str(options.csv), "--rows", str(options.rows), "--way", way]
    command += ["--source", source, "--reference", options.reference, "--out", str(out)]
    command += ["--threads", str(options.threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{way}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def child(options: argparse.Namespace) -> None:
    """Load, encode, measure one way; print one line of JSON."""
    import torch

    from auditcore.lm.encode import encode
    from auditcore.lm.load import Pair, load_model, load_pair, load_tokenizer
    from auditcore.spec import ModelSpec

    torch.set_num_threads(options.threads)
    spec = ModelSpec(source=options.source, reference=options.reference)
    if options.way == "bf16":
        spec = spec.model_copy(update={"precision": "bf16"})
    table = pd.read_csv(options.csv, nrows=options.rows, dtype=str, keep_default_na=False)
    fields = {name: table[name].tolist() for name in ("title", "description")}
    encoded = encode(load_tokenizer(options.reference), "{title}. {description}", fields, None, MAX_LENGTH)
    if options.way in ("ours", "bf16", "compiled"):  # as in an audit: all passes of one model, then of the other
        reference = spec.model_copy(update={"source": options.reference, "reference": None})
        compiled = options.way == "compiled"
        measured = [one_model(one, encoded, compiled) for one in (spec, reference)]
        loaded, wall, cpu, mib = (max(m[k] for m in measured) if k in (1, 4) else sum(m[k] for m in measured)
                                  for k in (1, 2, 3, 4))  # fmt: skip
        target, other = measured[0][0], measured[1][0]
        logp_target, logp_reference = target.logp_target[target.scored], other.logp_target[other.scored]
        is_error = target.is_error[target.scored]
    else:
        one_base = options.way != "separate"
        pair = load_pair(spec) if one_base else Pair(load_model(spec), load_model(spec, options.reference))
        loaded, mib = peak(), weights(pair.target, pair.reference)
        work = {"straightforward": straightforward, "floor": floor}.get(options.way, together)
        wall, cpu = time.perf_counter(), time.process_time()
        logp_target, logp_reference, is_error = work(pair, encoded)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    np.savez(options.out, t=logp_target, r=logp_reference, e=is_error, n=encoded.lengths)
    print(
        json.dumps(
            {
                "seconds": round(wall, 3),
                "cpu_seconds": round(cpu, 3),
                "peak_mib": round(peak(), 1),
                "loaded_mib": round(loaded, 1),
                "weights_mib": round(mib, 1),
            }
        )
    )


def peak() -> float:
    """Peak resident memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


def weights(*models: Any) -> float:
    """MiB of distinct weights in memory, of all these models together."""
    seen = {p.data_ptr(): p.numel() * p.element_size() for lm in models for p in lm.model.parameters()}
    return sum(seen.values()) / 2**20


def one_model(spec: Any, encoded: Any, compiled: bool = False) -> tuple[Any, float, float, float, float]:
    """The product's own way: load one model, read all rows, forget it. Statistics, peak after loading, times, MiB."""
    import torch

    from auditcore.lm.load import load_model
    from auditcore.lm.tokens import token_statistics

    model = load_model(spec)
    if compiled:
        body = model.causal.base_model
        body.forward = torch.compile(body.forward, dynamic=True)
        started = time.perf_counter()
        for rows in (slice(0, 16), slice(16, 40)):  # two shapes, after which lengths are left open
            token_statistics(model, None, encoded.select(np.arange(len(encoded.ids))[rows]), batch_size=BATCH)
        print(f"compiled in {time.perf_counter() - started:.0f} seconds", file=sys.stderr)
    loaded, mib = peak(), weights(model)
    wall, cpu = time.perf_counter(), time.process_time()
    stats = token_statistics(model, None, encoded, batch_size=BATCH)
    return stats, loaded, time.perf_counter() - wall, time.process_time() - cpu, mib


def together(pair: Any, encoded: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both models at once, batch by batch: what an adapter on its reference gets."""
    from auditcore.lm.tokens import token_statistics

    stats = token_statistics(pair.target, pair.reference, encoded, batch_size=BATCH)
    assert stats.logp_reference is not None
    return stats.logp_target[stats.scored], stats.logp_reference[stats.scored], stats.is_error[stats.scored]


def floor(pair: Any, encoded: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two bare forward passes with logits over length-sorted batches."""
    import torch

    from auditcore.lm.encode import batches
    from auditcore.lm.forward import pad

    with torch.inference_mode():
        for rows in batches(encoded.lengths, BATCH):
            batch = pad([encoded.ids[i] for i in rows], "cpu")
            for lm in (pair.target, pair.reference):
                lm.model(input_ids=batch.ids, attention_mask=batch.mask.long(), use_cache=False)
    empty = np.empty(0)
    return empty, empty, empty


def straightforward(pair: Any, encoded: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What one writes first: pad to the maximum, log-softmax of everything, then row by row."""
    import torch

    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    with torch.inference_mode():
        for start in range(0, len(encoded.ids), BATCH):
            rows = encoded.ids[start : start + BATCH]
            ids = torch.zeros(len(rows), MAX_LENGTH, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for i, row in enumerate(rows):
                ids[i, : len(row)] = torch.from_numpy(row)
                mask[i, : len(row)] = 1
            logits = pair.target.model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            best = logits.argmax(dim=-1)
            target = logits.log_softmax(dim=-1)
            logits = pair.reference.model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            reference = logits.log_softmax(dim=-1)
            for i, row in enumerate(rows):
                logp: list[list[float]] = [[], []]
                wrong = []
                for position in range(1, len(row)):
                    token = int(row[position])
                    logp[0].append(float(target[i, position - 1, token]))
                    logp[1].append(float(reference[i, position - 1, token]))
                    wrong.append(int(best[i, position - 1]) != token)
                found.append((np.array(logp[0]), np.array(logp[1]), np.array(wrong, dtype=bool)))
    target_all, reference_all, wrong_all = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return target_all, reference_all, wrong_all


def compare(options: argparse.Namespace, runs: dict[str, list[dict[str, Any]]], home: Path) -> dict[str, Any]:
    """Best wall time of each way, ratios, differences of the numbers."""
    report: dict[str, Any] = {"rows": options.rows, "max_length": MAX_LENGTH, "batch": BATCH}
    report |= {"threads": options.threads, "repeats": options.repeats, "ways": {}}
    best: dict[str, dict[str, Any]] = {}
    for way, turns in runs.items():
        best[way] = {key: min(turn[key] for turn in turns) for key in turns[0]}
        best[way]["all_seconds"] = [turn["seconds"] for turn in turns]
        best[way]["rows_per_second"] = round(options.rows / best[way]["seconds"], 2)
    report["ways"] = best
    if {"straightforward", "ours"} <= best.keys():
        one, two = best["straightforward"], best["ours"]
        report |= ratio("speed_up", one, two)
        report["memory_share"] = round(two["peak_mib"] / one["peak_mib"], 3)
        report["largest_difference"] = largest_difference(home / "straightforward.npz", home / "ours.npz")
    if {"floor", "ours"} <= best.keys():
        report |= ratio("times_the_floor", best["ours"], best["floor"])
    if {"compiled", "ours"} <= best.keys():
        report["compiled"] = ratio("times_ours", best["compiled"], best["ours"])
        report["compiled"]["largest_difference"] = largest_difference(home / "ours.npz", home / "compiled.npz")
    if {"bf16", "ours"} <= best.keys():
        report["bf16"] = ratio("speed_up", best["ours"], best["bf16"])
        report["bf16"] |= effect_on_scores(home / "ours.npz", home / "bf16.npz", options)
    if {"shared", "separate"} <= best.keys():
        report["shared_base_mib_saved"] = round(best["separate"]["weights_mib"] - best["shared"]["weights_mib"], 1)
        report["shared_largest_difference"] = largest_difference(home / "shared.npz", home / "separate.npz")
    return report


def ratio(name: str, over: dict[str, Any], under: dict[str, Any]) -> dict[str, float]:
    """Quotient of wall times, and of processor times (steadier where other work runs beside it; use one thread)."""
    return {
        name: round(over["seconds"] / under["seconds"], 3),
        f"{name}_in_processor_time": round(over["cpu_seconds"] / under["cpu_seconds"], 3),
    }


def largest_difference(one: Path, two: Path) -> float:
    """Largest absolute difference of the log-probs; refuses when the error positions differ in more than ties."""
    a, b = np.load(one), np.load(two)
    assert (a["e"] == b["e"]).mean() > 0.9999
    return float(max(np.abs(a[key] - b[key]).max() for key in ("t", "r")))


def scores(path: Path) -> dict[str, np.ndarray]:
    """Per row: mean loss, mean difference and the error-zone ratio (log-ratio, errors only)."""
    data = np.load(path)
    ends = np.cumsum(np.maximum(data["n"] - 1, 0))
    found: dict[str, list[float]] = {"loss": [], "reference": [], "ez": []}
    for i, end in enumerate(ends):
        part = slice(int(ends[i - 1]) if i else 0, int(end))
        target, delta, wrong = data["t"][part], (data["t"] - data["r"])[part], data["e"][part]
        wrong = wrong & (np.arange(len(wrong)) > 0)
        up, down = np.maximum(delta[wrong], 0).sum(), np.maximum(-delta[wrong], 0).sum()
        found["loss"].append(target.mean())
        found["reference"].append(delta.mean())
        found["ez"].append(np.log((up + 1e-6) / (down + 1e-6)))
    return {name: np.array(values) for name, values in found.items()}


def effect_on_scores(exact: Path, rough: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Rank correlation and largest difference of each score; with a member column, both AUCs."""
    from scipy.stats import spearmanr
    from sklearn.metrics import roc_auc_score

    one, two = scores(exact), scores(rough)
    report: dict[str, Any] = {}
    for name in one:
        report[name] = {
            "rank_correlation": round(float(spearmanr(one[name], two[name]).statistic), 5),
            "largest_difference": round(float(np.abs(one[name] - two[name]).max()), 5),
        }
        if options.member:
            member = pd.read_csv(options.csv, nrows=options.rows)[options.member].to_numpy() == 1
            report[name] |= {
                "auc_float32": round(float(roc_auc_score(member, one[name])), 4),
                "auc_bf16": round(float(roc_auc_score(member, two[name])), 4),
            }
    a, b = np.load(exact), np.load(rough)
    report["mean_difference_of_log_probs"] = round(float(np.abs(a["t"] - b["t"]).mean()), 5)
    report["errors_that_agree"] = round(float((a["e"] == b["e"]).mean()), 5)
    return report


if __name__ == "__main__":
    main()
