"""Vectors the user has, whatever they and their labels look like: right values, or clear words and a count."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from auditcore import cli, jobs, store
from auditcore.errors import AuditError, DatasetError
from auditcore.jobs.plan import plan_here
from auditcore.spec import parse_spec
from tests.job_specs import run_spec


def write(folder: Path, labels: list, vectors: np.ndarray | None = None, **columns) -> dict:
    """A Parquet file with vectors and labels, and the spec of a small audit of it."""
    n = len(labels)
    if vectors is None:
        codes = pd.factorize(np.array([str(x) for x in labels], dtype=object))[0]
        vectors = np.random.default_rng(0).normal(size=(n, 6)) + 3.0 * np.eye(64)[codes % 64][:, :6]
    frame = pd.DataFrame({"label": labels, "v": list(vectors.astype(np.float32)), **columns})
    frame.to_parquet(folder / "v.parquet")
    return {
        "kind": "vectors",
        "vectors": {"path": str(folder / "v.parquet")},
        "data": {"path": str(folder / "v.parquet"), "roles": {"label": "label"}},
        "probes": ["linear"],
        "seeds": [0],
        "permutations": 19,
        "n_boot": 100,
    }


def notes(run: store.Run) -> str:
    return " ".join(run.manifest["data"]["notes"])


def test_numbers_as_labels_are_classes(home) -> None:
    run = run_spec(write(home, [1, 2] * 100))
    assert set(run.read("predictions")["actual"]) == {"1", "2"}
    assert run.read("verdicts")["verdict"].iloc[0] == "over budget"


def half(values: np.ndarray, dtype: str) -> np.ndarray:
    """What is left of float32 in two bytes, as float32; bfloat16 by cutting."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


def save(path: Path, values: np.ndarray, dtype: str) -> None:
    if path.suffix == ".npy":
        np.save(path, values.astype(dtype))
    elif path.suffix == ".parquet":
        pd.DataFrame({"v": list(values.astype(dtype))}).to_parquet(path)
    elif dtype == "float16":
        save_file({"v": values.astype(dtype)}, path)
    else:
        import torch
        from safetensors.torch import save_file as save_torch

        save_torch({"v": torch.from_numpy(values).bfloat16()}, path)


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [("safetensors", "bfloat16"), ("safetensors", "float16"), ("npy", "float16"), ("parquet", "float16")],
)
def test_two_byte_vectors_are_audited_as_the_numbers_they_hold(home, suffix, dtype) -> None:
    rng = np.random.default_rng(3)
    values = half((rng.normal(size=(200, 6)) + 0.8 * np.eye(6)[np.arange(200) % 2]).astype(np.float32), dtype)
    values[7, 2] = np.nan
    spec = write(home, ["f", "m"] * 100, values)
    plain = run_spec(spec)
    file = home / f"half.{suffix}"
    save(file, values, dtype)
    run = run_spec({**spec, "vectors": {"path": str(file)}})
    columns = ["example_id", "actual", "predicted", "probability"]
    pd.testing.assert_frame_equal(run.read("predictions")[columns], plain.read("predictions")[columns])
    assert re.search(r"1 of 200 vectors holds NaN or infinity \(row \d+, id '\d+'\); its row is left out\.", notes(run))


def test_rows_without_a_label_or_a_vector_are_left_out_and_counted(home) -> None:
    spec = write(home, ["f", "m", None, "f", "m"] * 60)
    frame = pd.read_parquet(home / "v.parquet")
    frame.at[0, "v"] = None
    frame.at[5, "v"] = np.array([np.nan] * 6, dtype=np.float32)
    frame.at[6, "v"] = np.array([np.inf] * 6, dtype=np.float32)
    frame.to_parquet(home / "v.parquet")
    planned = jobs.plan(parse_spec(spec))
    run = run_spec(spec)
    assert "60 of 300 rows have no label 'label'" in notes(run)
    for text in (notes(run), " ".join(planned.notes)):
        assert "3 of 300 vectors hold NaN or infinity (row 1, id '1'; row 6, id '6'; row 7, id '7'); their rows" in text
        used = re.search(r"Of 300 rows (\d+) are used, 3 without a usable vector, 60 in no split of this audit", text)
        assert used is not None
        assert int(used[1]) <= 240 - 3
        dealt = re.search(r"bal_train (\d+) rows, bal_val (\d+) rows, bal_test (\d+) rows", text)
        assert dealt is not None
        assert sum(map(int, dealt.groups())) == 240 - 3
    used = run.read("probe_metrics").query("seed.isna()")
    left = 240 - 3  # and what balancing takes
    assert used["n_train"].iloc[0] + used["n_eval"].sum() <= left


