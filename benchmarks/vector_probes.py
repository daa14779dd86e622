"""Speed and memory of exported vectors and their attackers. In: the bundled notes, made-up vectors. Out: ratios, JSON.

    python benchmarks/vector_probes.py [--parts extraction grid disk audit] [--rows 2000] [--json FILE]

Everything that is measured runs in a process of its own, so that its peak memory is its own. Parts, each on its own:

extraction  vectors (lasttok, meanpool, after the final norm) of the first notes. Ways, taken in turns:
            straightforward  rows padded to the longest of the set, output_hidden_states with the language-model head
            ours             auditcore.lm.vectors.extract_vectors
            floor            the bare body over the same length-sorted batches, nothing done with what comes out
grid        4 attackers x 3 artifacts x 5 seeds, 2,000 x 576 dealt 50 / 15 / 35, five classes, with null bands
disk        an audit of 20,000 vectors of width 4,096 in an npy file: peak memory
audit       an audit of 50,000 vectors of width 768 in a Parquet file, as the command line runs it: seconds, no torch
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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run from anywhere, without installing

PARTS = ("extraction", "grid", "disk", "audit")
WAYS = ("straightforward", "ours", "floor")
ATTACKERS = ("linear", "mlp", "gbt", "knn")
ARTIFACTS = ("lasttok", "meanpool")
BATCH = 16
TEMPLATE = "{prompt}\nBrief Hospital Course:"


def main() -> None:
    """Run the chosen parts, one after another, and report."""
    options = parse()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return
    report: dict[str, Any] = {}
    if options.json and options.json.exists():
        report = json.loads(options.json.read_text())  # parts that are not run now keep their figures
    for part in options.parts:
        with tempfile.TemporaryDirectory(prefix="vector-probes-") as scratch:
            options.folder = Path(scratch)
            report[part] = {"extraction": extraction, "grid": grid, "disk": disk, "audit": audit}[part](options)
        print(part, json.dumps(report[part], indent=1), flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(report, indent=1) + "\n")


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description="Speed and memory of exported vectors and their attackers.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=2000, help="notes of the part extraction")
    parser.add_argument("--repeats", type=int, default=1, help="turns of the part extraction")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=5, help="of the part grid")
    parser.add_argument("--permutations", type=int, default=199, help="of the part grid")
    parser.add_argument("--attackers", nargs="+", choices=ATTACKERS, default=list(ATTACKERS), help="of the part grid")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the rows of grid, disk and audit, to try out"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(options: argparse.Namespace, child: str, **more: Any) -> dict[str, Any]:
    """Run one of CHILDREN and return its figures; attackers use the processors by threads of their own."""
    command = [sys.executable, __file__, "--child", child]
    keep = ("rows", "model", "threads", "max_length", "seeds", "permutations", "scale", "folder")
    for name, value in [*((name, getattr(options, name)) for name in keep), *more.items()]:
        command += [
            f"--{name.replace('_', '-')}",
            *([str(v) for v in value] if isinstance(value, list) else [str(value)]),
        ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "AUDIT_HOME": str(options.folder / "runs")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{child}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Clock:
    """Wall time, processor time and peak memory of this process from here on."""

    def __init__(self) -> None:
        self._loaded, self._wall, self._cpu = peak(), time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Seconds and MiB; loaded_mib is the peak before."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        figures = {"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak(), "loaded_mib": self._loaded}
        return {name: round(value, 2) for name, value in figures.items()}


def peak() -> float:
    """Peak resident memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


# --- extraction ---


