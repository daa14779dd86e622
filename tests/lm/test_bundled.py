"""`make model`: the bundled model is there afterwards, or the reader knows what to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make_model(models: Path) -> subprocess.CompletedProcess:
    """Run what the Makefile runs, with no package index."""
    (module,) = re.findall(r"python -m (auditcore\.lm\.\w+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    own = {"AUDIT_MODELS": str(models), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    command = [sys.executable, "-m", module]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False)


def test_a_model_that_is_there_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "smollm2-135m"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).touch()
    done = make_model(tmp_path)
    assert (done.returncode, str(folder) in done.stdout) == (0, True)


@pytest.mark.parametrize("found", [None, "config.json"])
def test_a_model_that_cannot_be_fetched_says_what_to_name_instead(tmp_path: Path, found: str | None) -> None:
    if found:
        (tmp_path / "smollm2-135m").mkdir()
        (tmp_path / "smollm2-135m" / found).touch()
    done = make_model(tmp_path)
    assert done.returncode == 2
    assert "name a local folder" in done.stderr
    assert "Traceback" not in done.stderr
