"""``axisrl chaos``: kill parts of a run on purpose, again and again, and print what became of it.

It loads and checks the configuration as ``axisrl run`` does, then starts ``axisrl run`` processes.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from axisrl.errors import UsageError

if TYPE_CHECKING:
    from axisrl.chaos.campaign import Baseline, Campaign
    from axisrl.chaos.verdict import Verdict
    from axisrl.config.load import LoadedConfig
    from axisrl.config.schema import RunConfig

_PATH = click.Path(path_type=Path)
_ALL = "engine,trainer,worker,verifier,store,driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The command line."""

    words: tuple[str, ...]
    kill: str | None
    every: int
    seed: int
    runs: int
    parallel: int
    baseline: Path | None
    limit: float | None
    folder: Path | None
    keep: bool
    json_file: Path | None
    smoke: bool
    configs: tuple[str, ...]
    plugins: tuple[str, ...]
    no_plugins: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        """What every ``axisrl run`` needs, a resumed one too."""
        found = [("--plugin", name) for name in self.plugins]
        found += [("--no-plugin", name) for name in self.no_plugins]
        return [word for pair in found for word in pair]

    @property
    def recipe(self) -> list[str]:
        """What a new run is started with."""
        overlays = [word for file in self.configs for word in ("--config", file)]
        return [*self.words, *overlays, *(["--smoke"] if self.smoke else [])]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="RECIPE [key.path=value ...]")
@click.option(
    "--kill",
    metavar="TARGETS",
    help=f"What dies.  [default: {_ALL}, as far as the run has them]",
)
@click.option(
    "--every",
    default=2,
    show_default=True,
    metavar="N",
    type=click.IntRange(1),
    help="Updates that share one fault.",
)
@click.option("--seed", default=0, show_default=True, help="Chooses targets and points.")
@click.option(
    "--runs",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Runs, with this seed and those after it.",
)
@click.option(
    "--parallel",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    metavar="P",
    help="Runs at once.",
)
@click.option(
    "--baseline", type=_PATH, metavar="RUN", help="A run without faults; else one is made."
)
@click.option(
    "--limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="When a run counts as hung.  [default: from the run without faults]",
)
@click.option(
    "--dir", "folder", type=_PATH, help="Where runs go.  [default: output folder/chaos-...]"
)
@click.option("--keep", is_flag=True, help="Keep the folders of good runs when there are several.")
@click.option(
    "--json", "json_file", type=_PATH, metavar="FILE", help="Write the verdicts there, too."
)
@click.option("--smoke", is_flag=True, help="The recipe at its smallest.")
@click.option(
    "--config", "configs", multiple=True, metavar="FILE|PRESET", help="As axisrl run has it."
)
@click.option("--plugin", "plugins", multiple=True, help="As axisrl run has it.")
@click.option("--no-plugin", "no_plugins", multiple=True, help="As axisrl run has it.")
@click.pass_context
def chaos(context: click.Context, /, **given: Any) -> None:
    """Run RECIPE while parts of it are killed, and say what was healed, lost or doubled.

    The exit code is 0 when everything was healed and nothing lost, doubled or hung.
    """
    context.exit(execute(Given(**given)))


def execute(given: Given) -> int:
    """Make the run without faults, then those with them; the exit code."""
    from axisrl.runfolder import RunFolder

    loaded, targets, forced = _loaded(given)
    known = _known_baseline(given, loaded)
    campaign = _campaign(given, loaded, targets, forced)
    baseline = known or campaign.play_baseline()
    crowd = min(given.parallel, given.runs) / (os.cpu_count() or 1)
    limit = given.limit or campaign.bound(baseline, crowd)
    reward = _shown(RunFolder(baseline.run_dir).last_reward)
    click.echo(f"without faults: {baseline.seconds:.0f} s, reward {reward}  {baseline.run_dir}")
    click.echo(f"bound: a run that takes longer than {limit:.0f} s is hung")

    def one(seed: int) -> Verdict:
        return campaign.play(baseline, seed, limit, keep=given.keep or given.runs == 1)

    def tell(verdict: Verdict) -> None:
        verdicts.append(verdict)
        _print_line(verdict)
        if given.json_file:  # each time: whoever ends a long campaign has what it found
            _write(given.json_file, baseline, limit, verdicts)

    verdicts: list[Verdict] = []
    campaign.play_all(range(given.seed, given.seed + given.runs), one, given.parallel, tell)
    _print_summary(verdicts)
    click.echo(f"folder: {campaign.folder}")
    return 0 if all(verdict.good for verdict in verdicts) else 1


def _loaded(given: Given) -> tuple[LoadedConfig, list[str], list[str]]:
    """The configuration, the targets, and the settings that give each a process of its own."""
    from axisrl.chaos.plan import targets_of

    named = targets_of(given.kill or _ALL)
    # A process is killed, not a part of one. The driver always is one; the store is closed.
    apart = [target for target in named if target not in ("driver", "store")]
    forced = ["placement.kind=ray"] if apart else []
    loaded = _load(given, forced)
    config = loaded.config
    if config.mode != "train":
        raise UsageError(f"chaos is for runs that train, and mode is {config.mode}")
    absent = [target for target in named if not _has(config, target)]
    if absent and given.kill:
        raise UsageError(f"--kill {absent[0]}: this run has none", fix="leave it out")
    targets = [target for target in named if target not in absent]
    for target, key in (("verifier", "verifiers"), ("reward", "rewards")):
        if target in targets and not getattr(config.placement, key):
            forced.append(f"placement.{key}=1")
    if forced:
        told = ", ".join(target for target in targets if target in apart)
        click.echo(f"{' '.join(forced)}: {told} must have processes of their own")
    return _load(given, forced), targets, forced


