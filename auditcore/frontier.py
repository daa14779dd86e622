"""Checkpoints in; trade-off, selection, Pareto set, anchors and rebounds out. Tables in, tables out; no model.

The table `checkpoints` has one row per step, attribute, artifact, layer, probe and split. A checkpoint is as leaky as
its strongest declared attacker finds it: no probe can hide another. The selection rule is that of arXiv 2605.26433
(`point`), with a stricter one beside it (`upper`); halves against optimistic rebounds are our own choice.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from auditcore.errors import SpecError, did_you_mean

SelectOn = Literal["point", "upper"]
SELECTION_SPLIT = "bal_val"
CELL = ["attribute", "artifact", "layer", "probe"]
GAPS = ["signed_gap", "signed_low90", "signed_high90", "accuracy", "accuracy_low", "accuracy_high", "chance"]
UTILITY = [f"{name}{end}" for name in ("rouge1", "rouge2", "rougeL") for end in ("", "_low", "_high")]
CARRIED = ["checkpoint", "lambda", *UTILITY, "ez_tpr_at_1pct"]  # one value per checkpoint, whatever the cell


@dataclass(frozen=True)
class Declaration:
    """What is promised before the test rows are seen: which leak counts, who attacks, how a checkpoint is chosen."""

    budget: float
    attributes: tuple[str, ...]
    artifacts: tuple[str, ...]
    attackers: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()  # empty: every layer that was audited
    select_on: SelectOn = "point"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.budget) and self.budget >= 0):
            raise SpecError(f"budget: a finite number of at least 0 is needed, got {self.budget}.")
        if self.select_on not in get_args(SelectOn):
            raise SpecError(
                f"select_on: '{self.select_on}' is unknown.{did_you_mean(self.select_on, get_args(SelectOn))}"
            )
        for name in ("attributes", "artifacts", "attackers"):
            if not getattr(self, name):
                raise SpecError(f"{name}: a declaration names at least one.")

    def record(self) -> dict[str, Any]:
        """The declaration as plain JSON types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def read(cls, record: dict[str, Any]) -> "Declaration":
        """The declaration that `record` was made from; other keys are left alone."""
        known: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            if name in record:
                known[name] = tuple(record[name]) if isinstance(record[name], list) else record[name]
        return cls(**known)


@dataclass(frozen=True)
class Selection:
    """Which checkpoint the rule chooses. Rows are rows of `judged` as plain dicts."""

    chosen: dict[str, Any] | None  # None: no checkpoint meets the budget
    nearest: dict[str, Any] | None  # the one with the lowest leak, when none is chosen
    candidates: int  # checkpoints that were looked at
    qualified: int  # of these, how many meet the budget and have a utility
    unmeasured: int  # left out: an attacker's gap or the utility is missing


@dataclass(frozen=True)
class Rebound:
    """The rise of a leak after its lowest point, the two never read from the same subjects."""

    best_step: int  # lowest on all rows, for the picture
    peak_step: int  # highest after it, on all rows
    rise: float  # mean over the two halves, in accuracy
    low: float  # 95 % interval over subjects
    high: float
    n_subjects: int
    halves: tuple[tuple[int, int], tuple[int, int]]  # (best step, peak step) as each half found them
    last_step: int = 0  # the last one measured

    @property
    def flagged(self) -> bool:
        """True when the whole interval lies above 0."""
        return self.low > 0


# --- one row per checkpoint ---


def pooled(checkpoints: pd.DataFrame, split: str = SELECTION_SPLIT) -> pd.DataFrame:
    """Rows of one split in which seeds are averaged."""
    rows = checkpoints[checkpoints["split"] == split]
    return rows[rows["seed"].isna()] if "seed" in rows else rows


