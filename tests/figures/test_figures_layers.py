"""Heat map by layer and artifact, matrix by label: every number of the tables, nothing else, hostile names escaped."""

import numpy as np
import pandas as pd
import pytest

from auditcore.figures.attributes import attribute_matrix
from auditcore.figures.layers import layers_figure, layers_table
from auditcore.figures.outputs import axis_figure
from auditcore.figures.overview import artifact_comparison
from auditcore.findings import attributes, ceiling, corrected, layers
from auditcore.words import plain


def sweep(depth: int = 4, artifacts=("lasttok", "<b>mean</b>"), probes=("linear", "mlp")) -> pd.DataFrame:
    """Accuracy rises to the layer before the deepest; of the two probes one is better at even layers."""
    rows = []
    for a, artifact in enumerate(artifacts):
        for layer in range(depth):
            for p, probe in enumerate(probes):
                accuracy = 0.3 + 0.05 * min(layer, 2 * (depth - 2) - layer + a) + 0.01 * ((layer + p) % 2)
                rows.append(one_test("race", artifact, layer, probe, accuracy))
    return pd.DataFrame(rows)


def one_test(attribute, artifact, layer, probe, accuracy, k=5, n=900, p_over=1e-6, half=0.02) -> dict:
    gap = accuracy - 1 / k
    over = gap - half > 0.025
    within = gap - half >= -0.025 and gap + half <= 0.025
    return {
        "attribute": attribute, "artifact": artifact, "layer": layer, "defence": "none", "probe": probe, "seed": pd.NA,
        "split": "bal_test", "n_subjects": n, "n_classes": k, "chance": 1 / k, "accuracy": accuracy,
        "accuracy_low": accuracy - half, "accuracy_high": accuracy + half, "signed_gap": gap,
        "signed_low90": gap - half, "signed_high90": gap + half, "p_over": p_over if over else 0.6,
        "verdict": "over budget" if over else "within budget" if within else "not resolved",
    }  # fmt: skip


def test_the_heat_map_draws_every_cell_and_each_can_be_clicked() -> None:
    rows = sweep()
    cells = layers.by_layer(rows)
    assert len(cells) == 8  # the stronger of two probes in each place
    assert (cells["accuracy"].to_numpy() == rows.groupby(["artifact", "layer"])["accuracy"].max()[
        list(zip(cells["artifact"], cells["layer"], strict=True))].to_numpy()).all()  # fmt: skip
    fig = layers_figure(cells, 0.73, ("lasttok", 2))
    heat, points = fig.data
    wanted = cells.pivot(index="layer", columns="artifact", values="accuracy")[["lasttok", "<b>mean</b>"]]
    np.testing.assert_allclose(np.array(heat.z, dtype=float), wanted.to_numpy())
    assert (heat.zmin, heat.zmax) == (0.2, 0.73)
    where = {(c[0], c[1]) for c in points.customdata}
    assert where == {(a, k) for a in ("lasttok", "<b>mean</b>") for k in range(4)}
    hover = {(c[0], c[1]): c for c in points.customdata}[("lasttok", 2)]
    row = cells[(cells["artifact"] == "lasttok") & (cells["layer"] == 2)].iloc[0]
    assert f"{100 * row['accuracy_low']:.1f} to {100 * row['accuracy_high']:.1f}" in hover[4]
    assert list(hover[6:]) == ["900", "▲ over budget"]
    assert points.marker.opacity == 0
    texts = [a.text for a in fig.layout.annotations]
    assert f"{100 * row['accuracy']:.1f}" in texts
    assert any(t.startswith("Bayes ceiling of this data 73.0") for t in texts)
    assert any(t.startswith("guessing 20") for t in texts)
    assert "<b>&lt;b&gt;mean&lt;/b&gt;</b>" in fig.layout.xaxis.ticktext
    marked = next(s for s in fig.layout.shapes if s.type == "rect")
    assert (marked.x0, marked.y0) == (-0.49, 2 - 0.47)


def test_without_a_ceiling_the_scale_ends_at_the_highest_cell_and_blank_cells_are_counted() -> None:
    rows = sweep(probes=("mlp",))
    rows.loc[3, "accuracy"] = np.nan
    rows = rows.drop(index=5)
    cells = layers.by_layer(rows, "mlp")
    assert layers.missing_cells(cells) == 2
    fig = layers_figure(cells)
    assert fig.data[0].zmax == pytest.approx(rows["accuracy"].max())
    assert len(fig.data[1].customdata) == 6
    assert any(a.text.startswith("highest") for a in fig.layout.annotations)
    html = layers_table(cells, ("lasttok", 1))
    assert html.count("df-cell") == 6
    assert html.count('aria-current="true"') == 1
    assert "&lt;b&gt;mean&lt;/b&gt;" in html
    assert "<b>mean" not in html


def test_numbers_in_the_heat_map_can_be_read_at_every_place_of_the_scale() -> None:
    from auditcore.figures.layers import DARK, PALE, text_colour

    def luminance(colour) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for place in np.linspace(-0.2, 1.2, 57):
        at = min(max(place, 0), 1)
        cell = luminance([a + at * (b - a) for a, b in zip(PALE, DARK, strict=True)])
        ink = 1.0 if text_colour(place) == "#FFFFFF" else 0.0
        assert (max(ink, cell) + 0.05) / (min(ink, cell) + 0.05) >= 4.5  # WCAG AA


