"""The device of a model, and what Megatron does on CUDA devices alone."""

from __future__ import annotations

import torch

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_megatron.layout import Layout


def device_of(name: str) -> torch.device:
    """As :class:`axisrl.types.ModelSpec` says."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name.startswith("cuda") and not available:
        raise EnvironmentProblem(
            f"model.device is {name!r} but torch sees no CUDA device",
            fix="set model.device=cpu, or install a CUDA build of torch",
        )
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)  # where Megatron makes its parameters
    return device


def _is_megatrons(device: torch.device) -> bool:
    """True where Megatron's own buffers would be on ``device``: it asks for the current CUDA
    device."""
    try:
        return torch.device(torch.cuda.current_device()).type == device.type
    except (AssertionError, RuntimeError):  # a torch without CUDA, a machine without a GPU
        return False


def check_device(layout: Layout, device: torch.device) -> None:
    """Raise ``ConfigError`` for a layout whose ranks Megatron lets exchange on CUDA devices alone,
    when ``device`` is none."""
    if not (layout.sequence or layout.pipeline > 1) or _is_megatrons(device):
        return
    if layout.pipeline > 1:
        raise ConfigError(
            f"trainer.pipeline {layout.pipeline}: Megatron exchanges stages on CUDA devices alone, "
            f"and the model is on {device}",
            fix="set trainer.pipeline to 1, or train on GPUs",
        )
    raise ConfigError(
        "trainer.sequence: Megatron divides a layer's tokens on CUDA devices alone",
        fix="leave it out on a CPU",
    )
