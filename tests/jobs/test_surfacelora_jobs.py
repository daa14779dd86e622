"""Training the mitigation as a run: rows, splits, checkpoints, what is measured of them, what no model ever sees."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import ROOT, WORDS, run_spec, tables_of

SIZES = {"train": 48, "defence_fit": 16, "bal_train": 40, "bal_val": 24, "bal_test": 24}


def make_rows(path: Path, splits: bool = True) -> Path:
    """Notes in which a word tells the label, with a target each; the splits of the bundled data."""
    rng = np.random.default_rng(3)
    rows = []
    for split, n in SIZES.items():
        for i in range(n):
            sex = ("f", "m")[i % 2]
            hint = "fever" if sex == "f" else "stocks"
            rows.append(
                {
                    "id": f"{split}-{i}",
                    "subject": f"{split}-{i // 2 if split == 'train' and i % 4 > 1 else i}",
                    "split": split,
                    "member": {"train": "1", "defence_fit": "0"}.get(split, ""),
                    "note": " ".join([*rng.choice(WORDS, 6), hint, *rng.choice(WORDS, 2)]),
                    "summary": " ".join(rng.choice(WORDS, 4)),
                    "sex": sex,
                }
            )
    frame = pd.DataFrame(rows)
    frame.loc[frame["split"].eq("train") & (frame.index % 12 == 0), "sex"] = ""
    (frame if splits else frame.drop(columns=["split", "member"])).to_csv(path, index=False)
    return path


def surface_spec(folder: Path, model: Path, splits: bool = True, **changes) -> dict:
    roles = {"prompt": "note", "target": "summary", "label": "sex", "group": "subject", "id": "id"}
    path = make_rows(folder / f"notes{splits}.csv", splits)
    return {
        "kind": "surfacelora",
        "model": {"source": str(model)},
        "data": {"path": str(path), "roles": roles | ({"split": "split"} if splits else {})},
        "template": "{prompt}\nSummary:",
        "max_length": 48,
        "steps": 5,
        "checkpoint_every": 2,
        "batch_size": 4,
        "lora": {"r": 2, "alpha": 4},
        "discriminator": {"rows": 8, "bank_rows": 8, "bank_every": 3, "hidden": 8, "start_updates": 3},
        "probes": ["linear"],
        "seeds": [0],
        "n_boot": 100,
        "rouge_rows": 6,
        "max_new_tokens": 6,
        "threads": 1,
        "autocast": "none",
        **changes,
    }


def test_a_run_trains_keeps_adapters_and_says_what_it_left_out(home, tiny_llama) -> None:
    run = run_spec(surface_spec(home, tiny_llama))
    assert run.status == "done"
    steps = [f"step-{step:06d}" for step in (2, 4, 5)]
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == ["last", *steps]
    assert all((run.path / "checkpoints" / s / "adapter_model.safetensors").is_file() for s in steps)
    log = run.read("training_log")
    assert log["step"].tolist() == [1, 2, 3, 4, 5]
    assert log["reversed_grad_norm"].iloc[1:].notna().all()
    examples = run.read("examples")
    assert set(examples["split"]) == {"train", "bal_train", "bal_val", "bal_test"}
    notes = run.manifest["data"]["notes"]
    assert any("24 rows of bal_test were sealed" in n for n in notes)
    assert any("16 rows of defence_fit take no part" in n for n in notes)
    assert run.manifest["counts"]["train_rows"] == 48
    assert run.manifest["counts"]["adversary_rows"] == 44  # four have no label


def test_layers_below_the_adapters_run_once_a_row_and_change_nothing(home, tiny_llama, monkeypatch) -> None:
    from safetensors.numpy import load_file

    from auditcore.lm import prefix

    lora = {
        "lora": {"r": 2, "alpha": 4, "upper_layers": 1},
        "store_text": "none",
    }  # summaries would come from the cache
    computed: list[str] = []
    compute = prefix.Prefix._compute
    monkeypatch.setattr(prefix.Prefix, "_compute", lambda self, row: computed.append(str(row)) or compute(self, row))
    run = run_spec(surface_spec(home, tiny_llama, **lora))
    assert run.status == "done"
    assert computed
    assert len(computed) == len(set(computed))
    folder = run.path / "checkpoints" / "step-000005"
    ours = load_file(folder / "adapter_model.safetensors")
    assert ours
    assert all(".layers.2." in name for name in ours)
    before = len(computed)
    shutil.rmtree(run.path)
    again = run_spec(surface_spec(home, tiny_llama, **lora))
    assert len(computed) == before  # the next run finds them on disk
    same = load_file(again.path / "checkpoints" / "step-000005" / "adapter_model.safetensors")
    assert all((ours[name] == same[name]).all() for name in ours)
    monkeypatch.setattr(prefix, "may_keep", lambda *_: False)
    shutil.rmtree(store.cache())
    plain = run_spec(surface_spec(home, tiny_llama, **lora, name="plain"))
    theirs = load_file(plain.path / "checkpoints" / "step-000005" / "adapter_model.safetensors")
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=2e-5)


def test_every_checkpoint_and_the_model_before_training_are_measured(home, tiny_llama) -> None:
    from auditcore.frontier import points

    run = run_spec(surface_spec(home, tiny_llama, seeds=[0, 1], audit=["lasttok", "concat"]))
    table = run.read("checkpoints")
    assert table["step"].unique().tolist() == [0, 2, 4, 5]
    assert len(table) == 4 * 2
    assert set(table["split"]) == {"bal_val"}
    assert set(table["artifact"]) == {"lasttok", "concat"}
    assert (table["run_id"] == run.id).all()
    assert table.loc[table["step"] == 0, "lambda"].eq(0).all()
    assert table.loc[table["step"] > 0, "lambda"].eq(2).all()
    assert table["checkpoint"].unique().tolist() == ["base", "step-000002", "step-000004", "step-000005"]
    assert table["seed"].isna().all()
    assert not table["selected"].any()
    assert table[["rouge1", "rougeL_low", "rougeL_high", "signed_low90", "v_information_bits"]].notna().all().all()
    assert (table["rougeL_low"] <= table["rougeL"]).all()
    assert table["ez_tpr_at_1pct"].isna().all()
    assert table.groupby("step")["rougeL"].nunique().eq(1).all()
    made = run.read("generations")
    assert made.groupby("step")["example_id"].apply(tuple).nunique() == 1  # the same rows every time
    assert len(made) == 4 * 6
    assert set(made["example_id"]) <= set(run.read("examples").query("split == 'bal_val'")["example_id"])
    assert made["prompt"].str.endswith("Summary:").all()
    assert table.loc[table["step"] == 4, "rougeL"].iloc[0] == pytest.approx(
        made.loc[made["step"] == 4, "rougeL"].mean()
    )
    predictions = run.read("predictions")
    assert predictions["step"].unique().tolist() == [0, 2, 4, 5]
    assert set(predictions["split"]) == {"bal_val"}
    at = predictions[(predictions["step"] == 4) & (predictions["artifact"] == "lasttok")]
    right = (at["actual"] == at["predicted"]).groupby(at["actual"]).mean().mean()
    row = table[(table["step"] == 4) & (table["artifact"] == "lasttok")].iloc[0]
    assert row["accuracy"] == pytest.approx(right)
    assert len(points(table)) == 8
    assert any("classes equally frequent" in note for note in run.manifest["data"]["notes"])


def test_the_model_in_memory_is_measured_as_its_folder_would_be(home, tiny_llama, monkeypatch) -> None:
    """Numbers in the loop, from the live model, are those of the saved adapter, loaded in another run."""
    from auditcore.jobs import surfacelora

    live = run_spec(surface_spec(home, tiny_llama))
    shutil.rmtree(store.cache())
    monkeypatch.setattr(surfacelora, "_train", _train_only)
    later = run_spec(surface_spec(home, tiny_llama))
    for name in ("checkpoints", "generations", "predictions"):
        one, two = (run.read(name).drop(columns="run_id", errors="ignore") for run in (live, later))
        pd.testing.assert_frame_equal(one, two, rtol=1e-4, atol=1e-4)


def _train_only(context, model, rows, train_rows, labels, bench) -> None:
    from auditcore.training.surfacelora import surfacelora

    groups = rows.frame["group"].tolist()
    with context.stage("training"):
        surfacelora(
            model, rows.encoded, train_rows, labels, groups, context.spec, context.run.path, exported=rows.exported
        )


def test_a_second_run_measures_the_same_base_from_the_cache(home, tiny_llama, monkeypatch) -> None:
    run_spec(surface_spec(home, tiny_llama))
    import auditcore.lm.generate as generating
    import auditcore.lm.vectors as extracting

    calls: list[str] = []
    for module, name in ((generating, "generate"), (extracting, "extract_vectors")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name, **k: calls.append(name) or real(*a, **k))
    run = run_spec(surface_spec(home, tiny_llama, **{"lambda": 0}))
    assert calls.count("generate") == 3  # not for step 0
    assert calls.count("extract_vectors") == 3
    assert run.read("checkpoints")["lambda"].eq(0).all()


def test_no_row_of_bal_test_meets_the_model(home, tiny_llama, monkeypatch) -> None:
    """Whatever passes through the model is looked at: token ids of every row, in training, vectors and summaries."""
    from transformers import LlamaModel

    spec = surface_spec(home, tiny_llama, membership_rows=10)
    spec["data"]["roles"]["member"] = "member"
    path = Path(spec["data"]["path"])
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    secret = frame["split"].eq("bal_test")
    frame.loc[secret, "note"] = "QQQQ " + frame.loc[secret, "note"]  # a token that stands nowhere else
    frame.loc[secret, "summary"] = "QQQQ " + frame.loc[secret, "summary"]
    frame.to_csv(path, index=False)
    from auditcore.lm.load import load_tokenizer

    marks = set(load_tokenizer(str(tiny_llama))("QQQQ")["input_ids"]) - set(
        load_tokenizer(str(tiny_llama))(" ".join([*WORDS, "\nSummary:"]))["input_ids"]
    )
    seen: set[int] = set()
    forward = LlamaModel.forward

    def spy(self, input_ids=None, *args, **kwargs):
        seen.update(input_ids.unique().tolist())
        return forward(self, input_ids, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", spy)
    run = run_spec(spec)
    assert run.status == "done"
    assert seen
    assert marks
    # What the model wrote itself may hold any token: the base writes noise. Prompts and targets are what counts.
    written = set(load_tokenizer(str(tiny_llama))(" ".join(run.read("generations")["generated"]))["input_ids"])
    assert not (marks & seen) - written
    assert set(run.read("examples")["split"]) >= {"bal_test"}
    assert not set(run.read("predictions")["example_id"]) & set(frame.loc[secret, "id"])


def test_membership_of_a_checkpoint_is_measured_against_the_base(home, tiny_llama) -> None:
    spec = surface_spec(home, tiny_llama, membership_rows=8, steps=4, learning_rate=0.01)
    spec["data"]["roles"]["member"] = "member"
    run = run_spec(spec)
    table = run.read("checkpoints")
    assert {"ez_tpr_at_1pct", "ez_tpr_at_1pct_low"} <= set(table)
    assert table["ez_tpr_at_1pct"].isna().all()  # eight non-members cannot show 1 %
    assert any("8 members and 8 others" in note for note in run.manifest["data"]["notes"])
    assert set(run.read("examples")["split"]) == set(SIZES)
    path = Path(spec["data"]["path"])
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.assign(member=frame["member"].replace("0", "")).to_csv(path, index=False)
    with pytest.raises(DatasetError, match="no rows known not to be members"):
        run_spec(spec)


def test_raw_text_stays_out_of_every_file_when_it_must(home, tiny_llama) -> None:
    run = run_spec(surface_spec(home, tiny_llama, store_text="none"))
    made = run.read("generations")
    assert made[["prompt", "reference", "generated"]].isna().all().all()
    assert made["rougeL"].notna().all()
    for path in [*run.path.rglob("*"), *store.cache().rglob("*")]:
        if path.is_file() and "tokenizer" not in path.name:
            assert b"admitted" not in path.read_bytes(), path


@pytest.mark.parametrize("place", ["vectors", "probes", "summaries", "after a checkpoint", "last checkpoint"])
def test_a_run_that_is_cut_off_anywhere_ends_as_an_undisturbed_one(home, tiny_llama, monkeypatch, place) -> None:
    from auditcore.jobs.checkpoints import Bench

    spec = surface_spec(home, tiny_llama)
    whole = tables_of(run_spec(spec))
    shutil.rmtree(store.cache())
    run = store.create_run(dump_spec(parse_spec(spec)))
    name = {"vectors": "_vectors", "probes": "_probe", "summaries": "_summaries"}.get(place, "measure")
    at = {"vectors": 2, "probes": 5, "summaries": 2, "after a checkpoint": 3, "last checkpoint": 4}[place]
    real, calls = getattr(Bench, name), []

    def stopped(self, *arguments):
        calls.append(1)
        cut = len(calls) == at
        found = None if cut and place != "after a checkpoint" else real(self, *arguments)
        if cut:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Bench, name, stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.execute(run)
    assert run.status == "cancelled"
    jobs.prepare_resume(run)
    jobs.execute(run)
    again = tables_of(run)
    assert whole.keys() == again.keys()
    for table, frame in whole.items():
        drop = ["run_id"] if "run_id" in frame else []
        pd.testing.assert_frame_equal(frame.drop(columns=drop), again[table].drop(columns=drop), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_kill_minus_nine_in_a_worker_changes_no_adapter(home, tiny_llama) -> None:
    spec = surface_spec(home, tiny_llama, steps=8, checkpoint_every=3)
    whole = run_spec(spec)
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from auditcore import jobs, store
from auditcore.training import trainer
step = trainer.Trainer._step
def counted(self, number, parts):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, number, parts)
trainer.Trainer._step = counted
jobs.execute(store.open_run(sys.argv[1]))
"""
    run = store.create_run(dump_spec(parse_spec(spec)))
    for number in sorted(int(n) for n in np.random.default_rng().choice(np.arange(1, 8), 2, replace=False)):
        done = subprocess.run([sys.executable, "-c", code, str(run.path), str(number)], cwd=ROOT)
        assert done.returncode == -signal.SIGKILL
        assert run.status == "interrupted"
    jobs.prepare_resume(run)
    jobs.execute(run)
    for step in (3, 6, 8):
        file = f"checkpoints/step-{step:06d}/adapter_model.safetensors"
        assert (run.path / file).read_bytes() == (whole.path / file).read_bytes()
    pd.testing.assert_frame_equal(run.read("training_log"), whole.read("training_log"))


