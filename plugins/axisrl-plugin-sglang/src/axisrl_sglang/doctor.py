"""``sglang/stack``: what ``axisrl doctor`` says of SGLang. It reads metadata and imports nothing.

1. SGLang pins most of what it uses; a package in another version is named with the pin.
2. Kernels that are missing are named with what cannot be used without them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from axisrl.plugins import Finding
from axisrl_sglang.versions import outside

_INSTALL = "pip install 'axisrl-plugin-sglang[sglang]'"


class _Part(NamedTuple):
    module: str
    cost: str


PARTS: Mapping[str, _Part] = {
    "torch": _Part("torch", "nothing is served"),
    "transformers": _Part("transformers", "no model is loaded"),
    "sglang-kernel": _Part("sgl_kernel", "nothing is served: SGLang does not start"),
    "flashinfer-python": _Part("flashinfer", "not for sglang.attention_backend flashinfer"),
    "torch-memory-saver": _Part("torch_memory_saver", "engine.hand_over cannot be used"),
    "xgrammar": _Part("xgrammar", "sglang.grammar_backend must be none"),
    "sgl-deep-gemm": _Part("deep_gemm", "FP8 models are served by slower kernels"),
}
"""Distribution -> its module, and what is lost without it."""


def stack() -> Iterable[Finding]:
    """SGLang and what it uses, one finding each."""
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        yield Finding(
            name="sglang",
            state="missing",
            cost="engine sglang/engine, which needs an NVIDIA GPU, cannot be used",
            fix=_INSTALL,
        )
        return
    wrong = outside()
    yield Finding(
        name="sglang",
        state="broken" if wrong else "ok",
        found=wrong or version,
        cost="engine sglang/engine may not start" if wrong else "",
        fix=_INSTALL if wrong else "",
    )
    pins = {pin.name.replace("_", "-").lower(): pin.specifier for pin in _pins()}
    for name, part in PARTS.items():
        yield _part(name, part, pins.get(name, SpecifierSet()))
    yield _flash_attention()


def _pins() -> Iterator[Requirement]:
    for line in metadata.requires("sglang") or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _part(name: str, part: _Part, pin: SpecifierSet) -> Finding:
    if importlib.util.find_spec(part.module) is None:
        return Finding(name=name, state="missing", cost=part.cost, fix=_INSTALL)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name=name, state="ok", found="of unknown version")
    if not pin.contains(version.partition("+")[0], prereleases=True):
        wrong = f"{version}, and SGLang wants {pin}"
        return Finding(name=name, state="broken", found=wrong, cost=part.cost, fix=_INSTALL)
    return Finding(name=name, state="ok", found=version)


def _flash_attention() -> Finding:
    """FA3 is a file of sglang-kernel, and some installations leave it out: it is 1 GB."""
    spec = importlib.util.find_spec("sgl_kernel")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    name = "FlashAttention 3"
    if any(any(Path(folder).glob("flash_ops*")) for folder in folders):
        return Finding(name=name, state="ok", found="in sglang-kernel")
    return Finding(
        name=name,
        state="missing",
        cost="sglang.attention_backend must be set to triton or flashinfer",
        fix=_INSTALL,
    )
