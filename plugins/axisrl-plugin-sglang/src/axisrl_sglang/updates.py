"""Weight updates: what the SGLang process is told, and what its report means."""

from __future__ import annotations

from collections.abc import Sequence

from axisrl.errors import WeightSyncError
from axisrl.types import WeightUpdate
from axisrl_sglang.messages import Report, Weights

TRANSPORTS = ("shared_memory", "disk", "cuda_ipc", "nccl")


def described(update: WeightUpdate, *, verify: bool, ranks: int = 1, receiver: str = "") -> Weights:
    """What the SGLang process needs to know; ``ranks`` is its tensor parallelism, ``receiver`` a
    name that no other engine has. Raises ``WeightSyncError`` for what it cannot take."""
    if update.transport not in TRANSPORTS:
        raise WeightSyncError(
            f"sglang/engine cannot receive weights by {update.transport!r}",
            fix=f"let the trainer send by one of {', '.join(TRANSPORTS)}",
        )
    if update.transport == "cuda_ipc" and ranks > 1:
        raise WeightSyncError(
            f"sglang/engine cannot receive weights by 'cuda_ipc' in tp_size {ranks} processes: one "
            "reads what one trainer shares",
            fix="set trainer.transport to nccl, or to shared_memory",
        )
    if update.adapter is not None:
        raise WeightSyncError(
            f"weight update {update.version} is a low-rank adapter, and sglang/engine without "
            "engine.lora takes full weights",
            fix="set engine.lora, or let the trainer offer merged weights: trainer.lora.update "
            "merged",
        )
    return Weights(
        version=update.version,
        transport=update.transport,
        location=update.location,
        checksum=update.checksum,
        verify=verify,
        receiver=receiver,
        receivers=update.receivers,
    )


def require_served(update: WeightUpdate, reports: Sequence[Report]) -> None:
    """Raise ``WeightSyncError`` unless every rank serves the update."""
    for rank, report in enumerate(reports):
        if not report.problem:
            continue
        state = "its weights are no longer whole" if report.changed else "it kept what it had"
        raise WeightSyncError(
            f"weight update {update.version} is not served by rank {rank} of SGLang: "
            f"{report.problem}; {state}",
            fix="engine and trainer must load the same model; engine.verify_weights false only "
            "checks what arrives, for models that SGLang rearranges",
        )
