"""Every exception axisrl raises on purpose, in one tree.

1. An error is one sentence that names the thing, and one ``fix`` that says what to do.
2. ``exit_code`` is what the command line exits with: 1 run failed, 2 usage or config, 3
   environment, 4 plugin.
3. All of them survive pickling between processes, with every attribute
   (custom ``__init__`` arguments would otherwise be lost: see :meth:`AxisrlError.__reduce__`).
4. The ``*Failure`` classes name the boundary at which a rollout broke; they decide its ``Outcome``.
"""

from __future__ import annotations

from typing import Any


class AxisrlError(Exception):
    """Base of all. ``message`` says what is wrong, ``fix`` what the user can do (may be empty)."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[AxisrlError], args: tuple[Any, ...], state: dict[str, Any]) -> AxisrlError:
    error = cls.__new__(cls)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class UsageError(AxisrlError):
    """A wrong command line: unknown recipe, missing file, existing run folder."""

    exit_code = 2


class ConfigError(AxisrlError):
    """A configuration that cannot run: unknown key, wrong type, sizes that do not divide."""

    exit_code = 2


class EnvironmentProblem(AxisrlError):
    """The machine lacks something: a package, a device, a model file, a dataset."""

    exit_code = 3


class PluginError(AxisrlError):
    """A plugin that this run asks for cannot be used (broken, incompatible, conflict, missing
    extra)."""

    exit_code = 4


class PluginMismatch(PluginError):
    """A worker has other plugins, or other versions of them, than the driver."""


class RunFailed(AxisrlError):
    """The run itself ended badly: too many failed rollouts, a dead actor out of restarts."""


class RankLost(RunFailed):
    """A trainer rank waited for others that are gone or late; names them where it can."""


class ActorGone(RunFailed):
    """A call reached nobody: the actor's process died, or was ended."""


class ActorStuck(ActorGone):
    """An actor did not answer a call within its deadline, and was ended for it."""


class Irreplaceable(ActorGone):
    """An actor is gone, and what another one would need to take its place is not there now."""


class AbortRun(AxisrlError):
    """Raised by a lifecycle hook to end the run on purpose; the only hook exception that
    propagates."""


class CheckpointError(AxisrlError):
    """A checkpoint is missing, unfinished, damaged or of another configuration."""

    exit_code = 2


class StoreError(AxisrlError):
    """A handle that is unknown, released, expired or damaged."""


class StoreLost(StoreError):
    """A handle store, or something that was put into it, is not there any more."""


class WeightSyncError(AxisrlError):
    """An engine did not echo the version and checksum it was sent; names the rank and both
    versions."""


class ServiceFailure(AxisrlError):
    """A call of a named service that has no answer; whoever called it is charged with it."""


class RolloutFailure(AxisrlError):
    """Base of the failures that belong to one rollout and never end a run alone."""


class EnvFailure(RolloutFailure):
    """The environment raised or timed out."""


class VerifierFailure(RolloutFailure):
    """A verifier or reward raised, timed out, or lacked the field it needs."""


class EngineFailure(RolloutFailure):
    """The rollout engine refused or lost a request."""


class HarnessFailure(RolloutFailure):
    """A black-box agent's process broke for reasons that are not the policy's."""
