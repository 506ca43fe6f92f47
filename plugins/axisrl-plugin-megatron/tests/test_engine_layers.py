"""Transformer Engine's layers beside Megatron's own: on CPUs, where Megatron's wrappers and specs
run over a stand-in for Transformer Engine (``fake``), in processes of their own."""

import ast
import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.errors import ConfigError

ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
replay = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_replay")
pytestmark = pytest.mark.needs("megatron")
without_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="where there are GPUs, Transformer Engine itself is tried"
)
FAKE = Path(__file__).parent / "fake"
ENGINE = {"transformer_impl": "transformer_engine"}
SIZES = {"vocab_size": 96}
MIXED = {**SIZES, "num_hidden_layers": 3, "mlp_only_layers": [0]}
FAMILIES = {
    "llama": {"vocab_size": 97},
    "qwen2": {"tie_word_embeddings": False, **SIZES},
    "qwen3": SIZES,
    "qwen3_moe": MIXED,
}


def serve(pipe, rank, size):
    """As ranks of other tests, with the stand-in where Transformer Engine would be."""
    sys.path.insert(0, str(FAKE))
    ranks.serve(pipe, rank, size)


@pytest.fixture(scope="module")
def engines():
    """Two processes whose Megatron finds Transformer Engine."""
    processes = ranks.Processes(2, serve)
    yield processes
    processes.close()


@pytest.fixture
def both(engines, make_model, tmp_path):
    """(family, options, ...) -> what ranks with Transformer Engine's layers learn, each, and what
    one process with Megatron's own does."""

    def learn(family="qwen3", options=None, sizes=None, **more):
        head, common = more.pop("head", "lm"), more.pop("common", {})
        spec = make_model(family, head=head, **{**FAMILIES[family], **(sizes or {})})
        job = ranks.job_of(spec, tmp_path, options or {}, **{"size": 1, **more})
        found = engines.learn(job | {"common": {**common, **ENGINE}})
        return found, ranks.learn(0, 1, job | {"size": 1, "common": common})

    return learn


def near(found, alone):
    """Losses and norms are those of one process with other layers, and so are answers before and
    after where ranks do not share the batches."""
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
        if len(got[0][0]) == len(alone[0][0]):
            np.testing.assert_allclose(got[0][0], alone[0][0], atol=2e-5)
            np.testing.assert_allclose(got[1][0], alone[1][0], atol=2e-4)
    assert len({got[2] for got in found}) == 1


@without_gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_learn_what_megatrons_own_learn(both, family):
    near(*both(family))


@without_gpu
def test_beside_it_megatrons_own_layers_are_what_they_were(engines, make_model, tmp_path):
    job = ranks.job_of(make_model("qwen3_moe", **MIXED), tmp_path, {}, size=1)
    (got,) = engines.learn(job)
    assert got[2] == ranks.learn(0, 1, job)[2]


@without_gpu
def test_a_value_model_is_trained(both):
    near(*both("qwen2", head="value"))


@without_gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_were_loaded_are_exported_bit_for_bit(both, family):
    (got,), want = both(family, steps=0)
    assert got[2] == want[2]


@without_gpu
def test_its_activation_may_be_taken_too(engines, make_model, tmp_path):
    spec = make_model("qwen3_moe", **MIXED)
    job = ranks.job_of(spec, tmp_path, {}, size=1)
    given = {"megatron": {"use_te_activation_func": True}}
    near(engines.learn(job | {"common": {**given, **ENGINE}}), ranks.learn(0, 1, job))


@without_gpu
def test_a_residual_stream_of_another_type_passes(engines, make_model, tmp_path):
    spec = make_model("qwen3", dtype="bfloat16", **SIZES)
    job = ranks.job_of(spec, tmp_path, {}, size=1)
    common = {"megatron": {"fp32_residual_connection": True}}
    (got,) = engines.learn(job | {"common": {**common, **ENGINE}})
    want = ranks.learn(0, 1, job | {"common": common})
    np.testing.assert_allclose(got[3], want[3], rtol=3e-2, atol=1e-2)


@without_gpu
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"tensor": 2}),
        ("qwen3", {"tensor": 2, "sequence": True}),
        ("qwen2", {"context": 2}),
        ("qwen3_moe", {"expert": 2}),
        ("qwen3_moe", {"tensor": 2, "sequence": True, "expert_tensor": 2}),
        ("qwen3", {"pipeline": 2}),
    ],
    ids=str,
)
def test_ranks_divide_them(both, family, options):
    """Memory is handed over and taken back before each step."""
    sizes = {"num_hidden_layers": 2, "mlp_only_layers": []} if family == "qwen3_moe" else {}
    near(*both(family, options, sizes, size=2, offloads=True))


