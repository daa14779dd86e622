"""How fast the dashboard draws a large finished run. In: sizes. Out: seconds per page and per widget, in the browser.

Makes a membership run of 20,000 scored rows and 2 million tokens and a vectors run of 20,000 rows in a temporary
folder (numbers drawn from a generator), starts the real server and drives headless Chromium:

- cold: server just started, first visitor, time from navigation until title and finding are painted, and until the
  last part of the page is there and the page has come to rest. The page itself notes the first: a wait from outside is
  not served while the browser reads the script that draws charts, for a second or more;
- redraw: time from a click until the page shows what was asked for, median of 10, per widget.

Beside each wall time stands the CPU time of the server's process, which a busy machine hardly changes (Linux only).

    python -m benchmarks.page_redraw [--rows 20000] [--tokens 100] [--repeats 10]
"""

import argparse
import os
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
LAST = {"membership": ".tk-legend", "vectors": ".ac-facts", "": ".js-plotly-plot"}
# Two frames after the title came into the document, it has been painted.
PAINTED = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('.ac h1')) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.painted = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""
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
            first, whole, cpu = _cold(browser, home, Path(folder) / "log", page_name, run)
            times = f"title and finding {first:.2f} s, whole page {whole:.2f} s"
            print(f"cold /{page_name}: {times}, server CPU {cpu:.2f} s", flush=True)
        _warm(browser, home, Path(folder) / "log", options.repeats)
        browser.close()


def _cold(browser: Any, home: Path, log: Path, page_name: str, run: str) -> tuple[float, float, float]:
    process, url = start(home, log)
    try:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(PAINTED)
        begin, used = time.perf_counter(), _cpu(process.pid)
        page.goto(f"{url}/{page_name}?run={run}", wait_until="commit")
        page.wait_for_selector(LAST[page_name], timeout=60_000, state="attached")
        page.wait_for_function(IDLE)
        whole = time.perf_counter() - begin
        first = page.evaluate("window.painted") / 1000
        page.close()
        return first, whole, _cpu(process.pid) - used
    finally:
        stop(process)


def _warm(browser: Any, home: Path, log: Path, repeats: int) -> None:
    process, url = start(home, log)
    try:
        page = browser.new_page(viewport={"width": 1440, "height": 2600})
        _open(page, f"{url}/membership?run=large-rows", LAST["membership"])
        button = page.get_by_role("button", name="Next row")
        _measure(page, process.pid, "membership, next row", [button] * repeats)
        _measure(page, process.pid, "membership, attack", _radios(page, ("loss", "reference"), repeats))
        _measure(page, process.pid, "membership, false accusations", _radios(page, ("5", "10"), repeats))
        _open(page, f"{url}/vectors?run=large-vectors", LAST["vectors"])
        _measure(page, process.pid, "vectors, artifact", _radios(page, ("lasttok", "meanpool"), repeats))
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


def _measure(page: Any, pid: int, name: str, buttons: list[Any]) -> None:
    used = _cpu(pid)
    seconds = [_until_changed(page, button.click) for button in buttons]
    cpu = (_cpu(pid) - used) / len(seconds)
    middle, worst = statistics.median(seconds), max(seconds)
    print(
        f"redraw {name}: median of {len(seconds)} {middle:.2f} s, slowest {worst:.2f} s, server CPU {cpu:.2f} s",
        flush=True,
    )


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far, all its threads; NaN where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
