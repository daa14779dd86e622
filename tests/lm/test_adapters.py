"""Folders of foreign adapters: which fit a base, and why the others do not, told from their files alone."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from auditcore.errors import ModelError
from auditcore.lm.adapters import find_adapters, natural
from tests.tiny_models import build_adapter, build_folder


@pytest.fixture(scope="module")
def one(tmp_path_factory, tiny_llama) -> Path:
    return build_adapter(tmp_path_factory.mktemp("one") / "a", tiny_llama)


def config(folder: Path, **changes) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def reasons(folder: Path, base: Path, **more) -> dict[str, str | None]:
    return {c.name: c.reason for c in find_adapters(folder, str(base), **more)}


def test_each_way_to_be_unusable_has_its_reason(tmp_path, tiny_llama, tiny_folders, one) -> None:
    folder = tmp_path / "adapters"
    for name in ("good", "twin", "other", "cut", "header", "empty", "pickled", "elsewhere", "nothing", "broken"):
        shutil.copytree(one, folder / name)
    build_adapter(folder / "gpt2", tiny_folders["gpt2"])
    config(folder / "gpt2", base_model_name_or_path=str(tiny_llama))
    wide = build_folder(tmp_path / "wide", "llama", vocabulary=500)
    shutil.rmtree(folder / "other")
    build_adapter(folder / "other", wide)
    weights = folder / "cut" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (folder / "header" / "adapter_model.safetensors").write_bytes(struct.pack("<Q", 10**12) + b"{}")
    (folder / "empty" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "pickled" / "adapter_model.safetensors").rename(folder / "pickled" / "adapter_model.bin")
    config(folder / "elsewhere", base_model_name_or_path="meta-llama/Llama-2-7b-hf")
    (folder / "nothing" / "adapter_config.json").unlink()
    (folder / "broken" / "adapter_config.json").write_text("{")
    (folder / "notes.txt").write_text("not a folder")
    (folder / ".hidden").mkdir()
    found = reasons(folder, tiny_llama)
    assert set(found) == {
        "good", "twin", "other", "cut", "header", "empty", "pickled", "elsewhere", "nothing", "broken", "gpt2",
    }  # fmt: skip
    assert found["good"] is None
    expected = {
        "twin": "the same adapter as 'good'",
        "other": "it names another base",
        "cut": "adapter_model.safetensors is damaged",
        "header": "adapter_model.safetensors is damaged",
        "empty": "adapter_model.safetensors is damaged",
        "pickled": "the adapter is pickled",
        "elsewhere": "it names another base, meta-llama/Llama-2-7b-hf",
        "nothing": "no adapter_config.json in it",
        "broken": "not readable as JSON",
        "gpt2": "the base has no module",
    }
    for name, words in expected.items():
        assert words in str(found[name]), (name, found[name])
    assert reasons(folder, tiny_llama, check_base=False)["elsewhere"] is None


def test_another_width_is_told_without_loading(tmp_path, tiny_llama) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "adapters"
    build_adapter(folder / "wide", tiny_llama)
    path = folder / "wide" / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(n for n in tensors if "q_proj.lora_A" in n)
    save_file({**tensors, name: torch.zeros(4, 48)}, path)
    reason = str(reasons(folder, tiny_llama)["wide"])
    assert "it reads 48 numbers at model.layers.0.self_attn.q_proj, where the base has 32 x 32" in reason


def test_a_base_known_by_another_name_or_place_is_the_same_base(tmp_path, tiny_llama, one) -> None:
    copy = tmp_path / "elsewhere" / "copied"
    shutil.copytree(tiny_llama, copy)
    folder = tmp_path / "adapters"
    for name, base in (("by path", str(copy)), ("by name", "some/where/LLAMA")):
        shutil.copytree(one, folder / name)
        config(folder / name, base_model_name_or_path=base)
    found = reasons(folder, tiny_llama)
    assert found["by name"] is None
    assert found["by path"] is None


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "qwen2"])
def test_other_architectures_fit_their_own_base(tmp_path, tiny_folders, architecture) -> None:
    build_adapter(tmp_path / "adapters" / "a", tiny_folders[architecture])
    assert reasons(tmp_path / "adapters", tiny_folders[architecture]) == {"a": None}


def test_a_tokenizer_that_cuts_otherwise_is_refused_and_one_with_a_pad_token_is_not(tmp_path, tiny_llama, one) -> None:
    folder = tmp_path / "adapters"
    for name in ("own", "padded", "plain"):
        shutil.copytree(one, folder / name)
        shutil.copy(tiny_llama / "tokenizer.json", folder / name)
    for name in ("own", "padded"):
        path = folder / name / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        if name == "own":
            content["model"]["merges"] = content["model"]["merges"][:-5]
        else:
            token = {**content["added_tokens"][0], "id": 999, "content": "<pad>"}
            content["added_tokens"].append(token)
            content["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
            content["padding"] = {"strategy": "BatchLongest"}
        path.write_text(json.dumps(content), encoding="utf-8")
    found = reasons(folder, tiny_llama)
    assert "tokenizer of its own" in str(found["own"])
    assert found["padded"] is None
    assert found["plain"] is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p, a: p / "none", "there is no folder"),
        (lambda p, a: p, "holds no folders"),
        (lambda p, a: a, "is an adapter itself"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_refused(tmp_path, tiny_llama, one, make, message) -> None:
    with pytest.raises(ModelError, match=message):
        find_adapters(make(tmp_path, one), str(tiny_llama))


def test_names_are_sorted_as_people_count() -> None:
    assert sorted(["s10", "s2", "a", "s2b"], key=natural) == ["a", "s2", "s2b", "s10"]


def test_biases_of_the_base_are_a_reason_to_audit_an_adapter_alone(tmp_path, tiny_folders):
    build_adapter(tmp_path / "adapters" / "a", tiny_folders["gpt2"], bias="all")
    assert "changes biases of the base" in reasons(tmp_path / "adapters", tiny_folders["gpt2"])["a"]
