"""Real runs on hostile data, on every page: nothing runs, nothing is rendered, all of it is shown as it is."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser.conftest import choose, overflow, settled
from tests.hostile_rows import CONTROLS, IMAGE, KATEX, LONG, MARKDOWN, NAME, TURNED, VECTOR_COLUMN, HostileRuns

# What the page holds that only the data can have put there.
FOUND = """() => ({
    flag: window.hacked ?? null,
    made: [...document.querySelectorAll("[onerror], img[src$='x'], a[href^='javascript'], .ac script, iframe")]
        .map(e => e.outerHTML.slice(0, 200)),
    rendered: [...document.querySelectorAll(
        ".katex, .katex-error, [data-testid=stMarkdownContainer] :is(strong, em, a, code, img)")]
        .map(e => e.outerHTML.slice(0, 200)),
    icons: [...document.querySelectorAll("[data-testid=stMain] *")]
        .filter(e => !e.children.length && !e.closest(".tk-map") && e.textContent === "home").length,
    broken: document.querySelectorAll("[data-testid=stException]").length,
    turned: /[\\u202a-\\u202e\\u2066-\\u2069]/.test(
        [...document.querySelectorAll(".ac, .tk-map, .js-plotly-plot, .at")].map(e => e.textContent).join("")),
})"""
NOTHING = {"flag": None, "made": [], "rendered": [], "icons": 0, "broken": 0, "turned": False}
# The text of a token map: signs and codes turned back into what they stand for.
TEXT_OF_MAP = """() => {
    const back = {"·": " ", "→": "\\t", "↵": "\\n", "␍": "\\r"};
    const one = n => n.nodeName !== "I" ? n.textContent
        : n.className === "h" ? String.fromCodePoint(parseInt(n.textContent.slice(2), 16)) : back[n.textContent];
    return [...document.querySelectorAll(".tk-map > span")].map(s => [...s.childNodes].map(one).join("")).join("");
}"""
MEMBERSHIP, VECTORS, GIVEN = "real-hostile-membership", "real-hostile-vectors", "real-hostile-given"


@pytest.fixture(scope="module", autouse=True)
def runs(hostile_runs: HostileRuns, home: Path) -> Iterator[HostileRuns]:
    """The runs where the server finds them, for these tests only."""
    for run in hostile_runs.runs:
        shutil.copytree(run.path, home / run.id)
    yield hostile_runs
    for run in hostile_runs.runs:
        shutil.rmtree(home / run.id)


@pytest.mark.parametrize(
    "address",
    [f"/?run={VECTORS}", f"/vectors?run={VECTORS}", f"/vectors?run={GIVEN}", f"/runs?run={VECTORS}"],
)
def test_names_are_text_on_every_page(visit, address: str) -> None:
    page = visit(address, width=1280)
    assert page.evaluate(FOUND) == NOTHING
    assert overflow(page) <= 0
    assert IMAGE in page.locator("[data-testid=stMain]").inner_text()
    if address.startswith("/runs"):
        assert page.locator(".ac h2").first.inner_text().startswith(NAME[:60])
    if address.endswith(GIVEN) and address.startswith("/vectors"):
        shown = VECTOR_COLUMN.replace("\u202e", "\ufffd")
        assert page.get_by_role("radio").first.inner_text() == shown


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_are_text_token_by_token(visit, runs: HostileRuns, width: int) -> None:
    names = {text: name for name, text in runs.texts.items()}
    page = visit(f"/membership?run={MEMBERSHIP}&row={quote(names[CONTROLS], safe='')}", width=width)
    box = page.get_by_role("textbox", name="Row", exact=True)
    for text in (CONTROLS, TURNED, KATEX, MARKDOWN, LONG, IMAGE, "\t=1"):
        if text != CONTROLS:
            box.fill(names[text])
            box.press("Enter")
        page.wait_for_function(f"({TEXT_OF_MAP})().startsWith({text[:3]!r})")
        settled(page)
        shown = page.evaluate(TEXT_OF_MAP)
        assert text.startswith(shown)
        assert len(shown) == len(text) or text == LONG
        assert page.evaluate(FOUND) == NOTHING
        assert overflow(page) <= 0
    search = page.get_by_label("Find in row names and texts")
    for typed in ("<script>", "' or 1=1 --", "**b**"):
        search.fill(typed)
        search.press("Enter")
        settled(page)
        assert page.evaluate(FOUND) == NOTHING


def test_the_form_checks_hostile_files(visit, runs: HostileRuns, tiny_llama: Path) -> None:
    page = visit("/setup", width=1280)
    choose(page, "Model", str(tiny_llama))
    for file, size in ((runs.rows_csv, "CSV, 48 rows, 3 columns"), (runs.labelled, "JSONL, 240 rows, 4 columns")):
        choose(page, "Rows", str(file))
        page.wait_for_selector(f"text={size}")
        settled(page)
        page.get_by_text("First rows", exact=True).click()
        settled(page)
        assert page.evaluate(FOUND) == NOTHING
    page.get_by_role("button", name="Check and plan").click()
    page.wait_for_selector("text=What the check found")
    settled(page)
    assert page.evaluate(FOUND) == NOTHING
    assert IMAGE in page.locator("[data-testid=stMain]").inner_text()
