"""Driver: one call from a resolved config to a finished run folder.

1. Find the checkpoint, the model and the data, build the loggers: nothing is written before.
2. Claim the folder, write its manifest, assemble the parts.
3. Run the mode's loop until done, interrupted (SIGTERM, SIGINT) or failed. When a process is lost
   whose place nobody can take, all are started again and go on from the newest checkpoint, as a
   resumed run would.
4. However it ended: a checkpoint where the state is whole, the manifest's state, loggers finished,
   actors ended.

It decides nothing about the algorithm (:mod:`axisrl.runtime.controller`) and what other modes do
(:mod:`axisrl.runtime.modes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from axisrl.config.load import LoadedConfig, check_models, make_folder, write_config
from axisrl.config.schema import ModelConfig, RunConfig, Use
from axisrl.errors import ActorGone, CheckpointError, PluginMismatch, RankLost, StoreLost
from axisrl.models import resolve_model
from axisrl.plugins import Kind
from axisrl.plugins.events import RunFinished, RunInfo
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.manifest import PluginManifest
from axisrl.runtime.actors import ActorBoot, build_component
from axisrl.runtime.checkpoint import RunState, latest, read_state
from axisrl.runtime.claim import claimed
from axisrl.runtime.faults import Injector
from axisrl.runtime.garbage import settled
from axisrl.runtime.interrupt import Interrupted
from axisrl.runtime.loggers import LoggerGroup
from axisrl.runtime.manifest import continued, new_manifest, read_manifest, write_manifest
from axisrl.runtime.modes import LOOPS, RunLoop
from axisrl.runtime.options import RunOptions
from axisrl.runtime.parts import DriverSide, RunParts, assemble
from axisrl.runtime.vocabulary import check_same_tokens
from axisrl.types import ModelSpec

_LOGGER = logging.getLogger("axisrl.run")
_LOSSES = (ActorGone, RankLost, StoreLost)
"""What a fresh start from the newest checkpoint makes good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended."""

    outcome: Literal["completed", "interrupted"]
    run_dir: Path
    step: int
    report: tuple[str, ...] = ()
    """Lines for whoever started it; a completed run's mode says what is in them."""


def run(loaded: LoadedConfig, manager: PluginManager, options: RunOptions) -> RunResult:
    """Run a resolved config to its end. A failure is raised after the run folder says what it
    was."""
    return asyncio.run(_Driver(loaded, manager, options).run())


