"""A whole audit from the form to its findings, on a tiny random model: checked, planned, started, watched, opened."""

from pathlib import Path

import pytest

from tests.browser.conftest import choose, settled


@pytest.mark.slow
def test_from_the_form_to_the_findings(visit, tiny_llama: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    note = "the patient number {} came with a cough and went home"
    rows.write_text("id,text,sex\n" + "".join(f"r{i},{note.format(i)},{'FM'[i % 2]}\n" for i in range(120)))
    page = visit("/setup")
    page.set_default_timeout(540_000)  # seconds on a free machine, minutes on a busy one
    choose(page, "Model", str(tiny_llama))
    choose(page, "Rows", str(rows))
    page.get_by_text("More options").click()
    page.get_by_label("Permutations of the null band").fill("19")
    page.get_by_label("Seeds of the probes").fill("0")
    page.get_by_label("Seeds of the probes").press("Enter")
    settled(page)
    page.get_by_role("button", name="Check and plan").click()
    page.get_by_role("button", name="Start the audit").click()
    page.wait_for_selector("h2:has-text('Working now')")
    page.wait_for_selector("text=It has finished.")
    page.get_by_role("link", name="Open it").click()
    page.wait_for_selector("h1:has-text('Exported vectors')")
    settled(page)
    text = page.locator("[data-testid=stMain]").inner_text()
    assert "An attacker holding" in text
    assert page.locator("[data-testid=stException]").count() == 0
    assert "run=rows-" in page.url