def points(
    checkpoints: pd.DataFrame, attackers: Sequence[str] | None = None, split: str = SELECTION_SPLIT
) -> pd.DataFrame:
    """Return one row per run, step, attribute, artifact and layer, as its strongest attacker finds it.

    checkpoints: the table (of several runs, if wanted). attackers: the probes that count, None for all. Columns: the
    keys; probe (the strongest); the gaps of that probe; gap = |signed_gap|; upper = the largest end of any attacker's
    90 % interval, on either side of 0; n_subjects; measured (every attacker's gap is known); utility; lambda. In order
    of run, step, attribute, artifact, layer.
    """
    rows = pooled(checkpoints, split)
    if attackers is not None:
        rows = rows[rows["probe"].isin(list(attackers))]
    return _strongest(rows, ["run_id", "step", "attribute", "artifact", "layer"])


def judged(checkpoints: pd.DataFrame, declaration: Declaration, split: str = SELECTION_SPLIT) -> pd.DataFrame:
    """Return one row per run and step: the largest gap over every declared attribute, artifact, layer and attacker.

    Columns as of `points`. Raises SpecError when something declared was never audited.
    """
    rows = pooled(checkpoints, split)
    declared = {"attribute": declaration.attributes, "artifact": declaration.artifacts, "probe": declaration.attackers}
    if declaration.layers:
        declared["layer"] = declaration.layers  # type: ignore[assignment]
    for column, names in declared.items():
        found = rows[column].unique().tolist()
        for name in names:
            if name not in found:
                raise SpecError(
                    f"{column} '{name}' is declared, but no checkpoint was audited with it on {split}."
                    f"{did_you_mean(str(name), map(str, found))}"
                )
        rows = rows[rows[column].isin(list(names))]
    return _strongest(rows, ["run_id", "step"])


