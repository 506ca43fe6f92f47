"""Losses that another process can import, most of them wrong there alone."""

import os
import threading

import torch
from torch import distributed

from axisrl.protocols import LossResult


def build(ref, context):
    """``toy/<class>``, with the class's options."""
    return globals()[ref.use.partition("/")[2]](**ref.options)


def shares_nothing():
    return not distributed.is_initialized()


class Ratio:
    """Minus advantage times ratio."""

    needs = frozenset({"old_logprobs"})
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 1

    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, batch):
        gap = torch.where(batch.mask_N, batch.logprobs_N - batch.old_logprobs_N, 0.0)
        advantages = torch.where(batch.mask_N, batch.advantages_N, 0.0)
        return LossResult(per_token_N=-self.scale * advantages * gap.exp() * self.factor(batch))

    def factor(self, batch):
        return 1.0


class OfTrajectories(Ratio):
    """Weighs each token by the number of trained tokens of its trajectory."""

    level = "trajectory"

    def factor(self, batch):
        counts = torch.zeros(2000).index_add(0, batch.trajectory_N, batch.mask_N.float())
        return counts[batch.trajectory_N]


class RankLocalMean(Ratio):
    """Right on one rank; on several each divides by its own tokens."""

    def factor(self, batch):
        return 1.0 if shares_nothing() else 1 / batch.mask_N.sum()


class ScalesByTheWorld(Ratio):
    """Expects gradients to be averaged over the ranks."""

    def factor(self, batch):
        return 1.0 if shares_nothing() else distributed.get_world_size()


class RaisesOnRankOne(Ratio):
    def factor(self, batch):
        if not shares_nothing() and distributed.get_rank() == 1:
            raise ValueError("no such token")
        return 1.0


class DiesOnRankOne(Ratio):
    def factor(self, batch):
        if not shares_nothing() and distributed.get_rank() == 1:
            os._exit(1)
        return 1.0


class NeverEnds(Ratio):
    def factor(self, batch):
        return 1.0 if shares_nothing() else threading.Event().wait()
