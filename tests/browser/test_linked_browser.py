"""One choice, many views: scores, subjects, rows and tokens follow each other in a real browser."""

import re
from pathlib import Path

import pytest

from tests.browser.conftest import overflow, settled

RUN = "memory-subjects"


@pytest.fixture(scope="module", autouse=True)
def shared_subjects(home: Path) -> None:
    from tests.fake_runs import membership_run

    run = membership_run(home / RUN, rows=1600, tokens=20, lift=0.8, seed=6, per_subject=4)
    run.update(created="2026-11-30T00:30:00+00:00")


def chart(page):
    return page.locator(".stPlotlyChart").filter(has=page.locator(".barlayer .point")).first


def shown(page) -> str:
    return page.locator(".ac h2", has_text=re.compile(r"^Row\s")).first.inner_text()


def click(page, selector: str, number: int) -> None:
    """Click the middle of one mark or bar, with the mouse, as a reader does."""
    target = chart(page).locator(selector).nth(number)
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(150)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(400)
    settled(page)


def test_a_click_in_the_scores_shows_a_row_again_and_again(visit) -> None:
    page = visit(f"/membership?run={RUN}&attack=reference")
    seen = [shown(page)]
    for selector, number in ((".scatterlayer .point", 20), (".barlayer .point", 22), (".scatterlayer .point", 200)):
        click(page, selector, number)
        seen.append(shown(page))
        name = seen[-1].split("Row ")[1].split(":")[0].strip("\u2068\u2069 ")
        assert f"row={name}" in page.url
    assert len(set(seen)) == len(seen)
    page.get_by_role("button", name="Next row").click()  # the list has turned to the row: its neighbour follows
    page.wait_for_timeout(300)
    settled(page)
    assert shown(page) not in seen
    click(page, ".scatterlayer .point", 20)
    assert shown(page) == seen[1]


@pytest.mark.parametrize(("width", "dark"), [(1440, True), (390, False)])
def test_subjects_fit_the_screen_and_list_their_rows(visit, width: int, dark: bool) -> None:
    page = visit(f"/membership?run={RUN}&attack=reference&subject=s7", width=width, dark=dark)
    text = page.locator("[data-testid=stMain]").inner_text()
    assert "Subjects with the most rows found" in text
    assert "of 4 in this list" in text
    assert overflow(page) <= 0
