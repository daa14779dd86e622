"""A real server and a real browser for tests. In: fake runs. Out: pages; errors and outside requests fail the test."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.which import WHY_NOT, find_browser

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
NAME = "<script>alert(1)</script> $x$ *bold* :red[red]"  # of the hostile run, shown as written everywhere


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test of this folder is a browser test."""
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker("browser")


@dataclass
class Server:
    """A running dashboard."""

    url: str
    home: Path
    log: Path

    def errors(self) -> list[str]:
        """Lines of the log that tell of an error."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if re.search(r"Traceback|Error|Exception|WARNING|Warning", line)]


def start(home: Path, log: Path) -> tuple[subprocess.Popen, str]:
    """Start the dashboard on a free loopback port. Returns the process and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
            cwd=ROOT,
            env={**os.environ, "AUDIT_HOME": str(home)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
                return process, url
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    stop(process)
    raise RuntimeError(f"the dashboard did not start:\n{log.read_text()}")


def stop(process: subprocess.Popen) -> None:
    """End the dashboard."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AUDIT_HOME with two membership runs, a vectors run, two runs of checkpoints and a hostile run of each kind."""
    from tests.fake_runs import membership_run, vectors_run
    from tests.fake_surface import surfacelora_run

    home = tmp_path_factory.mktemp("home")
    made = [
        (surfacelora_run(home / "plain", strength=0.0, seed=7), "notes · plain LoRA"),
        (surfacelora_run(home / "mitigated", leak=0.005, seed=6), "notes · mitigated"),
        (surfacelora_run(home / "mitigated-hostile", hostile=True, seed=8), NAME),
        (membership_run(home / "memory-lora", rows=1600, tokens=20, lift=0.15, seed=2), "notes · LoRA"),
        (vectors_run(home / "vectors", rows=1200, seed=3, defences=("none", "leace", "noise")), "notes · vectors"),
        (vectors_run(home / "vectors-hostile", rows=120, seed=4, hostile=True), NAME),
        (membership_run(home / "memory-hostile", rows=120, tokens=20, seed=5, hostile=True), NAME),
        (membership_run(home / "memory-full", rows=1600, tokens=20, lift=1.6, seed=1), "notes · full"),
    ]
    for minute, (run, name) in enumerate(made):
        run.update(spec={**run.manifest["spec"], "name": name}, created=f"2026-11-30T01:{minute:02d}:00+00:00")
    return home


@pytest.fixture(scope="session")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real server, on loopback, with a temporary AUDIT_HOME."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    process, url = start(home, log)
    yield Server(url, home, log)
    stop(process)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Headless Chromium; the tests are skipped in one line where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip(WHY_NOT)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@dataclass
class Watch:
    """What must not happen in a browser."""

    problems: list[str] = field(default_factory=list)

    def attach(self, page) -> None:
        """Listen to a page."""
        page.on("console", lambda m: self.problems.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("websocket", lambda socket: self._address(socket.url))

    def _dialog(self, dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request) -> None:
        self._address(request.url)

    def _address(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "file") and parts.hostname != "127.0.0.1":
            self.problems.append(f"request that leaves the machine: {url}")


@pytest.fixture
def visit(server: Server, browser) -> Iterator[Callable]:
    """`visit("/runs?run=x", width=390, dark=True)` opens a page and waits until it stands. Errors fail the test."""
    watch, contexts = Watch(), []
    before, size = len(server.errors()), server.log.stat().st_size

    def open_page(path: str = "/", width: int = 1440, height: int = 900, dark: bool = False):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a busy machine is no error
        watch.attach(page)
        page.goto(server.url + path)
        settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert watch.problems == []
    assert server.errors()[before:] == [], server.log.read_text(errors="replace")[size:][-6000:]


def settled(page) -> None:
    """Wait until the page has a title and the script has ended."""
    page.wait_for_selector(".ac h1")
    page.wait_for_timeout(150)
    page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')")


def choose(page, label: str, value: str) -> None:
    """Type a new option into a select box."""
    box = page.get_by_role("combobox", name=label, exact=True)
    box.click()
    box.fill(value)
    page.wait_for_timeout(300)
    box.press("Enter")
    settled(page)


def overflow(page) -> int:
    """Pixels by which the page is wider than the screen, once charts have taken the width they were given."""
    script = "(document.querySelector('[data-testid=stMain]') || document.body)"
    for _ in range(25):
        over = page.evaluate(f"{script}.scrollWidth - {script}.clientWidth")
        if over <= 0:
            break
        page.wait_for_timeout(200)
    return over
