"""One evaluated split of a cell, judged. In: fitted probes and their log-probabilities. Out: rows for the tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.leakage.cells import Cell, Part
from auditcore.leakage.folds import log_softmax
from auditcore.leakage.information import Confident, confident, v_information_bits
from auditcore.leakage.intervals import Resampled, accuracy_interval, p_at_most, resample
from auditcore.leakage.permutation import Null, log_prior
from auditcore.leakage.probes import Fitted
from auditcore.verdict import interval_verdict


def log_probabilities(fits: Sequence[Fitted], features: Mapping[str, np.ndarray], cell: Cell) -> list[np.ndarray]:
    """Return log-probabilities float64 [n, K] per fit, as if classes were balanced in training.

    features: of the rows, by form of the input.
    """
    prior = log_prior(cell.train, len(cell.classes))
    return [log_softmax(fit.logits(features[fit.form]) - prior) for fit in fits]


def surest_probabilities(
    fits: Sequence[Fitted], part: Part, cell: Cell, plain: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The same at the settings that are surest of most subjects; plain: what `log_probabilities` gave."""
    prior = log_prior(cell.train, len(cell.classes))
    return [
        found if fit.surest is None else log_softmax(fit.surest(part.vectors) - prior)
        for fit, found in zip(fits, plain, strict=True)
    ]


@dataclass(frozen=True)
class Judged:
    """One evaluated split of a cell."""

    cell: Cell
    split: str
    log_p: dict[str, list[np.ndarray]]
    sure_p: dict[str, list[np.ndarray]]
    fits: list[Fitted]
    seeds: list[int]
    null: Null | None
    n_boot: int
    budget: float
    seed: int

    @property
    def part(self) -> Part:
        """The rows judged."""
        return self.cell.evaluated[self.split]

    def _correct(self) -> np.ndarray:
        """Correctness [seeds, n]."""
        return np.stack([log_p.argmax(axis=1) == self.part.codes for log_p in self.log_p[self.split]]).astype(float)

    def _resampled(self, correct: np.ndarray) -> Resampled:
        return resample(correct, self.part.codes, self.part.groups, self.n_boot, self.seed)

    def metric_rows(self) -> list[dict[str, Any]]:
        """Rows of `probe_metrics`: seeds averaged first, then one per seed."""
        correct, extra = self._correct(), [self._information(k) for k in range(len(self.seeds))]
        bits, sure = [e[0] for e in extra], [e[1] for e in extra]
        together = self._resampled(correct.mean(axis=0))
        first = self._row(together, None, bits, sure, self.fits)
        first.update(self._null_columns(first["accuracy"]))
        if self.split == "bal_test":
            first["verdict"] = interval_verdict(first["signed_low90"], first["signed_high90"], self.budget)
            first["p_over"] = p_at_most(together, first["chance"] + self.budget)
        each = [
            self._row(self._resampled(correct[k]), seed, [bits[k]], [sure[k]], [self.fits[k]])
            for k, seed in enumerate(self.seeds)
        ]
        return [first, *each]

    def predictions(self, names: dict[str, Any], example_ids: Sequence[str] | None) -> pd.DataFrame:
        """Rows of `predictions`, in data order, seed after seed."""
        part, classes = self.part, np.array(self.cell.classes, dtype=object)
        at = np.argsort(part.positions, kind="stable")  # data order
        ids = (
            part.positions[at] + 1 if example_ids is None else np.asarray(example_ids, dtype=object)[part.positions[at]]
        )
        frames = []
        for seed, log_p in zip(self.seeds, self.log_p[self.split], strict=True):
            named = log_p.argmax(axis=1)[at]
            columns = {
                "example_id": [str(i) for i in ids],
                **names,
                "seed": seed,
                "split": self.split,
                "actual": classes[part.codes[at]],
                "predicted": classes[named],
                "probability": np.exp(log_p[at, named]).astype(np.float32),
            }
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True)

    def _row(
        self, found: Resampled, seed: int | None, bits: list[float], sure: list[Confident], fits: list[Fitted]
    ) -> dict[str, Any]:
        chance = 1 / len(self.cell.classes)
        low95, high95 = accuracy_interval(found, 0.95)
        low90, high90 = accuracy_interval(found, 0.90)
        precision = [s.precision for s in sure if not np.isnan(s.precision)]
        by_class = np.mean([s.by_class for s in sure], axis=0)
        return {
            "seed": seed,
            "split": self.split,
            "n_train": len(self.cell.train.positions),
            "n_eval": len(self.part.positions),
            "n_subjects": self.part.n_subjects,
            "n_classes": len(self.cell.classes),
            "accuracy": found.accuracy,
            "accuracy_low": low95,
            "accuracy_high": high95,
            "chance": chance,
            "signed_gap": found.accuracy - chance,
            "signed_low90": low90 - chance,
            "signed_high90": high90 - chance,
            "gap": abs(found.accuracy - chance),
            "v_information_bits": float(np.mean(bits)),
            "confident_share": float(np.mean([s.share for s in sure])),
            "converged": all(fit.converged for fit in fits),
            "confident_precision": float(np.mean(precision)) if precision else np.nan,
            "confident_by_class": json.dumps(dict(zip(self.cell.classes, by_class.round(6).tolist(), strict=True))),
            "settings": json.dumps([fit.settings for fit in fits] if seed is None else fits[0].settings),
            "confident_low": float(np.mean([s.low for s in sure])),
            "confident_high": float(np.mean([s.high for s in sure])),
            "confident_p": _together([s.p_guessed for s in sure]),
            "confident_least": sure[0].least,
        }

    def _null_columns(self, accuracy: float) -> dict[str, float]:
        if self.null is None:
            return {}
        found = self.null.accuracies[self.split]
        reached = np.count_nonzero(found >= accuracy - 1e-12)
        return {
            "null_mean": float(found.mean()),
            "null_p95": float(np.quantile(found, 0.95, method="higher")),
            "p_value": (1 + reached) / (1 + len(found)),
            "permutations": len(found),
            "null_refits": self.null.refits,
            "null_rows": self.null.rows,
        }

    def _information(self, which: int) -> tuple[float, Confident]:
        """Bits and confident inferences of one seed; bal_test is calibrated on bal_val where there is one."""
        part, log_p, sure_p = self.part, self.log_p[self.split][which], self.sure_p[self.split][which]
        other = self.cell.evaluated.get("bal_val") if self.split == "bal_test" else None
        if other is None:
            bits = v_information_bits(log_p, part.codes, None, part.groups)
            return bits, confident(sure_p, part.codes, part.groups)
        held, sure_held = self.log_p["bal_val"][which], self.sure_p["bal_val"][which]
        bits = v_information_bits(log_p, part.codes, (held, other.codes), part.groups)
        return bits, confident(sure_p, part.codes, part.groups, (sure_held, other.codes, other.groups))


def _together(p_values: list[float]) -> float:
    """One p-value of several that may depend on each other: twice the median (Rüschendorf 1982)."""
    return p_values[0] if len(p_values) == 1 else min(1.0, 2 * float(np.median(p_values)))
