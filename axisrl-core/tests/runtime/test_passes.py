"""How often each model is asked in a whole run: no pass happens when nothing needs it."""

from collections import Counter
from pathlib import Path

import pytest

from axisrl.testing.fakes import ScriptedEngine, ScriptedTrainer

EXTRAS = (Path(__file__).with_name("extras.py"),)
CRITIC = ("advantage=stage/critic", "value={loss: stage/error}")


@pytest.fixture
def passes(monkeypatch):
    """(model, call) -> how often it was asked: policy, value, frozen and what was asked of it."""
    asked = Counter()

    def counted(method):
        real = getattr(ScriptedTrainer, method)

        def counting(self, batches, *rest):
            kind = "value" if self.model.head == "value" else "policy"
            asked["frozen" if self.frozen else kind, method] += 1
            return real(self, batches, *rest)

        monkeypatch.setattr(ScriptedTrainer, method, counting)

    for method in ("logprobs", "values", "step"):
        counted(method)
    return asked


STEPS = {("policy", "step"): 4}


@pytest.mark.parametrize(
    "loss", ["loss=stage/plain", "loss=stage/proximal", "corrections=[extras/agreed]"]
)
def test_one_update_a_window_takes_no_pass_besides_its_steps(stage, passes, loss):
    stage(loss, plugins=EXTRAS)
    assert passes == STEPS


def test_every_later_update_of_a_window_takes_one_old_pass_where_it_is_needed(stage, passes):
    stage("train.updates_per_sync=4", "loss=stage/proximal")
    assert passes == STEPS | {("policy", "logprobs"): 3}


def test_a_correction_alone_takes_the_old_passes_too(stage, passes):
    stage("train.updates_per_sync=2", "corrections=[extras/agreed]", plugins=EXTRAS)
    assert passes == STEPS | {("policy", "logprobs"): 2}


def test_later_updates_take_no_old_pass_for_a_loss_without_a_ratio(stage, passes):
    stage("train.updates_per_sync=2")
    assert passes == STEPS


@pytest.mark.parametrize(("per_sync", "windows"), [(1, 4), (2, 2)])
def test_a_reference_is_asked_once_a_window(stage, passes, per_sync, windows):
    stage("kl.coef=0.1", f"train.updates_per_sync={per_sync}")
    assert passes == STEPS | {("frozen", "logprobs"): windows}


@pytest.mark.parametrize("settings", [(), ("kl.coef=0.1", "kl.base=rollout")])
def test_without_a_penalty_or_from_the_rollout_no_reference_is_there(
    stage, passes, monkeypatch, settings
):
    started = []
    start = ScriptedTrainer.start
    monkeypatch.setattr(
        ScriptedTrainer, "start", lambda self, *given: started.append(given) or start(self, *given)
    )
    stage(*settings)
    assert passes == STEPS
    assert [total for _, total in started] == [4]


def test_a_penalty_from_the_old_policy_takes_the_old_passes_alone(stage, passes):
    stage("kl.coef=0.1", "kl.base=old", "train.updates_per_sync=2")
    assert passes == STEPS | {("policy", "logprobs"): 2}


@pytest.mark.parametrize(("per_sync", "windows"), [(1, 4), (2, 2)])
def test_values_are_asked_once_a_window(stage, passes, per_sync, windows):
    stage(*CRITIC, f"train.updates_per_sync={per_sync}")
    assert passes == STEPS | {("value", "values"): windows, ("value", "step"): 4}


def test_a_warm_up_asks_nothing_of_the_policy_nor_of_what_only_it_learns_from(stage, passes):
    stage(*CRITIC, "value.warmup_updates=3", "kl.coef=0.1")
    assert passes == {
        ("value", "values"): 4,
        ("value", "step"): 4,
        ("frozen", "logprobs"): 1,
        ("policy", "step"): 1,
    }


def test_a_teacher_is_asked_once_a_window_and_one_behind_an_engine_takes_no_pass(
    stage, passes, model_folder, monkeypatch
):
    stage(f"teacher.model={model_folder}")
    assert passes == STEPS | {("frozen", "logprobs"): 4}
    passes.clear()
    scored, score = [], ScriptedEngine.score
    monkeypatch.setattr(
        ScriptedEngine, "score", lambda self, *given: scored.append(given) or score(self, *given)
    )
    stage.dir = stage.dir.with_name("served")
    stage(f"teacher={{model: {model_folder}, engine: extras/scorer}}", plugins=EXTRAS)
    assert passes == STEPS
    assert len(scored) == 4 * 8  # every rollout once
