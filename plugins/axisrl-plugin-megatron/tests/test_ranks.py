"""Two ranks of axisrl_megatron.trainer, each a process of its own, beside one that has the whole
model and sees everything: tensor, sequence, context and data parallel; four where they meet."""

import copy
import dataclasses
import importlib
import multiprocessing
import traceback

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.errors import ConfigError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_taken import WeightTaker
from axisrl.runtime.batch import with_weights
from axisrl.runtime.ranks import free_address
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples
from axisrl.types import BuildContext, Ranks, Share

pytestmark = pytest.mark.needs("megatron")
spawn = multiprocessing.get_context("spawn")
LIMIT_S = 180
TENSOR, DATA, CONTEXT = {"tensor": 2}, {}, {"context": 2}
SEQUENCE = {"tensor": 2, "sequence": True}
ALL = {"tensor": TENSOR, "data": DATA, "context": CONTEXT, "sequence": SEQUENCE}
FLEX = {**CONTEXT, "attention": "axisrl_megatron.flex:FlexRowAttention"}
SIZES = {"vocab_size": 96}
FAMILIES = {
    "llama": {},
    "llama, padded vocabulary": {"vocab_size": 97},
    "qwen2": {"tie_word_embeddings": False, "vocab_size": 99},
    "qwen3": {},
}


def trainer_of(run_dir, options):
    from axisrl_megatron.config import MegatronConfig
    from axisrl_megatron.trainer import MegatronTrainer

    config = MegatronConfig(**{"lr": 1e-3, "max_grad_norm": 0.5, "chunk_tokens": 5, **options})
    return MegatronTrainer(config, BuildContext(run_dir=run_dir, seed=3))


def rows(spec, count):
    """Samples of one global batch, no two tokens alike, with returns."""
    rng = np.random.default_rng(5)
    found = [
        dataclasses.replace(
            sample,
            advantages=rng.normal(size=len(sample.ids)).astype(np.float32),
            returns=rng.normal(size=len(sample.ids)).astype(np.float32),
        )
        for sample in random_samples(spec, count, seed=2)
    ]
    return with_weights(found, "token_mean", 0)


def batches(samples, count):
    """So many micro-batches; with several, one more that trains on nothing."""
    found = [packed(samples[at::count]) for at in range(count) if samples[at:]]
    untrained = dataclasses.replace(samples[0], loss_mask=np.zeros_like(samples[0].loss_mask))
    return found if count == 1 else [found[0], packed([untrained]), *found[1:]]


def stepped(trainer, mine, loss, job):
    """A step, after the trainer's memory was handed over and taken back where the job says so."""
    if job.get("offloads"):
        trainer.offload({"weights", "optimizer"})
        trainer.reload({"weights", "optimizer"})
    return trainer.step(mine, loss)


def learn(rank, size, job):
    """Start, take the steps, save where asked; what was answered before and after, the weights'
    checksum and the steps' statistics. Of a job that ``holds``, the number of first moments."""
    size = job.get("size", size)
    options = job["options"] if size > 1 else {}
    trainer = trainer_of(job["dir"], {**job.get("common", {}), **options})
    share = Share(index=0, count=1)
    if size > 1:
        ranks = Ranks(
            rank=rank, size=size, rendezvous=job["at"], timeout_s=job.get("timeout_s", 60.0)
        )
        share = trainer.join(ranks)
    if "read" in job:
        trainer.replay_routing(job["read"])
    spec = job["spec"]
    if spec.device == "cuda":
        spec = dataclasses.replace(spec, device=f"cuda:{rank}")
    trainer.start(spec, 10)
    try:
        if "load" in job:
            trainer.load(job["load"])
        value = spec.head == "value"
        answer = trainer.values if value else trainer.logprobs
        loss = job.get("loss", ValueLoss() if value else PullLoss())
        mine = batches(job["samples"][share.index :: share.count], job.get("micro", 1))
        before = answer(mine)
        stats = [stepped(trainer, mine, loss, job) for _ in range(job["steps"])]
        after = answer(mine)
        if "holds" in job:
            held = trainer._training.optimizer.beside_weights()
            return sum(value.numel() for name, value in held if name.startswith("exp_avg/"))
        divided = not share.whole
        if "receives" in job:
            return sent(trainer, rank, divided)
        checksum = trainer.weight_update(1).checksum
        if "save" in job and (rank == 0 or divided or share.divides_state):
            trainer.save(job["save"])
        return (
            before,
            after,
            checksum,
            [(s.metrics["loss/total"].value, s.grad_norm) for s in stats],
        )
    finally:
        trainer.stop()


