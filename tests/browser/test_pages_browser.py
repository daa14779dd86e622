"""The real pages in a real browser: no error, no request that leaves the machine, deep links, hostile names."""

import zipfile
from pathlib import Path

import pytest

from tests.browser.conftest import NAME, overflow, settled

PAGES = {
    "/": "What these models give away",
    "/setup": "New audit",
    "/vectors": "Exported vectors",
    "/defences": "Defences",
    "/membership": "Remembered rows",
    "/frontier": "Checkpoint frontier",
    "/review": "Review meeting",
    "/runs": "Runs and reports",
}
FOLDER = Path(__file__).resolve().parents[2] / "pages"
THERE = [p for p in PAGES if p == "/" or (FOLDER / f"{p[1:]}.py").exists()]
RUN_OF = {
    "/vectors": "vectors",
    "/defences": "vectors",
    "/membership": "memory-full",
    "/frontier": "mitigated",
    "/review": "mitigated",
}


@pytest.mark.parametrize("path", THERE)
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_every_page_opens_by_its_address(visit, path: str, width: int, dark: bool) -> None:
    page = visit(f"{path}?run={RUN_OF.get(path, 'memory-lora')}", width=width, dark=dark)
    assert page.locator(".ac h1").first.inner_text() == PAGES[path]
    assert page.locator("[data-testid=stException]").count() == 0
    assert overflow(page) <= 0
    if width > 800:
        assert page.locator("[data-testid=stSidebarNav]").inner_text().split("\n")[0] == "Audit"


@pytest.mark.parametrize("path", THERE)
@pytest.mark.parametrize("run", ["memory-hostile", "vectors-hostile", "mitigated-hostile"])
def test_a_hostile_run_is_shown_as_written_and_does_nothing(visit, path: str, run: str) -> None:
    page = visit(f"{path}?run={run}")
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.locator(".ac script, .ac img").count() == 0
    assert page.locator(".katex, .katex-error").count() == 0
    if path == "/runs":
        assert NAME in page.locator(".ac h2").first.inner_text()


def test_the_run_stays_chosen_when_the_page_changes(visit) -> None:
    page = visit("/?run=memory-lora")
    page.get_by_role("link", name="Runs and reports").first.click()
    page.wait_for_selector("h1:has-text('Runs and reports')")
    settled(page)
    assert "run=memory-lora" in page.url
    assert page.locator(".ac h2").first.inner_text() == "notes · LoRA"
    page.reload()
    settled(page)
    assert page.locator(".ac h2").first.inner_text() == "notes · LoRA"


def test_an_address_that_names_no_run_is_said(visit) -> None:
    page = visit("/?run=../../etc/passwd")
    text = page.locator("[data-testid=stMain]").inner_text()
    assert "There is no run '../../etc/passwd'" in text
    assert "Shown instead: " in text


def test_a_findings_page_chooses_a_run_it_can_show(visit) -> None:
    page = visit("/?run=memory-lora")
    page.get_by_role("link", name="Exported vectors").first.click()
    page.wait_for_selector("h1:has-text('Exported vectors')")
    settled(page)
    assert "run=vectors" in page.url
    assert "this page can show" in page.locator("[data-testid=stSidebar]").inner_text()


@pytest.mark.parametrize(
    ("path", "words"),
    [("/vectors", "meanpool"), ("/defences", "points of accuracy"), ("/membership", "falsely accuses")],
)
def test_an_address_without_a_run_shows_one_that_fits(visit, path, words) -> None:
    text = visit(path).locator("[data-testid=stMain]").inner_text()
    assert "answers another question" not in text
    assert words in text


def test_presentation_mode_stays_on_for_the_session(visit) -> None:
    page = visit("/setup")
    page.get_by_text("Hide raw text").click()
    settled(page)
    page.get_by_role("link", name="Runs and reports").first.click()
    page.wait_for_selector("h1:has-text('Runs and reports')")
    settled(page)
    assert page.get_by_role("switch", name="Hide raw text").is_checked()
    assert "Raw text is left out" in page.locator("[data-testid=stMain]").inner_text()


def test_exports_arrive_whole_and_harmless(visit, tmp_path: Path) -> None:
    page = visit("/runs?run=memory-hostile")
    saved = {}
    for label in ("Report (HTML)", "Tables (CSV)", "Tables (Parquet)", "Database (DuckDB)"):
        with page.expect_download() as download:
            page.get_by_role("button", name=label).click()
        saved[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[label])
    with zipfile.ZipFile(saved["Tables (CSV)"]) as archive:
        lines = archive.read("examples.csv").decode().splitlines()
        assert any(line.startswith("'=cmd") for line in lines)
    report = visit("/")  # the report is opened from disk: nothing may be asked from anywhere
    seen: list[str] = []
    report.on("request", lambda request: seen.append(request.url))
    report.goto(saved["Report (HTML)"].as_uri())
    report.wait_for_selector("h1")
    assert NAME in report.locator("h1").inner_text()
    assert [u for u in seen if not u.startswith(("file:", "data:", "blob:"))] == []


def test_delete_asks_first(visit, home: Path) -> None:
    from tests.fake_runs import vectors_run

    run = vectors_run(home / "to-delete", rows=60, seed=9)
    page = visit("/runs?run=to-delete")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    settled(page)
    assert run.path.exists()
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector("[role=dialog]", state="detached")
    settled(page)
    assert not run.path.exists()
    assert "to-delete" not in page.url


def test_an_upload_is_kept_under_a_name_of_its_own_and_its_roles_are_guessed(visit, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "..evil $x$.csv"
    rows = "\n".join(f"p{i},the patient number {i} came with a cough and went home,{'FM'[i % 2]}" for i in range(60))
    file.write_text(f"patient_id,note,sex\n{rows}\n")
    page = visit("/setup")
    page.get_by_text("Upload a file").click()
    page.locator("[data-testid=stFileUploaderDropzoneInput]").set_input_files(str(file))
    page.wait_for_selector("text=CSV, 60 rows, 3 columns")
    settled(page)
    kept = list((home / "uploads").iterdir())
    assert len(kept) == 1
    assert kept[0].suffix == ".csv"
    assert "evil" not in kept[0].name
    text = page.locator("[data-testid=stMain]").inner_text()
    assert "Guessed: its name" in text
    assert page.get_by_role("button", name="Check and plan").is_visible()