@pytest.mark.parametrize(("torn", "much"), [(1, False), (30, True)])
def test_subjects_with_two_values_are_named_and_many_of_them_are_a_warning(home, torn, much) -> None:
    who = [f"p{i // 2:03d}" for i in range(200)]
    labels = ["f", "f", "m", "m"] * 50
    labels[1 : 2 * torn : 4] = ["m"] * len(labels[1 : 2 * torn : 4])
    labels[3 : 2 * torn : 4] = ["f"] * len(labels[3 : 2 * torn : 4])
    spec = write(home, labels, who=who)
    spec["data"]["roles"]["group"] = "who"
    planned = plan_here(parse_spec(spec))
    run = run_spec(spec)
    text = f"{torn} of 100 subjects ({2 * torn} of 200 labelled rows) {'have' if much else 'has'} more than one value"
    reason = f"{2 * torn} rows of subjects with more than one value of 'label' take no part in this audit."
    assert reason in notes(run)
    assert reason in planned.notes
    for quiet, loud in (
        (planned.notes, planned.warnings),
        (run.manifest["data"]["notes"], run.manifest.get("warnings", [])),
    ):
        there = [said for said in (loud if much else quiet) if text in said]
        assert there, (quiet, loud)
        assert "first: 'p000' (f, m)" in there[0]
        assert not [said for said in (quiet if much else loud) if text in said]


def test_a_file_without_one_usable_vector_is_refused(home) -> None:
    spec = write(home, ["f", "m"] * 20, np.full((40, 6), np.nan))
    for ask in (lambda: jobs.plan(parse_spec(spec)), lambda: run_spec(spec)):
        with pytest.raises(AuditError, match="every one of 40 vectors holds NaN or infinity"):
            ask()


def test_splits_of_the_user_s_own_without_bal_val_say_what_to_do(home) -> None:
    spec = write(home, ["f", "m"] * 40, split=["bal_train"] * 40 + ["bal_test"] * 40)
    spec["data"]["roles"]["split"] = "split"
    words = r"no rows of bal_val; it has rows of bal_test \(40\), bal_train \(40\).*split_map: .*leave the split"
    for ask in (lambda: jobs.plan(parse_spec(spec)), lambda: run_spec(spec)):
        with pytest.raises(AuditError, match=words):
            ask()


def test_a_constant_dimension_is_said_and_changes_nothing(home) -> None:
    spec = write(home, ["f", "m"] * 100)
    plain = run_spec(spec)
    frame = pd.read_parquet(home / "v.parquet")
    frame["v"] = [np.append(v, np.float32(0.1)) for v in frame["v"]]
    frame.to_parquet(home / "v.parquet")
    run = run_spec(spec)
    assert "1 of 7 dimensions are the same in every row and tell nothing." in notes(run)
    pd.testing.assert_frame_equal(run.read("predictions"), plain.read("predictions"))


def test_more_dimensions_than_rows(home) -> None:
    rng = np.random.default_rng(1)
    labels = np.array(["f", "m"])[rng.integers(0, 2, 120)]
    vectors = rng.normal(size=(120, 700))
    vectors[:, :80] += 1.5 * (labels == "m")[:, None]
    vectors[:, 3] += 6 * (labels == "m")
    spec = {**write(home, labels.tolist(), vectors), "probes": ["linear", "mlp", "gbt", "knn"]}
    metrics = run_spec(spec).read("probe_metrics").query("split == 'bal_test' and seed.isna()").set_index("probe")
    assert metrics["accuracy"].between(0, 1).all()
    assert metrics.loc["gbt", "accuracy"] > 0.9  # one column tells all
    assert metrics.loc["linear", "accuracy"] > 0.8


