"""What attacks cost beside each other. In: the bundled notes and model. Out: ratios, printed and written as JSON.

    python benchmarks/attack_cost.py [--rows 24] [--repeats 2] [--scored 100000] [--json FILE]

Passes: one process asks the models for everything that a choice of attacks reads, the choices in turn, so that a
machine that slows down slows all of them; nothing is taken from the cache. What is trained for an attack is not in it.

ez          target and reference
extraction  all attacks that one extraction serves: ez, loss, reference, zlib, min_k, min_k_pp, min_k_pp_ref, wbc
cheap       the same and lowercase, which takes one more pass of the target
spv         43 passes: proposals, the row and 20 copies under the target, the same under a second model

Scoring: synthetic token statistics of many rows, every attack on them, then operating points; each in a process of its
own, so that its peak memory is its own.
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

NOTES = Path(__file__).resolve().parents[1] / "data" / "notes_membership.parquet"
EXTRACTION = ["ez", "loss", "reference", "zlib", "min_k", "min_k_pp", "min_k_pp_ref", "wbc"]
CHOICES = {"ez": ["ez"], "extraction": EXTRACTION, "cheap": [*EXTRACTION, "lowercase"], "spv": ["spv"]}
TRAINED = 3  # shadow models of the synthetic statistics on each side


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="What attacks cost beside each other.")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--scored", type=int, default=100_000, help="rows of the synthetic token statistics")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each of them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=["passes", "scores", "metrics"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        measured = {"passes": passes, "scores": scoring, "metrics": scoring}[options.part](options)
        measured["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        print(json.dumps(measured))
        return
    report: dict[str, Any] = {k: getattr(options, k) for k in ("rows", "max_length", "repeats", "threads", "scored")}
    for part in ("scores", "metrics", "passes"):
        report[part] = in_a_process(part, options)
        print(part, json.dumps(report[part]), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def in_a_process(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one part and return its figures."""
    names = ("rows", "max_length", "repeats", "threads", "model", "scored", "tokens")
    arguments = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    with tempfile.TemporaryDirectory(prefix="attack-cost-") as home:
        command = [sys.executable, __file__, "--part", part, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**environment, "AUDIT_HOME": home}, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def passes(options: argparse.Namespace) -> dict[str, Any]:
    """Rows per second of each choice of attacks, and ratios to `ez`: best wall time and best processor time."""
    import torch

    from auditcore.datasets.roles import load_dataset
    from auditcore.jobs.models import Models
    from auditcore.lm.encode import encode
    from auditcore.spec import MembershipSpec, parse_spec

    torch.set_num_threads(options.threads)
    spec = parse_spec(
        {
            "kind": "membership",
            "model": {"source": options.model, "reference": options.model, "device": "cpu"},
            "data": {
                "path": str(NOTES),
                "roles": {"text": "prompt", "member": "member", "id": "example_id"},
                "max_rows": options.rows,
            },
            "max_length": options.max_length,
        }
    )
    assert isinstance(spec, MembershipSpec)
    dataset = load_dataset(spec.data, spec.prompt_template)
    models = Models(spec)
    encoded = encode(models.get("target").tokenizer, dataset.template, dataset.fields, None, spec.max_length)
    best: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for name, attacks in CHOICES.items():
            wall, cpu = time.perf_counter(), time.process_time()
            ask(spec, models, dataset, encoded, attacks)
            took = [time.perf_counter() - wall, time.process_time() - cpu]
            best[name] = [min(pair) for pair in zip(best.get(name, took), took, strict=True)]
    found: dict[str, Any] = {}
    for name, (wall, cpu) in best.items():
        found[name] = {"rows_per_second": round(options.rows / wall, 3), "seconds": round(wall, 2)}
        found[name]["times_ez"] = round(wall / best["ez"][0], 2)
        found[name]["times_ez_in_processor_time"] = round(cpu / best["ez"][1], 2)
    return found


