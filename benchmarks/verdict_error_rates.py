"""How often the verdict is wrong, by simulation. In: --draws. Out: shares of verdicts with 95 % intervals, as JSON too.

    python -m benchmarks.verdict_error_rates --draws 2000 --json benchmarks/results/verdict_error_rates.json

Every draw makes vectors, fits linear probes on them and judges them on fresh subjects by the intervals and the rule of
an audit. C is fixed: which probe is fitted does not matter to how it is judged. The true gap is known exactly, whatever
the probe learnt: a share q of the subjects carries a prototype of a class that the probe names with certainty, the
others carry noise that has nothing to do with the class, so that the accuracy of the fitted probe is
q [right prototype] + (1 - q) / K. With probability rho the notes of a subject are copies of one, else independent, so
that rho is the correlation of correctness inside a subject. Several attackers see vectors of their own; their verdicts
are combined as those of a run, with Holm's correction.

Bounds: `over budget` on leak-free vectors and `within budget` at a gap of exactly the budget, each at most 5 % (plus
Monte-Carlo error); `within budget` on leak-free vectors as often as the power planned beforehand.

Draws are numbered and counted in the JSON file after every piece: the same command goes on where it was stopped.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from anywhere, without installing

from auditcore.leakage.folds import one_thread
from auditcore.leakage.inputs import principal
from auditcore.leakage.intervals import accuracy_interval, p_at_most, resample
from auditcore.leakage.logistic import fit_logistic
from auditcore.leakage.power import power
from auditcore.verdict import BELOW, NOT_RESOLVED, OVER, WITHIN, combine, holm, interval_verdict

BUDGET = 0.025
WIDTH = 12
TRAIN = 200
PIECE = 25  # draws between two looks at the file


@dataclass(frozen=True)
class Scenario:
    """One row of the table. gaps: true gap of each fitted attacker; below 0 it is wrong more often than guessing."""

    n_subjects: int
    n_classes: int
    gaps: tuple[float, ...] = (0.0,)
    notes: int = 1
    rho: float = 0.0

    @property
    def name(self) -> str:
        """What it is, in one line."""
        notes = f", {self.notes} notes each (rho {self.rho:g})" if self.notes > 1 else ""
        gaps = " and ".join(f"{gap:g}" for gap in dict.fromkeys(self.gaps))
        attackers = f"{len(self.gaps)} attackers" if len(self.gaps) > 1 else "1 attacker"
        return f"K = {self.n_classes}, {self.n_subjects:,} subjects{notes}, {attackers}, true gap {gaps}"


def _at_budget(n: int, k: int, **more: Any) -> Scenario:
    return Scenario(n, k, **{"gaps": (BUDGET,), **more})


SCENARIOS = (
    Scenario(60, 2),
    Scenario(500, 5),
    Scenario(500, 5, notes=4, rho=0.5),
    Scenario(500, 5, gaps=(0.0,) * 4),  # over budget after Holm's correction
    Scenario(2235, 5),  # the sizes for which Setup promises 0.8
    Scenario(3480, 2),
    Scenario(1400, 5, notes=4, rho=0.5),
    Scenario(2235, 5, notes=4, rho=1.0),
    Scenario(2785, 5, gaps=(0.0, 0.0)),
    _at_budget(3000, 5),
    _at_budget(3480, 2),
    _at_budget(1200, 40),
    _at_budget(3000, 5, gaps=(-BUDGET,)),
    _at_budget(3000, 5, notes=4, rho=0.5),
    _at_budget(3480, 2, notes=4, rho=0.5),
    _at_budget(3000, 5, notes=4, rho=1.0),
    _at_budget(2785, 5, gaps=(0.0, BUDGET)),
)


def vectors(rng: np.random.Generator, codes: np.ndarray, scenario: Scenario, given: np.ndarray) -> np.ndarray:
    """Vectors float32 [n * notes, WIDTH + K]: noise, and the prototype of the class in `given` [n] (none where -1)."""
    n, notes, k = len(codes), scenario.notes, scenario.n_classes
    noise = rng.normal(size=(n, notes, WIDTH))
    copies = rng.random(n) < scenario.rho
    noise[copies] = noise[copies][:, :1]
    prototype = np.zeros((n, notes, k))
    known = given >= 0
    prototype[known, :, given[known]] = 30.0
    return np.concatenate([noise, prototype], axis=2).reshape(n * notes, -1).astype(np.float32)


def _given(rng: np.random.Generator, codes: np.ndarray, gap: float, n_classes: int) -> np.ndarray:
    """Whose prototype each subject carries [n], -1 for none: its own class's, or the next one's for a gap below 0."""
    share = gap / (1 - 1 / n_classes) if gap >= 0 else -gap * n_classes
    return np.where(rng.random(len(codes)) < share, (codes + (gap < 0)) % n_classes, -1)


def _attacker(scenario: Scenario, gap: float, rng: np.random.Generator, n_boot: int, seed: int) -> tuple[str, float]:
    """Verdict of one attacker, and the p-value of "its gap is at most the budget"."""
    k = scenario.n_classes
    n_train = max(TRAIN, 30 * k)
    one_note = Scenario(n_train, k)
    train_codes, codes = np.arange(n_train) % k, np.arange(scenario.n_subjects) % k
    shown = 0.3 if gap else 0.0  # enough prototypes to be learnt for certain
    train = vectors(rng, train_codes, one_note, _given(rng, train_codes, shown, k))
    test = vectors(rng, codes, scenario, _given(rng, codes, gap, k))
    transform = principal(train)
    named = fit_logistic(transform(train), train_codes, 1.0, k).logits(transform(test)).argmax(axis=1)
    groups = np.repeat(np.arange(scenario.n_subjects), scenario.notes)
    found = resample((named == codes[groups]).astype(float), codes[groups], groups, n_boot, seed)
    low, high = accuracy_interval(found, 0.90)
    return interval_verdict(low - 1 / k, high - 1 / k, BUDGET), p_at_most(found, 1 / k + BUDGET)


@one_thread
def draw(scenario: Scenario, seed: int, n_boot: int) -> str:
    """Return the verdict of one simulated audit."""
    rng = np.random.default_rng([seed, scenario.n_subjects, scenario.notes, len(scenario.gaps)])
    each = [_attacker(scenario, gap, rng, n_boot, seed) for gap in scenario.gaps]
    return combine([verdict for verdict, _ in each], holm([p for _, p in each]).tolist())


def piece(scenario: Scenario, first: int, last: int, n_boot: int) -> Counter[str]:
    """Count the verdicts of draws first..last-1."""
    return Counter(draw(scenario, seed, n_boot) for seed in range(first, last))


def share(count: int, draws: int) -> dict[str, float]:
    """Share of the draws with its 95 % interval (Clopper-Pearson)."""
    low = float(beta.ppf(0.025, count, draws - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, draws - count)) if count < draws else 1.0
    return {"share": count / draws, "low": low, "high": high}


def promises(scenario: Scenario, counts: Counter[str], draws: int) -> list[dict[str, Any]]:
    """What is promised for the scenario, what was found, and whether the draws agree.

    A bound is violated where the whole interval lies above it; planned power is missed where the interval lies below
    it, and `more` where it lies above.
    """
    if any(scenario.gaps):
        found = share(counts[WITHIN], draws)
        return [{"what": WITHIN, "at_most": 0.05, **found, "agrees": found["low"] <= 0.05}]
    over, within = share(counts[OVER], draws), share(counts[WITHIN], draws)
    planned = power(
        scenario.n_subjects, scenario.n_classes, BUDGET, len(scenario.gaps), scenario.notes, scenario.rho
    ).p_within_if_leak_free
    kept = within["high"] >= planned
    return [
        {"what": OVER, "at_most": 0.05, **over, "agrees": over["low"] <= 0.05},
        {"what": WITHIN, "planned": planned, **within, "agrees": kept, "more": within["low"] > planned},
    ]


def row(scenario: Scenario, counts: Counter[str]) -> dict[str, Any]:
    """One row of the report."""
    draws = counts.total()
    verdicts = {v: share(counts[v], draws) for v in (WITHIN, OVER, NOT_RESOLVED, BELOW)}
    return {
        "name": scenario.name,
        **asdict(scenario),
        "draws": draws,
        "counts": dict(counts),
        "verdicts": verdicts,
        "promises": promises(scenario, counts, draws),
    }


def known(path: Path | None, n_boot: int) -> dict[str, Counter[str]]:
    """Counts of a file written before with the same settings, by name of the scenario."""
    if path is None or not path.exists():
        return {}
    report = json.loads(path.read_text())
    if (report["budget"], report["n_boot"]) != (BUDGET, n_boot):
        raise SystemExit(f"{path} was made with other settings; name another file or remove it.")
    return {line["name"]: Counter(line["counts"]) for line in report["rows"]}


def write(path: Path | None, n_boot: int, counts: dict[str, Counter[str]]) -> None:
    """Write the report so far."""
    if path is None:
        return
    rows = [row(s, counts[s.name]) for s in SCENARIOS if counts.get(s.name)]
    report = {"budget": BUDGET, "n_boot": n_boot, "train": TRAIN, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(temporary, path)


def tell(scenario: Scenario, counts: Counter[str]) -> str:
    """One row in words."""
    lines = [scenario.name]
    for promise in row(scenario, counts)["promises"]:
        found = f"{promise['share']:.4f} [{promise['low']:.4f}, {promise['high']:.4f}]"
        bound = f"at most {promise['at_most']}" if "at_most" in promise else f"planned {promise['planned']:.4f}"
        words = "agrees" if promise["agrees"] else "VIOLATED"
        lines.append(f"    {promise['what']:<14} {found}  {bound}: {'more' if promise.get('more') else words}")
    return "\n".join(lines)


def main() -> None:
    """Make the missing draws, row after row."""
    parser = argparse.ArgumentParser(description="Error rates of the leakage verdict, by simulation.")
    parser.add_argument("--draws", type=int, default=2000, help="of every row, those in the file included")
    parser.add_argument("--n-boot", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of rows, from 1; default all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = known(options.json, options.n_boot)
    start = time.perf_counter()
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for number, scenario in enumerate(SCENARIOS, start=1):
            if options.rows and number not in options.rows:
                continue
            mine = counts.setdefault(scenario.name, Counter())
            firsts = range(mine.total(), options.draws, PIECE)
            lasts = [min(first + PIECE, options.draws) for first in firsts]
            found = pool.map(piece, [scenario] * len(lasts), firsts, lasts, [options.n_boot] * len(lasts))
            for done, more in enumerate(found, start=1):
                mine.update(more)
                if done % 8 == 0 or done == len(lasts):
                    write(options.json, options.n_boot, counts)
            print(f"{number:>2}. {tell(scenario, mine)}  ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
