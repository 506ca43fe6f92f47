"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.plugins import (
    DatasetComponent,
    EnvComponent,
    RecipeComponent,
    RewardComponent,
    VerifierComponent,
    hookimpl,
)


@hookimpl
def axisrl_datasets() -> Iterable[DatasetComponent]:
    """GSM8K itself and generated arithmetic."""
    return [
        DatasetComponent(
            name="gsm8k",
            target="axisrl_gsm8k.dataset:Gsm8k",
            config="axisrl_gsm8k.config:Gsm8kConfig",
            summary="GSM8K from a file, a folder or the Hugging Face hub",
        ),
        DatasetComponent(
            name="arithmetic",
            target="axisrl_gsm8k.arithmetic:Arithmetic",
            config="axisrl_gsm8k.config:ArithmeticConfig",
            summary="Generated arithmetic in GSM8K's answer format, offline",
        ),
    ]


@hookimpl
def axisrl_envs() -> Iterable[EnvComponent]:
    """One problem, one answer."""
    return [
        EnvComponent(
            name="math",
            target="axisrl_gsm8k.env:MathEnv",
            config="axisrl_gsm8k.config:MathEnvConfig",
            summary="Shows a problem, optionally after solved examples, and takes one answer",
            max_turns_hint=1,
        )
    ]


@hookimpl
def axisrl_verifiers() -> Iterable[VerifierComponent]:
    """The number after ``####``, and boxed LaTeX."""
    return [
        VerifierComponent(
            name="math",
            target="axisrl_gsm8k.verifier:MathVerifier",
            config="axisrl_gsm8k.config:MathVerifierConfig",
            summary="The number after the last ####, compared exactly",
        ),
        VerifierComponent(
            name="boxed",
            target="axisrl_gsm8k.boxed:BoxedVerifier",
            config="axisrl_gsm8k.config:BoxedVerifierConfig",
            summary="The last boxed LaTeX answer, through math-verify with a time-out",
            extras=("boxed",),
            modules=("math_verify", "pebble"),
        ),
    ]


@hookimpl
def axisrl_rewards() -> Iterable[RewardComponent]:
    """Correctness with a share for format."""
    return [
        RewardComponent(
            name="format",
            target="axisrl_gsm8k.reward:FormatReward",
            config="axisrl_gsm8k.config:FormatRewardConfig",
            summary="A right answer, and a small share for stating a number after ####",
        )
    ]


@hookimpl
def axisrl_recipes() -> Iterable[RecipeComponent]:
    """GRPO and PPO, on GPUs and on a laptop."""
    return [
        RecipeComponent(
            name="grpo",
            target="axisrl_gsm8k:configs/grpo.yaml",
            summary="Qwen2.5-1.5B-Instruct on GSM8K with GRPO, SGLang and Megatron",
            smoke="axisrl_gsm8k:configs/smoke.yaml",
        ),
        RecipeComponent(
            name="grpo-1gpu",
            target="axisrl_gsm8k:configs/grpo-1gpu.yaml",
            summary="gsm8k/grpo on one GPU, whose memory engine and models share",
            smoke="axisrl_gsm8k:configs/smoke.yaml",
        ),
        RecipeComponent(
            name="grpo-cpu",
            target="axisrl_gsm8k:configs/grpo-cpu.yaml",
            summary="SmolLM2-135M-Instruct on small sums with GRPO, on a CPU in minutes",
            smoke="axisrl_gsm8k:configs/smoke.yaml",
        ),
        RecipeComponent(
            name="ppo",
            target="axisrl_gsm8k:configs/ppo.yaml",
            summary="gsm8k/grpo with PPO and a value model",
            smoke="axisrl_gsm8k:configs/ppo-smoke.yaml",
        ),
        RecipeComponent(
            name="ppo-1gpu",
            target="axisrl_gsm8k:configs/ppo-1gpu.yaml",
            summary="gsm8k/ppo on one GPU, whose memory engine and models share",
            smoke="axisrl_gsm8k:configs/ppo-smoke.yaml",
        ),
        RecipeComponent(
            name="ppo-cpu",
            target="axisrl_gsm8k:configs/ppo-cpu.yaml",
            summary="gsm8k/grpo-cpu with PPO and a value model",
            smoke="axisrl_gsm8k:configs/ppo-smoke.yaml",
        ),
    ]
