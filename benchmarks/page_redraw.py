"""How fast the dashboard draws a large finished run. In: sizes. Out: seconds per page and per widget, in the browser.

Makes a membership run of 20,000 scored rows and 2 million tokens and a vectors run of 20,000 rows in a temporary
folder (numbers drawn from a generator), starts the real server and drives headless Chromium:

- cold: server just started, first visitor, time from navigation until title and finding stand, and until the last
  part of the page stands;
- redraw: time from a click until the page shows what was asked for, median of 10, per widget.

    python -m benchmarks.page_redraw [--rows 20000] [--tokens 100] [--repeats 10]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.conftest import FLAGS, start, stop
from tests.browser.which import WHY_NOT, find_browser
from tests.fake_runs import membership_run, vectors_run

# The last part of each page to stand.
LAST = {"membership": ".tk-legend", "vectors": ".ac-facts", "": ".ac h1"}
IDLE = "!document.querySelector('[data-testid=stStatusWidget]')"


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=100, help="mean tokens per row")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    path = find_browser()
    if path is None:
        print(WHY_NOT)
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder) / "runs"
        membership_run(home / "large-rows", rows=options.rows, tokens=options.tokens)
        vectors_run(home / "large-vectors", rows=options.rows, width=576)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for page_name, run in (("membership", "large-rows"), ("vectors", "large-vectors"), ("", "large-rows")):
            first, whole = _cold(browser, home, Path(folder) / "log", page_name, run)
            print(f"cold /{page_name}: title and finding {first:.2f} s, whole page {whole:.2f} s", flush=True)
        _warm(browser, home, Path(folder) / "log", options.repeats)
        browser.close()


def _cold(browser: Any, home: Path, log: Path, page_name: str, run: str) -> tuple[float, float]:
    process, url = start(home, log)
    try:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        begin = time.perf_counter()
        page.goto(f"{url}/{page_name}?run={run}", wait_until="commit")
        page.wait_for_selector(".ac h1", timeout=60_000)
        first = time.perf_counter() - begin
        page.wait_for_selector(LAST[page_name], timeout=60_000, state="attached")
        whole = time.perf_counter() - begin
        page.wait_for_function(IDLE)
        page.close()
        return first, whole
    finally:
        stop(process)


def _warm(browser: Any, home: Path, log: Path, repeats: int) -> None:
    process, url = start(home, log)
    try:
        page = browser.new_page(viewport={"width": 1440, "height": 2600})
        _open(page, f"{url}/membership?run=large-rows", LAST["membership"])
        button = page.get_by_role("button", name="Next row")
        _report("membership, next row", [_until_changed(page, button.click) for _ in range(repeats)])
        attacks = _radios(page, ("loss", "reference"), repeats)
        _report("membership, attack", [_until_changed(page, a.click) for a in attacks])
        rates = _radios(page, ("5", "10"), repeats)
        _report("membership, false accusations", [_until_changed(page, r.click) for r in rates])
        _open(page, f"{url}/vectors?run=large-vectors", LAST["vectors"])
        artifacts = _radios(page, ("lasttok", "meanpool"), repeats)
        _report("vectors, artifact", [_until_changed(page, a.click) for a in artifacts])
    finally:
        stop(process)


def _open(page: Any, url: str, last: str) -> None:
    page.goto(url)
    page.wait_for_selector(last, timeout=60_000, state="attached")
    page.wait_for_function(IDLE)
    page.wait_for_timeout(1500)


def _radios(page: Any, names: tuple[str, str], repeats: int) -> list[Any]:
    return [page.get_by_role("radio", name=names[i % 2], exact=True).first for i in range(repeats)]


def _until_changed(page: Any, act: Callable[[], None]) -> float:
    """Seconds from the click until the headings name what was asked for (row, score and threshold; artifact)."""
    heading = "[...document.querySelectorAll('.ac h2')].map((h) => h.innerText).join()"
    before = page.evaluate(heading)
    begin = time.perf_counter()
    act()
    page.wait_for_function(f"(before) => {heading} !== before", arg=before, timeout=30_000)
    seconds = time.perf_counter() - begin
    page.wait_for_function(IDLE)
    page.wait_for_timeout(400)
    return seconds


def _report(name: str, seconds: list[float]) -> None:
    middle, worst = statistics.median(seconds), max(seconds)
    print(f"redraw {name}: median of {len(seconds)} {middle:.2f} s, slowest {worst:.2f} s", flush=True)


if __name__ == "__main__":
    main()
