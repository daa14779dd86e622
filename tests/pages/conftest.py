"""Pages without a browser. In: fake runs in a temporary AUDIT_HOME. Out: the router as Streamlit's AppTest."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROUTER = str(Path(__file__).resolve().parents[2] / "pages" / "_router.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty AUDIT_HOME; no shipped studies; caches emptied, since tests share them."""
    import streamlit as st

    from auditcore import store

    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setenv("AUDIT_HOME", str(folder))
    monkeypatch.setattr(store, "studies", lambda: tmp_path / "studies")
    st.cache_data.clear()
    return folder


@pytest.fixture
def open_page(home: Path) -> Callable:
    """`open_page("runs.py", run="x")` runs the router and the page; the result can be asked and clicked."""
    from streamlit.testing.v1 import AppTest

    def run(page: str = "overview.py", state: dict | None = None, **query: str):
        app = AppTest.from_file(ROUTER, default_timeout=60)
        for name, value in (state or {}).items():
            app.session_state[name] = value
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        if page != "overview.py":
            app.switch_page(page).run()
        assert not app.exception, app.exception
        return app

    return run


def words_of(app) -> str:
    """All HTML of a page as one text."""
    return "\n".join(e.proto.body for e in app.get("html") if "<style" not in e.proto.body)