def _has(config: RunConfig, target: str) -> bool:
    there = {
        "value": config.value is not None,
        "verifier": bool(config.verifiers),
        "reward": bool(config.rewards),
        "service": bool(config.services),
    }
    return there.get(target, True)


def _load(given: Given, forced: Sequence[str]) -> LoadedConfig:
    from axisrl.cli.arguments import Arguments, refuse_unknown
    from axisrl.cli.run import manager_of
    from axisrl.config.load import RunRequest, load_run

    refuse_unknown(
        given.words, [option for each in chaos.params for option in each.opts], "axisrl chaos"
    )
    arguments = Arguments(
        words=(*given.words, *forced),
        configs=given.configs,
        plugins=given.plugins,
        no_plugins=given.no_plugins,
        smoke=given.smoke,
    )
    if not arguments.recipe:
        raise UsageError("no recipe is given", fix="axisrl chaos RECIPE, as for axisrl run")
    request = RunRequest(
        recipe=arguments.recipe,
        configs=arguments.configs,
        overrides=arguments.overrides,
        smoke=arguments.smoke,
    )
    return load_run(request, manager_of(arguments))


def _campaign(
    given: Given, loaded: LoadedConfig, targets: list[str], forced: list[str]
) -> Campaign:
    from axisrl.chaos.campaign import Campaign
    from axisrl.chaos.plan import Chaos
    from axisrl.chaos.runner import Command
    from axisrl.chaos.verdict import Facts

    config, updates = loaded.config, loaded.config.train.updates
    # Many processes at once: one thread each, and none that waits for work, unless told otherwise.
    quiet = {"OMP_NUM_THREADS": "1", "RAY_prestart_worker_first_driver": "0"}
    return Campaign(
        command=Command(
            words=[*given.recipe, *forced], options=given.options, environ={**quiet, **os.environ}
        ),
        chaos=Chaos(targets, given.every, updates),
        facts=Facts(group_size=config.rollout.group_size, exact=config.schedule.kind == "sync"),
        folder=_folder(given),
        redo=config.checkpoint.every or updates,
    )


def _folder(given: Given) -> Path:
    """A new one."""
    from axisrl.cli.paths import output_root

    folder = given.folder or output_root() / time.strftime("chaos-%Y%m%d-%H%M%S")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"--dir {folder} is not empty", fix="choose another")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _known_baseline(given: Given, loaded: LoadedConfig) -> Baseline | None:
    from axisrl.chaos.campaign import known_baseline
    from axisrl.cli.target import is_run
    from axisrl.config.load import stored_tree

    if given.baseline is None:
        return None
    if not is_run(given.baseline):
        raise UsageError(f"--baseline {given.baseline} is no run's folder")
    return known_baseline(given.baseline, loaded.tree, stored_tree(given.baseline))


def _print_line(verdict: Verdict) -> None:
    hit = ", ".join(f"{count} {target}" for target, count in verdict.injected.items())
    exact = "" if verdict.differences is None else "same" if not verdict.differences else "OTHER"
    click.echo(
        f"seed {verdict.seed}: {'good' if verdict.good else 'BAD '}  injected {hit or 'none'}"
        f"  healed {verdict.healed}  lost {verdict.lost}  doubled {verdict.doubled}"
        f"  reward {_shown(verdict.reward)}  {exact}  {verdict.seconds:.0f} s"
        f" ({verdict.ratio:.1f}x, {verdict.starts} starts)"
    )
    for reason in verdict.reasons:
        click.echo(f"  {reason}")


def _print_summary(verdicts: Sequence[Verdict]) -> None:
    from axisrl.cli.tables import print_table

    injected = Counter[str]()
    for verdict in verdicts:
        injected.update(verdict.injected)
    rewards = [v.reward_change for v in verdicts if v.reward_change is not None]
    ratios = sorted(verdict.ratio for verdict in verdicts)
    exact = [verdict for verdict in verdicts if verdict.differences is not None]
    same = sum(not verdict.differences for verdict in exact)
    rows = [
        ("runs", f"{len(verdicts)}, {sum(v.good for v in verdicts)} good"),
        ("injected", _counts(injected)),
        ("healed", str(sum(verdict.healed for verdict in verdicts))),
        ("lost", str(sum(verdict.lost for verdict in verdicts))),
        ("doubled", str(sum(verdict.doubled for verdict in verdicts))),
        ("hung", str(sum(verdict.hung for verdict in verdicts))),
        ("bit for bit", f"{same} of {len(exact)} that were compared"),
        ("reward", f"{_span(rewards, '+.3g')} beside the run without faults"),
        ("wall time", f"{_span(ratios, '.3g')} times the run without faults"),
    ]
    click.echo("")
    print_table(("verdict", ""), rows)


def _counts(injected: Mapping[str, int]) -> str:
    told = ", ".join(f"{count} {target}" for target, count in sorted(injected.items()))
    return f"{sum(injected.values())}" + (f" ({told})" if told else "")


def _span(values: Sequence[float], how: str) -> str:
    told = dict.fromkeys(format(end(values), how) for end in (min, max)) if values else ["unknown"]
    return " to ".join(told)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _write(path: Path, baseline: Baseline, limit: float, verdicts: Sequence[Verdict]) -> None:
    facts = {
        "baseline": {"run_dir": str(baseline.run_dir), "seconds": baseline.seconds},
        "limit_s": limit,
        "good": sum(verdict.good for verdict in verdicts),
        "runs": [verdict.to_dict() for verdict in sorted(verdicts, key=lambda one: one.seed)],
    }
    path.write_text(json.dumps(facts, indent=1))
