"""PlacementConfig: where a run's actors live, and how long they wait for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from axisrl.config.base import Config
from axisrl.config.use import above_zero, at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementConfig(Config):
    """Where the actors live."""

    short_form: ClassVar[str] = "kind"

    kind: Literal["inline", "ray"] = "inline"
    """``inline``: in this process. ``ray``: one process an actor."""
    address: str = ""
    """Ray cluster to join; empty starts a local one."""
    cpus_per_actor: float = 0.25
    """Share of a CPU Ray sets aside for each actor; it limits how many fit, not what they use."""
    strategy: Literal["pack", "spread"] = "pack"
    """The actors of one resource group (engines, trainers, workers): on as few machines as
    possible, or on as many."""
    engines: int = 1
    """Engines that serve the same weights; a rollout stays on one of them."""
    engine_nodes: int = 1
    """Machines that each engine spans: a process on every one, with ``gpus_engine`` there."""
    verifiers: int = 0
    """Processes that judge rollouts; 0 judges in the rollout workers. A verifier that blocks or
    takes its process down then costs one rollout: the process is replaced."""
    rewards: int = 0
    """Processes that compute rewards; 0 computes them in the rollout workers."""
    gpus_engine: float = 0.0
    """GPUs that Ray gives each engine: a share of one, or several."""
    gpus_trainer: float = 0.0
    """GPUs that Ray gives each rank of policy and value model, the reference and the teacher."""
    colocate: bool = False
    """Engines and trainers share their GPUs and take turns with the memory: engines while rollouts
    are played, one model after another while they are learnt from. ``kind: ray`` then places all of
    them in bundles of one GPU each; ``gpus_engine`` and ``gpus_trainer`` are shares of it."""
    trainer_ranks: int = 1
    """Processes that train the policy together, each on its share of every batch (data parallel);
    the value model has as many of its own."""
    rank_timeout_s: float = 300.0
    """Longest time trainer ranks wait for each other; then the missing one is named."""
    restarts: int = 10
    """Processes that may be lost between two checkpoints. An engine or a rollout worker is replaced
    and its rollouts go on; for any other the run goes back to its newest checkpoint."""
    lease_s: float = 60.0
    """A process that does not answer for so long is ended, and counts as lost."""
    restart_timeout_s: float = 900.0
    """A process that takes the place of a lost one, and is not ready after this, counts as lost,
    too: where its machine is gone there may be no room for another."""
    sync_timeout_s: float = 300.0
    """An engine that has not echoed new weights after this is an error naming the rank and both
    versions."""

    @property
    def shared_gpus(self) -> int:
        """GPUs that engines and models share; 0 where each has its own."""
        return max(self.engines, self.trainer_ranks) if self.colocate else 0

    def __post_init__(self) -> None:
        at_least(0, gpus_engine=self.gpus_engine, gpus_trainer=self.gpus_trainer)
        at_least(0, cpus_per_actor=self.cpus_per_actor)
        at_least(0, verifiers=self.verifiers, rewards=self.rewards)
        at_least(1, engines=self.engines, trainer_ranks=self.trainer_ranks)
        at_least(1, engine_nodes=self.engine_nodes)
        at_least(0, restarts=self.restarts)
        if self.colocate and round(self.gpus_engine + self.gpus_trainer, 6) > 1:
            raise ValueError(
                f"colocate shares single GPUs, and gpus_engine {self.gpus_engine:g} and "
                f"gpus_trainer {self.gpus_trainer:g} together take more than one: set both lower, "
                "to 0.5 for instance"
            )
        if self.engine_nodes > 1 and self.colocate:
            raise ValueError(
                f"colocate shares single GPUs, and engine_nodes {self.engine_nodes} takes several"
            )
        if self.engine_nodes > 1 and not (self.cpus_per_actor or self.gpus_engine):
            raise ValueError(
                f"engine_nodes {self.engine_nodes} are told apart by what each holds: set "
                "cpus_per_actor or gpus_engine above 0"
            )
        above_zero(sync_timeout_s=self.sync_timeout_s, rank_timeout_s=self.rank_timeout_s)
        above_zero(lease_s=self.lease_s, restart_timeout_s=self.restart_timeout_s)
