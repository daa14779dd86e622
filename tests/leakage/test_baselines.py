"""Baselines: what was planted in words or columns is found, noise is not, nothing but training rows is fitted on."""

import json

import numpy as np
import pandas as pd
import pytest

from auditcore.leakage.baselines import READERS, differences, read_baseline
from auditcore.leakage.columns import fit_columns
from auditcore.spec import BASELINES

WORDS = ["patient", "admitted", "fever", "cough", "home", "oral", "follow", "weeks", "pain", "stable", "given"]
N = 480
ROWS = {"bal_train": np.arange(240), "bal_val": np.arange(240, 320), "bal_test": np.arange(320, 480)}
LABELS = np.array(["f", "m"])[np.arange(N) % 2]
IDS = [f"r{i}" for i in range(N)]


def texts(told: float, seed: int = 0) -> list[str]:
    """Noise, and with probability `told` a word that names the class."""
    rng = np.random.default_rng(seed)
    hint = np.where(rng.random(N) < told, np.where(LABELS == "f", "she", "he"), "one")
    return [" ".join([*rng.choice(WORDS, 10), h]) for h in hint]


def read(name, given, labels=LABELS, rows=ROWS, groups=None, ids=IDS, seed=0):
    groups = np.arange(len(labels)) if groups is None else groups
    found = read_baseline(name, given, labels, groups, rows, ids, attribute="sex", seed=seed, n_boot=300)
    return found, found.metrics.set_index("split").loc["bal_test"]


def test_every_name_has_its_function():
    assert set(READERS) == set(BASELINES)


def test_planted_words_are_read_as_well_as_they_tell():
    """A word names the class of 6 rows in 10, the others are guessed: 0.8 is the most that can be read."""
    found, row = read("text", texts(0.6))
    assert row["accuracy"] == pytest.approx(0.8, abs=0.07)
    assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
    assert (row["n_train"], row["n_eval"], row["n_subjects"], row["chance"]) == (240, 160, 160, 0.5)
    assert json.loads(row["settings"])["C"] > 0
    assert set(found.predictions["split"]) == {"bal_val", "bal_test"}
    test = found.predictions.query("split == 'bal_test'")
    assert test["example_id"].tolist() == IDS[320:]
    assert (test["actual"] == test["predicted"]).mean() == pytest.approx(row["accuracy"])
    _, noise = read("text", texts(0.0))
    assert noise["accuracy_low"] < 0.5 < noise["accuracy_high"]
    _, nothing = read("text", [""] * N)
    assert nothing["accuracy"] == 0.5


def test_planted_categories_and_numbers_are_read_missing_ones_too():
    rng = np.random.default_rng(0)
    ward = pd.Series(np.where(rng.random(N) < 0.8, np.where(LABELS == "f", "north", "south"), "east"), dtype="str")
    _, row = read("metadata", pd.DataFrame({"ward": ward}))
    assert row["accuracy"] == pytest.approx(0.9, abs=0.06)
    age = pd.Series([f"{v:.3f}" for v in rng.normal(50 + 30 * (LABELS == "m"), 5)], dtype="str")
    _, row = read("metadata", pd.DataFrame({"age": age}))
    assert row["accuracy"] > 0.95
    # That a value is missing can be the giveaway.
    gone = age.where(LABELS == "m").astype("str").where(LABELS == "m")
    shuffled = gone.copy()
    shuffled[LABELS == "m"] = rng.permutation(gone[LABELS == "m"].to_numpy())
    _, row = read("metadata", pd.DataFrame({"age": shuffled}))
    assert row["accuracy"] == 1.0
    noise = pd.DataFrame({"a": pd.Series(rng.choice(["x", "y", "z"], N), dtype="str")})
    _, row = read("metadata", noise)
    assert row["accuracy_low"] < 0.5 < row["accuracy_high"]


def test_what_only_two_columns_together_tell_is_read_by_trees():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, N)
    b = a ^ (LABELS == "m")
    frame = pd.DataFrame({"a": pd.Series(a.astype(str), dtype="str"), "b": pd.Series(b.astype(str), dtype="str")})
    _, row = read("metadata", frame)
    assert json.loads(row["settings"])["model"] == "gbt"
    assert row["accuracy"] > 0.95


def test_categories_that_training_rows_never_held_tell_nothing():
    ward = np.where(LABELS == "f", "north", "south")
    ward[320:] = [f"new {i}" for i in range(160)]  # the test rows' own
    _, row = read("metadata", pd.DataFrame({"ward": pd.Series(ward, dtype="str")}))
    assert row["accuracy"] == 0.5
    features = fit_columns(pd.DataFrame({"n": pd.Series(["1", "2", None, "4"], dtype="str")}))
    new = features(pd.DataFrame({"n": pd.Series(["nan", "1e400", "x", "2"], dtype="str")}))
    assert np.isfinite(new).all()


def test_neither_the_order_of_rows_nor_the_names_of_classes_change_anything():
    frame = pd.DataFrame({"ward": pd.Series(np.where(np.arange(N) % 5, LABELS, "x"), dtype="str")})
    given = {"text": texts(0.5), "metadata": frame}
    order = np.random.default_rng(3).permutation(N)
    place = np.argsort(order)
    moved = {split: np.sort(place[at]) for split, at in ROWS.items()}
    for name, one in given.items():
        _, plain = read(name, one)
        again = [one[i] for i in order] if name == "text" else one.iloc[order].reset_index(drop=True)
        _, turned = read(name, again, LABELS[order], moved, np.arange(N)[order], [IDS[i] for i in order])
        _, renamed = read(name, one, np.where(LABELS == "f", "z", "a"))
        for other in (turned, renamed):
            assert other["accuracy"] == plain["accuracy"]
            assert other["accuracy_low"] == plain["accuracy_low"]


def test_differences_are_paired_with_the_baseline_of_the_same_label_and_rows():
    found, _ = read("text", texts(0.6))
    base = found.predictions
    right = (base["actual"] == base["predicted"]).astype(float)
    where = {"attribute": "sex", "artifact": "v", "layer": 0, "defence": "none", "probe": "linear"}
    judged = pd.DataFrame({**where, "split": base["split"], "example_id": base["example_id"], "right": right})
    perfect = judged.assign(probe="mlp", right=1.0)
    other = judged.assign(attribute="age")
    lost = judged[judged["split"] == "bal_test"].iloc[10:].assign(probe="knn")
    groups = pd.Series(IDS, index=IDS)
    table = differences(pd.concat([judged, perfect, other, lost]), base, groups, 300, 0)
    assert set(table["attribute"]) == {"sex"}
    test = table[table["split"] == "bal_test"].set_index("probe")
    assert test.loc["linear", "change"] == 0
    assert test.loc["linear", "low"] < 0 < test.loc["linear", "high"]
    accuracy = right[base["split"] == "bal_test"].mean()
    assert test.loc["mlp", "change"] == pytest.approx(1 - accuracy)
    assert test.loc["mlp", "accuracy_baseline"] == pytest.approx(accuracy)
    assert test.loc["mlp", "low"] > 0
    assert test["n_rows"].to_dict() == {"linear": 160, "mlp": 160, "knn": 150}
