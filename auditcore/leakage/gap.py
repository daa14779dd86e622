"""LeakageGap of one artifact, attribute and probe. In: vectors, labels, subjects, splits. Out: rows for the tables.

Accuracy is the mean per-class recall on a class-balanced evaluation set; the signed gap is accuracy - 1/K and
LeakageGap its absolute value (arXiv 2605.26433). The signed gap is what is resampled and judged: an absolute value
reads above zero on pure noise. Intervals are over subjects, conditional on the fitted probes; correctness is averaged
over seeds per row before anything is resampled. Only `bal_test` gives a verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from auditcore.errors import SpecError, did_you_mean
from auditcore.leakage.cells import make_cell
from auditcore.leakage.folds import default_jobs, one_thread
from auditcore.leakage.judge import Judged, log_probabilities, surest_probabilities
from auditcore.leakage.mdl import code_length
from auditcore.leakage.permutation import null_accuracies
from auditcore.leakage.probes import PROBES
from auditcore.verdict import combine, holm, interval_verdict, point_rule

# The tables' columns; the last ones of the first and the third go beyond what other tools may rely on: the one-sided
# p-value of "the gap is at most the budget", realised precision of the confident inferences and the share of each class
# that they name rightly (JSON), the settings chosen (JSON), the 95 % interval of the confident share and the p-value of
# "those named so were guessed", the online code length of the training labels in bits per row, and what they take
# uncoded over that; how many permutations the null band is made of, of how many refits, on how many training rows; the
# smallest share of certain giveaways that so many subjects can show; and whether the point estimate alone would meet
# the budget.
COUNTS = ("permutations", "null_refits", "null_rows")
METRIC_COLUMNS = [
    *("attribute", "artifact", "layer", "defence", "probe", "seed", "split"),
    *("n_train", "n_eval", "n_subjects", "n_classes"),
    *("accuracy", "accuracy_low", "accuracy_high", "chance", "signed_gap", "signed_low90", "signed_high90", "gap"),
    *("null_mean", "null_p95", "p_value", "v_information_bits", "confident_share", "converged", "verdict"),
    *("p_over", "confident_precision", "confident_by_class", "settings"),
    *("confident_low", "confident_high", "confident_p", "mdl_bits", "mdl_compression"),
    *COUNTS,
    "confident_least",
]
PREDICTION_COLUMNS = [
    *("example_id", "attribute", "artifact", "layer", "defence", "probe", "seed"),
    *("split", "actual", "predicted", "probability"),
]
VERDICT_COLUMNS = [
    *("kind", "attribute", "artifact", "layer", "defence", "attacker", "split"),
    *("budget", "value", "low", "high", "n_subjects", "verdict", "p_over", "point_rule"),
]


@dataclass(frozen=True)
class ProbeResult:
    """Rows for the tables `probe_metrics` and `predictions`, and counted things a page must show."""

    metrics: pd.DataFrame
    predictions: pd.DataFrame
    warnings: list[str]


@one_thread
def evaluate(
    vectors: np.ndarray,
    labels: Sequence[object] | np.ndarray,
    groups: Sequence[object] | np.ndarray,
    rows: Mapping[str, np.ndarray],
    probe: str,
    seeds: Sequence[int] = (0, 1, 2),
    n_boot: int = 2000,
    permutations: int = 199,
    budget: float = 0.025,
    seed: int = 0,
    on_step: Callable[[int, int], None] | None = None,
    *,
    attribute: str = "",
    artifact: str = "",
    layer: int = 0,
    defence: str = "none",
    example_ids: Sequence[str] | None = None,
    n_jobs: int | None = None,
    most_refits: int | None = None,
) -> ProbeResult:
    """Fit one probe on `bal_train` and judge it on `bal_val` and `bal_test`.

    vectors: float [n, d]; labels: [n] text; groups: [n] subjects; rows: split -> positions, already balanced, no
    subject in two of them; seeds: of the probe; seed: of bootstrap and permutations; on_step(done, total) is called
    after every fit and permutation; example_ids: [n], default the 1-based row; most_refits: on permuted labels, None
    for one for each permutation.

    Metrics: one row per split with `seed` null (seeds averaged) and one per seed. accuracy_low and accuracy_high are
    a 95 % interval, signed_low90 and signed_high90 the 90 % interval of the verdict. null_mean and null_p95 are
    accuracies of refits on permuted labels, p_value = (1 + how many reach the accuracy) / (1 + permutations); with
    permutations = 0 they are null. verdict and p_over stand in the one row of `bal_test` with `seed` null; without
    `bal_test` there is none.

    Raises DatasetError for rows that cannot be used (see `cells`), SpecError for an unknown probe.
    """
    if probe not in PROBES:
        raise SpecError(f"probe '{probe}' is unknown.{did_you_mean(probe, PROBES)}")
    cell = make_cell(vectors, labels, groups, rows, " ".join(x for x in (attribute, artifact) if x))
    jobs, total, train = n_jobs or default_jobs(), len(seeds) + permutations, cell.train
    tell = on_step or (lambda done, of: None)
    fits, null = [], None
    memo: dict[Any, Any] = {}
    for number, one in enumerate(seeds):
        rows_of = (train.vectors, train.codes, train.groups, len(cell.classes))
        fits.append(PROBES[probe](*rows_of, one, n_jobs=jobs, memo=memo))
        tell(number + 1, total)
    made = {
        fit.form: (memo[fit.form][1], {split: fit.transform(part.vectors) for split, part in cell.evaluated.items()})
        for fit in {fit.form: fit for fit in fits}.values()
    }
    if permutations:

        def drawn(done: int) -> None:
            tell(len(seeds) + done, total)

        null = null_accuracies(cell, fits, made, permutations, seed, jobs, drawn, most_refits)
    length = code_length(train, memo[fits[0].form][1], fits[0], len(cell.classes), seeds[0])
    names = {"attribute": attribute, "artifact": artifact, "layer": layer, "defence": defence, "probe": probe}
    log_p = {
        split: log_probabilities(fits, {form: evaluated[split] for form, (_, evaluated) in made.items()}, cell)
        for split in cell.evaluated
    }
    sure_p = {split: surest_probabilities(fits, part, cell, log_p[split]) for split, part in cell.evaluated.items()}
    ids = None if example_ids is None else [str(i) for i in example_ids]
    metrics, predictions = [], []
    for split in cell.evaluated:
        judged = Judged(cell, split, log_p, sure_p, fits, list(seeds), null, n_boot, budget, seed)
        lines = judged.metric_rows()
        lines[0] |= {"mdl_bits": length.bits, "mdl_compression": length.compression}
        metrics += [{**names, **row} for row in lines]
        predictions.append(judged.predictions(names, ids))
    return ProbeResult(
        pd.DataFrame(metrics, columns=METRIC_COLUMNS).astype(dict.fromkeys(("seed", *COUNTS), "Int64")),
        pd.concat(predictions, ignore_index=True)[PREDICTION_COLUMNS],
        cell.notes,
    )


def leakage_verdicts(metrics: pd.DataFrame, budget: float) -> pd.DataFrame:
    """Return the rows of table `verdicts` of a run, from its `probe_metrics` made with the same budget.

    One row per attribute, artifact, layer, defence and probe, and one row `attacker` = "all" per defence: its verdict
    is `verdict.combine` over every row of that defence (all were declared) after Holm's correction over the same rows;
    its value, low and high are those of the largest gap; attribute, artifact and layer are null where rows differ.
    """
    judged = metrics[metrics["seed"].isna() & (metrics["split"] == "bal_test")]
    rows: list[dict[str, Any]] = []
    for _, part in judged.groupby("defence", sort=False):
        each = [_verdict_row(row, budget) for row in part.to_dict("records")]
        rows += [*each, _all_row(each)]
    frame = pd.DataFrame(rows, columns=VERDICT_COLUMNS)
    numbers = dict.fromkeys(("budget", "value", "low", "high", "p_over"), "float64")
    return frame.astype({"layer": "Int32", "n_subjects": "Int64", "point_rule": "boolean", **numbers})


def _verdict_row(row: dict[Any, Any], budget: float) -> dict[str, Any]:
    low, high, gap = row["signed_low90"], row["signed_high90"], row["signed_gap"]
    return {
        **{column: row[column] for column in ("attribute", "artifact", "layer", "defence", "split", "n_subjects")},
        "kind": "vectors",
        "attacker": row["probe"],
        "budget": budget,
        "value": gap,
        "low": low,
        "high": high,
        "verdict": interval_verdict(low, high, budget),
        "p_over": row["p_over"],
        "point_rule": point_rule(gap, budget),
    }


def _all_row(each: list[dict[str, Any]]) -> dict[str, Any]:
    verdicts = [row["verdict"] for row in each]
    adjusted = holm([row["p_over"] for row in each]).tolist()
    worst = dict(max(each, key=lambda row: row["value"]))
    for column in ("attribute", "artifact", "layer"):
        if any(row[column] != worst[column] for row in each):
            worst[column] = None
    worst["n_subjects"] = max(row["n_subjects"] for row in each)
    worst["point_rule"] = all(row["point_rule"] for row in each)
    return {**worst, "attacker": "all", "verdict": combine(verdicts, adjusted), "p_over": min(adjusted)}
