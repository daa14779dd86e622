"""Does the null band change when it is refitted on fewer rows? In: --rows. Out: widths of bands, and their ratio, JSON.

    python -m benchmarks.null_band [--rows 10000] [--refits 20] [--json FILE]

An audit refits an attacker on permuted labels with at most `permutation.ROWS` of its training rows, and a costly one
fewer times than there are permutations. Here each attacker is refitted on permuted labels of all rows and of as few as
an audit takes, at the same settings, and judged on 3,000 rows of fresh subjects. The spread of the accuracy over
permutations of the judged labels is exact for each refit (the variance of a linear permutation statistic), so that the
two ways are compared closely: `ratio` above 1 means that the band of an audit is the wider one, which errs on the safe
side; its interval is over refits. `varies` is how much the width differs from refit to refit: little, where a
few refits stand for many.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from anywhere, without installing

from auditcore.leakage.cells import Part
from auditcore.leakage.permutation import _some_subjects, log_prior, permute_by_subject
from auditcore.leakage.probes import PROBES, Fitted, one_thread

CLASSES, WIDTH, JUDGED = 5, 64, 3000


def main() -> None:
    """Compare both ways for every attacker, with 1 and 4 notes a subject."""
    parser = argparse.ArgumentParser(description="Null bands from all training rows and from some.")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows")
    parser.add_argument("--refits", type=int, default=20)
    parser.add_argument("--attackers", nargs="+", choices=sorted(PROBES), default=list(PROBES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = []
    for probe in options.attackers:
        for notes in (1, 4):
            for signal in (0.0, 0.5):
                lines.append(compare(probe, options.rows, notes, signal, options.refits))
                print(json.dumps(lines[-1]), flush=True)
                if options.json:
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    report = {"rows": options.rows, "classes": CLASSES, "width": WIDTH, "judged": JUDGED}
                    options.json.write_text(json.dumps({**report, "lines": lines}, indent=1) + "\n")


def part(rng: np.random.Generator, n: int, notes: int, signal: float) -> Part:
    """Rows whose notes of one subject share three quarters of their variance; widths of the columns differ."""
    subject = np.arange(n) // notes
    codes = subject % CLASSES
    means = signal * np.random.default_rng(7).normal(size=(CLASSES, WIDTH))
    shared = rng.normal(size=(subject.max() + 1, WIDTH))[subject]
    noise = np.sqrt(0.75) * shared + 0.5 * rng.normal(size=(n, WIDTH)) if notes > 1 else shared
    scale = (1 + np.arange(WIDTH)) ** -0.7
    return Part(np.arange(n), ((noise + means[codes]) * scale).astype(np.float32), codes, subject)


@one_thread
def compare(probe: str, rows: int, notes: int, signal: float, refits: int) -> dict[str, Any]:
    """One attacker. signal: distance of the class means, which decides what settings are chosen."""
    start, rng = time.perf_counter(), np.random.default_rng([rows, notes])
    train, judged = part(rng, rows, notes, signal), part(rng, JUDGED, notes, 0.0)
    fit = PROBES[probe](train.vectors, train.codes, train.groups, CLASSES, 0)
    whole = [spread(fit, train, judged, number) for number in range(refits)]
    some = [spread(fit, _some_subjects(train, rng), judged, number) for number in range(refits)]
    ratio = _rms(some) / _rms(whole)
    drawn = [_rms(rng.choice(some, refits)) / _rms(rng.choice(whole, refits)) for _ in range(2000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    figures = {"all_rows": _rms(whole), "some_rows": _rms(some), "ratio": ratio, "low": low, "high": high}
    figures["varies"] = float(np.std(some) / np.mean(some))
    return {
        "attacker": probe,
        "notes": notes,
        "signal": signal,
        "settings": fit.settings,
        **{name: round(float(value), 5) for name, value in figures.items()},
        "seconds": round(time.perf_counter() - start, 1),
    }


def _rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def spread(fit: Fitted, train: Part, judged: Part, number: int) -> float:
    """Standard deviation of the accuracy of one refit over permutations of the judged labels by subject."""
    rng = np.random.default_rng([number, 0xBA2D])
    logits = fit.refit(fit.transform(train.vectors), permute_by_subject(train, rng), number)
    named = (logits(fit.transform(judged.vectors)) - log_prior(train, CLASSES)).argmax(axis=1)
    return permutation_deviation(named, judged)


def permutation_deviation(named: np.ndarray, judged: Part) -> float:
    """Exact standard deviation of the mean per-class recall when subjects' labels are dealt anew.

    named: int [n]. Every subject has rows of one class, and as many as any other. The accuracy is a sum over subjects
    of a[subject, class dealt to it], whose variance is known (Hoeffding 1951).
    """
    subject = np.unique(judged.groups, return_inverse=True)[1]
    dealt = judged.codes[np.unique(subject, return_index=True)[1]]
    counts = np.zeros((subject.max() + 1, CLASSES))
    np.add.at(counts, (subject, named), 1.0)
    gain = counts / (CLASSES * np.bincount(judged.codes, minlength=CLASSES))  # of a subject if it is dealt a class
    share = np.bincount(dealt, minlength=CLASSES) / len(dealt)
    centred = gain - gain.mean(axis=0) - (gain @ share)[:, None] + (gain @ share).mean()
    return float(np.sqrt((centred**2 @ share).sum() * len(dealt) / (len(dealt) - 1)))


if __name__ == "__main__":
    main()
