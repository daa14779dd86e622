"""How often the verdict is wrong, by simulation. In: --draws. Out: a table of verdict shares with 95 % intervals.

    python -m benchmarks.verdict_error_rates --draws 300

Every draw makes vectors, fits the `linear` probe on them and judges it on fresh subjects, all as in an audit. The true
gap is known exactly, whatever the probe learnt: a share q of the subjects carries a prototype of its class that the
probe names with certainty, the others carry noise that has nothing to do with the class, so that the accuracy of the
fitted probe is q + (1 - q) / K. Notes of one subject share half of the variance of their noise.

Bounds: `over budget` on leak-free vectors and `within budget` at a gap of exactly the budget, each at most 5 % (plus
Monte-Carlo error); `within budget` on leak-free vectors at least as often as the power planned beforehand.
"""

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import beta

from auditcore.leakage.intervals import accuracy_interval, resample
from auditcore.leakage.power import power
from auditcore.leakage.probes import PROBES, default_jobs, in_parallel
from auditcore.verdict import OVER, SYMBOLS, WITHIN, interval_verdict

BUDGET = 0.025
WIDTH = 12
TRAIN = 200


@dataclass(frozen=True)
class Scenario:
    """One row of the table. gap: true gap of the fitted probe."""

    n_subjects: int
    n_classes: int
    gap: float
    notes: int = 1


SCENARIOS = (
    Scenario(60, 2, 0.0),
    Scenario(500, 2, 0.0),
    Scenario(3000, 5, 0.0),
    Scenario(750, 5, 0.0, notes=4),
    Scenario(2235, 5, 0.0),
    Scenario(3480, 2, 0.0),
    Scenario(3000, 5, BUDGET),
    Scenario(3480, 2, BUDGET),
    Scenario(3000, 5, BUDGET, notes=4),
    Scenario(1500, 2, BUDGET, notes=4),
)


def vectors(rng: np.random.Generator, codes: np.ndarray, notes: int, share: float, n_classes: int) -> np.ndarray:
    """Vectors float32 [len(codes) * notes, WIDTH + K]: prototypes for a share of the subjects, noise for the rest."""
    shared = rng.normal(size=(len(codes), 1, WIDTH))
    noise = np.sqrt(0.5) * shared + np.sqrt(0.5) * rng.normal(size=(len(codes), notes, WIDTH))
    known = rng.random(len(codes)) < share
    prototype = np.zeros((len(codes), notes, n_classes))
    prototype[known, :, codes[known]] = 30.0
    return np.concatenate([noise, prototype], axis=2).reshape(len(codes) * notes, -1).astype(np.float32)


def draw(scenario: Scenario, seed: int, n_boot: int) -> str:
    """Return the verdict of one simulated audit."""
    rng, k = np.random.default_rng([seed, scenario.n_subjects, scenario.notes]), scenario.n_classes
    share = scenario.gap / (1 - 1 / k)
    train_codes, codes = np.arange(TRAIN) % k, np.arange(scenario.n_subjects) % k
    train = vectors(rng, train_codes, 1, 0.3 if share else 0.0, k)  # enough prototypes to be learnt for certain
    test = vectors(rng, codes, scenario.notes, share, k)
    probe = PROBES["linear"](train, train_codes, np.arange(TRAIN), k, 0)
    named = probe.logits(probe.transform(test)).argmax(axis=1)
    groups = np.repeat(np.arange(scenario.n_subjects), scenario.notes)
    found = resample((named == codes[groups]).astype(float), codes[groups], groups, n_boot, seed)
    low, high = accuracy_interval(found, 0.90)
    return interval_verdict(low - 1 / k, high - 1 / k, BUDGET)


def bound(scenario: Scenario, shares: Counter, draws: int) -> str:
    """Return what is promised for the scenario and whether the draws agree."""
    if scenario.gap:
        wrong, limit, what = shares[WITHIN], 0.05, f"{WITHIN} <= 5 %"
    else:
        wrong, limit, what = shares[OVER], 0.05, f"{OVER} <= 5 %"
    low = beta.ppf(0.025, wrong, draws - wrong + 1) if wrong else 0.0
    words = f"{what}: {'agrees' if low <= limit else 'VIOLATED'}"
    if not scenario.gap:
        planned = power(scenario.n_subjects, scenario.n_classes, BUDGET, rows_per_subject=scenario.notes)
        high = beta.ppf(0.975, shares[WITHIN] + 1, draws - shares[WITHIN]) if shares[WITHIN] < draws else 1.0
        kept = "agrees" if high >= planned.p_within_if_leak_free else "MISSED"
        words += f"; planned {WITHIN} {planned.p_within_if_leak_free:.2f}: {kept}"
    return words


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Error rates of the leakage verdict, by simulation.")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--n-boot", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=default_jobs())
    arguments = parser.parse_args()
    print(f"{arguments.draws} draws a row, {arguments.n_boot} bootstrap replicates, budget {BUDGET}")
    print(f"{'subjects':>8} {'notes':>5} {'K':>2} {'gap':>6}  " + "  ".join(f"{v:>13}" for v in SYMBOLS) + "  promise")
    for scenario in SCENARIOS:
        start = time.perf_counter()
        one = partial(draw, scenario, n_boot=arguments.n_boot)
        shares = Counter(in_parallel(one, range(arguments.draws), arguments.jobs))
        cells = "  ".join(f"{shares[v] / arguments.draws:>13.3f}" for v in SYMBOLS)
        head = f"{scenario.n_subjects:>8} {scenario.notes:>5} {scenario.n_classes:>2} {scenario.gap:>6.3f}"
        words = bound(scenario, shares, arguments.draws)
        print(f"{head}  {cells}  {words} ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