def extraction(options: argparse.Namespace) -> dict[str, Any]:
    """Ratios of the three ways."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
    for turn in range(options.repeats):
        for way in options.ways:
            runs[way].append(in_a_process(options, "extract", way=way))
            print(f"turn {turn + 1}: {way} {runs[way][-1]}", flush=True)
    best = {way: {key: min(turn[key] for turn in turns) for key in turns[0]} for way, turns in runs.items()}
    report: dict[str, Any] = {"rows": options.rows, "threads": options.threads, "repeats": options.repeats}
    report |= {"model": options.model, "batch": BATCH, "max_length": options.max_length, "ways": best}
    if {"ours", "floor"} <= best.keys():
        report |= ratios("times_the_floor", best["ours"], best["floor"])
    if {"ours", "straightforward"} <= best.keys():
        one, two = best["straightforward"], best["ours"]
        report |= ratios("speed_up", one, two)
        report["memory_share"] = round(two["peak_mib"] / one["peak_mib"], 3)
        extra = [figures["peak_mib"] - figures["loaded_mib"] for figures in (two, one)]
        report["memory_share_beyond_the_loaded_model"] = round(extra[0] / extra[1], 3)
        a, b = (np.load(options.folder / f"{way}.npy") for way in ("straightforward", "ours"))
        report["largest_relative_difference"] = float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)).max())
    return report


def ratios(name: str, over: dict[str, Any], under: dict[str, Any]) -> dict[str, float]:
    """Quotient of wall times, and of processor times (steadier where other work runs beside it)."""
    return {
        name: round(over["seconds"] / under["seconds"], 3),
        f"{name}_in_processor_time": round(over["cpu_seconds"] / under["cpu_seconds"], 3),
    }


def extract(options: argparse.Namespace) -> dict[str, Any]:
    """One way of making the vectors of the first notes."""
    import torch

    from auditcore.lm.encode import encode
    from auditcore.lm.load import load_model
    from auditcore.lm.vectors import extract_vectors
    from auditcore.spec import ModelSpec

    torch.set_num_threads(options.threads)
    prompts = pd.read_parquet(ROOT / "data" / "notes.parquet", columns=["prompt"])["prompt"].head(options.rows).tolist()
    lm = load_model(ModelSpec(source=options.model))
    encoded = encode(lm.tokenizer, TEMPLATE, {"prompt": prompts}, None, options.max_length)
    clock = Clock()
    made = np.zeros((0, 0), dtype=np.float32)
    if options.way == "floor":
        bare_passes(lm, encoded)
    elif options.way == "straightforward":
        made = straightforward(lm, encoded)
    else:
        found = extract_vectors(lm, encoded, ARTIFACTS, [-1], batch_size=BATCH)
        made = np.concatenate(list(found.values()), axis=1)
    figures = clock.read()
    np.save(options.folder / f"{options.way}.npy", made)
    return {**figures, "tokens": int(encoded.lengths.sum()), "longest": int(encoded.lengths.max())}


def bare_passes(lm: Any, encoded: Any) -> None:
    """The body over the batches that the product would make of these rows."""
    import torch

    from auditcore.lm.encode import batches
    from auditcore.lm.forward import pad, run_body

    with torch.inference_mode():
        for rows in batches(encoded.lengths, BATCH):
            run_body(lm, pad([encoded.ids[i] for i in rows], lm.device))


def straightforward(lm: Any, encoded: Any) -> np.ndarray:
    """What one writes first: pad to the longest, ask for hidden states, pool the last ones. Returns [n, 2 * width]."""
    import torch

    longest, found = int(encoded.lengths.max()), []
    with torch.inference_mode():
        for start in range(0, len(encoded.ids), BATCH):
            rows = encoded.ids[start : start + BATCH]
            ids = torch.zeros(len(rows), longest, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for i, row in enumerate(rows):
                ids[i, : len(row)] = torch.from_numpy(row)
                mask[i, : len(row)] = 1
            hidden = lm.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
            last = hidden[torch.arange(len(rows)), mask.sum(dim=1) - 1]
            mean = (hidden * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            found.append(torch.cat([last, mean], dim=1).numpy())
    return np.concatenate(found)


# --- attackers ---


def made_up(n: int, width: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors as a language model's look to an attacker, float32 [n, width], and class codes [n].

    Variances fall as a power of their rank, three columns are far out, and class means differ a little everywhere.
    """
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % classes)
    scale = ((1 + np.arange(width)) ** -0.7).astype(np.float32)
    rotation = np.linalg.qr(rng.normal(size=(width, width)))[0].astype(np.float32)
    means = 0.15 * rng.normal(size=(classes, width)).astype(np.float32)
    vectors = ((rng.standard_normal((n, width), dtype=np.float32) + means[codes]) * scale) @ rotation
    vectors[:, :3] = vectors[:, :3] * 50 + 20
    return vectors, codes


