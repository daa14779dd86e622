"""Shadow models of `lira`. In: a membership spec and its rows. Out: mean log-probs under every shadow, who saw what.

Each shadow is the reference, fine-tuned on half of the known rows in the way that the spec says; it is a stage of its
own, so that a resumed run trains none of them twice.
"""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs import evidence
from auditcore.jobs.context import Context
from auditcore.jobs.recipes import trained_model, training_spec
from auditcore.jobs.rows import Rows
from auditcore.spec import MembershipSpec

FEWEST_ROWS = 8


def train_and_score(context: Context, rows: Rows, member: pd.Series, reference: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean log-probability of every row under every shadow, float64 [s, n]; which shadow saw which row, bool [s, n].

    One table `shadow_<number>` each: shadow, example_id, trained, mean_logp. Adapters stay in shadows/<number>; a fully
    fine-tuned shadow's weights are deleted once its numbers are there.
    """
    from auditcore.membership.bootstrap import subject_codes
    from auditcore.membership.shadow import shadow_halves

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    n = len(rows.frame)
    pool = usable_rows(spec, rows, member)
    subjects = subject_codes(rows.frame["group"].iloc[pool].tolist(), len(pool))
    halves = shadow_halves(np.arange(len(pool)) if subjects is None else subjects, spec.shadows.count, spec.seed)
    trained = np.zeros((spec.shadows.count, n), dtype=bool)
    trained[:, pool] = halves
    for k in range(spec.shadows.count):
        stage = f"shadow {k + 1} of {spec.shadows.count}"
        if not context.finished(stage):
            _one(context, rows, np.flatnonzero(trained[k]), k, stage, reference)
        if spec.shadows.method == "full":  # also those that a kill left behind
            shutil.rmtree(_folder(context, k), ignore_errors=True)
    tables = [context.run.read(_table(k)) for k in range(spec.shadows.count)]
    # As each was trained, not as it would be now: who is a member may read differently since a run was interrupted.
    trained = np.stack([t["trained"].to_numpy(dtype=bool) for t in tables])
    return np.stack([t["mean_logp"].to_numpy(dtype=np.float64) for t in tables]), trained


def usable_rows(spec: MembershipSpec, rows: Rows, member: pd.Series) -> np.ndarray:
    """Positions of the rows that shadows share out. Raises DatasetError when they are too few, before any work."""
    pool = np.flatnonzero(member.notna().to_numpy() & (rows.encoded.lengths > 1))
    if len(pool) < FEWEST_ROWS:
        raise DatasetError(
            f"{spec.data.path}: attack 'lira' trains shadow models on rows of known membership; {len(pool)} rows are "
            f"too few, {FEWEST_ROWS} are the least."
        )
    return pool


def _one(context: Context, rows: Rows, train_rows: np.ndarray, k: int, stage: str, reference: str) -> None:
    """Train shadow k, score all rows, write its table."""
    from auditcore.lm.load import load_model
    from auditcore.training.finetune import finetune

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    training = training_spec(spec, spec.shadows, reference, spec.seed + k)
    n = len(rows.frame)
    with context.stage(stage) as on_progress:
        base = load_model(training.model)
        result = finetune(
            base,
            rows.encoded,
            train_rows,
            np.empty(0, dtype=np.int64),
            training,
            _folder(context, k),
            on_step=lambda step, total, _: on_progress(step, total + 1),
        )
        del base
        # From its checkpoint: a training that had ended before a kill leaves the base as it was.
        model = load_model(trained_model(spec, spec.shadows, result.last, reference))
        found = evidence.Pass(stage, "target", rows.encoded, False, spec.score).run(spec, model, None)
        mean = evidence.mean_per_row(found)
        table = pd.DataFrame(
            {
                "shadow": np.full(n, k + 1),
                "example_id": rows.frame["example_id"],
                "trained": np.isin(np.arange(n), train_rows),
                "mean_logp": mean,
            }
        )
        context.run.write(_table(k), table)


def _folder(context: Context, k: int) -> Path:
    return context.run.path / "shadows" / f"{k + 1:02d}"


def _table(k: int) -> str:
    return f"shadow_{k + 1:02d}"
