from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from axisrl.config.schema import ModelConfig, RunConfig, Use
from axisrl.errors import AbortRun
from axisrl.plugins import ConfigProblem
from axisrl.plugins.lint import LIFECYCLE_HOOKS
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginOptions

RUN = "the run"
_ANY = Use(use="x")
CONFIG = RunConfig(
    **dict.fromkeys(("dataset", "env", "engine", "trainer", "loss", "advantage"), _ANY),
    model=ModelConfig(name="m"),
    seed=7,
)
"""A real one: the core's own plugin looks at it, too."""
METHODS = [hook.removeprefix("axisrl_") for hook in LIFECYCLE_HOOKS]
SHARED = "from axisrl_wrap.plugin import seen"
RECORDER = "from axisrl.plugins import hookimpl\nseen = []\n" + "\n".join(
    f"@hookimpl\ndef {hook}({', '.join(arguments)}): seen.append(({hook!r}, {arguments[0]}))"
    for hook, arguments in LIFECYCLE_HOOKS.items()
)
BAD = """
from axisrl.plugins import hookimpl

@hookimpl
def axisrl_run_started(run):
    raise ValueError("no disk")
"""


def manager(site, *, strict: bool = False, **sources: str) -> PluginManager:
    for name, source in sources.items():
        site.add(name, source)
    made = PluginManager.discover(options=PluginOptions(strict=strict))
    made.activate(sources)
    return made


def seen(name: str) -> list:
    return sys.modules[f"axisrl_{name}.plugin"].seen


@pytest.mark.parametrize("method", METHODS)
def test_each_method_calls_its_hook_with_its_payload(site, method):
    plugins = manager(site, alpha=RECORDER)
    payload = CONFIG if method in ("config_resolved", "models_found") else "payload"
    more = [{}] if method == "models_found" else []
    getattr(plugins, method)(payload, *more)
    assert seen("alpha") == [(f"axisrl_{method}", payload)]
    assert plugins.hook_failures() == ()


def test_a_raising_hook_is_warned_about_once_and_counted(site, caplog):
    plugins = manager(site, bad=BAD)
    with caplog.at_level(logging.WARNING, "axisrl.plugins"):
        for _ in range(3):
            plugins.run_started(RUN)
    (record,) = caplog.records
    assert "plugin bad: axisrl_run_started raised ValueError: no disk" in record.getMessage()
    (failure,) = plugins.hook_failures()
    assert (failure.plugin, failure.hook, failure.count) == ("bad", "axisrl_run_started", 3)


@pytest.mark.parametrize("order", [("alpha", "bad", "omega"), ("bad", "omega", "alpha")])
def test_a_raising_hook_does_not_keep_the_event_from_other_plugins(site, order):
    sources = {"alpha": RECORDER, "bad": BAD, "omega": RECORDER}
    plugins = manager(site, **{name: sources[name] for name in order})
    plugins.run_started(RUN)
    assert len(seen("alpha")) == len(seen("omega")) == 1


def test_a_hook_that_exits_does_not_end_the_run(site):
    plugins = manager(site, bad=BAD.replace('ValueError("no disk")', "SystemExit(1)"))
    plugins.run_started(RUN)
    assert plugins.hook_failures()[0].error == "SystemExit: 1"


def test_abort_run_passes_through(site):
    source = BAD.replace("ValueError", "AbortRun").replace(
        "import hookimpl", "import hookimpl\nfrom axisrl.errors import AbortRun"
    )
    plugins = manager(site, bad=source)
    with pytest.raises(AbortRun, match="no disk"):
        plugins.run_started(RUN)


def test_strict_raises_what_the_hook_raised(site):
    plugins = manager(site, strict=True, bad=BAD)
    with pytest.raises(ValueError, match="no disk"):
        plugins.run_started(RUN)


PROBLEMS = """
from axisrl.plugins import ConfigProblem, hookimpl

@hookimpl
def axisrl_config_resolved(config):
    yield ConfigProblem(path="train", message=f"over budget: {config.seed}")
"""


