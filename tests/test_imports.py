"""The house reads in one direction: which module may import which is read from the source and checked."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Layer -> the auditcore modules it may import (by first name below auditcore), anywhere in its files.
MAY_IMPORT = {
    "errors": set(),
    "spec": {"errors"},
    "verdict": {"errors", "spec"},
    "rouge": set(),
    "disk": set(),  # files that are whole and private
    "store": {"errors", "disk"},
    "frontier": {"errors"},
    "records": {"errors", "store", "disk"},
    "decisions": {"errors", "spec", "store", "records", "frontier"},
    "votes": set(),
    "datasets": {"errors", "spec", "datasets"},
    "lm": {"errors", "spec", "lm"},
    "leakage": {"errors", "spec", "verdict", "leakage"},
    "membership": {"errors", "spec", "verdict", "membership"},
    "training": {"errors", "spec", "lm", "training"},
    "figures": {"errors", "spec", "verdict", "words", "findings", "frontier", "figures"},
    "words": set(),  # numbers and hostile text into plain words and escaped HTML
    "findings": {"errors", "spec", "verdict", "words", "claims", "membership", "frontier", "findings"},
    "claims": {"errors", "spec", "verdict", "words"},
    "summary": {
        "errors",
        "spec",
        "verdict",
        "words",
        "findings",
        "store",
        "records",
        "frontier",
        "decisions",
        "votes",
    },
    "subject": {"store", "words"},
    "cards": {"errors", "spec", "verdict", "words", "findings", "store", "decisions", "summary", "subject"},
    "report": {
        "errors",
        "disk",
        "spec",
        "verdict",
        "store",
        "figures",
        "findings",
        "claims",
        "summary",
        "cards",
        "words",
        "records",
        "frontier",
        "decisions",
        "report",
    },
    "jobs": {
        "errors",
        "disk",
        "spec",
        "verdict",
        "store",
        "datasets",
        "lm",
        "leakage",
        "membership",
        "training",
        "claims",
        "words",
        "records",
        "rouge",
        "frontier",
        "decisions",
        "jobs",
    },
    "demo": {"errors", "spec", "store", "disk", "jobs"},
    "cli": {
        "errors",
        "spec",
        "verdict",
        "words",
        "store",
        "datasets",
        "lm",
        "jobs",
        "report",
        "findings",
        "summary",
        "demo",
        "records",
        "decisions",
    },
}
NO_TORCH = {
    "disk",
    "frontier",
    "records",
    "decisions",
    "errors",
    "spec",
    "verdict",
    "store",
    "datasets",
    "leakage",
    "membership",
    "figures",
    "findings",
    "report",
    "cli",
}
HEAVY = {"torch", "transformers", "peft", "accelerate"}


def _layer(path: Path) -> str:
    parts = path.relative_to(ROOT / "auditcore").with_suffix("").parts
    return parts[0]


def _modules() -> list[Path]:
    files = sorted((ROOT / "auditcore").rglob("*.py"))
    return [f for f in files if f.name not in ("__main__.py",) and f != ROOT / "auditcore" / "__init__.py"]


def _imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = _outside_functions(tree) if top_level_only else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return found


def _outside_functions(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _outside_functions(node)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    layer = _layer(path)
    assert layer in MAY_IMPORT, f"{layer} is new: say in MAY_IMPORT what it may import"
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("auditcore.")}
    known = set(MAY_IMPORT) | {"__version__"}
    forbidden = (ours & known) - MAY_IMPORT[layer] - {"__version__", layer}
    assert not forbidden, f"{path.name} ({layer}) must not import {sorted(forbidden)}"


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_streamlit_stays_in_the_pages(path: Path) -> None:
    assert not any(name.split(".")[0] == "streamlit" for name in _imports(path))


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_pulls_in_torch_where_it_must_not(path: Path) -> None:
    layer = _layer(path)
    roots = {name.split(".")[0] for name in _imports(path, top_level_only=layer not in NO_TORCH)}
    if layer in NO_TORCH or layer in ("jobs", "demo"):
        assert not roots & HEAVY


@pytest.mark.parametrize("path", sorted((ROOT / "pages").glob("*.py")), ids=lambda p: p.name)
def test_pages_import_no_torch_and_no_model_code(path: Path) -> None:
    names = _imports(path)
    assert not {n.split(".")[0] for n in names} & HEAVY
    allowed = {"lm.sources", "lm.bundled"}  # which model is meant; neither imports torch
    lm = {".".join(n.split(".")[1:3]) for n in names if n.startswith("auditcore.lm.")}
    assert lm <= allowed, f"{path.name} imports {sorted(lm - allowed)}"


def test_importing_what_pages_need_costs_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import auditcore.store, auditcore.spec, auditcore.jobs, auditcore.report, auditcore.findings, "
        "auditcore.verdict, auditcore.figures; print(sorted({'torch', 'transformers', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_whatever_meets_a_model_with_rows_asks_first_whether_they_are_sealed() -> None:
    """Vectors are extracted and texts generated by jobs only, and every such job asks `jobs.sealed`."""
    for path in _modules():
        names = _imports(path)
        # training makes vectors of the rows a job gives it, and the job has asked.
        if _layer(path) not in ("lm", "training") and names & {
            "auditcore.lm.vectors.extract_vectors",
            "auditcore.lm.generate.generate",
        }:
            assert "auditcore.jobs.sealed" in names, f"{path.name} reads rows without asking jobs.sealed"
