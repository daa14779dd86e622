"""Pages without a browser. In: fake runs in a temporary AUDIT_HOME. Out: the router as Streamlit's AppTest."""

from collections.abc import Callable
from pathlib import Path

import pytest

from auditcore import jobs, store
from auditcore.jobs import Plan
from auditcore.spec import dump_spec

ROUTER = str(Path(__file__).resolve().parents[2] / "pages" / "_router.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty AUDIT_HOME; no shipped studies; caches emptied, since tests share them."""
    import streamlit as st

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


# --- the form of New audit ---

POWER = {
    "attribute": "sex",
    "n_subjects": 60,
    "n_classes": 2,
    "tests": 2,
    "budget": 0.025,
    "p_within": 0.01,
    "smallest_gap": 0.2,
    "subjects_needed": 4294,
    "needed_by_one": 3480,
}


@pytest.fixture
def rows(home: Path) -> Path:
    """A file uploaded earlier: AppTest cannot type a new option into a select box."""
    lines = [
        f"p{i},the patient number {i} came with a cough and went home,{'FM'[i % 2]},{i % 3 == 0}" for i in range(60)
    ]
    path = home / "uploads" / "rows $x$.csv"
    path.parent.mkdir()
    path.write_text("patient_id,note,sex,member\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, home: Path) -> list:
    """Plans and submissions without any model."""
    specs: list = []

    def plan(spec):
        points = [{"target_fpr": 0.01, "n_nonmember": 40, "needed": 718, "resolvable": False}]
        vectors = spec.kind == "vectors"
        return Plan(
            spec.kind, 60, 700, 42.0, 5_000_000, [POWER] if vectors else [], [] if vectors else points, ["A note."]
        )

    def submit(spec, out=None):
        specs.append(spec)
        return store.create_run(dump_spec(spec))

    monkeypatch.setattr(jobs, "plan", plan)
    monkeypatch.setattr(jobs, "submit", submit)
    return specs


def open_form(open_page, path: Path, kind: str = "vectors"):
    app = open_page("setup.py")
    app.get_by_key("setup_kind").set_value(kind)
    app.run()
    app.get_by_key("setup_data").set_value(str(path))
    app.run()
    assert not app.exception, app.exception
    return app


def button(app, label: str):
    return next(b for b in app.button if b.label == label)
