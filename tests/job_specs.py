"""Small audits for tests of jobs. In: a folder and tiny models. Out: rows, specs, finished runs, their tables."""

from pathlib import Path

import numpy as np
import pandas as pd

from auditcore import jobs, store
from auditcore.spec import dump_spec, parse_spec

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = [
    "<script>alert(1)</script>",
    "=cmd()",
    "$x$ *b* :red[y]",
    "🙂 emoji",
    "שלום עולם",
    "zero\u200bwidth",
    "",
    "a",
]
WORDS = [
    "fever",
    "cough",
    "admitted",
    "patient",
    "stocks",
    "fell",
    "record",
    "discharged",
    "home",
    "follow",
    "oil",
    "rose",
]


def make_rows(path: Path, n: int = 40) -> Path:
    rng = np.random.default_rng(0)
    text = [" ".join(rng.choice(WORDS, 12)) for _ in range(n)]
    text[: len(HOSTILE)] = HOSTILE
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(n)], "text": text, "member": [str(i % 2) for i in range(n)]})
    frame.loc[frame["text"].isin(HOSTILE), "member"] = ""
    frame.to_csv(path, index=False)
    return path


def membership_spec(folder: Path, target: Path, **changes) -> dict:
    return {
        "kind": "membership",
        "model": {"source": str(target[0]), "reference": str(target[1])},
        "data": {
            "path": str(make_rows(folder / "rows.csv")),
            "roles": {"text": "text", "member": "member", "id": "id"},
        },
        "max_length": 32,
        "n_boot": 100,
        "threads": 1,
        **changes,
    }


def vectors_spec(folder: Path, model: Path, **changes) -> dict:
    rng = np.random.default_rng(1)
    sex = np.array(["female", "male"])[rng.integers(0, 2, 160)]
    hint = np.where(sex == "female", "fever", "stocks")
    text = [" ".join([*rng.choice(WORDS, 8), h]) for h in hint]
    pd.DataFrame({"prompt": text, "sex": sex}).to_csv(folder / "labels.csv", index=False)
    return {
        "kind": "vectors",
        "model": {"source": str(model)},
        "data": {"path": str(folder / "labels.csv"), "roles": {"prompt": "prompt", "label": "sex"}},
        "template": "{prompt}\nSummary:",
        "max_length": 32,
        "probes": ["linear"],
        "layers": [-1, 1],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 200,
        "threads": 1,
        **changes,
    }


def run_spec(spec: dict, out: Path | None = None) -> store.Run:
    run = store.create_run(dump_spec(parse_spec(spec)), out)
    jobs.execute(run)
    return run


def tables_of(run: store.Run) -> dict[str, pd.DataFrame]:
    return {name: run.read(name) for name in run.tables()}
