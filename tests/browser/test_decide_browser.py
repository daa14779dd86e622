"""The pages of the decision in a real browser: a click on a point, links that hold, blind votes."""

from tests.browser.conftest import settled


def _click_point(page, chart: int, point: int) -> None:
    """Click one checkpoint of one picture where plotly drew it."""
    box = page.evaluate(
        """([chart, point]) => {
            const plot = document.querySelectorAll('.js-plotly-plot')[chart];
            const marks = [...plot.querySelectorAll('.scatterlayer .trace')]
                .filter(t => t.querySelectorAll('path.point').length > 2)[0].querySelectorAll('path.point');
            const found = marks[point].getBoundingClientRect();
            return [found.x + found.width / 2, found.y + found.height / 2];
        }""",
        [chart, point],
    )
    page.mouse.move(*box)
    page.wait_for_timeout(300)
    page.mouse.click(*box)


def test_a_click_on_a_point_shows_that_checkpoint_and_its_links_lead_to_it(visit) -> None:
    page = visit("/frontier?run=mitigated", height=1400)
    page.wait_for_selector(".js-plotly-plot .point")
    _click_point(page, 0, 1)
    page.wait_for_function("document.body.innerText.includes('step-000100')")
    settled(page)
    assert "at=100" in page.url
    _click_point(page, 1, 2)  # on another artifact's picture
    page.wait_for_function("document.body.innerText.includes('step-000150')")
    settled(page)
    page.reload()
    settled(page)
    assert "step-000150" in page.locator("[data-testid=stMain]").inner_text()
    page.get_by_role("link", name="Its exported vectors").click()
    page.wait_for_selector("h1:has-text('Exported vectors')")
    settled(page)
    assert "step=150" in page.url
    assert "run=mitigated" in page.url
    assert "stay sealed" in page.locator("[data-testid=stMain]").inner_text()


def test_runs_stand_together_by_a_link(visit) -> None:
    page = visit("/frontier?run=mitigated&with=plain")
    text = page.locator("[data-testid=stMain]").inner_text()
    assert "utility-only LoRA" in text
    page.reload()
    settled(page)
    assert "with=plain" in page.url


def test_a_vote_shows_the_next_row_and_no_name(visit) -> None:
    page = visit("/review?run=mitigated&candidates=100,400")
    who = page.get_by_role("textbox", name="Your name")
    who.fill("Ada")
    who.press("Enter")
    page.wait_for_selector("text=Row 1 of 10")
    settled(page)
    page.get_by_role("button", name="B is better").click()
    page.wait_for_selector("text=Row 2 of 10")
    settled(page)
    assert "voted:" not in page.locator("[data-testid=stMain]").inner_text()
    page.reload()
    settled(page)
    assert "candidates=100" in page.url
