"""Accuracy, gap, confusion, recall, projection: traces equal the tables, missing numbers are counted."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from auditcore.errors import RunError
from auditcore.figures import vectors as figures
from auditcore.figures.projection import project
from auditcore.figures.tables import probe_table


def attackers() -> pd.DataFrame:
    base = {"attribute": "race", "defence": "none", "split": "bal_test", "seed": None, "layer": 30, "chance": 0.2}
    sizes = {"n_train": 1500, "n_eval": 1000, "n_subjects": 1000, "n_classes": 5, "p_value": 0.005, "converged": True}
    values = [
        ("meanpool", "mlp", 0.62, "over budget"),
        ("lasttok", "linear", 0.21, "not resolved"),
        ("<i>", "mlp", np.nan, None),
    ]
    rows = []
    for artifact, probe, accuracy, verdict in values:
        gap = accuracy - 0.2
        numbers = {
            "accuracy": accuracy, "accuracy_low": accuracy - 0.03, "accuracy_high": accuracy + 0.03, "signed_gap": gap,
            "signed_low90": gap - 0.025, "signed_high90": gap + 0.025, "null_mean": 0.2, "null_p95": 0.22,
        }  # fmt: skip
        rows.append({**base, **sizes, **numbers, "artifact": artifact, "probe": probe, "verdict": verdict})
    return pd.DataFrame(rows)


def markers(fig):
    return next(t for t in fig.data if t.mode == "markers")


def lines(fig, width):
    return [t for t in fig.data if t.mode == "lines" and t.line.width == width]


def test_accuracy_figure_draws_the_table_and_the_null_band():
    rows = attackers()
    fig = figures.accuracy_figure(rows, "meanpool")
    np.testing.assert_array_equal(markers(fig).x, rows["accuracy"])
    drawn = np.sort([x for t in lines(fig, 2) for x in t.x if x is not None])
    expected = np.sort(rows[["accuracy_low", "accuracy_high"]].to_numpy()[:2].ravel())
    np.testing.assert_allclose(drawn, expected)
    boxes = [s for s in fig.layout.shapes if s.type == "rect"]
    assert {(s.x0, s.x1) for s in boxes} == {(0.2, 0.22)}
    assert figures.not_finite(rows, ["accuracy", "signed_gap"]) == 1
    assert list(fig.layout.yaxis.ticktext)[2].startswith("<b>&lt;i&gt;</b>")


def test_the_ceiling_is_a_named_line_on_the_accuracy_picture():
    rows = attackers()
    fig = figures.accuracy_figure(rows, "meanpool", 0.73)
    assert any(s.type == "line" and s.x0 == s.x1 == 0.73 for s in fig.layout.shapes)
    assert any(a.text.startswith("Bayes ceiling of this data 73.0") for a in fig.layout.annotations)
    assert fig.layout.xaxis.range[1] > 0.73
    without = figures.accuracy_figure(rows, "meanpool")
    assert not any("ceiling" in a.text for a in without.layout.annotations)
    assert fig.layout.height > without.layout.height  # its name has a line of its own


def test_gap_figure_draws_both_intervals_the_budget_and_the_verdict_in_words():
    rows = attackers().head(2)
    fig = figures.gap_figure(rows, 0.025)
    np.testing.assert_allclose(markers(fig).x, rows["signed_gap"])
    thick = np.sort([x for t in lines(fig, 5) for x in t.x if x is not None])
    np.testing.assert_allclose(thick, np.sort(rows[["signed_low90", "signed_high90"]].to_numpy().ravel()))
    thin = np.sort([x for t in lines(fig, 1) for x in t.x if x is not None])
    np.testing.assert_allclose(thin, np.sort(rows[["accuracy_low", "accuracy_high"]].to_numpy().ravel() - 0.2))
    band = next(s for s in fig.layout.shapes if s.type == "rect")
    assert (band.x0, band.x1) == (-0.025, 0.025)
    texts = {a.text for a in fig.layout.annotations}
    assert {"▲ over budget", "? not resolved"} <= texts
    assert fig == figures.gap_figure(rows, 0.025)


def test_the_ceiling_on_the_gap_picture_is_the_gap_it_leaves():
    rows = attackers()
    fig = figures.gap_figure(rows, 0.025, 0.73)
    assert any(s.type == "line" and s.x0 == s.x1 == pytest.approx(0.53) for s in fig.layout.shapes)
    assert any(a.text == "Bayes ceiling of this data 0.530" for a in fig.layout.annotations)
    assert fig.layout.xaxis.range[1] > 0.53
    without = figures.gap_figure(rows, 0.025)
    assert not any("ceiling" in a.text for a in without.layout.annotations)
    assert fig.layout.height > without.layout.height


def test_a_missing_verdict_is_drawn_without_words():
    fig = figures.gap_figure(attackers(), 0.025)
    assert len(markers(fig).x) == 3


def test_confusion_figure_holds_shares_of_the_true_class():
    counts = pd.DataFrame([[8.0, 2.0], [0.0, 0.0]], index=["F", "M"], columns=["F", "M"])
    fig = figures.confusion_figure(counts)
    z = np.array(fig.data[0].z, dtype=float)
    np.testing.assert_allclose(z[0], [0.8, 0.2])
    assert np.isnan(z[1]).all()
    assert {"<b>80</b>", "20"} <= {a.text for a in fig.layout.annotations}


def test_wilson_intervals_of_recalls():
    cells = pd.DataFrame({"name": ["F", "M"], "recall": [0.5, 1.0], "n": [100, 10]})
    found = figures.class_recalls(cells)
    assert found["low"].iloc[0] == pytest.approx(0.40383, abs=1e-5)  # Wilson 1927, 50 of 100
    assert found["high"].iloc[0] == pytest.approx(0.59617, abs=1e-5)
    assert found["low"].iloc[1] == pytest.approx(0.72247, abs=1e-5)  # 10 of 10
    assert found["high"].iloc[1] == pytest.approx(1.0)
    fig = figures.recall_figure(found, 0.5)
    np.testing.assert_array_equal(markers(fig).x, found["recall"])


def test_probe_table_escapes_names_and_shows_the_point_rule_apart_from_the_verdict():
    html = probe_table(attackers(), 0.025, 3)
    assert "&lt;i&gt;" in html
    assert "<i>" not in html.replace('<i class="at', "")
    assert "? not resolved" in html
    assert "would pass" in html
    assert "1,500 / 1,000" in html


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 16)).astype(np.float32)
    values[:, 3] *= 20
    values[:, 7] *= 10
    values[5] = np.nan
    save_file({"vectors": values}, tmp_path / "a.safetensors")
    return tmp_path / "a.safetensors", values


def test_projection_equals_the_singular_vectors_and_counts_what_it_leaves_out(file):
    path, values = file
    rows = np.arange(0, 400)
    found = project(path, rows, sample=1000)
    assert (found.total, found.not_finite, found.width) == (400, 1, 16)
    kept = np.delete(values, 5, axis=0).astype(np.float64)
    u, s, _ = np.linalg.svd(kept - kept.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found.points["x"]), np.abs(u[:, 0] * s[0]), rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.points["y"]), np.abs(u[:, 1] * s[1]), rtol=1e-6)
    assert found.explained[0] == pytest.approx(s[0] ** 2 / (s**2).sum())
    np.testing.assert_array_equal(found.points["row"], np.delete(rows, 5))


def test_projection_is_sampled_without_replacement_and_repeats(file):
    path, _ = file
    found = project(path, np.arange(100, 400), sample=50, seed=3)
    assert len(found.points) == 50
    assert found.points["row"].is_unique
    assert found.points["row"].min() >= 100
    pd.testing.assert_frame_equal(found.points, project(path, np.arange(100, 400), sample=50, seed=3).points)


def test_many_directions_give_the_same_picture_as_all_of_them(tmp_path):
    rng = np.random.default_rng(2)
    values = (rng.normal(size=(300, 4)) @ rng.normal(size=(4, 200)) + rng.normal(size=(300, 200))).astype(np.float32)
    save_file({"vectors": values}, tmp_path / "m.safetensors")
    found = project(tmp_path / "m.safetensors", np.arange(300))
    u, s, _ = np.linalg.svd(values - values.mean(0).astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs(found.points["x"]), np.abs(u[:, 0] * s[0]), atol=1e-3 * s[0])
    np.testing.assert_allclose(np.abs(found.points["y"]), np.abs(u[:, 1] * s[1]), atol=1e-3 * s[0])
    assert found.explained[1] == pytest.approx(s[1] ** 2 / (s**2).sum(), rel=1e-6)


def test_wide_vectors_of_few_rows_give_the_same_picture(tmp_path):
    values = np.random.default_rng(1).normal(size=(6, 40)).astype(np.float32)
    save_file({"vectors": values}, tmp_path / "w.safetensors")
    found = project(tmp_path / "w.safetensors", np.arange(6))
    u, s, _ = np.linalg.svd((values - values.mean(0)).astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs(found.points["x"]), np.abs(u[:, 0] * s[0]), rtol=1e-4)


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_vectors_still_draw(tmp_path, n):
    save_file({"vectors": np.zeros((2, 3), dtype=np.float32)}, tmp_path / "z.safetensors")
    found = project(tmp_path / "z.safetensors", np.arange(n))
    assert len(found.points) == n
    labels = pd.Series(["a"] * n, dtype="str")
    figures.projection_figure(found, labels, ["a"])


def test_a_broken_or_short_file_is_one_clear_error(tmp_path):
    (tmp_path / "b.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"b\.safetensors: the vectors cannot be read"):
        project(tmp_path / "b.safetensors", np.arange(3))
    with pytest.raises(RunError, match="cannot be read"):
        project(tmp_path / "missing.safetensors", np.arange(3))
    save_file({"vectors": np.zeros((2, 3), dtype=np.float32)}, tmp_path / "s.safetensors")
    with pytest.raises(RunError, match="holds 2 vectors, but the run has 3 examples"):
        project(tmp_path / "s.safetensors", np.arange(3))
