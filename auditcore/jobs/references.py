"""What attacks compare the target with. In: a run, its rows and models. Out: the reference, and who may be evaluated.

The model before fine-tuning as it is (base), or fine-tuned for the purpose as the authors of EZ offer: on known
non-members (sft), which then leave the evaluation, or on texts that the target wrote (distillation).
"""

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, RunError
from auditcore.jobs import self_prompt
from auditcore.jobs.context import Context
from auditcore.jobs.models import Models
from auditcore.jobs.recipes import trained_model
from auditcore.jobs.rows import Rows
from auditcore.spec import MembershipSpec
from auditcore.store import Run

FOLDER = STAGE = "reference"
FEWEST_ROWS = 8


def choose_nonmembers(spec: MembershipSpec, group: pd.Series, member: pd.Series) -> np.ndarray:
    """Positions of the non-members that train an sft reference, whole subjects drawn by the seed: sorted int64.

    group: subject of each row; member: boolean or NA. Raises DatasetError when too few rows are left on either side.
    """
    known = np.flatnonzero((member == False).fillna(False).to_numpy(dtype=bool))  # noqa: E712
    subjects = group.iloc[known].astype("str")
    names = np.unique(subjects.to_numpy(dtype=object).astype(str))
    drawn = np.random.default_rng([spec.seed, 12104]).permutation(names)
    chosen = known[subjects.isin(drawn[: round(spec.reference.nonmembers * len(names))]).to_numpy(dtype=bool)]
    if len(chosen) < FEWEST_ROWS or len(known) - len(chosen) < FEWEST_ROWS:
        raise DatasetError(
            f"{spec.data.path}: reference.kind sft fine-tunes on {len(chosen):,} of {len(known):,} rows known not to "
            f"be members; at least {FEWEST_ROWS} are needed, and as many again to compare with. Change "
            "reference.nonmembers, add rows, or use kind: distillation."
        )
    return chosen


def without_subjects(group: pd.Series, member: pd.Series, used: np.ndarray) -> tuple[pd.Series, int]:
    """The member column without the rows `used` (int64 positions) and all others of their subjects; how many others.

    What an attack was given of a subject says something about the subject's other rows too: they would be compared
    with a model, or behind a prefix, that knows them, and look less like members than they are.
    """
    gone = group.isin(group.iloc[used]).to_numpy(dtype=bool)
    others = gone & member.notna().to_numpy(dtype=bool)
    others[used] = False
    return member.mask(gone, pd.NA), int(others.sum())


def and_others(n: int) -> str:
    """Words for rows that go with those an attack uses; "" when there are none."""
    return f", and with them {n:,} other rows of the same subjects" if n else ""


def leave_out(context: Context, rows: Rows, member: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """The member column without the rows that train the reference and others of their subjects; the former's places."""
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if spec.reference.kind != "sft":
        return member, np.empty(0, dtype=np.int64)
    chosen = choose_nonmembers(spec, rows.frame["group"], member)
    member, others = without_subjects(rows.frame["group"], member, chosen)
    context.record(counts={"reference_rows": len(chosen)})
    what = f"{len(chosen):,} non-members are what the reference is fine-tuned on; they leave every metric"
    context.note(f"{what}{and_others(others)}.")
    return member, chosen


def prepare(context: Context, rows: Rows, models: Models, chosen: np.ndarray) -> None:
    """Fine-tune the reference, if the spec asks for that, and put it in its place (stage `reference`)."""
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if spec.reference.kind == "base":
        return
    encoded = rows.encoded
    if spec.reference.kind == "distillation":
        encoded = self_prompt.write_texts(context, models, "reference")
        chosen = np.arange(len(encoded.ids))
    models.add("reference", self_prompt.train(context, models, spec.reference, encoded, chosen, FOLDER, STAGE))


def of_run(spec: MembershipSpec, run: Run) -> Models:
    """The models of a finished run, its fine-tuned reference among them. Raises RunError when that is not the same."""
    models = Models(spec)
    if spec.reference.kind != "base":
        checkpoint = run.path / FOLDER / "checkpoints" / "last"
        models.add("reference", trained_model(spec, spec.reference, checkpoint, models.sources["base"].source))
        known = run.manifest.get("fingerprints", {}).get("trained_reference")
        if models.fingerprint("reference") != known:
            raise RunError(f"Run {run.id}: its fine-tuned reference changed since it was finished; start a new run.")
    return models