def grid(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of all attackers on three artifacts."""
    lines = {probe: in_a_process(options, "attack", attackers=[probe]) for probe in options.attackers}
    total = {key: round(sum(line[key] for line in lines.values()), 1) for key in ("seconds", "cpu_seconds")}
    return {"seeds": options.seeds, "permutations": options.permutations, "threads": options.threads, **total,
            "peak_mib": max(line["peak_mib"] for line in lines.values()), "attackers": lines}  # fmt: skip


def attack(options: argparse.Namespace) -> dict[str, Any]:
    """One attacker on three artifacts of 2,000 rows, dealt as an audit deals them."""
    from auditcore.leakage.gap import evaluate

    n = int(2000 * options.scale)
    at = np.split(np.arange(n), [n // 2, n * 13 // 20])
    rows = dict(zip(("bal_train", "bal_val", "bal_test"), at, strict=True))
    clock, accuracies = Clock(), []
    for artifact in range(3):
        vectors, codes = made_up(n, 576, 5, artifact)
        names = [f"s{i}" for i in range(len(codes))]
        found = evaluate(vectors, codes, names, rows, options.attackers[0], list(range(options.seeds)),
                         permutations=options.permutations, n_jobs=options.threads)  # fmt: skip
        metrics = found.metrics
        tested = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")]
        accuracies.append(round(float(tested["accuracy"].iloc[0]), 4))
    return {**clock.read(), "rows": n, "train_rows": len(at[0]), "accuracies": accuracies}


def disk(options: argparse.Namespace) -> dict[str, Any]:
    """Peak memory of an audit of vectors that fill a good part of memory."""
    n = int(20_000 * options.scale)
    vectors, codes = made_up(n, 4096, 2, 0)
    np.save(options.folder / "vectors.npy", vectors)
    del vectors
    pd.DataFrame({"label": codes}).to_csv(options.folder / "labels.csv", index=False)
    spec = {"kind": "vectors", "vectors": {"path": str(options.folder / "vectors.npy")}, "seeds": [0],
            "permutations": 19,
            "data": {"path": str(options.folder / "labels.csv"), "roles": {"label": "label"}}}  # fmt: skip
    (options.folder / "audit.yaml").write_text(json.dumps(spec))
    return {"vectors": n, "width": 4096, "limit_mib": 8192, **in_a_process(options, "run_audit")}


def audit(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of an audit of a Parquet file, with what the command line takes by default."""
    n = int(50_000 * options.scale)
    vectors, codes = made_up(n, 768, 2, 0)
    pd.DataFrame({"label": codes, "embedding": list(vectors)}).to_parquet(options.folder / "vectors.parquet")
    return {"vectors": n, "width": 768, "limit_seconds": 120, **in_a_process(options, "run_audit")}


def run_audit(options: argparse.Namespace) -> dict[str, Any]:
    """The command line on the files in the folder, in this process."""
    clock = Clock()
    import contextlib

    from auditcore import cli, store

    spec, out = options.folder / "audit.yaml", options.folder / "run"
    given = ["run", str(spec)]
    if not spec.exists():
        given = ["vectors", str(options.folder / "vectors.parquet"), "--label", "label"]
    with contextlib.redirect_stdout(sys.stderr):
        code = cli.main([*given, "--out", str(out)])
    figures = clock.read()
    if code:
        raise SystemExit(f"the audit ended with code {code}")
    if "torch" in sys.modules:
        raise SystemExit("torch was imported")
    pooled = store.Run(out).read("probe_metrics").query("seed.isna() and split == 'bal_test'")
    found = pooled.set_index("probe")["accuracy"].round(4).to_dict()
    return {**figures, "accuracies": found, "train_rows": int(pooled["n_train"].iloc[0])}


CHILDREN = {"extract": extract, "attack": attack, "run_audit": run_audit}


if __name__ == "__main__":
    main()
