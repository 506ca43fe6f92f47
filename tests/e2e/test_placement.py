"""inline and ray are the same run: same samples, same metrics, same weights."""

import pytest

SHORT = ("train.updates=3", "eval.every=3", "checkpoint.every=0")


def test_ray_gives_the_same_samples_and_weights_as_inline(make_run, same_run):
    pytest.importorskip("ray")
    inline = make_run("inline", *SHORT)
    inline.whole()
    ray = make_run("ray", *SHORT, "placement=ray", "rollout.workers=2")
    ray.whole()
    same_run(ray, inline)
