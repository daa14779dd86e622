"""Fixtures that several test folders share. In: nothing. Out: tiny random models on disk, made once per session."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast examples are made depends on what else the machine does: no reason to fail.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def one_thread():
    """Tiny models are fastest on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory, one_thread) -> dict[str, Path]:
    """Architecture -> folder of a tiny random model with its tokenizer (llama, gpt2, gptj, qwen2)."""
    from tests.tiny_models import ARCHITECTURES, build_folder

    home = tmp_path_factory.mktemp("tiny")
    return {name: build_folder(home / name, name) for name in ARCHITECTURES}


@pytest.fixture(scope="session")
def tiny_llama(tiny_folders) -> Path:
    """Folder of the tiny Llama."""
    return tiny_folders["llama"]


@pytest.fixture(scope="session")
def tiny_adapter(tmp_path_factory, tiny_llama) -> Path:
    """Folder of a random LoRA adapter on the tiny Llama; its config names the base by path."""
    from tests.tiny_models import build_adapter

    return build_adapter(tmp_path_factory.mktemp("adapter") / "lora", tiny_llama)


@pytest.fixture(scope="session")
def hostile_runs(tmp_path_factory, one_thread):
    """Real runs on data in which everything a user can name is hostile (tests.hostile_rows.HostileRuns)."""
    from tests.hostile_rows import make_runs

    home = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUDIT_HOME", str(home / "home"))
        return make_runs(home / "made")