@without_gpu
@pytest.mark.parametrize("options", [{}, {"tensor": 2, "sequence": True}], ids=["one", "two"])
def test_they_train_the_adapter_of_megatrons_own(both, options):
    common = {"lora": LoraOptions(rank=3), "lr": 1e-2}
    near(*both("qwen2", options, common=common, size=2 if options else 1))


@without_gpu
@pytest.mark.parametrize(
    ("family", "options"), [("qwen3", {"tensor": 2}), ("qwen3_moe", {"expert": 2})], ids=str
)
def test_a_checkpoint_goes_from_layers_to_layers(engines, make_model, tmp_path, family, options):
    spec = make_model(family, **FAMILIES[family])
    own, others = tmp_path / "own", tmp_path / "others"
    own.mkdir()
    others.mkdir()
    job = ranks.job_of(spec, tmp_path, options, size=2) | {"steps": 1}
    alone = job | {"size": 1}
    steps = [ranks.learn(0, 1, alone | {"save": own})]
    engine = job | {"common": ENGINE}
    steps.append(engines.learn(engine | {"load": own, "save": others})[0])
    steps.append(ranks.learn(0, 1, alone | {"load": others}))
    whole = ranks.learn(0, 1, alone | {"steps": 3})
    np.testing.assert_allclose([step[3][0] for step in steps], whole[3], rtol=2e-4)
    kept = engines.learn(engine | {"load": own, "steps": 0})[0]
    assert kept[2] == steps[0][2]


@without_gpu
def test_experts_that_were_kept_are_chosen_again(both, make_model):
    sizes = {**MIXED, "num_experts": 8}
    spec = make_model("qwen3_moe", **sizes)
    kept = replay.Kept(ranks.rows(spec, 5))
    given = {"samples": kept.samples, "read": kept}
    found, alone = both("qwen3_moe", {"expert": 2}, sizes, size=2, **given)
    near(found, alone)
    own, _ = both("qwen3_moe", {"expert": 2}, sizes, size=2)
    assert abs(own[0][0][0] - found[0][0][0]).max() > 1e-3


@without_gpu
def test_experts_are_sent_under_their_own_names(engines, make_model, tmp_path):
    job = ranks.job_of(make_model("qwen3_moe", **SIZES), tmp_path, {"expert": 2}, common=ENGINE)
    by_file = engines.learn(job)[0][2]
    sending = job | {"options": {"expert": 2, "transport": "nccl"}, "receives": True}
    assert engines.learn(sending)[0] == (by_file, by_file, "nccl")


@pytest.mark.skipif(
    importlib.util.find_spec("transformer_engine") is not None, reason="it is installed"
)
def test_without_it_they_are_refused_with_the_way_to_install_it(make_model, make_trainer):
    with pytest.raises(ConfigError, match="Transformer Engine is not installed") as problem:
        make_trainer(make_model(), **ENGINE)
    assert "transformer-engine[pytorch" in problem.value.fix


@without_gpu
def test_on_a_cpu_they_are_refused(make_model, make_trainer, monkeypatch):
    monkeypatch.setattr("megatron.core.extensions.transformer_engine.HAVE_TE", True)
    with pytest.raises(ConfigError, match="on CUDA devices alone, and the model is on cpu"):
        make_trainer(make_model(), **ENGINE)


def test_the_stand_in_is_nowhere_else():
    assert str(FAKE) not in sys.path
    loaded = sys.modules.get("transformer_engine")
    assert loaded is None or not str(loaded.__file__).startswith(str(FAKE))


def signatures(path, kinds):
    """Names of parameters, by class and method."""
    tree = ast.parse(path.read_text("utf-8"))
    found = {}
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef) and kind.name in kinds:
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "forward"):
                    args = method.args
                    names = [a.arg for a in [*args.args, *args.kwonlyargs]]
                    found[kind.name, method.name] = names
    return found


@pytest.mark.skipif(
    importlib.util.find_spec("transformer_engine") is None, reason="needs Transformer Engine"
)
def test_the_stand_in_is_called_as_transformer_engine_is():
    spec = importlib.util.find_spec("transformer_engine")
    real = Path(spec.origin).parent / "pytorch" / "module"
    files = {
        "Linear": "linear.py",
        "LayerNormLinear": "layernorm_linear.py",
        "GroupedLinear": "grouped_linear.py",
        "RMSNorm": "rmsnorm.py",
    }
    ours = signatures(FAKE / "transformer_engine/pytorch/module.py", files)
    assert len(ours) == 2 * len(files)
    for (kind, method), names in ours.items():
        theirs = signatures(real / files[kind], [kind]).get((kind, method), names)
        kept = [name for name in theirs if name in names]
        assert kept == names, (kind, method)
