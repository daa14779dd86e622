"""Jobs that are cancelled, killed or queued, or whose inputs change: nothing is lost, mixed up or computed twice."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import Cancelled, DatasetError, RunError
from auditcore.jobs.context import CANCEL
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import ROOT, make_rows, membership_spec, run_spec, tables_of, vectors_spec


def test_cancel_keeps_what_was_finished_and_resume_goes_on(home, pair) -> None:
    run = store.create_run(dump_spec(parse_spec(membership_spec(home, pair))))
    (run.path / CANCEL).touch()
    with pytest.raises(Cancelled):
        jobs.execute(run)
    assert run.status == "cancelled"
    with pytest.raises(RunError, match="nothing to cancel"):
        jobs.cancel(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert run.status == "done"
    with pytest.raises(RunError, match="nothing to resume"):
        jobs.prepare_resume(run)


def test_a_worker_that_does_not_listen_is_ended_and_the_script_it_runs_in_is_not(home) -> None:
    run = store.create_run({"kind": "vectors", "data": {"path": "x"}})
    hold = (
        "import os, sys, time, pathlib; from auditcore.store import Run\nrun = Run(pathlib.Path(sys.argv[1]))\n"
        "with run.lock():\n    run.update(status='running'); (run.path / 'worker.pid').write_text(str(os.getpid()))\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    script = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" "$2"; echo ended $?', sys.executable, hold, str(run.path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "held\n"
    jobs.cancel(run, patience=0.2)
    assert script.communicate()[0] == "ended 137\n"
    assert script.returncode == 0
    assert run.status == "cancelled"


def test_a_cancelled_run_that_waits_to_go_on_is_listed_as_queued_and_can_be_cancelled(home, pair) -> None:
    run = store.create_run(dump_spec(parse_spec(membership_spec(home, pair))))
    run.update(status="cancelled")
    seen = []

    def look(words: str) -> None:
        seen.append((words, run.status))
        (run.path / CANCEL).touch()

    first = store.create_run(dump_spec(parse_spec(membership_spec(home, pair))))  # counts as queued for a while
    with pytest.raises(Cancelled):
        jobs.execute(run, echo=look)
    assert seen == [(f"waiting for {first.id}", "queued")]


def test_data_that_changed_under_a_run_is_noticed(home, pair) -> None:
    run = store.create_run(dump_spec(parse_spec(membership_spec(home, pair))))
    jobs.execute(run)
    run.update(status="failed", finished_stages=["rows"])
    frame = pd.read_csv(home / "rows.csv", dtype=str, keep_default_na=False)
    frame.loc[20, "text"] = "changed"
    frame.to_csv(home / "rows.csv", index=False)
    jobs.prepare_resume(run)
    with pytest.raises(DatasetError, match="has changed since this run began"):
        jobs.execute(run)


def test_a_model_that_changed_under_a_run_is_noticed(home, pair) -> None:
    from tests.tiny_models import build_folder

    def finish(spec: dict, stages: list[str]) -> store.Run:
        run = run_spec(spec)
        run.update(status="failed", finished_stages=stages)
        jobs.prepare_resume(run)
        return run

    remembered = finish(membership_spec(home, pair), ["rows", "duplicates", "token statistics"])
    exported = finish(vectors_spec(home, pair[0], artifacts=["lasttok"], layers=[-1]), ["rows", "vectors"])
    unfinished = finish(membership_spec(home, pair), ["rows"])
    build_folder(pair[0], "llama", seed=6)
    for run in (remembered, exported):
        with pytest.raises(RunError, match="model changed since this run began"):
            jobs.execute(run)
    jobs.execute(unfinished)  # no number of the old model is in it
    assert unfinished.status == "done"


def test_a_trained_reference_does_not_outlive_its_base(home, pair) -> None:
    from tests.tiny_models import build_folder

    run = run_spec(membership_spec(home, pair, reference={"kind": "sft", "max_steps": 1}))
    run.update(status="failed", finished_stages=["rows", "duplicates", "reference"])
    jobs.prepare_resume(run)
    build_folder(pair[1], "llama", seed=7)
    with pytest.raises(RunError, match="reference changed since this run began"):
        jobs.execute(run)


def test_vectors_that_changed_under_a_run_are_noticed(home) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame({"sex": np.array(["f", "m"])[rng.integers(0, 2, 200)]}).to_csv(home / "labels.csv", index=False)
    np.save(home / "v.npy", rng.normal(size=(200, 4)))
    data = {"path": str(home / "labels.csv"), "roles": {"label": "sex"}}
    spec = {"kind": "vectors", "vectors": {"path": str(home / "v.npy")}, "data": data, "probes": ["linear"],
            "seeds": [0], "permutations": 19, "n_boot": 100}  # fmt: skip
    run = run_spec(spec)
    run.update(status="failed", finished_stages=["rows", "vectors"])
    np.save(home / "v.npy", rng.normal(size=(200, 4)))
    jobs.prepare_resume(run)
    with pytest.raises(RunError, match="vectors changed since this run began"):
        jobs.execute(run)


def test_a_fully_tuned_shadow_stopped_between_training_and_scoring_keeps_its_training(home, pair, monkeypatch) -> None:
    from auditcore.jobs import evidence

    shadows = {"count": 4, "epochs": 4, "learning_rate": 5e-3, "batch_size": 4, "method": "full"}
    spec = membership_spec(home, pair, attacks=["lira"], shadows=shadows)
    expected = tables_of(run_spec(spec))
    scored = evidence.Pass.run

    def stopped(self, *arguments):
        if self.name == "shadow 1 of 4":
            raise KeyboardInterrupt
        return scored(self, *arguments)

    run = store.create_run(dump_spec(parse_spec(spec)))
    with monkeypatch.context() as patch:
        patch.setattr(evidence.Pass, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    jobs.prepare_resume(run)
    jobs.execute(run)
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
    # Weights that a kill left behind after their stage had ended go too.
    left = run.path / "shadows" / "01" / "checkpoints"
    left.mkdir(parents=True)
    run.update(status="failed", finished_stages=[s for s in run.manifest["finished_stages"] if s != "scores"])
    jobs.prepare_resume(run)
    jobs.execute(run)
    assert not left.exists()


KILLER = """
import os, sys
import auditcore.jobs.context as context
stage, when = sys.argv[2], sys.argv[3]
original = context.Context.stage
from contextlib import contextmanager
@contextmanager
def stage_that_dies(self, name, total=1):
    if name == stage and when == "start":
        os.kill(os.getpid(), 9)
    with original(self, name, total) as on_progress:
        def dies_half_way(done, total):
            on_progress(done, total)
            if name == stage and when == "middle" and done >= total / 2:
                os.kill(os.getpid(), 9)
        yield dies_half_way
        if name == stage and when == "end":  # tables are written, the stage is not marked yet
            os.kill(os.getpid(), 9)
