"""inline and ray are the same run: same samples, same metrics, same weights."""

import pytest
import torch

SHORT = ("train.updates=3", "eval.every=3", "checkpoint.every=0")


def test_ray_gives_the_same_samples_and_weights_as_inline(make_run):
    pytest.importorskip("ray")
    inline = make_run("inline", *SHORT)
    inline.whole()
    ray = make_run("ray", *SHORT, "placement=ray", "rollout.workers=2")
    ray.whole()
    assert ray.rollouts() == inline.rollouts()
    assert ray.untimed() == inline.untimed()
    one, other = ray.final_weights(), inline.final_weights()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
