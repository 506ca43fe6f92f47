"""Weights over process groups (gloo here): the run that a file in shared memory makes."""

import pytest

SHORT = ("train.updates=3", "eval.every=3", "checkpoint.every=0")
REFERENCE = ("kl={coef: 0.05, reset_every: 2}",)
SENT = "trainer.transport=nccl"


def test_weights_that_were_sent_are_those_of_a_file_inline_and_on_ray(make_run, same_run):
    pytest.importorskip("ray")
    filed = make_run("filed", *SHORT, *REFERENCE, "trainer.transport=shared_memory")
    filed.whole()
    sent = make_run("sent", *SHORT, *REFERENCE, SENT)
    sent.whole()
    same_run(sent, filed)
    ray = make_run("ray", *SHORT, *REFERENCE, SENT, "placement=ray", "placement.engines=2")
    ray.whole()
    same_run(ray, filed)