def test_without_a_split_subjects_are_dealt_and_rows_without_a_label_are_for_training(home, tiny_llama) -> None:
    run = run_spec(surface_spec(home, tiny_llama, splits=False))
    examples = run.read("examples")
    assert set(examples["split"]) == {"train", "bal_train", "bal_val", "bal_test"}
    assert (examples.groupby("group")["split"].nunique() == 1).all()
    assert examples.loc[examples["sex"].isna(), "split"].eq("train").all()
    assert any("The data has no split" in n for n in run.manifest["data"]["notes"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.assign(split=d["split"].replace("train", "defence_fit")), "no rows of train"),
        (lambda d: d.assign(split=d["split"].replace("bal_val", "defence_fit")), "no rows of bal_val"),
        (lambda d: d.assign(subject=d["subject"].replace("bal_val-3", "train-1")), "in the splits train and bal_val"),
        (lambda d: d.assign(sex=d["sex"].mask(d["split"].eq("train"), "f")), "1 class"),
        (lambda d: d.assign(sex=d["sex"].mask(d["split"].eq("train") & (d.index > 3), "")), "too few for adversaries"),
    ],
)
def test_data_that_cannot_be_used_is_refused_before_a_step_is_made(home, tiny_llama, change, message) -> None:
    spec = surface_spec(home, tiny_llama)
    path = Path(spec["data"]["path"])
    change(pd.read_csv(path, dtype=str, keep_default_na=False)).to_csv(path, index=False)
    run = store.create_run(dump_spec(parse_spec(spec)))
    with pytest.raises(DatasetError, match=message):
        jobs.execute(run)
    assert run.status == "failed"
    assert not (run.path / "checkpoints").exists()


def test_a_row_that_is_called_a_non_member_is_not_trained_on(home, tiny_llama) -> None:
    spec = surface_spec(home, tiny_llama, train_splits=["train", "defence_fit"])
    spec["data"]["roles"]["member"] = "member"
    with pytest.raises(DatasetError, match="have member = false"):
        run_spec(spec)


def test_the_plan_counts_rows_and_steps_and_the_power_of_the_sealed_test(home, tiny_llama, monkeypatch) -> None:
    monkeypatch.setitem(plan_here.__globals__, "_flops_per_second", lambda: 1e9)  # a busy machine must not decide
    found = plan_here(parse_spec(surface_spec(home, tiny_llama)))
    assert found.kind == "surfacelora"
    assert found.rows == 48 + 40 + 24
    assert found.power[0]["n_subjects"] == 24
    spec = parse_spec(surface_spec(home, tiny_llama))
    assert found.power[0]["tests"] == len(spec.targets) * len(spec.probes)  # what is declared by itself
    assert any("a step" in note for note in found.notes)
    plain = plan_here(parse_spec(surface_spec(home, tiny_llama, **{"lambda": 0})))
    assert plain.seconds < found.seconds
