"""What the plugin offers, and which combinations it refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from axisrl.config.schema import Use
from axisrl_grpo.plugin import (
    axisrl_advantages,
    axisrl_config_resolved,
    axisrl_losses,
    axisrl_recipes,
)

README = Path(__file__).parents[1] / "README.md"


def problems(loss, *corrections, updates_per_sync=1):
    config = SimpleNamespace(
        loss=Use(use=loss),
        train=SimpleNamespace(updates_per_sync=updates_per_sync),
        corrections=tuple(Use(use=use) for use in corrections),
    )
    return list(axisrl_config_resolved(config))


@pytest.mark.parametrize("correction", ["icepop/token-tis", "icepop/sequence-tis"])
@pytest.mark.parametrize("loss", ["grpo/kimi2-5", "grpo/kimi2-5@1"])
def test_kimi_with_truncated_importance_sampling_is_refused_with_the_reason(loss, correction):
    (problem,) = problems(loss, "icepop/veto", correction)
    assert problem.path == "corrections.1"
    assert correction in problem.message
    assert "count twice" in problem.message
    assert problem.fix


def test_kimi_with_corrections_that_only_drop_tokens_is_fine():
    assert problems("grpo/kimi2-5", "icepop/icepop", "icepop/veto") == []


def test_reinforce_takes_one_update_from_a_window():
    (problem,) = problems("grpo/reinforce", updates_per_sync=2)
    assert problem.path == "train.updates_per_sync"
    assert "on policy" in problem.message
    assert problems("grpo/reinforce") == []
    assert problems("grpo/cispo", updates_per_sync=2) == []


def test_other_losses_may_have_truncated_importance_sampling():
    assert problems("grpo/grpo", "icepop/token-tis") == []


def test_every_loss_has_a_file_of_its_own():
    losses = axisrl_losses()
    files = [loss.target.partition(":")[0].rpartition(".")[2] for loss in losses]
    assert files == [loss.name.replace("-", "_") for loss in losses]


def test_the_readme_has_a_row_for_every_component():
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    named = [row.split("`")[1] for row in rows if row.split("`")[1].startswith("grpo/")]
    offered = [*axisrl_losses(), *axisrl_advantages(), *axisrl_recipes()]
    assert named == [f"grpo/{component.name}" for component in offered]