def sent(trainer, rank, divided):
    """Checksum of the weights that are offered, and of what who took them over the process group
    holds; both ranks stay until then."""
    found = None
    trainer._held().mesh.meet()  # as in a run: nobody offers while another rank still steps
    if divided or not rank:
        update = trainer.weight_update(1)
    if not rank:
        expected = {meta.name: (meta.shape, f"torch.{meta.dtype}") for meta in update.tensors}
        taken = WeightTaker("test").take(update, torch.device("cpu"), expected)
        found = update.checksum, weights_checksum(taken), update.transport
    trainer._held().mesh.meet()
    return found


def serve(pipe, rank, size):
    """A process that answers one job after the other."""
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        importlib.import_module(f"{__package__}.stand_ins").as_if_on_cuda()
    importlib.import_module("axisrl_megatron.net")  # what takes long, before anyone waits
    pipe.send("here")
    while (job := pipe.recv()) is not None:
        try:
            pipe.send(("ok", learn(rank, size, job)))
        except Exception as problem:  # whoever asked looks at it
            pipe.send(("error", problem, traceback.format_exc()))


class Processes:
    """Ranks of a trainer."""

    def __init__(self, size, target=serve):
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=target, args=(theirs, rank, size), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        assert [self._answer(pipe) for pipe in self._pipes] == ["here"] * size

    def ask(self, job):
        """What each rank answered, by rank; ``size`` of them where the job has one."""
        at, pipes = free_address(), self._pipes[: job.get("size")]
        for pipe in pipes:
            pipe.send(job | {"at": at, "size": len(pipes)})
        return [self._answer(pipe) for pipe in pipes]

    @staticmethod
    def _answer(pipe):
        assert pipe.poll(LIMIT_S), "a rank never came back"
        return pipe.recv()

    def learn(self, job):
        answers = self.ask(job)
        assert all(answer[0] == "ok" for answer in answers), answers
        return [answer[1] for answer in answers]

    def first(self, size):
        """So many of them, as if there were no others."""
        some = copy.copy(self)
        some._pipes = self._pipes[:size]
        return some

    def close(self):
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(LIMIT_S)


def job_of(spec, tmp_path, options, **more):
    if options.get("sequence") and spec.device == "cpu" and torch.cuda.is_available():
        pytest.skip("where there are GPUs, Megatron's buffers are on them")
    return {
        "spec": spec,
        "samples": rows(spec, 5),
        "steps": 3,
        "dir": tmp_path,
        "options": options,
        **more,
    }


def as_one(ranks, job):
    """Each of the ranks, which divide the model or its batches, learns what one learns that has all
    of them."""
    alone, *found = learn(0, 1, job), *ranks.learn(job)
    for got in found:
        np.testing.assert_allclose(got[0][0], alone[0][0], atol=2e-5)
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
        np.testing.assert_allclose(got[1][0], alone[1][0], atol=2e-4)
        assert got[2] == found[0][2]
        np.testing.assert_array_equal(got[1][0], found[0][1][0])


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_that_share_each_layer_are_as_one(pair, make_model, tmp_path, family, head):
    sizes = {**SIZES, **FAMILIES[family]}
    spec = make_model(family.partition(",")[0], head=head, **sizes)
    as_one(pair, job_of(spec, tmp_path, TENSOR))


@pytest.mark.parametrize("head", ["lm", "value"])
def test_ranks_that_share_the_batches_are_as_one(pair, make_model, tmp_path, head):
    spec = make_model("llama", head=head, **SIZES)
    job = job_of(spec, tmp_path, DATA)
    alone, *ranks = learn(0, 1, job), *pair.learn(job)
    for got in ranks:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert ranks[0][2] == ranks[1][2]


WHOLE_STATE = {"distributed_optimizer": False}


