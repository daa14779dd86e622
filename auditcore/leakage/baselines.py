"""What a label can be read from without any vector. In: prompts or columns, labels, subjects, splits. Out: table rows.

A vector that leaves a house leaks what its recipient did not hold before. `text` reads the prompt itself, `metadata`
the columns that the recipient has anyway; both are fitted on `bal_train` and judged on the rows that the vectors'
probes are judged on, so that probe minus baseline is a paired difference. They are lines to compare with: no verdict
counts them. A difference says which of the two tells more alone; it does not say what both together would tell.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.leakage.cells import Cell, Part, make_cell
from auditcore.leakage.columns import fit_columns
from auditcore.leakage.folds import default_jobs, one_thread
from auditcore.leakage.intervals import accuracy_interval, resample
from auditcore.leakage.paired import paired
from auditcore.leakage.permutation import log_prior
from auditcore.leakage.probes import PROBES
from auditcore.leakage.tfidf import fit_texts

METRIC_COLUMNS = [
    *("attribute", "baseline", "split", "n_train", "n_eval", "n_subjects", "n_classes", "n_features"),
    *("accuracy", "accuracy_low", "accuracy_high", "chance", "signed_gap", "settings"),
]
PREDICTION_COLUMNS = ["example_id", "attribute", "baseline", "split", "actual", "predicted"]
DIFFERENCE_COLUMNS = [
    *("attribute", "artifact", "layer", "defence", "probe", "baseline", "split"),
    *("accuracy_baseline", "accuracy", "change", "low", "high", "n_rows", "n_subjects"),
]
TREES_OR_NOT = ("linear", "gbt")  # probes that read metadata; the better one on inner folds is kept

Given = Sequence[str] | pd.DataFrame
Reader = Callable[[Part], np.ndarray]  # rows of a split -> class codes named, int64 [n]


@dataclass(frozen=True)
class Baseline:
    """Rows of `baseline_metrics` and of `baseline_predictions`, and counted things a page must show."""

    metrics: pd.DataFrame
    predictions: pd.DataFrame
    notes: list[str]


@one_thread
def read_baseline(
    name: str,
    given: Given,
    labels: Sequence[object] | np.ndarray,
    groups: Sequence[object] | np.ndarray,
    rows: Mapping[str, np.ndarray],
    example_ids: Sequence[str],
    *,
    attribute: str = "",
    seed: int = 0,
    n_boot: int = 2000,
) -> Baseline:
    """Fit one baseline on `bal_train` and judge it on `bal_val` and `bal_test`.

    name: of `spec.BASELINES`; given: n texts for `text`, text columns [n, c] for `metadata`; labels, groups, rows: as
    in `gap.evaluate`; seed: of the inner folds and the bootstrap. accuracy_low and accuracy_high are a 95 % interval.
    Raises DatasetError for rows that cannot be used (see `cells`).
    """
    cell = make_cell(np.zeros((len(groups), 1), dtype=np.float32), labels, groups, rows, attribute)
    reader, n_features, settings = READERS[name](given, cell, seed)
    classes, chance = np.array(cell.classes, dtype=object), 1 / len(cell.classes)
    ids = np.asarray(list(example_ids), dtype=object)
    lines, predictions = [], []
    for split, part in cell.evaluated.items():
        named = reader(part)
        found = resample((named == part.codes).astype(np.float64), part.codes, part.groups, n_boot, seed)
        low, high = accuracy_interval(found, 0.95)
        sizes = (len(cell.train.positions), len(part.positions), part.n_subjects, len(classes), n_features)
        numbers = (found.accuracy, low, high, chance, found.accuracy - chance, json.dumps(settings))
        lines.append((attribute, name, split, *sizes, *numbers))
        at = np.argsort(part.positions, kind="stable")  # data order
        columns = [ids[part.positions[at]], attribute, name, split, classes[part.codes[at]], classes[named[at]]]
        predictions.append(pd.DataFrame(dict(zip(PREDICTION_COLUMNS, columns, strict=True))))
    metrics = pd.DataFrame(lines, columns=METRIC_COLUMNS)
    return Baseline(metrics, pd.concat(predictions, ignore_index=True), cell.notes)


def _text(given: Given, cell: Cell, seed: int) -> tuple[Reader, int, dict[str, Any]]:
    assert not isinstance(given, pd.DataFrame)
    train = cell.train
    reader = fit_texts([given[int(i)] for i in train.positions], train.codes, train.groups, seed)
    return (
        lambda part: reader.name([given[int(i)] for i in part.positions]),
        reader.n_features,
        {"model": "logistic regression on TF-IDF", "C": reader.c},
    )


def _metadata(given: Given, cell: Cell, seed: int) -> tuple[Reader, int, dict[str, Any]]:
    assert isinstance(given, pd.DataFrame)
    train = cell.train
    transform = fit_columns(given.iloc[train.positions])
    features = transform(given.iloc[train.positions])
    fits = {
        probe: PROBES[probe](features, train.codes, train.groups, len(cell.classes), seed, n_jobs=default_jobs())
        for probe in TREES_OR_NOT
    }
    best = max(fits, key=lambda probe: round(fits[probe].inner_accuracy, 12))  # ties: the first
    fit, prior = fits[best], log_prior(train, len(cell.classes))

    def read(part: Part) -> np.ndarray:
        logits = fit.logits(fit.transform(transform(given.iloc[part.positions])))
        return (logits - prior).argmax(axis=1)

    return read, features.shape[1], {"model": best, "columns": list(given.columns), **fit.settings}


# The names a spec can choose (`spec.BASELINES`), each with the function that fits it.
READERS: dict[str, Callable[[Given, Cell, int], tuple[Reader, int, dict[str, Any]]]] = {
    "text": _text,
    "metadata": _metadata,
}


def differences(
    judged: pd.DataFrame, predictions: pd.DataFrame, groups: pd.Series, n_boot: int, seed: int
) -> pd.DataFrame:
    """Return vector probe minus baseline, paired by row, for every probe in `judged` and every baseline.

    judged: one row per example of each cell, columns attribute, artifact, layer, defence, probe, split, example_id and
    right (0 to 1, averaged over seeds); predictions: `baseline_predictions`; groups: example_id -> subject. Rows that
    only one of the two judged are left out. The interval is at 95 %, of each difference alone.
    """
    read = predictions.assign(right_baseline=(predictions["actual"] == predictions["predicted"]).astype(np.float64))
    lines: list[tuple[Any, ...]] = []
    where: list[Any] = ["attribute", "artifact", "layer", "defence", "probe", "split"]
    keys = ["attribute", "split", "baseline"]
    held = {place: part.set_index("example_id") for place, part in read.groupby(keys, sort=False)}
    for place, part in judged.groupby(where, sort=False):
        mine = part.set_index("example_id")["right"]
        for (attribute, split, name), baseline in held.items():
            if (attribute, split) != (place[0], place[5]):
                continue
            both = baseline.join(mine, how="inner")
            codes = np.unique(both["actual"], return_inverse=True)[1]
            subjects = groups.loc[both.index].to_numpy(dtype=str)
            found = paired(both["right_baseline"].to_numpy(), both["right"].to_numpy(), codes, subjects, n_boot, seed)
            numbers = (found.first, found.second, found.change, found.low, found.high, found.n_rows, found.n_subjects)
            lines.append((*place[:5], name, split, *numbers))
    return pd.DataFrame(lines, columns=DIFFERENCE_COLUMNS)
