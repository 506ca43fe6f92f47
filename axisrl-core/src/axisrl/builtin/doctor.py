"""``core/machine``: what ``axisrl doctor`` says of any machine. It starts nothing on a GPU."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

from axisrl.plugins import Finding

_WAIT_S = 20.0
EXTRAS: Mapping[str, tuple[str, str]] = {
    "transformers": ("chat", "no chat template is rendered: nothing can be rolled out"),
    "ray": ("ray", "every actor is in one process: placement.kind is inline"),
    "tensorboard": ("tensorboard", "loggers cannot use core/tensorboard"),
    "wandb": ("wandb", "loggers cannot use core/wandb"),
    "openai": ("judge", "core/judge cannot judge"),
}
"""Package -> the core's extra that brings it, and what is lost without."""


def machine() -> Iterable[Finding]:
    """Python, torch, driver and GPUs, and the packages of the core's extras."""
    yield Finding(name="Python", state="ok", found=platform.python_version())
    yield _torch()
    gpus = list(_gpus())
    yield from gpus
    if any(found.name.startswith("GPU ") for found in gpus):
        yield _reach()
    for package, (extra, cost) in EXTRAS.items():
        fix = f"pip install 'axisrl-core[{extra}]'"
        yield package_finding(package, cost=cost, fix=fix)


def package_finding(package: str, *, cost: str, fix: str) -> Finding:
    """Whether a distribution is installed, and in which version."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Finding(name=package, state="missing", cost=cost, fix=fix)
    return Finding(name=package, state="ok", found=version)


def _torch() -> Finding:
    lost = "no engine, trainer or loss of this repository runs"
    try:
        import torch
    except ImportError as problem:
        if isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
            return Finding(name="torch", state="missing", cost=lost, fix="pip install torch")
        return Finding(name="torch", state="broken", found=str(problem), cost=lost)
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return Finding(name="torch", state="ok", found=f"{torch.__version__}, {built}")


def _reach() -> Finding:
    """Whether torch can use the GPUs that the driver tells of. Nothing is allocated on them."""
    name = "torch on GPUs"
    try:
        import torch
    except ImportError:
        return Finding(name=name, state="missing", cost="the GPUs are not used")
    if torch.cuda.is_available():
        return Finding(name=name, state="ok", found=f"{torch.cuda.device_count()} of them")
    why = "torch was built without CUDA"
    if torch.version.cuda:
        why = f"the driver is too old for CUDA {torch.version.cuda}, or the GPUs are hidden"
    return Finding(
        name=name,
        state="broken",
        found=why,
        cost="models run on the CPU",
        fix="install the torch for this driver: https://pytorch.org/get-started/locally",
    )


def _gpus() -> Iterator[Finding]:
    """One finding for the driver, and one a device."""
    query = ["nvidia-smi", "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_WAIT_S, check=True)
    except FileNotFoundError:
        cost = "models run on the CPU: engine and trainer of axisrl-plugin-local only"
        yield Finding(name="NVIDIA driver", state="missing", cost=cost)
        return
    except subprocess.SubprocessError as problem:
        fix = "see what nvidia-smi says"
        yield Finding(name="NVIDIA driver", state="broken", found=str(problem), fix=fix)
        return
    rows = [line.split(", ") for line in done.stdout.splitlines() if line]
    for driver in sorted({row[0] for row in rows}):
        yield Finding(name="NVIDIA driver", state="ok", found=driver)
    for number, (_, name, memory) in enumerate(rows):
        yield Finding(name=f"GPU {number}", state="ok", found=f"{name}, {memory}")