@pytest.mark.parametrize(("size", "options"), [(3, DATA), (4, TENSOR)], ids=["3", "tensor 2 x 2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ranks_that_divide_the_optimizer_step_as_ranks_that_do_not(
    four, make_model, tmp_path, size, options, dtype
):
    """And their checkpoint continues in one rank, whose continues in them."""
    spec = make_model("qwen3", dtype=dtype, **SIZES)
    folders = [tmp_path / name for name in ("of ranks", "of one", "of ranks again")]
    job = job_of(spec, tmp_path, options, size=size)
    got, want = (four.learn(job | {"options": {**options, **more}}) for more in ({}, WHOLE_STATE))
    near = 1e-6 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(got[0][3], want[0][3], rtol=near, atol=near)
    assert len({answer[2] for answer in got}) == 1
    if dtype == "bfloat16":
        return
    for folder in folders:
        folder.mkdir()
    four.learn(job | {"steps": 1, "save": folders[0]})
    first = learn(0, 1, job | {"size": 1, "steps": 1, "load": folders[0], "save": folders[1]})
    second = four.learn(job | {"steps": 1, "load": folders[1]})[0]
    np.testing.assert_allclose(first[3] + second[3], got[0][3][1:], rtol=2e-4)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "options",
    [*ALL.values(), FLEX, WHOLE_STATE],
    ids=[*ALL, "context, flex", "data, whole optimizer"],
)
@pytest.mark.parametrize("lora", [None, LoraOptions(rank=3)], ids=["weights", "adapter"])
def test_two_gpus_are_as_one(pair, make_model, tmp_path, options, lora, dtype):
    """Memory is handed over and taken back before each step."""
    sizes = {**SIZES, "hidden_size": 128, "head_dim": 32, "intermediate_size": 128}
    spec = make_model("qwen3", dtype=dtype, device="cuda", **sizes)
    job = job_of(spec, tmp_path, options, common={"lora": lora}, offloads=True)
    alone, *ranks = learn(0, 1, job), *pair.learn(job)
    near = 1e-3 if dtype == "float32" else 3e-2
    for got in ranks:
        np.testing.assert_allclose(got[3], alone[3], rtol=near)
    assert ranks[0][2] == ranks[1][2]


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_a_checkpoint_continues_bit_for_bit_and_has_no_layout(pair, make_model, tmp_path, options):
    spec = make_model("qwen3", **SIZES)
    saved = tmp_path / "saved"
    saved.mkdir()
    first = job_of(spec, tmp_path, options, steps=2)
    pair.learn(first | {"save": saved})
    assert len(list((saved / "optimizer").iterdir())) == options.get("tensor", 1)
    again = first | {"load": saved}
    resumed, once_more = pair.learn(again), pair.learn(again)
    whole = pair.learn(first | {"steps": 4})
    assert resumed[0][2] == once_more[0][2] == whole[0][2]
    assert resumed[0][3] == whole[0][3][2:]
    alone = learn(0, 1, again)
    np.testing.assert_allclose(alone[3], resumed[0][3], rtol=2e-4)


def test_a_checkpoint_of_one_continues_in_two(pair, make_model, tmp_path):
    spec = make_model("qwen2", vocab_size=97)
    saved = tmp_path / "saved"
    saved.mkdir()
    job = job_of(spec, tmp_path, TENSOR, steps=1)
    learn(0, 1, job | {"save": saved})
    alone, *ranks = learn(0, 1, job | {"load": saved}), *pair.learn(job | {"load": saved})
    np.testing.assert_allclose(ranks[0][3], alone[3], rtol=2e-4)


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_both_ranks_send_the_weights_to_who_receives(pair, make_model, tmp_path, options):
    job = job_of(make_model("qwen3", **SIZES), tmp_path, options)
    by_file = pair.learn(job)[0][2]
    sending = job | {"options": {**options, "transport": "nccl"}, "receives": True}
    assert pair.learn(sending)[0] == (by_file, by_file, "nccl")


@pytest.mark.parametrize(
    ("rank", "share"),
    [(0, (0, True)), (1, (0, False)), (4, (2, True)), (5, (2, False))],
)
def test_ranks_that_share_each_layer_follow_one_another(tmp_path, rank, share):
    trainer = trainer_of(tmp_path, TENSOR)
    got = trainer.join(Ranks(rank=rank, size=6, rendezvous="nowhere:1"))
    assert (got.index, got.speaks, got.count) == (*share, 3)


def test_ranks_that_the_layout_does_not_divide_are_refused_before_they_meet(tmp_path):
    trainer = trainer_of(tmp_path, TENSOR)
    with pytest.raises(ConfigError, match="3 trainer ranks cannot be divided into tensor 2"):
        trainer.join(Ranks(rank=0, size=3, rendezvous="nowhere:1"))


def test_one_process_cannot_hold_a_part(make_model, tmp_path):
    trainer = trainer_of(tmp_path, TENSOR)
    with pytest.raises(ConfigError, match="1 trainer ranks cannot be divided into tensor 2"):
        trainer.start(make_model(**SIZES), 10)


@pytest.mark.parametrize("options", [TENSOR, {"pipeline": 2, "virtual": 2}], ids=str)
def test_a_frozen_model_is_whole_whatever_the_layout(make_model, tmp_path, options):
    spec = make_model(**SIZES)
    frozen, alone = trainer_of(tmp_path, options), trainer_of(tmp_path, {})
    batch = packed(rows(spec, 2))
    frozen.start(spec, None)
    alone.start(spec, 10)
    got, want = frozen.logprobs([batch])[0], alone.logprobs([batch])[0]
    frozen.stop()
    alone.stop()
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_model_that_the_layout_does_not_divide_is_told_by_a_rank(pair, make_model, tmp_path):
    spec = make_model(intermediate_size=65)
    answers = pair.ask(job_of(spec, tmp_path, TENSOR))
    assert all("65 columns of the MLP / tensor 2 leaves 1" in str(a[1]) for a in answers)
