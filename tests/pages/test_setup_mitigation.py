"""New audit: a mitigation to train, and adapters that are there already."""

from pathlib import Path

import pandas as pd
import pytest

from auditcore.spec import dump_spec, parse_spec
from tests.pages.conftest import button, open_form, words_of


@pytest.fixture
def notes(home: Path) -> Path:
    """Rows with everything that a mitigation needs."""
    n = 60
    frame = pd.DataFrame(
        {
            "prompt": [f"the patient number {i} came with a cough and went home" for i in range(n)],
            "summary": [f"cough, number {i}, sent home in good condition" for i in range(n)],
            "sex": ["female", "male"] * (n // 2),
            "patient_id": [f"p{i}" for i in range(n)],
            "split": ["train"] * 30 + ["bal_train"] * 15 + ["bal_val"] * 5 + ["bal_test"] * 10,
        }
    )
    path = home / "uploads" / "notes.csv"
    path.parent.mkdir()
    frame.to_csv(path, index=False)
    return path


def test_a_mitigation_is_set_up_without_typing(open_page, notes: Path, started: list) -> None:
    app = open_form(open_page, notes, "surfacelora")
    app.get_by_key("setup_lambda").set_value(1.0)
    app.get_by_key("setup_targets").set_value(["lasttok", "meanpool"])
    app.get_by_key("setup_surface_steps").set_value(120)
    app.get_by_key("setup_surface_rank").set_value(8)
    app.run()
    assert not app.exception, app.exception
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    spec = started[0]
    assert spec.kind == "surfacelora"
    assert spec.data.roles == {
        "prompt": "prompt", "target": "summary", "label": "sex", "split": "split", "group": "patient_id",
    }  # fmt: skip
    assert (spec.strength, spec.targets, spec.steps) == (1.0, ["lasttok", "meanpool"], 120)
    assert (spec.lora.r, spec.lora.alpha, spec.lora.target_modules, spec.lora.dropout) == (8, 16, "all-linear", 0.0)
    assert spec.audit == ["lasttok", "meanpool", "concat"]
    assert spec.learning_rate == 2e-4
    assert "lambda 1" in str(spec.name)
    assert parse_spec(dump_spec(spec)) == spec


def test_a_mitigation_without_a_summary_column_says_what_is_missing(open_page, rows: Path, started: list) -> None:
    app = open_form(open_page, rows, "surfacelora")
    assert "target is missing" in words_of(app)


def test_adapters_are_named_by_their_folder(open_page, notes: Path, started: list, tmp_path: Path) -> None:
    app = open_form(open_page, notes, "frontier")
    app.get_by_key("setup_adapters").set_value(str(tmp_path / "adapters"))
    app.run()
    button(app, "Check and plan").click().run()
    button(app, "Start the audit").click().run()
    spec = started[0]
    assert spec.kind == "frontier"
    assert spec.checkpoints.folder == str(tmp_path / "adapters")
    assert spec.checkpoints.base == "smollm2-135m"
    assert spec.model.source == "smollm2-135m"
    assert (spec.rouge_rows, spec.seeds) == (200, [0, 1, 2])
