"""What every fake run shares. In: a Recipe. Out: the run folder with its manifest, the examples, verdict lines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.spec import dump_spec, parse_spec
from auditcore.store import Run, create_run
from auditcore.verdict import interval_verdict

NOTE = "test data: every number was drawn from a seeded generator, nothing was measured"
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "=cmd('calc')!A1",
    "$x$ costs $5, *bold* :red[red] `code`",
    "crying \U0001f62d \U0001f469‍\U0001f467 family",
    "שלום עולם \u202eflipped\u202c",
    "zero\u200bwidth\u200d\ufeffjoined",
    "line\nbreak\ttab\r\nend",
    "x" * 20_000,
)
TEXT = (
    "patient admitted with fever and cough given fluids overnight felt better the next day discharged home on oral "
    "therapy follow up in two weeks oracle wins support in fight a federal judge rejected the bid to block takeover"
)


@dataclass(frozen=True)
class Recipe:
    """What a fake run looks like."""

    rows: int = 200
    tokens: int = 40  # mean tokens per row
    seed: int = 0
    hostile: bool = False  # texts, ids and class names that try to break pages and exports
    store_text: str = "full"
    status: str = "done"
    stages: int = 9  # membership: how many of its tables exist (9 = all)
    members: float = 0.5  # share of rows that are members
    unknown: float = 0.02  # share of rows of unknown membership
    per_subject: int = 1  # rows of each subject, all members or none
    lift: float = 0.9  # how far members' log-probs are raised in the error zone, nats
    gap: float = 0.3  # vectors: how far the strongest artifact is above chance
    classes: tuple[str, ...] = ("A", "B", "C", "D", "E")
    attributes: tuple[str, ...] = ("recorded_race",)
    artifacts: tuple[str, ...] = ("lasttok", "meanpool")
    layers: tuple[int, ...] = (30,)
    probes: tuple[str, ...] = ("linear", "mlp")
    defences: tuple[str, ...] = ("none",)
    baselines: tuple[str, ...] = ()  # what the label was read from without any vector
    curve: str = ""  # how the sample-size curve ends: extrapolated, or why it is not
    summaries: int = 0  # rows the model wrote summaries of, with and without directives
    seeds: tuple[int, ...] = (0, 1, 2)
    ceiling: float | None = None  # of every attribute; None: how the data was made is not known
    width: int = 24
    keep_vectors: bool = True
    warnings: tuple[str, ...] = ()


def start_run(out: Path, spec: dict[str, Any], recipe: Recipe) -> Run:
    full = dump_spec(parse_spec(spec))
    run = create_run(full, out)
    prints = {k: f"{k}-{recipe.seed:08x}" for k in ("model", "reference", "data", "template", "tokenizer")}
    run.update(
        status=recipe.status,
        started="2026-11-30T01:00:00+00:00",
        finished="2026-11-30T01:02:00+00:00" if recipe.status == "done" else None,
        versions={"auditcore": "test", "torch": "test"},
        device="cpu",
        dtype="float32",
        fingerprints=prints,
        data={"path": full["data"]["path"], "sha256": "0" * 64, "rows": recipe.rows, "notes": [NOTE]},
        warnings=list(recipe.warnings),
        stages=[],
        counts={"rows": recipe.rows},
        claim={"audited": NOTE, "not_audited": NOTE},
    )
    return run


def progress(run: Run, stages: list[str], recipe: Recipe) -> None:
    for position, stage in enumerate(stages):
        last = position == len(stages) - 1 and recipe.status == "running"
        run.event(stage, 40 if last else 100, 100, 12.0 if last else None)


def example_table(rng: np.random.Generator, recipe: Recipe) -> pd.DataFrame:
    n = recipe.rows
    ids = [str(i + 1) for i in range(n)]
    if recipe.hostile:
        for position, text in enumerate(HOSTILE[: min(len(HOSTILE), n)]):
            ids[position] = text[:60] + f" {position}"
    lengths = rng.integers(max(2, recipe.tokens // 2), recipe.tokens * 3 // 2 + 1, n)
    if n >= 20:
        lengths[10], lengths[11] = 1, 0  # one-token and empty rows: no evidence
    if recipe.hostile and n > 7:
        lengths[7] = 5_000  # the row of 20,000 characters
    member = pd.array(rng.random(n) < recipe.members, dtype="boolean")
    member = member.take(np.arange(n) // recipe.per_subject * recipe.per_subject)
    if recipe.unknown:
        member[rng.random(n) < recipe.unknown] = pd.NA
    return pd.DataFrame(
        {
            "example_id": ids,
            "group": [f"s{i // recipe.per_subject}" for i in range(n)],
            "split": pd.array([pd.NA] * n, dtype="string"),
            "member": member,
            "n_tokens": lengths.astype(np.int32),
            "truncated": rng.random(n) < 0.05,
        }
    )


_WHERE = ["kind", "attribute", "artifact", "layer", "defence", "attacker", "split"]
VERDICT_COLUMNS = [*_WHERE, "budget", "value", "low", "high", "n_subjects", "verdict"]


def judged(value: float | None, low: float | None, high: float | None, budget: float = 0.025) -> dict[str, Any]:
    verdict = interval_verdict(low, high, budget)
    return {"budget": budget, "value": value, "low": low, "high": high, "verdict": verdict}
