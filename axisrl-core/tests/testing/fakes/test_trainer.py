import dataclasses

import numpy as np
import pytest

from axisrl.errors import CheckpointError, RunFailed
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


def started(tmp_path, **options):
    made = ScriptedTrainer(ScriptedTrainerConfig(**options), BuildContext(run_dir=tmp_path))
    made.start(ModelSpec(name="m", path=tmp_path), total_steps=4)
    return made


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
