"""Which training rows does the model remember? In: a membership spec. Out: token statistics, scores, ROC, verdicts."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError
from auditcore.jobs import evidence, neighbours, references, self_prompt, shadows
from auditcore.jobs.context import Context, OnProgress, shifted
from auditcore.jobs.models import TOGETHER, Models
from auditcore.jobs.rows import Rows, load
from auditcore.spec import MembershipSpec, SweepSpec

TOKENS = "token statistics"
Found = dict[str, dict[str, np.ndarray]]  # arrays of every pass, by its name


def audit(context: Context) -> None:
    """Run all stages that are not finished: rows, token statistics, scores, operating points."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_tokenizer

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    dataset = load_dataset(spec.data, spec.prompt_template)
    models = Models(spec, lambda lm: context.record(device=lm.device, dtype=lm.dtype, precision=lm.precision))
    models.check_tokenizers()  # said before any work, as a reference that is missing is
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    rows = load(context, dataset, tokenizer)
    # A reference is written and trained before any token is scored: it must not stand on another base either.
    begun = next((stage for stage in (self_prompt.STAGE, references.STAGE) if context.finished(stage)), TOKENS)
    context.fingerprint(begun, model=models.fingerprint("target"), reference=models.fingerprint("base"))
    member = without_duplicates(context, rows, _usable_members(context, rows), spec.on_duplicates)

    needed = evidence.needs(spec.attacks)
    member, chosen = references.leave_out(context, rows, member)
    if "self_prompt" in needed or spec.reference.kind == "distillation":
        self_prompt.ask(spec, models)  # said before any work when there is no prompt, or no room behind it
    prefix: list[int] = []
    if "prefixed" in needed:
        prefix = evidence.choose_prefix(spec, member, rows.frame["group"], rows.encoded.lengths)
        member, others = references.without_subjects(rows.frame["group"], member, np.array(prefix))
        what = f"{len(prefix)} non-members are the prefix of the attack recall and left out of every metric"
        context.note(f"{what}{references.and_others(others)}.")
    if "shadows" in needed:
        shadows.usable_rows(spec, rows, member)  # likewise when too few are left
    references.prepare(context, rows, models, chosen)
    passes = evidence.plan(spec, dataset, rows.encoded, tokenizer, needed, prefix)

    if not context.finished(TOKENS):
        with context.stage(TOKENS, len(passes) * len(rows.frame)) as on_progress:
            found = collect(context, rows, passes, models, on_progress)
            statistics = evidence.statistics(found)
            context.run.write("token_stats", _token_frame(rows, statistics, tokenizer, spec.store_text))
    else:
        found = collect(context, rows, passes, models, lambda done, total: None)
    silent = _no_difference(context, found)

    if not context.finished("scores"):
        seen = None
        if "shadows" in needed:
            seen = shadows.train_and_score(context, rows, member, models.sources["base"].source)
        if silent:
            needed -= {"self_prompt"}  # a reference trained for it would compare with another model than the base
        copies, more = neighbours.measure(context, rows, models, needed)
        with context.stage("scores"):
            tokens = evidence.tokens(spec, dataset, rows.encoded, tokenizer, needed, found, seen, copies, more)
            context.run.write("membership_scores", _scores(spec, rows, tokens, member, silent))
    neighbours.forget(context)

    blind_baseline(context, rows, member)

    if not context.finished("operating points"):
        with context.stage("operating points"):
            _operating_points(context, rows)


def collect(
    context: Context, rows: Rows, passes: list[evidence.Pass], models: Models, on_progress: OnProgress
) -> Found:
    """Arrays of every pass, each taken from the cache when the same tokens met the same model.

    The passes of one model follow each other, so that only one of the two has to be in memory.
    """
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if spec.reference.kind != "base":
        context.fingerprint(TOKENS, trained_reference=models.fingerprint("reference"))
    found, n = {}, len(rows.frame)
    ordered = sorted(passes, key=lambda one: one.model != "target")
    for number, one in enumerate(ordered):
        on_batch = shifted(on_progress, number * n, len(passes) * n)
        found[one.name] = one.arrays(spec, models.fingerprint(one.model), partial(models.get, one.model), on_batch)
        if one.model == "target" and all(later.model != "target" for later in ordered[number + 1 :]):
            models.release_target()
        on_progress((number + 1) * n, len(passes) * n)
    if models.apart:
        context.note(f"{TOGETHER}: they were loaded one after the other.")
    return found


def _token_frame(rows: Rows, statistics: Any, tokenizer: Any, store_text: Literal["full", "none"]) -> pd.DataFrame:
    from auditcore.lm.tokens import token_frame

    return token_frame(statistics, rows.frame["example_id"].tolist(), tokenizer, store_text)


def _no_difference(context: Context, found: Found) -> list[str]:
    """Attacks that compare two models which turned out to be one: said, recorded, and none of them is scored."""
    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    if not evidence.no_difference(found):
        return []
    silent = evidence.comparing(spec.attacks)
    who = f" ({', '.join(silent)})" if silent else ""
    context.warn(
        "No difference between target and reference: they give every token the same probability, so attacks that "
        f"compare them{who} can show nothing. Is the reference really the model before fine-tuning?"
    )
    context.record(no_difference=silent)
    return silent