def _strongest(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The row with the largest |signed_gap| of each group, and what only the whole group tells."""
    rows = rows.assign(gap=rows["signed_gap"].astype(float).abs())
    ends = rows[["signed_low90", "signed_high90"]].astype(float).abs().max(axis=1, skipna=False)
    rows = rows.assign(_end=ends)
    if rows.empty:
        return rows.assign(upper=[], measured=[]).drop(columns="_end")
    # What counts as measured: as many cells as the best-audited checkpoint of the same run has.
    groups = rows.groupby(by, sort=True, dropna=False)
    whole = groups.agg(
        upper=("_end", lambda values: values.max(skipna=False)),
        _known=("gap", "count"),
        _size=("gap", "size"),
    ).reset_index()
    cells = [k for k in by if k not in ("step",)]
    whole["_expected"] = whole.groupby(cells, dropna=False)["_size"].transform("max")
    whole["measured"] = whole["_known"] == whole["_expected"]
    whole["upper"] = whole["upper"].where(whole["measured"])
    best = rows.sort_values("gap", ascending=False, na_position="last", kind="stable").drop_duplicates(by)
    wanted = [*dict.fromkeys([*by, *CELL]), *GAPS, "gap", "n_subjects", *CARRIED]
    best = best[[c for c in wanted if c in best]]
    return whole[[*by, "upper", "measured"]].merge(best, on=by, how="left")


# --- the choice ---


def select(candidates: pd.DataFrame, budget: float, select_on: SelectOn = "point") -> Selection:
    """Choose among checkpoints that meet the budget the one with the highest ROUGE-L.

    candidates: columns step, gap, rougeL, and for `upper` also upper (`judged` gives them); one row per checkpoint,
    anchors left out by whoever asks. `point`: gap <= budget. `upper`: the whole 90 % interval of every declared
    attacker lies within the budget. Ties go to the lower gap, then to the earlier step. A checkpoint with a missing
    gap, bound or ROUGE-L, or not wholly measured, is never chosen; those are counted. If none qualifies, `nearest` is
    the measured one with the lowest gap (or bound); ties by higher ROUGE-L, then earlier step.
    """
    criterion = "upper" if select_on == "upper" else "gap"
    frame = candidates.assign(_leak=candidates[criterion].astype(float), _utility=candidates["rougeL"].astype(float))
    leak_known = np.isfinite(frame["_leak"]) & np.isfinite(frame["gap"].astype(float))
    if "measured" in frame:
        leak_known &= frame["measured"].astype(bool)
    usable = leak_known & np.isfinite(frame["_utility"])
    good = frame[usable & (frame["_leak"] <= budget)]
    good = good.sort_values(["_utility", "gap", "step"], ascending=[False, True, True], kind="stable")
    near = frame[leak_known].sort_values(
        ["_leak", "_utility", "step"], ascending=[True, False, True], na_position="last", kind="stable"
    )
    counts = {"candidates": len(frame), "qualified": len(good), "unmeasured": int((~usable).sum())}
    if len(good):
        return Selection(_plain(good), None, **counts)
    return Selection(None, _plain(near) if len(near) else None, **counts)


def _plain(rows: pd.DataFrame) -> dict[str, Any]:
    row = rows.drop(columns=["_leak", "_utility"]).iloc[[0]].to_dict("records")[0]
    return {str(k): v.item() if isinstance(v, np.generic) else v for k, v in row.items()}


def pareto(gap: Sequence[float] | np.ndarray, utility: Sequence[float] | np.ndarray) -> np.ndarray:
    """Mark the points that no other beats, bool [n]: less leakage and more utility, one of them strictly.

    A point with a missing value is not in the set and beats nothing; equal points stand together.
    """
    leak, use = np.asarray(gap, dtype=np.float64), np.asarray(utility, dtype=np.float64)
    finite = np.isfinite(leak) & np.isfinite(use)
    no_worse = (leak[:, None] <= leak) & (use[:, None] >= use)  # [i, j]: i is at least as good as j
    better = no_worse & ((leak[:, None] < leak) | (use[:, None] > use))
    beaten = (better & finite[:, None]).any(axis=0)
    return finite & ~beaten


# --- what a checkpoint is held against ---


def is_base(rows: pd.DataFrame) -> pd.Series:
    """Mark the model before training: step 0."""
    return rows["step"] == 0


def is_utility_only(rows: pd.DataFrame) -> pd.Series:
    """Mark checkpoints that were trained with lambda 0: plain LoRA on the summaries."""
    return (rows["lambda"].astype(float) == 0) & ~is_base(rows)


def anchors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what trained checkpoints are held against, of each cell of `points` or `judged`, with a column `anchor`.

    `base model`: step 0. `utility-only LoRA`: of the checkpoints with lambda 0, the one with the highest ROUGE-L (the
    later one among equals). Neither is there when no run has it; several runs share their base, shown once.
    """
    cell = [c for c in ("attribute", "artifact", "layer") if c in rows and rows[c].notna().any()]
    if "lambda" not in rows or rows.empty:
        return rows.assign(anchor=[])
    base = rows[is_base(rows)].drop_duplicates([*cell, "gap", "rougeL"])  # two runs may start from two models
    plain = rows[is_utility_only(rows)].sort_values(["rougeL", "step"], ascending=False, kind="stable")
    plain = plain.drop_duplicates(cell) if cell else plain.head(1)
    found = [base.assign(anchor="base model"), plain.assign(anchor="utility-only LoRA")]
    return pd.concat([f for f in found if len(f)] or [rows.iloc[:0].assign(anchor=[])], ignore_index=True)


# --- rebound ---


def rebound(
    predictions: pd.DataFrame, attackers: Sequence[str] | None = None, n_boot: int = 2000, seed: int = 0
) -> Rebound | None:
    """Say whether the leak came back after its lowest point; None with fewer than two steps or too few subjects.

    predictions: one attribute, artifact, layer and split; columns step, probe, seed, example_id, group, actual, and
    predicted or right (0 to 1, seeds averaged already). Only rows predicted at every step and by every attacker count.
    The leak of a step is the accuracy (mean per-class recall, seeds averaged) of the strongest attacker. Subjects are
    dealt into halves, class by class. One half names the lowest step, the highest step after it and the strongest
    attacker of both; the other half measures the rise between them, and the other way round. `rise` is the mean of
    both; a half whose lowest step is the last one counts as no rise. The interval resamples subjects within classes
    and halves. On flat trajectories about 5 % are flagged (12 to 50 % when both are read from the same rows).
    """
    steps, right, codes, groups = _correctness(predictions, attackers)
    n_classes = int(codes.max(initial=-1)) + 1
    first = np.unique(groups, return_index=True)[1]
    if len(steps) < 2 or n_classes < 2 or np.bincount(codes[first], minlength=n_classes).min() < 4:
        return None
    rng = np.random.default_rng([seed, 0x8EB0])
    mine = _half(codes, groups, rng)
    rises, replicates, picks = [], [], []
    for find, measure in ((mine, ~mine), (~mine, mine)):
        low, high, attacker = _turn(_recall(right[:, :, find], codes[find], n_classes))
        picks.append((int(steps[low]), int(steps[high])))
        change = right[high, attacker[high]] - right[low, attacker[low]]
        value, drawn = _resampled_mean(change[measure], codes[measure], groups[measure], n_classes, n_boot, rng)
        rises.append(value)
        replicates.append(drawn)
    low, high, _ = _turn(_recall(right, codes, n_classes))
    ends = np.quantile(np.mean(replicates, axis=0), [0.025, 0.975])
    return Rebound(
        int(steps[low]), int(steps[high]), float(np.mean(rises)), float(ends[0]), float(ends[1]), len(first),
        (picks[0], picks[1]), int(steps[-1]),
    )  # fmt: skip


def _correctness(
    predictions: pd.DataFrame, attackers: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(steps [S], correctness float64 [S, P, n] averaged over seeds, class codes [n], subjects [n])."""
    rows = predictions if attackers is None else predictions[predictions["probe"].isin(list(attackers))]
    if "right" not in rows:
        rows = rows.assign(right=(rows["actual"].astype("str") == rows["predicted"].astype("str")).astype(np.float64))
    wide = rows.pivot_table(index="example_id", columns=["step", "probe"], values="right", aggfunc="mean")
    wide = wide.dropna(axis=0)
    steps, probes = (wide.columns.get_level_values(i).unique().sort_values() for i in (0, 1))
    wide = wide.reindex(columns=pd.MultiIndex.from_product([steps, probes])).dropna(axis=1, how="all")
    complete = [s for s in steps if all((s, p) in wide.columns for p in probes)]
    right = np.array([[wide[s, p].to_numpy() for p in probes] for s in complete], dtype=np.float64)
    who = rows.drop_duplicates("example_id").set_index("example_id").reindex(wide.index)
    codes = np.unique(who["actual"].astype("str").to_numpy(dtype=str), return_inverse=True)[1]
    groups = np.unique(who["group"].astype("str").to_numpy(dtype=str), return_inverse=True)[1]
    return np.array(complete), right, codes, groups


def _half(codes: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mask [n] of the rows of half of the subjects, dealt class by class (a subject by its first row)."""
    subjects, first, where = np.unique(groups, return_index=True, return_inverse=True)
    chosen = np.zeros(len(subjects), dtype=bool)
    for code in np.unique(codes[first]):
        members = rng.permutation(np.flatnonzero(codes[first] == code))
        chosen[members[code % 2 :: 2]] = True  # odd classes start with the other half, so that sizes even out
    return chosen[where]


def _recall(right: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Mean per-class recall, float64 [S, P]."""
    return np.mean([right[..., codes == k].mean(axis=-1) for k in range(n_classes)], axis=0)


def _turn(recall: np.ndarray) -> tuple[int, int, np.ndarray]:
    """Positions of the lowest step and of the highest from there on, and the strongest attacker of each step."""
    attacker = recall.argmax(axis=1)
    leak = recall.max(axis=1)
    low = int(leak.argmin())
    return low, low + int(leak[low:].argmax()), attacker


def _resampled_mean(
    values: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_classes: int, n_boot: int, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """Mean over classes of the mean value [n], and its replicates [B] over subjects drawn within their class."""
    mean, drawn = 0.0, np.zeros(n_boot)
    for k in range(n_classes):
        where = np.unique(groups[codes == k], return_inverse=True)[1]
        total, size = np.bincount(where, weights=values[codes == k]), np.bincount(where)
        mean += float(total.sum() / size.sum()) / n_classes
        weights = rng.multinomial(len(size), np.full(len(size), 1 / len(size)), size=n_boot)
        drawn += (weights @ total) / (weights @ size) / n_classes
    return mean, drawn