def test_a_deep_sweep_stays_readable_and_a_flat_one_draws() -> None:
    deep = layers.by_layer(sweep(81, artifacts=tuple("abcdefg")))
    fig = layers_figure(deep)
    assert len(fig.data[1].customdata) == 81 * 7
    assert len(fig.layout.annotations) < 10  # numbers would not fit: they stand in the table and on hover
    flat = sweep(3, artifacts=("a",), probes=("mlp",)).assign(accuracy=0.2)
    assert layers_figure(layers.by_layer(flat)).data[0].zmax == pytest.approx(0.25)


def test_the_sentence_names_peak_deepest_interval_and_n() -> None:
    text = plain(layers.layers_sentence(layers.by_layer(sweep(6, artifacts=("lasttok",)))))
    assert text.startswith("lasttok tells most at layer 4: 51.0")
    assert "49.0 to 53.0" in text
    assert "900 subjects" in text
    assert "; 46.0\u202f% (44.0 to 48.0\u202f%) at layer 5, the deepest." in text
    assert "read on the same subjects, so that overlapping intervals are no test of a difference" in text
    assert "best of 6 layers is picked on the rows that judge it" in text
    nothing = layers.by_layer(sweep().assign(accuracy=np.nan))
    assert plain(layers.layers_sentence(nothing)) == "No layer has a finite accuracy."


def several() -> pd.DataFrame:
    rows = [
        one_test("race", "lasttok", 3, "mlp", 0.45),
        one_test("race", "<i>", 3, "mlp", 0.25, p_over=0.03),  # over by itself, not after the correction over 4
        one_test("sex", "lasttok", 3, "mlp", 0.5, k=2),
        one_test("sex", "<i>", 3, "mlp", 0.503, k=2),
    ]
    return pd.DataFrame(rows)


def test_the_correction_takes_back_what_luck_can_do_and_says_so() -> None:
    found = corrected.every_test(several())
    np.testing.assert_allclose(found["p_adjusted"], [4e-6, 0.09, 1.0, 1.0])
    assert found["survives"].tolist() == [True, False, False, False]
    assert corrected.verdicts(found, "attribute") == {"race": "over budget", "sex": "within budget"}
    text = plain(attributes.family_sentence(found))
    assert text.startswith("4 tests (2 labels × 2 vectors × 1 attacker) were declared.")
    assert "the smallest p-value counts 4 times, the next 3 times" in text
    assert "1 of 2 over budget by themselves are so after it" in text
    assert "only if all 4 are within" in text
    said = plain(attributes.attributes_finding(found))
    assert "race: 45.0" in said
    assert "▲ over budget" in said
    assert "sex: 50.3" in said
    assert "guessing 50" in said


def test_the_matrix_holds_every_label_with_its_own_classes_word_and_ceiling() -> None:
    table = pd.DataFrame([{"attribute": "race", "split": "bal_test", "ceiling": 0.73, "standard_error": 0.01,
                           "n_eval": 900}])  # fmt: skip
    html = attribute_matrix(corrected.every_test(several()), table)
    assert "5 classes, guessing 20" in html
    assert "2 classes, guessing 50" in html
    assert html.count("Bayes ceiling of this data 73.0") == 1
    assert "not after the correction (p 0.090)" in html
    assert html.count("▲ over budget") == 3  # two tests and the label
    assert html.count("✓ within budget") == 3
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    unread = corrected.every_test(several().assign(verdict=None, p_over=np.nan, split="bal_val"), "bal_val")
    assert "no verdict" in attribute_matrix(unread)
    assert "nothing is judged yet" in plain(attributes.family_sentence(unread))


def test_the_ceiling_in_words_and_on_the_other_pictures() -> None:
    row = {"ceiling": 0.73, "standard_error": 0.007, "n_eval": 3000}
    best = pd.Series({"artifact": "lasttok", "probe": "mlp", "accuracy": 0.465, "chance": 0.2})
    assert "50\u202f% of the way from guessing to it" in plain(ceiling.ceiling_sentence(row, best))
    assert "no more than chance allows" in plain(ceiling.ceiling_sentence(row, best.replace(0.465, 0.745)))
    assert "more than the notes went into" in plain(ceiling.ceiling_sentence(row, best.replace(0.465, 0.8)))
    assert ceiling.ceiling_sentence(None, best) == []
    fig = artifact_comparison(pd.DataFrame(several().head(2)), "race", 0.025, 0.73)
    assert any("Bayes ceiling of this data" in a.text for a in fig.layout.annotations)
    assert fig.layout.xaxis.range[1] > 0.73
    rows = pd.DataFrame(
        {"what": ["prompt"], "kind": ["text"], "detail": ["words"], "accuracy": [0.4], "accuracy_low": [0.3],
         "accuracy_high": [0.5], "chance": [0.2], "n_subjects": [90], "n_fit": [None]}
    )  # fmt: skip
    assert any(s.x0 == 0.73 for s in axis_figure(rows, 0.73).layout.shapes)
    assert not any(s.x0 == 0.73 for s in axis_figure(rows).layout.shapes)