def ask(spec: Any, models: Any, dataset: Any, encoded: Any, attacks: list[str]) -> None:
    """Every pass that these attacks take, as an audit takes them, but never from the cache."""
    from auditcore.jobs import evidence, neighbours

    needed = evidence.needs(attacks)
    tokenizer = models.get("target").tokenizer
    passes = evidence.plan(spec, dataset, encoded, tokenizer, needed)
    copies = neighbours.copies_needed(spec, needed)
    found = {
        one.name: one.run(spec, models.get(one.model), None) for one in passes if not copies or one.name == "target"
    }
    if copies:
        made = neighbours.propose(spec, models, encoded, copies, None, keep=False)
        altered = neighbours.in_words(encoded, made)
        neighbours.score(spec, models, "target", altered, None, keep=False)
        # The second model is as large as the first: its own weights do not matter for the time.
        evidence.Pass("reference", "base", encoded, False, spec.score).run(spec, models.get("base"), None)
        neighbours.score(spec, models, "base", altered, None, keep=False)
        return
    evidence.tokens(spec, dataset, encoded, tokenizer, needed, found)


def scoring(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds and peak memory of scoring cached token statistics; `metrics` goes on to the operating points."""
    from auditcore.membership.roc import attack_metrics
    from auditcore.membership.scores import ATTACKS, score_table

    tokens, member = synthetic(options.scored, options.tokens)
    names = [f"r{i}" for i in range(options.scored)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found: dict[str, Any] = {"rows": options.scored, "tokens": len(tokens.position), "loaded_mib": round(before, 1)}
    seconds: dict[str, float] = {}
    for name in ATTACKS:
        started = time.process_time()
        score_table(tokens, [name], names, member)
        seconds[name] = round(time.process_time() - started, 2)
    wall, cpu = time.perf_counter(), time.process_time()
    table = score_table(tokens, list(ATTACKS), names, member)
    found["seconds"] = round(time.perf_counter() - wall, 2)
    found["cpu_seconds"] = round(time.process_time() - cpu, 2)
    found["cpu_seconds_alone"] = seconds
    if options.part == "metrics":
        wall, cpu = time.perf_counter(), time.process_time()
        attack_metrics(table)
        found["metrics_seconds"] = round(time.perf_counter() - wall, 2)
        found["metrics_cpu_seconds"] = round(time.process_time() - cpu, 2)
    return found


def synthetic(n: int, length: int) -> tuple[Any, pd.Series]:
    """Token statistics of n rows of about `length` tokens, with everything that any attack reads, from a seed."""
    from auditcore.membership.scores import Tokens

    rng = np.random.default_rng(0)
    lengths = rng.integers(length // 2, length * 3 // 2, n)
    total = int(lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    position = (np.arange(total) - np.repeat(offsets[:-1], lengths)).astype(np.int32)
    reference = -rng.exponential(3.0, total).astype(np.float32)
    target = reference + rng.normal(0.1, 0.5, total).astype(np.float32)
    moments = tuple(rng.uniform(1, 4, total).astype(np.float32) * sign for sign in (-1, 1))
    mean = rng.normal(-3, 1, n)
    trained = np.tile(np.arange(2 * TRAINED)[:, None] % 2 == 0, (1, n))
    tokens = Tokens(
        offsets=offsets,
        position=position,
        logp_target=target,
        logp_reference=reference,
        is_error=rng.random(total) < 0.6,
        scored=position > 0,
        moments=(moments[0], moments[1]),
        reference_moments=(moments[0], moments[1]),
        rows={"zlib": mean**2 + 20, "lowercase": mean - 1, "prefixed": mean + 0.1, "self_prompt": mean},
        shadows=(rng.normal(-3, 1, (2 * TRAINED, n)), trained),
        copies={name: rng.normal(-3.3, 1, (20, n)) for name in ("neighbours", "varied", "self_prompt")},
    )
    return tokens, pd.Series(pd.array(rng.random(n) < 0.5, dtype="boolean"))


if __name__ == "__main__":
    main()
