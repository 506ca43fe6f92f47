"""Two ranks of axisrl_local.trainer, each a process of its own, beside one that sees everything."""

import dataclasses
import multiprocessing
import traceback

import numpy as np
import pytest

from axisrl.errors import RankLost
from axisrl.runtime.batch import with_weights
from axisrl.runtime.ranks import free_address
from axisrl.testing.sequences import packed, random_samples
from axisrl.types import BuildContext, Ranks

spawn = multiprocessing.get_context("spawn")
LIMIT_S = 120


def trainer_of(run_dir, options):
    from axisrl_local.trainer import LocalTrainer
    from axisrl_local.trainer_config import TrainerConfig

    context = BuildContext(run_dir=run_dir, seed=3)
    return LocalTrainer(TrainerConfig(**{"lr": 1e-2, **options}), context)


class Noted:
    """Pulls at log-probabilities by advantage and measures the advantages in every way."""

    needs = frozenset()
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 1

    def __call__(self, batch):
        import torch

        from axisrl.protocols.loss import LossResult, LossStat

        a = batch.advantages_N
        stats = {k: LossStat(values_N=a, reduce=k) for k in ("mean", "sum", "min", "max")}
        zeros_N = torch.zeros_like(a)
        per_token_N = torch.where(batch.mask_N, -a * batch.logprobs_N, zeros_N)
        return LossResult(per_token_N=per_token_N, stats=stats)


def rows(spec, count, *, pull=1.0):
    """Samples of one global batch, no two tokens alike."""
    rng = np.random.default_rng(5)
    found = random_samples(spec, count, seed=2)
    drawn = [pull * rng.normal(size=len(s.ids)).astype(np.float32) for s in found]
    pairs = zip(found, drawn, strict=True)
    changed = [dataclasses.replace(s, advantages=a) for s, a in pairs]
    return with_weights(changed, "token_mean", 0)


def batches_of(samples, rank, size):
    """A rank's share: one batch, maybe of nothing."""
    mine = samples[rank::size]
    if mine:
        return [dataclasses.replace(packed(mine), rank=rank)]
    empty = packed(samples[:1])
    columns = {name: values[:0] for name, values in empty.columns.items()}
    starts = np.zeros(1, np.int32)
    return [
        dataclasses.replace(
            empty,
            rank=rank,
            rows=(),
            row_starts=starts,
            positions=empty.positions[:0],
            columns=columns,
        )
    ]


def learn(rank, size, job, told=None):
    """Start (a checkpoint where one is given), take the steps, save where asked; checksum and
    statistics. A rank that ``hangs`` takes no step and stays until it is ``told``."""
    trainer = trainer_of(job["dir"], job.get("options", {}))
    share = None
    if size > 1:
        ranks = Ranks(rank=rank, size=size, rendezvous=job["at"], timeout_s=job["limit"])
        share = trainer.join(ranks)
    trainer.start(job["spec"], 10)
    try:
        if "load" in job:
            trainer.load(job["load"])
        mine = batches_of(job["samples"], rank, size)
        if rank == job.get("hangs"):
            return told()
        steps = job["steps"] if rank != job.get("leaves") else 0
        stats = [trainer.step(mine, Noted()) for _ in range(steps)]
        if "receiver" in job:
            return sent(trainer, rank, job)
        if "save" in job and (rank == 0 or share.divides_state):
            job["save"].mkdir(exist_ok=True)
            trainer.save(job["save"])
        return trainer.weight_update(1).checksum, stats
    finally:
        trainer.stop()


def sent(trainer, rank, job):
    """Both ranks offer their weights, and a frozen model of rank 0 takes them: what was offered and
    what it holds then."""
    found = None
    trainer._group.meet()  # as in a run: nobody offers while another rank still steps
    if rank == 0:
        update = trainer.weight_update(7)
        frozen = trainer_of(job["dir"], {})
        frozen.start(job["spec"], None)
        ack = frozen.update_weights(update)
        found = update, ack, len(trainer._training.publisher._part._share._buckets)
        frozen.stop()
    trainer._group.meet()  # rank 1 sends from a thread of its own until here
    return found


def serve(pipe, rank, size):
    """A process that answers one job after the other."""
    import torch

    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        try:
            pipe.send(("ok", learn(rank, size, job, pipe.recv)))
        except Exception as problem:  # whoever asked looks at it
            pipe.send(("error", problem, traceback.format_exc()))


class Pair:
    def __init__(self, size=2):
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, rank, size), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def ask(self, job, limit=60.0):
        """What each rank answered, by rank."""
        at = free_address()
        for pipe in self._pipes:
            pipe.send({**job, "at": at, "limit": limit})
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if rank == job.get("hangs"):
                pipe.send("go on")
            assert pipe.poll(LIMIT_S), "a rank never came back"
            answers.append(pipe.recv())
        return answers

    def learn(self, job):
        answers = self.ask(job)
        assert all(answer[0] == "ok" for answer in answers), answers
        return [answer[1] for answer in answers]

    def close(self):
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(LIMIT_S)


@pytest.fixture(scope="module")
def pair():
    both = Pair()
    yield both
    both.close()