def test_problems_of_all_plugins_are_collected(site):
    silent = "from axisrl.plugins import hookimpl\n@hookimpl\ndef axisrl_config_resolved(): pass"
    plugins = manager(site, alpha=PROBLEMS, beta=PROBLEMS, silent=silent)
    problem = ConfigProblem(path="train", message="over budget: 7")
    assert plugins.config_resolved(CONFIG) == [problem, problem]


def test_what_plugins_find_wrong_with_the_models_is_collected(site):
    source = """
from axisrl.plugins import ConfigProblem, hookimpl

@hookimpl
def axisrl_models_found(config, models):
    return [ConfigProblem(path=path, message=f"{config.seed} {at}") for path, at in models.items()]
"""
    plugins = manager(site, alpha=source)
    problem = ConfigProblem(path="model", message="7 /m")
    assert plugins.models_found(CONFIG, {"model": Path("/m")}) == [problem]


def test_a_problem_of_another_type_is_the_plugins_fault(site):
    wrong = PROBLEMS.replace(
        'ConfigProblem(path="train", message=f"over budget: {config.seed}")', "'no'"
    )
    plugins = manager(site, alpha=PROBLEMS, wrong=wrong)
    assert len(plugins.config_resolved(CONFIG)) == 1
    assert "returned 'no', not ConfigProblem" in plugins.hook_failures()[0].error


def test_a_generator_that_raises_half_way_is_the_plugins_fault(site):
    plugins = manager(site, bad=PROBLEMS + "    raise ValueError('late')\n")
    assert plugins.config_resolved(CONFIG) == []
    assert plugins.hook_failures()[0].error == "ValueError: late"


def test_an_observer_written_as_a_generator_runs(site):
    source = RECORDER + "\n@hookimpl\ndef axisrl_run_started(run):\n    seen.append(run)\n    yield"
    plugins = manager(site, alpha=source)
    plugins.run_started(RUN)
    assert seen("alpha") == [RUN]


WRAPPER = """
from axisrl.plugins import hookimpl
seen = []

@hookimpl(wrapper=True)
def axisrl_run_started(run):
    seen.append("before")
    try:
        yield
    finally:
        seen.append("after")
"""


def test_a_wrapper_surrounds_the_other_plugins(site):
    plugins = manager(site, wrap=WRAPPER, alpha=RECORDER.replace("seen = []", SHARED))
    plugins.run_started(RUN)
    assert [s if isinstance(s, str) else "call" for s in seen("wrap")] == [
        "before",
        "call",
        "after",
    ]


def test_a_wrapper_that_returns_nothing_does_not_lose_the_answers(site):
    wrapper = WRAPPER.replace("axisrl_run_started(run)", "axisrl_config_resolved(config)")
    plugins = manager(site, wrap=wrapper, alpha=PROBLEMS)
    assert len(plugins.config_resolved(CONFIG)) == 1


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (WRAPPER.replace('seen.append("before")', "raise ValueError('early')"), "early"),
        (WRAPPER.replace('seen.append("after")', "raise ValueError('late')"), "late"),
        (WRAPPER + "    yield\n", "a wrapper yields once"),
    ],
)
def test_a_wrapper_that_breaks_does_not_break_the_call(site, source, error):
    plugins = manager(site, wrap=source, alpha=RECORDER)
    plugins.run_started(RUN)
    assert len(seen("alpha")) == 1
    (failure,) = plugins.hook_failures()
    assert failure.plugin == "wrap"
    assert error in failure.error


def test_a_wrapper_sees_the_end_of_an_aborted_run(site):
    abort = BAD.replace("ValueError", "AbortRun").replace(
        "import hookimpl", "import hookimpl\nfrom axisrl.errors import AbortRun"
    )
    plugins = manager(site, wrap=WRAPPER, bad=abort)
    with pytest.raises(AbortRun):
        plugins.run_started(RUN)
    assert seen("wrap") == ["before", "after"]
