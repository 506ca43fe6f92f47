"""``megatron/stack``: what ``axisrl doctor`` says of Megatron. It reads metadata and imports
nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

from axisrl.plugins import Finding

SUPPORTED = SpecifierSet(">=0.16.1,<0.17")
ENGINES = SpecifierSet(">=2.9.0a0,<2.12")
"""Transformer Engines that this Megatron-core says it is made for."""
_VARLEN = "nn/attention/varlen.py"
_INSTALL = "pip install 'axisrl-plugin-megatron[megatron]'"
ENGINE_INSTALL = (
    "pip install --no-build-isolation 'transformer-engine[pytorch,core_cu13]>=2.9,<2.12' "
    "(core_cu12 for CUDA 12), which compiles against the torch that is there"
)


def stack() -> Iterable[Finding]:
    """Megatron-core, and what torch and others lack that it is used with."""
    yield _megatron()
    yield _engine()
    yield _varlen()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _is_pure(distribution: str) -> bool:
    """Whether an installed distribution has no compiled part."""
    try:
        wheel = metadata.distribution(distribution).read_text("WHEEL")
    except metadata.PackageNotFoundError:
        return False
    return "Root-Is-Purelib: true" in (wheel or "")


def _megatron() -> Finding:
    name = "megatron-core"
    version = _version(name)
    if version is None:
        cost = "trainer megatron/trainer cannot be used"
        return Finding(name=name, state="missing", cost=cost, fix=_INSTALL)
    if not SUPPORTED.contains(version, prereleases=True):
        return Finding(
            name=name,
            state="broken",
            found=f"{version}, and axisrl-plugin-megatron supports {SUPPORTED}",
            cost="trainer megatron/trainer may not start",
            fix=_INSTALL,
        )
    return Finding(name=name, state="ok", found=version)


def _engine() -> Finding:
    """Transformer Engine: three wheels of one version, torch's part compiled where it is
    installed; built from source, all is one. Without one of them it raises when it is imported
    what Megatron does not expect of a package that is not there."""
    name, option = "transformer-engine", "trainer.transformer_impl: transformer_engine"
    version, torchs = _version(name), _version(f"{name}-torch")
    kernels = _version(f"{name}-cu12") or _version(f"{name}-cu13")
    if version is None and kernels is None:
        cost = (
            f"{option} cannot be used; layers are Megatron's own: norms are not fused, a mixture's "
            "experts run one by one"
        )
        return Finding(name=name, state="missing", cost=cost, fix=ENGINE_INSTALL)
    built = not (torchs or kernels or _is_pure(name))
    if version is None or not (built or version == kernels == torchs):
        return Finding(
            name=name,
            state="broken",
            found=f"{version or 'nothing'}, its kernels {kernels}, its part for torch {torchs}",
            cost="Megatron-core cannot be imported, and trainer megatron/trainer not be used",
            fix=f"{ENGINE_INSTALL}; or uninstall what is there of it",
        )
    if not ENGINES.contains(version, prereleases=True):
        return Finding(
            name=name,
            state="broken",
            found=f"{version}, and Megatron-core {SUPPORTED} is made for {ENGINES}",
            cost=f"{option} may not start",
            fix=ENGINE_INSTALL,
        )
    return Finding(name=name, state="ok", found=f"{version}; {option} takes its layers")


def _varlen() -> Finding:
    """torch's kernel for rows of several lengths, which has a window since torch 2.11."""
    name = "variable-length attention"
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return Finding(name=name, state="missing", cost="nothing is trained", fix=_INSTALL)
    files = [Path(at) / _VARLEN for at in spec.submodule_search_locations or ()]
    if any(file.is_file() and "window_size" in file.read_text("utf-8") for file in files):
        return Finding(name=name, state="ok", found="in torch")
    return Finding(
        name=name,
        state="missing",
        cost="on a GPU the rows of a batch are attended to one by one, which is slower",
        fix="pip install 'torch>=2.11'",
    )
