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


def test_two_ranks_send_what_one_of_them_writes(make_run, same_run):
    pytest.importorskip("ray")
    ranks = ("placement.kind=ray", "placement.trainer_ranks=2", "placement.engines=2")
    short = ("train.updates=2", "eval=null", "checkpoint.every=0")
    filed = make_run("filed", *short, *ranks)
    filed.whole()
    sent = make_run("sent", *short, *ranks, SENT)
    sent.whole()
    same_run(sent, filed)