def _usable_members(context: Context, rows: Rows) -> pd.Series:
    """The member column, with rows that chose the checkpoint set to unknown; checked against what was trained on."""
    from auditcore.training.rows import agreement, load_trained_on, text_hashes

    spec = context.spec
    assert isinstance(spec, MembershipSpec)
    member = rows.frame["member"].astype("boolean")
    trained_on = load_trained_on(Path(spec.model.source))
    if trained_on is None:
        return member
    checked = agreement(member, text_hashes(rows.dataset.texts()), trained_on)
    if checked.n_validation:
        context.record(counts={"validation_rows": checked.n_validation})
        context.note(
            f"{checked.n_validation:,} rows chose the checkpoint during fine-tuning; they are scored, "
            "but left out of every metric."
        )
    if checked.messages:
        text = " ".join(checked.messages)
        if spec.on_mismatch == "error":
            raise DatasetError(
                f"{spec.data.path}: the member column disagrees with what the checkpoint was trained on. {text} "
                "Correct the column, or set on_mismatch: warn to audit anyway."
            )
        context.warn(f"The member column disagrees with what the checkpoint was trained on. {text}")
    return member.mask(checked.validation, pd.NA)


def without_duplicates(
    context: Context, rows: Rows, member: pd.Series, on_duplicates: Literal["warn", "exclude"]
) -> pd.Series:
    """Count texts that stand on both sides of the member line (table `duplicates`); set them to unknown if asked to."""
    from auditcore.datasets.near import across_the_line

    if not context.finished("duplicates"):
        with context.stage("duplicates"):
            found = across_the_line(rows.dataset.texts(), member)
            kind = np.select([found.exact, found.near], ["exact", "near"], default="")
            table = pd.DataFrame({"example_id": rows.frame["example_id"], "member": member, "kind": kind})
            context.run.write("duplicates", table[table["kind"] != ""].reset_index(drop=True))
    table = context.run.read("duplicates")
    if table.empty:
        return member
    counts = {
        (kind, side): int(((table["kind"] == kind) & (table["member"] == side)).sum())
        for kind in ("exact", "near")
        for side in (True, False)
    }
    equal = f"{counts['exact', True]:,} members and {counts['exact', False]:,} non-members have the same text"
    alike = f"{counts['near', True]:,} and {counts['near', False]:,} nearly the same text"
    what = f"{equal} as a row on the other side of the member line, {alike}"
    if on_duplicates == "exclude":
        context.warn(f"{what}; they are scored, but left out of every metric.")
        return member.mask(rows.frame["example_id"].isin(table["example_id"]), pd.NA)
    context.warn(
        f"{what}: the model was trained on what they are called not to be. on_duplicates: exclude leaves them out."
    )
    return member


def _scores(spec: MembershipSpec, rows: Rows, tokens: Any, member: pd.Series, silent: list[str]) -> pd.DataFrame:
    from auditcore.membership.scores import score_table

    return score_table(
        tokens,
        spec.attacks,
        rows.frame["example_id"].tolist(),
        member,
        ez_policy=spec.ez_policy,
        skip_first=spec.skip_first,
        lira_variant=spec.shadows.variant,
        silent=silent,
    )


def blind_baseline(context: Context, rows: Rows, member: pd.Series) -> None:
    """Can the words alone tell members from non-members? Always asked, since every other number hangs on it.

    Table `blind`, and a warning where they can (stage `blind baseline`).
    """
    if not context.finished("blind baseline"):
        with context.stage("blind baseline"):
            _blind(context, rows, member)


def _blind(context: Context, rows: Rows, member: pd.Series) -> None:
    from auditcore.membership.blind import FEWEST, blind_metrics, blind_scores, warning

    spec = context.spec
    assert isinstance(spec, (MembershipSpec, SweepSpec))
    ids, groups = rows.frame["example_id"].tolist(), rows.frame["group"]
    scores = blind_scores(rows.dataset.texts(), member, groups.tolist(), spec.seed)
    by_id = rows.frame.set_index("example_id")["group"]
    blind = blind_metrics(scores, ids, member, by_id, spec.target_fprs, spec.n_boot, spec.seed)
    context.run.write("blind", blind)
    said = warning(blind)
    if said:
        context.warn(said)
    if np.isnan(scores).all() and {True, False} <= set(member.dropna()):
        context.note(
            f"Fewer than {FEWEST} subjects are members, or are none: whether the words alone tell them apart was not "
            "measured."
        )


def _operating_points(context: Context, rows: Rows) -> None:
    from auditcore.claims import claim
    from auditcore.membership.roc import VERDICT_FPR, attack_metrics, membership_verdicts, reasons

    spec, run = context.spec, context.run
    assert isinstance(spec, MembershipSpec)
    scores = run.read("membership_scores")
    groups = rows.frame.set_index("example_id")["group"]
    metrics, roc = attack_metrics(scores, groups, spec.target_fprs, spec.n_boot, spec.seed)
    verdicts = membership_verdicts(scores, metrics, groups, spec.membership_budget, spec.n_boot, spec.seed)
    known = scores.loc[scores["attack"] == spec.attacks[0], "member"]
    n_member, n_nonmember = int((known == True).sum()), int((known == False).sum())  # noqa: E712 - NA is neither
    context.record(counts={"members": n_member, "nonmembers": n_nonmember})
    if not n_member or not n_nonmember:
        context.warn(
            f"{n_member:,} members and {n_nonmember:,} non-members: without both, rows are scored but no rate "
            "can be measured and no verdict given."
        )
    run.write("attack_metrics", metrics)
    run.write("roc", roc)
    run.write("verdicts", verdicts)
    context.record(claim=claim(run.manifest, verdicts, reasons(metrics, VERDICT_FPR)))