class _Driver:
    """One run: folder, manifest, parts, loop, end."""

    def __init__(self, loaded: LoadedConfig, manager: PluginManager, options: RunOptions) -> None:
        self._loaded = loaded
        self._config: RunConfig = loaded.config
        self._plugins = manager
        self._options = options
        self._run_dir = options.run_dir
        self._manifest: dict[str, Any] = {}
        self._first: Mapping[str, dict[str, Any]] | None = None
        """The loggers' state before the first step, once the run has been up."""
        self._report: tuple[str, ...] = ()

    async def run(self) -> RunResult:
        resume = self._find_checkpoint() if self._options.resume else None
        boot = self._boot()
        faults = Injector(self._options.faults) if self._options.faults else None
        driver = DriverSide(boot, self._plugins, self._loggers(boot), faults)
        if self._options.overwrite:
            shutil.rmtree(self._run_dir)
        make_folder(self._run_dir)
        interrupt = asyncio.Event()
        with claimed(self._run_dir), _signals(interrupt):
            self._open_folder(resume[1] if resume else None)
            try:
                outcome = await self._attempts(driver, resume, interrupt)
            except BaseException as error:
                self._close(driver.loggers, "failed", f"{type(error).__name__}: {error}")
                raise
            self._close(driver.loggers, outcome, "")
        step = self._manifest["step"]
        return RunResult(outcome=outcome, run_dir=self._run_dir, step=step, report=self._report)

    async def _attempts(
        self,
        driver: DriverSide,
        resume: tuple[Path, RunState] | None,
        interrupt: asyncio.Event,
    ) -> Literal["completed", "interrupted"]:
        while True:
            try:
                return await self._assembled(driver, resume, interrupt)
            except _LOSSES as loss:
                if self._first is None:
                    raise  # it was never up: what is missing will be missing again
                driver.budget.spend(loss, "rewinds")
                driver.loggers.finish("interrupted")
                found = latest(self._run_dir)
                resume = (found, read_state(found)) if found else None
                where = f"to {found.name}" if found else "to its beginning"
                _LOGGER.warning("the run goes back %s: %s", where, loss.message)

    async def _assembled(
        self,
        driver: DriverSide,
        resume: tuple[Path, RunState] | None,
        interrupt: asyncio.Event,
    ) -> Literal["completed", "interrupted"]:
        parts = await assemble(driver)
        try:
            await parts.supervisor.guard(self._prepared(parts, resume))
            with settled():
                return await self._loop(LOOPS[self._config.mode](parts, interrupt))
        finally:
            self._manifest["step"] = parts.state.step
            await parts.close()

    async def _prepared(self, parts: RunParts, resume: tuple[Path, RunState] | None) -> None:
        again = self._first is not None
        if resume:
            await parts.resume(*resume)
        elif again:
            await parts.start_over()
        state = resume[1] if resume else None
        self._start_loggers(parts, state, state.loggers if state else self._first)
        if not again:
            self._first = dict(parts.loggers.state_dict())

    async def _loop(self, loop: RunLoop) -> Literal["completed", "interrupted"]:
        parts = loop.parts
        try:
            await parts.supervisor.guard(loop.run())
        except Interrupted:
            await parts.save()
            return "interrupted"
        except Exception:  # re-raised; what the run has learnt so far is not lost with it
            if not loop.inside_window and parts.state.step:
                await _rescue(parts)
            raise
        await parts.save()
        self._report = tuple(loop.report())
        return "completed"

    def _open_folder(self, resumed: RunState | None) -> None:
        """Write what the folder says of this start."""
        name = self._config.name or self._run_dir.name
        plugins = self._plugins.manifest().to_dict()
        fresh = new_manifest(name, self._loaded.recipe, self._options.command, plugins)
        if resumed is None or self._options.allow_drift:
            write_config(self._loaded, self._run_dir)
        if resumed is None:
            self._manifest = fresh
        else:
            before = read_manifest(self._run_dir) or {}
            self._manifest = continued(fresh, before, resumed.step)
        write_manifest(self._run_dir, self._manifest)

    def _find_checkpoint(self) -> tuple[Path, RunState]:
        checkpoint = latest(self._run_dir)
        if checkpoint is None:
            raise CheckpointError(
                f"{self._run_dir} has no complete checkpoint to resume from",
                fix="start it anew with --overwrite",
            )
        stored = (read_manifest(self._run_dir) or {}).get("plugins", {})
        before = PluginManifest.from_dict(stored)
        lines = before.differences(self._plugins.manifest(), mine="then", theirs="now")
        changed = f"plugins changed since the run started: {'; '.join(lines)}"
        if lines and not self._options.allow_drift:
            raise PluginMismatch(
                changed, fix="install the versions of before, or resume with --allow-drift"
            )
        if lines:
            _LOGGER.warning("drift: %s", changed)
        return checkpoint, read_state(checkpoint)

    def _boot(self) -> ActorBoot:
        config, models = self._config, dict[str, ModelSpec]()
        policy = self._spec(config.model)
        if config.value:
            value = self._spec(config.value.model or config.model)
            models["value"] = dataclasses.replace(value, head="value")
        if config.teacher:
            models["teacher"] = self._spec(config.teacher.model)
        for role, model in models.items():
            check_same_tokens(f"{role}.model", model, policy)
        folders = {f"{role}.model": model.path for role, model in models.items()}
        check_models(self._loaded, self._plugins, {"model": policy.path} | folders)
        return ActorBoot(
            role="driver",
            rank=0,
            manifest=self._plugins.manifest(),
            config=config,
            run_dir=self._run_dir,
            model=policy,
            models=models,
        )

    def _spec(self, model: ModelConfig) -> ModelSpec:
        path = resolve_model(model.name, self._plugins, self._options.cache_dir)
        return ModelSpec(name=model.name, path=path, dtype=model.dtype, device=model.device)

    def _loggers(self, boot: ActorBoot) -> LoggerGroup:
        services = {"model": boot.model, "environ": self._options.environ}
        built = []
        for index, use in enumerate(self._config.loggers):
            what: tuple[Kind, Use, str] = ("logger", self._display(use), f"loggers.{index}")
            built.append((use.use, build_component(self._plugins, boot, services, what)))
        return LoggerGroup(built)

    def _display(self, use: Use) -> Use:
        """The console with the command line's wishes."""
        if use.use not in ("core/console", "console"):
            return use
        wishes: dict[str, Any] = {"plain": True} if self._options.plain else {}
        if self._options.show_samples is not None:
            wishes["show_samples"] = self._options.show_samples
        return dataclasses.replace(use, options={**use.options, **wishes})

    def _start_loggers(
        self,
        parts: RunParts,
        state: RunState | None,
        states: Mapping[str, dict[str, Any]] | None,
    ) -> None:
        info = RunInfo(
            name=self._manifest["name"],
            recipe=self._loaded.recipe,
            run_dir=self._run_dir,
            seed=self._config.seed,
            config=self._loaded.tree,
            resumed_from=state.step if state else None,
        )
        parts.loggers.start(info, states)
        self._plugins.run_started(info)

    def _close(self, loggers: LoggerGroup, outcome: str, error: str) -> None:
        loggers.finish(outcome)
        self._plugins.run_finished(RunFinished(outcome=outcome, error=error))
        for failed in self._plugins.hook_failures():
            what = (failed.plugin, failed.hook, failed.count, failed.error)
            _LOGGER.warning("plugin %s: %s failed %d times in this run, first: %s", *what)
        self._manifest |= {"state": outcome, "error": error}
        write_manifest(self._run_dir, self._manifest)


async def _rescue(parts: RunParts) -> None:
    """Save what a run that failed at a border has learnt; its own error is the one that counts."""
    try:
        await parts.save()
    except Exception as error:  # noqa: BLE001 - see above
        _LOGGER.warning("the state of step %d could not be saved: %s", parts.state.step, error)


@contextlib.contextmanager
def _signals(interrupt: asyncio.Event) -> Iterator[None]:
    """SIGTERM and the first SIGINT ask the run to stop; a second SIGINT stops it at once."""
    loop = asyncio.get_running_loop()

    def ask(number: int) -> None:
        _LOGGER.warning("stopping: a checkpoint is written first")
        interrupt.set()
        if number == signal.SIGINT:
            loop.remove_signal_handler(number)

    numbers = (signal.SIGTERM, signal.SIGINT)
    try:
        for number in numbers:
            loop.add_signal_handler(number, ask, number)
    except (NotImplementedError, RuntimeError, ValueError):
        pass  # not the main thread, or no signals on this platform: nobody can ask this way
    try:
        yield
    finally:
        for number in numbers:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)