@pytest.fixture
def job(make_model, tmp_path):
    """(settings) -> a job on a random model; ``rows`` and ``pull`` shape its samples."""
    spec = make_model()

    def make(*, count=5, pull=1.0, steps=3, **settings):
        samples = rows(spec, count, pull=pull)
        return {"spec": spec, "dir": tmp_path, "samples": samples, "steps": steps, **settings}

    return make


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.01}, {"max_grad_norm": 0.0}])
def test_two_ranks_take_the_steps_of_one(pair, job, options):
    wanted = job(options=options)
    (first, stats), (second, others) = pair.learn(wanted)
    _, alone = learn(0, 1, wanted)
    assert first == second, "the ranks' weights differ"
    assert stats == others, "the ranks' statistics differ"
    for mine, whole in zip(stats, alone, strict=True):
        assert (mine.tokens, mine.trained_tokens) == (whole.tokens, whole.trained_tokens)
        assert mine.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)
        assert mine.metrics.keys() == whole.metrics.keys()
        for name, metric in whole.metrics.items():
            got = mine.metrics[name]
            assert got.value == pytest.approx(metric.value, rel=1e-4, abs=1e-6), name
            assert (got.weight, got.reduce) == (metric.weight, metric.reduce), name


def test_the_weights_of_two_ranks_are_those_of_one(pair, job, tmp_path):
    from safetensors.torch import load_file

    pair.learn(job(save=tmp_path / "two"))
    learn(0, 1, job(save=tmp_path / "one"))
    two, one = (load_file(tmp_path / n / "model/model.safetensors") for n in ("two", "one"))
    assert max(float((two[name] - one[name]).abs().max()) for name in one) < 1e-4


@pytest.mark.parametrize("options", [{}, {"lora": {"rank": 2, "update": "adapter"}}])
def test_both_ranks_send_the_weights_to_who_receives(pair, job, options):
    from axisrl.config.lora import LoraOptions

    if "lora" in options:
        options = {"lora": LoraOptions(**options["lora"])}
    by_file, _ = pair.learn(job(options=options))
    (update, ack, buckets), _ = pair.learn(job(options=options | {"transport": "nccl"}, receiver=1))
    assert (update.transport, ack.version) == ("nccl", 7)
    assert ack.checksum == update.checksum == by_file[0]
    assert buckets < len(update.tensors)  # rank 1 sent the rest


def test_a_rank_without_a_row_still_takes_the_step(pair, job):
    (first, stats), (second, _) = pair.learn(job(count=1))
    assert first == second
    assert stats[0].trained_tokens == learn(0, 1, job(count=1))[1][0].trained_tokens


def test_a_gradient_that_is_not_finite_on_one_rank_is_skipped_by_all(pair, job):
    (first, stats), (second, _) = pair.learn(job(count=1, pull=float("inf"), steps=1))
    assert first == second
    assert stats[0].metrics["loss/skipped_nonfinite"].value == 1.0


@pytest.mark.parametrize("lora", [False, True])
def test_ranks_that_divide_the_optimizer_step_as_ranks_that_do_not(pair, job, tmp_path, lora):
    from axisrl.config.lora import LoraOptions

    options = {"lora": LoraOptions(rank=2) if lora else None}
    (_, stats), _ = pair.learn(job(options=options, save=tmp_path / "divided"))
    options["distributed_optimizer"] = False
    (_, others), _ = pair.learn(job(options=options, save=tmp_path / "whole"))
    for mine, whole in zip(stats, others, strict=True):
        assert mine.grad_norm == pytest.approx(whole.grad_norm, rel=1e-6)
    found = [pair.learn(job(options=options, load=tmp_path / n)) for n in ("divided", "whole")]
    for mine, whole in zip(found[0][0][1], found[1][0][1], strict=True):
        assert mine.grad_norm == pytest.approx(whole.grad_norm, rel=1e-5)


@pytest.mark.parametrize("divided", [True, False])
def test_a_checkpoint_brings_both_ranks_on_bit_for_bit(pair, job, tmp_path, divided):
    from axisrl.config.lora import LoraOptions

    lora = LoraOptions(rank=2, dropout=0.5)
    options = {"lora": lora, "distributed_optimizer": divided}
    whole, _ = pair.learn(job(options=options, steps=4))
    pair.learn(job(options=options, steps=2, save=tmp_path / "half"))
    first, second = pair.learn(job(options=options, steps=2, load=tmp_path / "half"))
    assert first[0] == second[0] == whole[0]


@pytest.mark.parametrize(
    ("how", "said"), [("hangs", "Ranks 1 failed to pass"), ("leaves", "at a step")]
)
def test_a_rank_that_does_not_step_ends_the_wait_of_the_others(pair, job, how, said):
    pair.learn(job(steps=0))  # both have torch in memory from here on
    kind, problem, *_ = pair.ask(job(steps=1, **{how: 1}), limit=3.0)[0]
    assert kind == "error" and isinstance(problem, RankLost)
    assert "rank 0 of 2 lost the others at a step" in problem.message
    assert said in problem.message


def test_a_rank_that_never_comes_is_named(job, tmp_path):
    wanted = job()
    trainer = trainer_of(tmp_path, {})
    trainer.join(Ranks(rank=0, size=3, rendezvous=free_address(), timeout_s=0.2))
    with pytest.raises(RankLost, match="rank 1, 2 of 3 did not come"):
        trainer.start(wanted["spec"], 10)
