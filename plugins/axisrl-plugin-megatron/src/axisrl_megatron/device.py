"""The device of a model, and what Megatron does on CUDA devices alone."""

from __future__ import annotations

import torch

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_megatron.doctor import ENGINE_INSTALL
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
    use_device(device)
    return device


def use_device(device: torch.device) -> None:
    """Let this thread's new tensors of Megatron's be there: torch keeps a current CUDA device for
    each thread, and a trainer is called from several."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def is_megatrons(device: torch.device) -> bool:
    """True where Megatron's own buffers would be on ``device``: it asks for the current CUDA
    device."""
    try:
        return torch.device(torch.cuda.current_device()).type == device.type
    except (AssertionError, RuntimeError):  # a torch without CUDA, a machine without a GPU
        return False


def check_device(layout: Layout, device: torch.device) -> None:
    """Raise ``ConfigError`` for a layout whose ranks Megatron lets exchange on CUDA devices alone,
    when ``device`` is none."""
    exchanging = layout.sequence or layout.pipeline * layout.expert_parts > 1
    if not exchanging or is_megatrons(device):
        return
    if layout.expert_parts > 1:
        raise ConfigError(
            f"trainer.expert {layout.expert} x trainer.expert_tensor {layout.expert_tensor}: "
            f"Megatron moves tokens to experts on CUDA devices alone, and the model is on {device}",
            fix="leave both out, or train on GPUs",
        )
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


def check_layers(implementation: str, device: torch.device) -> None:
    """Raise ``ConfigError`` where the layers of ``trainer.transformer_impl`` cannot be made."""
    from megatron.core.extensions.transformer_engine import HAVE_TE

    option = f"trainer.transformer_impl {implementation}"
    if implementation == "local":
        return
    if not HAVE_TE:
        raise ConfigError(
            f"{option}: Transformer Engine is not installed, or torch cannot load it",
            fix=f"{ENGINE_INSTALL}; or leave it out (`axisrl doctor megatron` tells more)",
        )
    if not is_megatrons(device):
        raise ConfigError(
            f"{option}: it computes on CUDA devices alone, and the model is on {device}",
            fix="leave it out, or train on a GPU",
        )
