"""Training the mitigation as a run: rows, splits, checkpoints, what is measured of them, what no model ever sees."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from auditcore import jobs, store
from auditcore.errors import DatasetError
from auditcore.jobs.plan import plan_here
from auditcore.spec import dump_spec, parse_spec
from tests.job_specs import WORDS, run_spec

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
    assert any("24 rows of bal_test are sealed" in n for n in notes)
    assert any("16 rows of defence_fit take no part" in n for n in notes)
    assert run.manifest["counts"]["train_rows"] == 48
    assert run.manifest["counts"]["adversary_rows"] == 44  # four have no label


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


def test_the_plan_counts_rows_and_steps_and_the_power_of_the_sealed_test(home, tiny_llama) -> None:
    found = plan_here(parse_spec(surface_spec(home, tiny_llama)))
    assert found.kind == "surfacelora"
    assert found.rows == 48 + 40 + 24
    assert found.power[0]["n_subjects"] == 24
    assert any("a step" in note for note in found.notes)
    plain = plan_here(parse_spec(surface_spec(home, tiny_llama, **{"lambda": 0})))
    assert plain.seconds < found.seconds
