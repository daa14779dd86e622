"""What a run would cost and could show, before anything runs. In: a spec. Out: rows, tokens, time, disk, power."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from auditcore.errors import AuditError, RunError
from auditcore.jobs import given
from auditcore.jobs.corpus import plain_data
from auditcore.jobs.estimate import Plan
from auditcore.spec import (
    AnySpec,
    FinetuneSpec,
    FrontierSpec,
    MembershipSpec,
    SurfaceLoraSpec,
    SweepSpec,
    VectorsSpec,
    dump_spec,
    parse_spec,
)

SAMPLE = 2000  # rows whose tokens are counted; more are scaled up


def plan(spec: AnySpec, timeout: float = 180.0) -> Plan:
    """Plan in a process of its own, so that the caller imports no model code. Raises AuditError like the run would."""
    root = str(Path(__file__).resolve().parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from auditcore.jobs.plan import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(dump_spec(spec)),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"Planning took longer than {timeout:.0f} seconds and was stopped.") from None
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        answer = json.loads(last[0])
    except json.JSONDecodeError:
        raise RunError(f"Planning failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}") from None
    if "error" in answer:
        raise AuditError(answer["error"])
    return Plan(**answer)


def main() -> None:
    """Entry of the planning process: spec as JSON on stdin, plan or error as JSON on stdout."""
    try:
        busy = slowdown()  # before this planning adds to it
        answer = asdict(replace(plan_here(parse_spec(json.load(sys.stdin))), slowdown=busy))
    except AuditError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


def plan_here(spec: AnySpec) -> Plan:
    """Plan in this process (imports the tokenizer's library)."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.jobs.evidence import needs
    from auditcore.lm.memory import parameters

    spec = plain_data(spec)
    template = spec.read_template if isinstance(spec, VectorsSpec) else spec.prompt_template
    dataset = load_dataset(spec.data, template)
    notes, array = list(dataset.notes), None
    rows_in_file = len(dataset.frame)
    if isinstance(spec, VectorsSpec):
        dataset, array, found = given.usable(spec, dataset)
        notes += found
    rows = len(dataset.frame)
    model = spec.model
    per_row = token_lengths(spec, dataset) if model else np.zeros(rows)
    tokens = int(per_row.mean() * rows) if rows else 0
    weights = parameters(model.source, model.base) if model else 0
    forward = 2.0 * weights * tokens / _flops_per_second() if weights else 0.0
    if isinstance(spec, MembershipSpec):
        from auditcore.jobs import self_prompt, work
        from auditcore.jobs.models import Models

        models = Models(spec)
        models.check_tokenizers()
        if work.writes(spec, needs(spec.attacks)):
            self_prompt.ask(spec, models)
        notes += models.room()
        member, trains = _evaluated(spec, dataset.frame)
        points = [operating_point(f, int((~member).fillna(False).sum())) for f in spec.target_fprs]
        data = work.Size(rows, tokens, int(member.notna().sum()), trains)
        attacks = work.attacks_alone(spec, data, forward)
        seconds = work.whole(spec, data) * forward + 20
        disk = tokens * 40 + work.disk(spec, weights)
        warnings = models.no_difference() if spec.reference.kind == "base" else []
        notes += work.notes(spec, data)
        return Plan("membership", rows, tokens, seconds, disk, [], points, notes, attacks, warnings)
    if isinstance(spec, FinetuneSpec | SweepSpec):
        from auditcore.jobs.training_plan import finetune_plan, sweep_plan

        each = forward / max(tokens, 1)
        if isinstance(spec, FinetuneSpec):
            return finetune_plan(spec, dataset, each, weights, notes)
        return sweep_plan(spec, dataset, tokens, each, weights, notes)
    if isinstance(spec, SurfaceLoraSpec):
        from auditcore.jobs.checkpoint_plan import surfacelora_plan

        return surfacelora_plan(spec, dataset, 2.0 * weights / _flops_per_second())
    if isinstance(spec, FrontierSpec):
        from auditcore.jobs.checkpoint_plan import frontier_plan

        return frontier_plan(spec, dataset, 2.0 * weights / _flops_per_second())
    assert isinstance(spec, VectorsSpec)
    from auditcore.jobs.defences import measured
    from auditcore.jobs.probe_cost import baseline_seconds, curve_seconds, probe_seconds
    from auditcore.jobs.prompting import directives

    layers, width = _depth_and_width(spec)
    width = width if array is None else array.shape[1]
    exported = len(spec.artifacts) * layers if spec.model else 1
    audited, power, extra, warnings = _vectors_power(spec, dataset, exported, rows_in_file)
    share = audited / max(rows, 1)
    notes += family_note(len(spec.data.labels), exported, len(spec.probes))
    defences = measured(spec)
    prompts = 1 + len(directives(spec))  # each directive is read by the model anew
    fits = exported * len(defences)
    speed = _flops_per_second()
    seconds = forward * share * prompts
    share_fitted = audited / 2 / max(rows, 1)
    characters = int(share_fitted * sum(len(text) for texts in dataset.fields.values() for text in texts))
    for one in power:
        seconds += baseline_seconds(spec, characters, audited // 2, one["n_classes"])
        seconds += len(spec.artifacts) * curve_seconds(spec, audited // 2, width, one["n_classes"], speed)
        seconds += fits * probe_seconds(spec, spec.probes, audited // 2, width, one["n_classes"], speed)
    size = 4 * width * audited * prompts * (exported + layers * ("concat" in spec.artifacts))  # concat is twice as wide
    if spec.generate is not None:
        written = (
            min(spec.generate.rows, power[0]["n_subjects"] if power else 0) * spec.generate.max_new_tokens * prompts
        )
        # One token at a time keeps a machine less busy than a whole text does.
        seconds += 5 * 2.0 * weights * written / speed
        notes.append(f"At most {written:,} tokens of summaries are written.")
    return Plan("vectors", audited, int(tokens * share), seconds + 15, size, power, [], notes + extra, [], warnings)


def family_note(labels: int, exported: int, probes: int) -> list[str]:
    """What is corrected for in a planned run of several tests; [] for one."""
    tests = labels * exported * probes
    if tests < 2:
        return []
    return [
        f"{tests:,} tests are declared: {labels:,} {'label' if labels == 1 else 'labels'} × {exported:,} "
        f"{'vector' if exported == 1 else 'vectors'} (artifact and layer) × {probes:,} "
        f"{'attacker' if probes == 1 else 'attackers'}. The run is over budget only after Holm's correction over them, "
        "and within budget only if every one is; the power stated is that of one label."
    ]


def _depth_and_width(spec: VectorsSpec) -> tuple[int, int]:
    """How many layers are audited, and how wide a vector is, from the model's config."""
    from auditcore.lm.sources import local_folder, read_json, resolve

    config: dict[str, Any] = {}
    if spec.model is not None:
        found = resolve(spec.model.source, spec.model.base)
        body = found.base or found
        config = {} if body.kind == "gguf" else read_json(local_folder(body) / "config.json")
        config = config.get("text_config") or config
    depth = int(config.get("num_hidden_layers") or config.get("n_layer") or 32)
    width = int(config.get("hidden_size") or config.get("n_embd") or 1024)
    return (depth + 1 if spec.layers == "all" else len(spec.layers)), width


def _evaluated(spec: MembershipSpec, frame: Any) -> tuple[Any, int]:
    """The member column without rows that an attack uses up, and how many non-members train an sft reference.

    Raises DatasetError, as the run would, when too few are left.
    """
    from auditcore.jobs.evidence import choose_prefix, needs
    from auditcore.jobs.references import choose_nonmembers, without_subjects

    member, group, trains = frame["member"].astype("boolean"), frame["group"], 0
    if spec.reference.kind == "sft":
        chosen = choose_nonmembers(spec, group, member)
        trains = len(chosen)
        member, _ = without_subjects(group, member, chosen)
    if "prefixed" in needs(spec.attacks):
        # Which rows have tokens is not known here: as if all had.
        prefix = choose_prefix(spec, member, group, np.full(len(frame), 2))
        member, _ = without_subjects(group, member, np.array(prefix))
    return member, trains


def operating_point(target_fpr: float, n_nonmember: int) -> dict[str, Any]:
    """Whether so many non-members can show this rate, and how many could."""
    from auditcore.membership.roc import needed_nonmembers

    needed = needed_nonmembers(target_fpr)
    resolvable = n_nonmember >= needed
    return {"target_fpr": target_fpr, "n_nonmember": n_nonmember, "needed": needed, "resolvable": resolvable}


def _vectors_power(
    spec: VectorsSpec, dataset: Any, exported: int, in_file: int
) -> tuple[int, list[dict[str, Any]], list[str], list[str]]:
    """Rows that are used, the power of each label, notes, warnings. in_file: rows before any was left out."""
    from auditcore.jobs.audited import audited_rows, evaluation_rows, sum_note, used_rows
    from auditcore.jobs.sealed import require_open

    audited, notes, warnings = audited_rows(spec, dataset)
    require_open(audited)
    frame = audited.frame
    found, evaluated = [], {}
    for attribute in spec.data.labels:
        rows, left_out = evaluation_rows(frame, attribute, spec.seed)
        notes += left_out
        evaluated[attribute] = rows
        found.append(power_of(spec, attribute, frame.iloc[rows["bal_test"]], exported))
    used = len(used_rows(evaluated))
    notes.append(sum_note(in_file, len(dataset.frame), len(frame), used))
    return used, found, notes, warnings


def power_of(
    spec: VectorsSpec | SurfaceLoraSpec | FrontierSpec, attribute: str, test: Any, vectors: int
) -> dict[str, Any]:
    """What tests on these (balanced) rows can show: every attacker on each of so many vectors (artifact and layer)."""
    from auditcore.leakage.power import power

    subjects, classes = test["group"].nunique(), test[attribute].nunique()
    tests = vectors * len(spec.probes)
    p = power(subjects, classes, spec.budget, tests, rows_per_subject=len(test) / max(subjects, 1))
    return {
        "attribute": attribute,
        "n_subjects": int(subjects),
        "n_classes": int(classes),
        "tests": tests,
        "budget": spec.budget,
        "p_within": float(p.p_within_if_leak_free),
        "smallest_gap": p.smallest_gap_detectable,
        "subjects_needed": int(p.subjects_needed),
        "needed_by_one": int(p.needed_by_one),
    }


def token_lengths(spec: AnySpec, dataset: Any) -> np.ndarray:
    """Tokens of some rows, int64, at most SAMPLE of them."""
    return np.asarray([len(ids) for ids in sample(spec, dataset).ids])


def sample(spec: AnySpec, dataset: Any) -> Any:
    """Some rows as the model would read them (`lm.encode.Encoded`)."""
    from auditcore.jobs.rows import tokenise
    from auditcore.lm.load import load_tokenizer

    assert spec.model is not None
    tokenizer = load_tokenizer(spec.model.source, spec.model.base)
    n = len(dataset.frame)
    keep = np.unique(np.linspace(0, max(n - 1, 0), min(n, SAMPLE)).astype(int))
    return tokenise(tokenizer, dataset.select(keep), spec.max_length, (keep + 1).tolist())


def _flops_per_second() -> float:
    """float32 matrix products of this machine when it is free, measured for a tenth of a second, at a model's share.

    Processor time of one thread, times the threads there are: what else runs meanwhile does not enter.
    """
    import time

    from threadpoolctl import threadpool_info, threadpool_limits

    threads = max([int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"], default=1)
    a = np.ones((1024, 1024), dtype=np.float32)
    with threadpool_limits(1):
        a @ a
        started, products = time.thread_time(), 0
        while time.thread_time() - started < 0.1:
            a @ a
            products += 1
        speed = products * 2 * 1024**3 / (time.thread_time() - started)
    return 0.8 * speed * threads


def slowdown() -> float:
    """How many times longer a run takes beside what the machine does now: processes that want its cores, per core."""
    if not hasattr(os, "getloadavg"):
        return 1.0  # Windows does not tell
    cores = os.cpu_count() or 1
    return (os.getloadavg()[0] + cores) / cores
