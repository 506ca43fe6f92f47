import dataclasses

import numpy as np
import pytest

from axisrl.errors import CheckpointError, ConfigError, EnvironmentProblem, RunFailed
from axisrl.testing.fakes import ScriptedTrainer, ScriptedTrainerConfig
from axisrl.testing.sequences import packed
from axisrl.types import BuildContext, ModelSpec, Sample


def batch(advantage=1.0):
    ids = np.arange(5, dtype=np.int32)
    ones = np.ones(4, np.float32)
    sample = Sample(
        trajectory=0,
        ids=ids[:-1],
        labels=ids[1:],
        loss_mask=np.array([False, True, True, True]),
        advantages=np.full(4, advantage, np.float32),
        rollout_logprobs=-ones,
        versions=np.zeros(4, np.int32),
        temperature=ones,
        weights=ones / 3,
    )
    return packed([sample])


@pytest.fixture
def trainer(tmp_path):
    return started(tmp_path)


def started(tmp_path, *, head="lm", total_steps=4, **options):
    made = ScriptedTrainer(ScriptedTrainerConfig(**options), BuildContext(run_dir=tmp_path))
    made.start(ModelSpec(name="m", path=tmp_path, head=head), total_steps=total_steps)
    return made


def with_returns(value):
    given = batch()
    columns = {**given.columns, "returns": np.full(4, value, np.float32)}
    return dataclasses.replace(given, columns=columns)


def test_it_keeps_the_batches_and_losses_it_was_given(trainer):
    given, loss = batch(), object()
    stats = trainer.step([given], loss)
    assert trainer.batches == [(given,)]
    assert trainer.losses == [loss]
    assert (stats.tokens, stats.trained_tokens) == (4, 3)


def test_logprobs_are_uniform_and_zero_where_masked(trainer):
    (logprobs,) = trainer.logprobs([batch()])
    assert logprobs.tolist() == pytest.approx([0.0, *[-np.log(259)] * 3])


def test_weights_follow_the_advantages(trainer, tmp_path):
    trainer.step([batch(1.0)], None)
    other = started(tmp_path)
    other.step([batch(-1.0)], None)
    assert trainer.weights.tolist() == (-other.weights).tolist()
    assert trainer.weights.any()


def test_masked_positions_may_hold_nan(trainer):
    columns = dict(batch().columns)
    for name in ("advantages", "weights"):
        columns[name] = np.where(columns["loss_mask"], columns[name], np.nan).astype(np.float32)
    trainer.step([dataclasses.replace(batch(), columns=columns)], None)
    assert np.isfinite(trainer.weights).all()


def test_save_and_load_continue_bit_for_bit(trainer, tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    trainer.step([batch(0.3)], None)
    trainer.save(folder)
    other = started(tmp_path)
    other.load(folder)
    for each in (trainer, other):
        each.step([batch(0.7)], None)
    assert trainer.weight_update(2).checksum == other.weight_update(2).checksum


def test_loading_nothing_is_a_checkpoint_error(trainer, tmp_path):
    with pytest.raises(CheckpointError, match=r"weights\.npy is missing"):
        trainer.load(tmp_path)


def test_it_fails_at_the_step_it_is_told_to(tmp_path):
    trainer = started(tmp_path, fail_at_step=2)
    trainer.step([batch()], None)
    with pytest.raises(RunFailed, match="step 2"):
        trainer.step([batch()], None)


def test_stop_removes_the_offered_weights_and_may_be_called_twice(trainer, tmp_path):
    update = trainer.weight_update(1)
    assert np.load(update.location).shape == (8,)
    trainer.stop()
    trainer.stop()
    assert list(tmp_path.rglob("*.npy")) == []


def test_batches_of_each_kind_of_pass_are_counted(trainer, tmp_path):
    trainer.logprobs([batch(), batch()])
    trainer.step([batch()], None)
    value = started(tmp_path, head="value")
    value.values([batch()])
    assert trainer.passes == {"logprobs": 2, "step": 1}
    assert value.passes == {"values": 1}


def test_values_are_zero_where_masked_and_move_towards_the_returns(tmp_path):
    trainer = started(tmp_path, head="value")
    given = with_returns(2.0)
    before = trainer.values([given])[0]
    trainer.step([given], None)
    after = trainer.values([given])[0]
    assert before.tolist() == [0.0] * 4
    assert after[0] == 0 and (after[1:] > 0).all()


def test_values_that_are_the_returns_move_no_weight(tmp_path):
    trainer = started(tmp_path, head="value")
    trainer.step([with_returns(0.0)], None)
    assert not trainer.weights.any()


def test_a_value_model_needs_returns_and_a_policy_has_no_values(trainer, tmp_path):
    with pytest.raises(ConfigError, match="no column 'returns'"):
        started(tmp_path, head="value").step([batch()], None)
    with pytest.raises(ConfigError, match="without a value head"):
        trainer.values([batch()])


def test_a_frozen_one_takes_weights_and_echoes_but_does_not_train(trainer, tmp_path):
    frozen = started(tmp_path, total_steps=None)
    trainer.step([batch()], None)
    update = trainer.weight_update(3)
    ack = frozen.update_weights(update)
    assert (ack.version, ack.checksum) == (3, update.checksum)
    assert frozen.weights.tolist() == trainer.weights.tolist()
    assert frozen.updates == [update]
    for attempt in (lambda: frozen.step([batch()], None), lambda: frozen.weight_update(1)):
        with pytest.raises(EnvironmentProblem, match="frozen"):
            attempt()


def test_one_that_trains_takes_no_weights(trainer):
    with pytest.raises(EnvironmentProblem, match="takes no weights"):
        trainer.update_weights(trainer.weight_update(1))


def test_a_frozen_one_saves_its_weights_alone(trainer, tmp_path):
    frozen = started(tmp_path, total_steps=None)
    trainer.step([batch()], None)
    frozen.update_weights(trainer.weight_update(1))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    frozen.save(folder)
    other = started(tmp_path, total_steps=None)
    other.load(folder)
    assert [path.name for path in folder.iterdir()] == ["weights.npy"]
    assert other.weights.tolist() == trainer.weights.tolist()


def test_what_is_away_is_not_used(trainer):
    trainer.offload(["optimizer"])
    assert trainer.weight_update(1).version == 1
    with pytest.raises(RunFailed, match="optimizer of the scripted trainer are away"):
        trainer.step([batch()], None)
    trainer.offload(["weights"])
    with pytest.raises(RunFailed, match="weights of the scripted trainer are away"):
        trainer.weight_update(2)
    trainer.reload(["weights", "optimizer"])
    trainer.step([batch()], None)
