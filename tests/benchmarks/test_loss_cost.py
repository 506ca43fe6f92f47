"""Tests of benchmarks/loss_cost.py, loss_side.py and loss_part.py: no time is judged here."""

import json
import sys
from pathlib import Path

import pytest
import torch

from axisrl_local.trainer_config import TrainerConfig

CPU = torch.device("cpu")


@pytest.fixture
def bench():
    import loss_cost

    return loss_cost


@pytest.fixture
def inputs():
    from loss_part import Shape

    return Shape(tokens=12, vocabulary=40, hidden=8).inputs(CPU, torch.float32)


@pytest.fixture
def result(bench):
    from loss_part import Shape

    return bench.Result(
        shape=Shape(tokens=1024, vocabulary=64, hidden=8),
        loss="grpo",
        ours=bench.Cost(seconds=3.0, peak_bytes=5 << 20),
        plain=bench.Cost(seconds=2.0, peak_bytes=9 << 20),
    )


def gradients(inputs):
    return [tensor.grad.clone() for tensor in inputs[:2]]


def cleared(inputs):
    inputs.hidden_MH.grad = inputs.weight_VH.grad = None
    return inputs


@pytest.mark.parametrize("variant", ["grpo", "kl", "icepop"])
def test_both_sides_have_the_same_cross_entropy_and_the_same_gradients(inputs, variant):
    from loss_part import LossPart, cross_entropy

    part = LossPart(variant, inputs, TrainerConfig())
    assert part(cleared(inputs)).item() == pytest.approx(-1)
    ours = gradients(inputs)
    loss = cross_entropy(cleared(inputs))
    assert part.cross_entropy == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(ours, gradients(inputs))


def test_the_entropy_bonus_is_in_value_and_gradient(inputs):
    from loss_part import LossPart

    loss = LossPart("entropy", inputs, TrainerConfig())(cleared(inputs))
    ours = gradients(inputs)
    hidden, weight, labels = cleared(inputs)
    logp = (hidden @ weight.T).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    taken = logp.gather(1, labels[:, None]).mean()
    (-taken - 0.01 * entropy).backward()
    assert loss.item() == pytest.approx(-1 - 0.01 * entropy.item())
    torch.testing.assert_close(ours, gradients(inputs))


def test_each_variant_adds_what_it_is_named_for():
    from loss_part import VARIANTS, objective

    needs = {variant: objective(variant).needs for variant in VARIANTS}
    assert needs["grpo"] == {"old_logprobs"}
    assert needs["entropy"] == {"old_logprobs", "entropy"}
    assert needs["kl"] == {"old_logprobs", "reference_logprobs"}


def test_the_icepop_variant_leaves_tokens_out(inputs):
    from loss_part import LossPart

    part = LossPart("icepop", inputs, TrainerConfig())
    part._columns["rollout_logprobs_N"] = part._columns["rollout_logprobs_N"] + 3
    assert part(inputs).item() == 0


def test_the_head_is_the_trainers_by_default(bench, inputs, tmp_path):
    from loss_part import PLAIN, LossPart, Shape

    shape = Shape(tokens=8, vocabulary=16, hidden=8)
    job = json.loads(bench._job(bench.parse([]), shape, PLAIN, tmp_path).read_text())
    assert TrainerConfig(**job["trainer"]) == TrainerConfig()
    plan = LossPart("grpo", inputs, TrainerConfig(chunk_tokens=3, kept_logits_mib=2))._plan
    assert (plan.chunk_tokens, plan.kept_bytes) == (3, 2 << 20)


def test_the_sides_agree_on_this_machine(bench):
    assert max(bench.disagreement(CPU, torch.float32)) < 1e-4


def test_a_wrong_gradient_shows_as_a_disagreement(bench, monkeypatch):
    from loss_part import LossPart

    class Halved(LossPart):
        def __call__(self, inputs):
            loss = super().__call__(inputs)
            inputs.weight_VH.grad /= 2
            return loss

    monkeypatch.setattr(bench, "LossPart", Halved)
    assert bench.disagreement(CPU, torch.float32)[1] == pytest.approx(0.5, rel=1e-3)


def test_the_ratio_is_ours_to_plains(result):
    assert result.ratio == 1.5
    assert result.cells() == ["1,024", "64", "grpo", "3.00", "2.00", "1.50", "5.00", "9.00"]
    assert result.facts()["ratio"] == 1.5
    assert result.facts()["shape"] == {"tokens": 1024, "vocabulary": 64, "hidden": 8}


def test_the_table_has_the_columns_of_the_page(bench, result):
    page = (Path(bench.__file__).parents[1] / "docs/benchmarks.md").read_text()
    assert "| " + " | ".join(bench.HEADER) + " |" in page
    assert len(result.cells()) == len(bench.HEADER)


def test_the_grid_is_every_length_with_every_vocabulary(bench):
    args = bench.parse(["--tokens", "2", "4", "--vocabulary", "16", "32", "--hidden", "8"])
    sizes = [(shape.tokens, shape.vocabulary, shape.hidden) for shape in bench.shapes(args)]
    assert sizes == [(2, 16, 8), (4, 16, 8), (2, 32, 8), (4, 32, 8)]


def test_the_first_pass_of_a_side_is_not_timed(bench, monkeypatch, tmp_path):
    import loss_side
    from loss_part import PLAIN, Shape

    turns = []
    monkeypatch.setattr(loss_side, "pause", lambda: turns.append(1))
    shape = Shape(tokens=8, vocabulary=16, hidden=8)
    job = bench._job(bench.parse(["--repeat", "2"]), shape, PLAIN, tmp_path)
    found = loss_side.serve(json.loads(job.read_text()))
    assert (len(turns), len(found["seconds"])) == (4, 2)


def test_peak_memory_counts_every_copy_of_the_logits_and_no_input(bench, tmp_path):
    from loss_part import Shape

    shape = Shape(tokens=256, vocabulary=65536, hidden=8)
    logits = 256 * 65536 * 4
    args = bench.parse(["--repeat", "1"])
    (result,) = bench.measure(args, shape, ["grpo"], tmp_path)
    assert 2 * logits < result.plain.peak_bytes < 5 * logits
    assert logits < result.ours.peak_bytes < result.plain.peak_bytes


def test_the_whole_comparison_prints_its_table_and_writes_json(
    bench, monkeypatch, capsys, tmp_path
):
    out = tmp_path / "results.json"
    command = "loss_cost.py --tokens 16 64 --vocabulary 128 --hidden 8 --repeat 1"
    command += f" --loss grpo icepop --json {out}"
    monkeypatch.setattr(sys, "argv", command.split())
    bench.main()
    results = json.loads(out.read_text())
    measured = [(each["shape"]["tokens"], each["loss"]) for each in results]
    assert measured == [(16, "grpo"), (64, "grpo"), (64, "icepop")]
    for each in results:
        assert each["ratio"] == each["ours"]["seconds"] / each["plain"]["seconds"]
        assert each["plain"]["peak_bytes"] >= 0
    assert results[1]["plain"] == results[2]["plain"]
    printed = capsys.readouterr().out
    assert "differ by" in printed
    assert sum(line.startswith(("| 16 ", "| 64 ")) for line in printed.splitlines()) == 3