context.Context.stage = stage_that_dies
sys.argv = ["worker", sys.argv[1]]
from auditcore.jobs.worker import main
main()
"""


def worker(run: store.Run, *arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", KILLER, str(run.path), *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["membership", "vectors", "finetune"])
def test_killed_at_every_stage_a_resumed_run_has_the_same_tables(kind, home, pair) -> None:
    data = {"path": str(make_rows(home / "rows.csv")), "roles": {"text": "text", "member": "member", "id": "id"}}
    spec = {
        "membership": lambda: membership_spec(home, pair),
        "vectors": lambda: vectors_spec(home, pair[1], artifacts=["lasttok"], layers=[-1]),
        "finetune": lambda: {"kind": "finetune", "model": {"source": str(pair[1])}, "data": data, "max_length": 32,
                             "epochs": 2, "batch_size": 4, "threads": 1, "validation": 0.2},
    }[kind]()  # fmt: skip
    undisturbed = run_spec(spec)
    expected = tables_of(undisturbed)
    stages = undisturbed.manifest["finished_stages"]
    if store.cache().exists():  # or the second run would find the first one's numbers
        store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    for stage in stages:
        counts_steps = stage in ("token statistics", "vectors", "training") or stage.startswith("sex from")
        for when in ("start", "middle", "end") if counts_steps else ("start", "end"):
            assert worker(run, stage, when) == -signal.SIGKILL, (stage, when)
            assert run.status == "interrupted"
            jobs.prepare_resume(run)
    assert worker(run, "none", "never") == 0
    assert run.status == "done"
    assert run.manifest["finished_stages"] == stages
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
    if kind == "finetune":
        for which in ("last", "best"):
            one, two = (r.path / "checkpoints" / which / "model.safetensors" for r in (run, undisturbed))
            assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_killed_in_the_fifth_shadow_none_is_trained_twice(home, pair) -> None:
    shadows = {"count": 6, "epochs": 3, "batch_size": 4}
    spec = membership_spec(home, pair, attacks=["lira"], shadows=shadows)
    expected = tables_of(run_spec(spec))
    store.cache().rename(home / "old-cache")
    run = store.create_run(dump_spec(parse_spec(spec)))
    assert worker(run, "shadow 5 of 6", "middle") == -signal.SIGKILL
    shadows_made = run.path / "shadows"
    fifth = [p for p in shadows_made.rglob("last/*") if "05" in p.relative_to(shadows_made).as_posix()]
    made = {p: p.stat().st_mtime_ns for p in shadows_made.rglob("last/*") if p not in fifth}
    assert len({p.parts[-4] for p in made}) == 4
    jobs.prepare_resume(run)
    assert worker(run, "none", "never") == 0
    assert made == {p: p.stat().st_mtime_ns for p in made}
    for name, table in tables_of(run).items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)


@pytest.mark.slow
def test_a_queued_job_waits_for_its_turn_and_a_detached_worker_finishes(home, pair) -> None:
    spec = parse_spec(membership_spec(home, pair))
    first, second = jobs.submit(spec), jobs.submit(spec)
    assert set(jobs.queue()["run_id"]) <= {first.id, second.id}
    import time

    deadline = time.monotonic() + 240
    both_running = False
    while time.monotonic() < deadline and {first.status, second.status} & {"queued", "running"}:
        both_running |= first.status == second.status == "running"
        time.sleep(0.2)
    assert (first.status, second.status) == ("done", "done"), (first.manifest, second.manifest)
    assert not both_running
    events = [json.loads(line) for line in (first.path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["done"] == events[-1]["total"]