def test_forty_classes(home) -> None:
    rng = np.random.default_rng(2)
    codes = np.arange(1600) % 40
    vectors = rng.normal(size=(1600, 8)) + 4 * rng.normal(size=(40, 8))[codes]
    run = run_spec(write(home, [f"class {c}" for c in codes], vectors))
    row = run.read("probe_metrics").query("split == 'bal_test' and seed.isna()").iloc[0]
    assert row["n_classes"] == 40
    assert row["chance"] == pytest.approx(1 / 40)
    assert row["accuracy"] > 0.8


def test_a_class_with_three_subjects_is_named(home) -> None:
    spec = write(home, ["f", "m"] * 60 + ["x"] * 3)
    for ask in (lambda: jobs.plan(parse_spec(spec)), lambda: run_spec(spec)):
        with pytest.raises(AuditError, match="class 'x' has 1 subject in bal_train, and balancing would cut every"):
            ask()


def test_a_rare_class_is_judged_where_every_split_has_two_of_its_subjects(home) -> None:
    splits = ["bal_train", "bal_val", "bal_test"]
    many = splits * 40
    for rare, words in (
        (splits, "class 'x' has 1 subject in bal_train, and balancing would cut every"),
        (["bal_train", "bal_train", "bal_test"], "no subject of class 'x' is in bal_val"),
    ):
        spec = write(home, ["f", "f", "f", "m", "m", "m"] * 20 + ["x"] * 3, split=many + rare)
        spec["data"]["roles"]["split"] = "split"
        with pytest.raises(AuditError, match=words):
            run_spec(spec)
    spec = write(home, ["f", "f", "f", "m", "m", "m"] * 20 + ["x"] * 6, split=many + splits * 2)
    spec["data"]["roles"]["split"] = "split"
    run = run_spec(spec)
    row = run.read("probe_metrics").query("seed.isna() and split == 'bal_test'").iloc[0]
    assert (row["n_classes"], row["n_train"], row["n_eval"]) == (3, 6, 6)
    assert row["accuracy"] > 0.8  # of six rows
    assert row["accuracy_low"] < 0.75
    assert "label: 36 rows of bal_train left out so that its classes are equally frequent." in notes(run)


def test_a_measurement_as_a_label_is_told_to_be_grouped(home) -> None:
    spec = write(home, [i * 0.37 for i in range(150)])
    with pytest.raises(DatasetError, match="150 different numbers: group them into a few bands"):
        run_spec(spec)


def test_the_command_line_needs_no_spec_file(home, capsys, monkeypatch) -> None:
    write(home, ["f", "m"] * 100, who=[f"s{i}" for i in range(200)])
    file = str(home / "v.parquet")
    small = ["--probe", "linear", "--label", "label", "--group", "who"]
    assert cli.main(["vectors", file, *small, "--dry-run"]) == 0
    assert "200 vectors of 6 numbers" in capsys.readouterr().out
    assert cli.main(["vectors", file, *small, "--fail-over-budget", "--out", str(home / "run")]) == 3
    assert "over budget" in capsys.readouterr().out
    assert store.Run(home / "run").manifest["spec"]["data"]["roles"]["group"] == "who"
    np.save(home / "v.npy", np.zeros((3, 2)))
    assert cli.main(["vectors", str(home / "v.npy"), "--label", "label"]) == 2
    assert "--rows" in capsys.readouterr().err
    assert cli.main(["vectors", file, "--label", "labl"]) == 2
    assert "Did you mean 'label'" in capsys.readouterr().err


def test_no_torch_is_imported(home) -> None:
    import subprocess
    import sys

    write(home, ["f", "m"] * 60)
    code = (
        "import sys; from auditcore import cli; "
        f"code = cli.main(['vectors', {str(home / 'v.parquet')!r}, '--label', 'label', '--probe', 'linear']); "
        "print(code, sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("0 []"), done.stdout[-500:] + done.stderr[-500:]
