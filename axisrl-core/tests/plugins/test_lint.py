from __future__ import annotations

from types import ModuleType

import pytest

from axisrl.plugins import (
    KINDS,
    CommandComponent,
    EnvComponent,
    LossComponent,
    RecipeComponent,
    VerifierComponent,
)
from axisrl.plugins.lint import HOOKS, LIFECYCLE_HOOKS, hook_functions, lint_components, lint_hooks


def module(source: str) -> ModuleType:
    made = ModuleType("axisrl_x.plugin")
    exec("from axisrl.plugins import hookimpl\n" + source, made.__dict__)
    return made


def problems(source: str) -> str:
    return "; ".join(lint_hooks(module(source)))


def test_a_clean_module_has_no_problems():
    assert not problems(
        "@hookimpl\ndef axisrl_envs(): return []\n@hookimpl\ndef axisrl_run_started(run): pass"
    )


def test_there_is_a_hook_for_every_kind():
    assert {info.hook for info in KINDS.values()} == HOOKS.keys() - LIFECYCLE_HOOKS.keys()


def test_a_misspelt_hook_is_reported_with_the_nearest_name():
    said = problems("@hookimpl\ndef axisrl_env(): return []")
    assert said == "axisrl_env is not a hook; did you mean 'axisrl_envs'?"


def test_a_missing_decorator_is_reported():
    assert problems("def axisrl_envs(): return []") == "axisrl_envs lacks the @hookimpl decorator"


def test_a_misspelt_and_undecorated_hook_is_reported_as_misspelt():
    assert "did you mean 'axisrl_losses'" in problems("def axisrl_loses(): return []")


def test_a_decorated_function_with_any_other_name_is_reported():
    assert "envs is not a hook" in problems("@hookimpl\ndef envs(): return []")


def test_a_module_without_hooks_is_reported():
    assert problems("x = 1") == "module axisrl_x.plugin has no @hookimpl function"


def test_an_imported_module_named_like_a_hook_is_no_hook():
    plugin = module("@hookimpl\ndef axisrl_envs(): return []")
    plugin.axisrl_x = ModuleType("axisrl_x")
    assert not lint_hooks(plugin)


def test_a_hook_may_be_implemented_under_another_name():
    plugin = module('@hookimpl(specname="axisrl_envs")\ndef worlds(): return []')
    assert not lint_hooks(plugin)
    assert [hook.hook for hook in hook_functions(plugin)] == ["axisrl_envs"]


def test_an_optional_hook_of_a_newer_core_is_allowed():
    assert not problems("@hookimpl(optionalhook=True)\ndef axisrl_panels(): return []")


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("axisrl_run_started(runs)", "no argument 'runs'; it takes (run); did you mean 'run'?"),
        ("axisrl_run_started(*, run)", "the keyword-only argument 'run'; it takes (run)"),
        ("axisrl_run_started(run, /)", "the positional-only argument 'run'"),
        ("axisrl_run_started(*args)", "the variable argument 'args'"),
        ("axisrl_run_started(**kw)", "the variable keyword argument 'kw'"),
        ("axisrl_envs(config)", "no argument 'config'; it takes ()"),
        ("axisrl_envs(config=None)", "no argument 'config'; it takes ()"),
    ],
)
def test_wrong_arguments_are_reported(signature, said):
    assert said in problems(f"@hookimpl\ndef {signature}: pass")


def test_a_lifecycle_hook_may_leave_its_argument_out():
    assert not problems("@hookimpl\ndef axisrl_run_started(): pass")


def test_an_async_hook_is_reported():
    said = problems("@hookimpl\nasync def axisrl_run_started(run): pass")
    assert said == "axisrl_run_started is async; hooks are called synchronously"


def test_wrappers_are_for_lifecycle_hooks_and_new_style():
    assert not problems("@hookimpl(wrapper=True)\ndef axisrl_run_started(run): return (yield)")
    assert "only lifecycle" in problems(
        "@hookimpl(wrapper=True)\ndef axisrl_envs(): return (yield)"
    )
    assert "use wrapper=True" in problems(
        "@hookimpl(hookwrapper=True)\ndef axisrl_run_started(run): yield"
    )
    assert "does not yield" in problems(
        "@hookimpl(wrapper=True)\ndef axisrl_run_started(run): pass"
    )


def test_good_descriptors_have_no_problems():
    env = EnvComponent(name="math", target="axisrl_x.env:Math", config="axisrl_x.config:MathConfig")
    assert not lint_components("env", [env])
    recipe = RecipeComponent(
        name="grpo-cpu", target="axisrl_x:configs/cpu.yaml", smoke="axisrl_x:configs/smoke.yml"
    )
    assert not lint_components("recipe", [recipe])


def test_a_descriptor_of_another_kind_is_reported():
    loss = LossComponent(name="grpo", target="a:b")
    assert lint_components("env", [loss]) == [
        "axisrl_envs returned LossComponent, not EnvComponent"
    ]


def test_what_is_no_descriptor_is_reported():
    assert lint_components("env", ["a:b"]) == ["axisrl_envs returned 'a:b', not EnvComponent"]


def test_two_components_of_one_name_are_reported():
    env = EnvComponent(name="math", target="a:b")
    assert lint_components("env", [env, env]) == ["axisrl_envs: 'math' is offered twice"]


@pytest.mark.parametrize("name", ["", "Math", "two words", "a/b", "a@1", "a_b", "-a"])
def test_a_component_name_that_an_id_cannot_hold_is_reported(name):
    (problem,) = lint_components("env", [EnvComponent(name=name, target="a:b")])
    assert "is not lower-case" in problem


@pytest.mark.parametrize("target", ["", "a", "a.b", "a:", ":b", "a:b c", "a-b:c", "a:b:c", None])
def test_a_target_that_names_no_attribute_is_reported(target):
    (problem,) = lint_components("env", [EnvComponent(name="x", target=target)])
    assert "is not 'package.module:attribute'" in problem


@pytest.mark.parametrize("target", ["axisrl_x:Class", "axisrl_x:/etc/x.yaml", "x.yaml"])
def test_a_recipe_target_that_is_no_data_file_is_reported(target):
    (problem,) = lint_components("recipe", [RecipeComponent(name="x", target=target)])
    assert "is not 'package:path/in/package.yaml'" in problem


def test_wrong_types_of_the_other_fields_are_reported():
    odd = VerifierComponent(name="v", target="a:b", config="a", extras="e2b", version=0)
    said = "; ".join(lint_components("verifier", [odd]))
    assert "config 'a'" in said and "extras of 'v'" in said and "version 0" in said


def test_a_command_without_help_is_reported():
    (problem,) = lint_components("command", [CommandComponent(name="index", target="a:b")])
    assert "has no help" in problem
