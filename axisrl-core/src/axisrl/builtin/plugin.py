"""Registers the core's own components, ``core/...``. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from axisrl.plugins import (
    AdvantageComponent,
    ConfigProblem,
    DatasetComponent,
    HandleStoreComponent,
    HealthComponent,
    LoggerComponent,
    LossComponent,
    PackerComponent,
    RewardComponent,
    VerifierComponent,
    hookimpl,
)

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig, Use

_CONFIG = "axisrl.builtin.config"


@hookimpl
def axisrl_health_checks() -> Iterable[HealthComponent]:
    """What this machine has."""
    return (
        HealthComponent(
            name="machine",
            target="axisrl.builtin.doctor:machine",
            summary="Driver, GPUs, torch, and the packages of the core's extras",
        ),
    )


@hookimpl
def axisrl_handle_stores() -> Iterable[HandleStoreComponent]:
    """Where heavy arrays live, by how far a handle can travel."""
    return (
        HandleStoreComponent(
            name="memory",
            target="axisrl.builtin.memory_handles:MemoryHandleStore",
            summary="Arrays in this process",
            reach="process",
        ),
        HandleStoreComponent(
            name="shm",
            target="axisrl.builtin.shm_handles:SharedMemoryHandleStore",
            config=f"{_CONFIG}:SharedMemoryConfig",
            summary="Arrays in mapped files of this machine's shared memory",
            reach="machine",
        ),
        HandleStoreComponent(
            name="ray",
            target="axisrl.builtin.ray_handles:RayHandleStore",
            summary="Arrays in Ray's object store, on every node",
            extras=("ray",),
            modules=("ray",),
            reach="cluster",
        ),
    )


@hookimpl
def axisrl_packers() -> Iterable[PackerComponent]:
    """Row packing without shared prefixes."""
    return (
        PackerComponent(
            name="linear",
            target="axisrl.builtin.linear_packer:LinearPacker",
            summary="Rows end to end, first-fit-decreasing under the token budget",
        ),
    )


@hookimpl
def axisrl_verifiers() -> Iterable[VerifierComponent]:
    """Judges that need no task of their own."""
    return (
        VerifierComponent(
            name="judge",
            target="axisrl.builtin.judge_verifier:JudgeVerifier",
            config="axisrl.builtin.judge_config:JudgeConfig",
            summary="Asks a language model behind an OpenAI-compatible endpoint",
            extras=("judge",),
            modules=("openai",),
            deterministic=False,
        ),
    )


@hookimpl
def axisrl_rewards() -> Iterable[RewardComponent]:
    """The reward of a run that names none, and prices on length beside it."""
    return (
        RewardComponent(
            name="sum",
            target="axisrl.builtin.sum_reward:SumReward",
            config=f"{_CONFIG}:SumRewardConfig",
            summary="Weighted sum of verifier scores and the env's reward parts",
        ),
        RewardComponent(
            name="length",
            target="axisrl.builtin.length_reward:LengthReward",
            config=f"{_CONFIG}:LengthRewardConfig",
            summary="Penalty for each sampled token beyond a free number",
        ),
        RewardComponent(
            name="overlong",
            target="axisrl.builtin.overlong_reward:OverlongReward",
            config=f"{_CONFIG}:OverlongRewardConfig",
            summary="Soft punishment near and over a length (DAPO)",
        ),
    )


@hookimpl
def axisrl_advantages() -> Iterable[AdvantageComponent]:
    """The reward as it is."""
    return (
        AdvantageComponent(
            name="reward",
            target="axisrl.builtin.reward_advantage:RewardAdvantage",
            summary="The reward itself, without a baseline",
            group_relative=False,
        ),
    )


@hookimpl
def axisrl_losses() -> Iterable[LossComponent]:
    """Supervised fine-tuning."""
    return (
        LossComponent(
            name="sft",
            target="axisrl.builtin.sft_loss:SftLoss",
            config="axisrl.config.losses:LossConfig",
            summary="Negative log-likelihood of trained tokens",
            supervised=True,
        ),
    )


@hookimpl
def axisrl_datasets() -> Iterable[DatasetComponent]:
    """Tasks from a file."""
    return (
        DatasetComponent(
            name="tasks",
            target="axisrl.builtin.tasks_dataset:TasksDataset",
            config=f"{_CONFIG}:TasksConfig",
            summary="One JSON object a line of a local file",
        ),
    )


@hookimpl
def axisrl_metric_loggers() -> Iterable[LoggerComponent]:
    """Where numbers and samples go."""
    return (
        LoggerComponent(
            name="console",
            target="axisrl.builtin.console_logger:ConsoleLogger",
            config=f"{_CONFIG}:ConsoleConfig",
            summary="Live view in a terminal, one line a step elsewhere",
        ),
        LoggerComponent(
            name="jsonl",
            target="axisrl.builtin.jsonl_logger:JsonlLogger",
            summary="metrics.jsonl in the run folder",
        ),
        LoggerComponent(
            name="tensorboard",
            target="axisrl.builtin.tensorboard_logger:TensorBoardLogger",
            summary="TensorBoard event files in the run folder",
            extras=("tensorboard",),
            modules=("tensorboard",),
        ),
        LoggerComponent(
            name="wandb",
            target="axisrl.builtin.wandb_logger:WandbLogger",
            config=f"{_CONFIG}:WandbConfig",
            summary="Weights & Biases: online, offline or disabled",
            extras=("wandb",),
            modules=("wandb",),
        ),
    )


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """Prices on a length that no rollout can reach."""
    if config.mode != "train":
        return
    rollout = config.rollout
    most = rollout.max_turns * min(rollout.sampling.max_tokens, rollout.max_context)
    for name, use in config.rewards.items():
        free, key = _free_tokens(use)
        if free is not None and free >= most:
            yield ConfigProblem(
                path=f"rewards.{name}.{key}",
                message=f"{use.use} costs nothing up to {free} tokens, and a rollout samples at "
                f"most {most}",
                fix=f"set rewards.{name}.{key} to what rollout.sampling.max_tokens allows",
            )


def _free_tokens(use: Use) -> tuple[int | None, str]:
    """Sampled tokens that cost nothing, and the option that says so; None for other rewards."""
    if use.id == "core/overlong":
        return use.options["max_tokens"] - use.options["cache_tokens"], "max_tokens"
    return (use.options["free_tokens"], "free_tokens") if use.id == "core/length" else (None, "")
