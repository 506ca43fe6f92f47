"""The fake against SGLang itself: needs its wheels (``SGLANG_WHEEL``) or SGLang installed; no GPU.

Every release of the supported range, one after the other:

    for v in $(seq 12 23); do pip download --no-deps -d wheels sglang==0.5.$v; done
    SGLANG_WHEEL=$(ls wheels/*.whl | paste -sd:) pytest tests/test_fake.py
"""

import ast
import importlib.util
import os
import re
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from axisrl_sglang.versions import SUPPORTED

FAKE = Path(__file__).parent / "fake"
CALLS = {
    "srt/entrypoints/engine.py": {"Engine": ["__init__", "shutdown", "freeze_gc"]},
    "srt/managers/tokenizer_manager.py": {
        "TokenizerManager": ["generate_request", "abort_request"]
    },
    "srt/managers/tokenizer_control_mixin.py": {
        "TokenizerControlMixin": [
            "flush_cache",
            "get_internal_state",
            "update_weights_from_tensor",
            "load_lora_adapter",
            "unload_lora_adapter",
            "release_memory_occupation",
            "resume_memory_occupation",
        ]
    },
}
ATTRIBUTES = {
    "srt/entrypoints/engine.py": [
        "self.loop",
        "self.tokenizer_manager",
        "self._scheduler_init_result",
    ],
    "srt/managers/tokenizer_manager.py": [
        "self.context_len",
        "self.model_config",
        "self.rid_to_state",
    ],
    "srt/configs/model_config.py": ["self.vocab_size"],
}
TEXTS = {
    "srt/managers/tokenizer_manager.py": [
        '"finish_reason"',
        '"cached_tokens"',
        '"output_token_logprobs"',
        'meta_info["routed_experts"] = val',
        "pybase64.b64encode(val.numpy().tobytes())",
        '"spec_verify_ct"',
    ],
    "srt/managers/scheduler.py": ['"max_total_num_tokens"', "rid.startswith(recv_req.rid)"],
    "srt/layers/quantization/kv_cache.py": ["layer.k_scale._skip_weight_check = True"],
    "srt/layers/quantization/fp8.py": [
        "layer.weight.data = weight.data",
        "layer.weight_scale_inv.data = weight_scale.data",
        '["ignored_layers", "modules_to_not_convert"]',
        'layer.register_parameter("weight_scale_inv", scale)',
    ],
    "srt/lora/lora.py": ["def normalize_qkv_proj", "def normalize_gate_up_proj"],
    "srt/state_capturer/base.py": ["[start_len : seqlen - 1]", "dtype=torch.int32"],
    "srt/state_capturer/routed_experts.py": [
        "hf_text_config.num_experts_per_tok",
        "hf_text_config.num_hidden_layers",
    ],
    "srt/entrypoints/engine.py": [
        "node_rank >= 1:",
        "scheduler_init_result.wait_for_ready()",
        'if os.getenv("SGLANG_BLOCK_NONZERO_RANK_CHILDREN") == "0":',
        "self.tokenizer_manager is not None",
    ],
    "srt/managers/tp_worker.py": [
        "monkey_patch_torch_reductions()",
        "self.model_config.context_len - 1,",
        "max_req_len - 5",
    ],
    "srt/utils/patch_torch.py": ["_REDUCE_TENSOR_ARG_DEVICE_INDEX = 6"],
}
NOT_EVERYWHERE = {
    "return_sampling_mask",
    "cuda_graph_backend_prefill",
    "cuda_graph_max_bs_decode",
    "disable_draft_model",
}
"""Not in every supported release: looked for before they are used, or only in examples."""
WHEELS = [wheel for wheel in os.environ.get("SGLANG_WHEEL", "").split(os.pathsep) if wheel]


def release(wheel: str) -> str:
    return Path(wheel).name.split("-")[1] if wheel else "installed"


@pytest.fixture(scope="module", params=WHEELS or [""], ids=release)
def wheel(request) -> str:
    """Path of a wheel; empty for the SGLang that is installed."""
    return request.param


@pytest.fixture(scope="module")
def real(wheel, tmp_path_factory) -> Path:
    if wheel:
        folder = tmp_path_factory.mktemp("sglang")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if n.endswith(".py")])
        return folder / "sglang"
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("neither SGLANG_WHEEL nor an installed SGLang to compare the fake with")
    return Path(next(iter(spec.submodule_search_locations)))


def tree(folder: Path, name: str) -> ast.Module:
    return ast.parse((folder / name).read_text(encoding="utf-8"))


def method(module: ast.Module, owner: str, name: str) -> tuple[bool, list[str], list[str]]:
    """Whether it is asynchronous, its parameters, and their defaults."""
    for found in ast.walk(module):
        if isinstance(found, ast.ClassDef) and found.name == owner:
            for line in found.body:
                if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef) and line.name == name:
                    arguments = line.args
                    names = [argument.arg for argument in arguments.args]
                    defaults = [ast.unparse(default) for default in arguments.defaults]
                    if arguments.kwarg is not None:
                        names.append("**" + arguments.kwarg.arg)
                    return isinstance(line, ast.AsyncFunctionDef), names, defaults
    raise AssertionError(f"{owner}.{name} is not there")


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", FAKE / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_release_is_one_of_the_supported_range(wheel, real):
    version = release(wheel) if wheel else metadata.version("sglang")
    assert SUPPORTED.contains(version, prereleases=True)


def test_the_data_classes_of_the_fake_are_generated_from_the_real_ones(wheel, real, generate):
    version = release(wheel) if wheel else metadata.version("sglang")
    if f'__version__ = "{version}"' not in (FAKE / "sglang/__init__.py").read_text():
        pytest.skip("the fake is generated from another release")
    for name in generate.CLASSES:
        assert (FAKE / "sglang" / name).read_text() == generate.module(real, name)


def test_fields_of_the_fake_are_fields_of_the_real_ones(real, generate):
    for name, owners in generate.CLASSES.items():
        for owner, fields in owners.items():
            missing = set(fields) - generate.known(real, name)[owner].keys()
            assert missing <= NOT_EVERYWHERE, owner


def test_a_sampling_mask_that_can_be_asked_for_comes_with_its_logprobs(real, generate):
    asks = (
        "return_sampling_mask"
        in generate.known(real, "srt/managers/io_struct.py")["GenerateReqInput"]
    )
    source = (real / "srt/managers/tokenizer_manager.py").read_text(encoding="utf-8")
    assert asks == ('"output_token_sampling_logprobs"' in source)


def test_an_update_can_be_said_to_be_none_of_a_draft_models(real, generate):
    fields = generate.known(real, "srt/managers/io_struct.py")["UpdateWeightsFromTensorReqInput"]
    assert len(fields.keys() & {"disable_draft_model", "selector"}) == 1


def test_what_is_called_has_the_signature_of_the_fake(real):
    fake = tree(FAKE / "sglang", "srt/entrypoints/engine.py")
    for name, owners in CALLS.items():
        for owner, methods in owners.items():
            here = "Engine" if owner == "Engine" else "TokenizerManager"
            for each in methods:
                assert method(fake, here, each) == method(tree(real, name), owner, each), each


def test_attributes_that_are_read_are_set_by_the_real_classes(real):
    for name, attributes in ATTRIBUTES.items():
        assigned = {
            ast.unparse(target)
            for node in ast.walk(tree(real, name))
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        }
        assert set(attributes) <= assigned, name


def test_what_the_engine_relies_on_is_in_the_real_source(real):
    for name, texts in TEXTS.items():
        source = (real / name).read_text(encoding="utf-8")
        assert [text for text in texts if text not in source] == [], name


def test_new_weights_are_given_to_the_custom_loader_with_the_model(real):
    newer = real / "srt/model_executor/model_runner_components/weight_updater.py"
    older = real / "srt/model_executor/model_runner.py"
    source = (newer if newer.exists() else older).read_text(encoding="utf-8")
    assert re.search(r"custom_loader\(self\.(get_model\(\)|model), named_tensors\)", source)


def test_every_argument_the_engine_sets_is_one_of_the_real_server(real):
    from axisrl_sglang.arguments import check_arguments, server_arguments
    from axisrl_sglang.config import OWNED
    from axisrl_sglang.conformance import CASES

    known = server_arguments(real)
    assert set(OWNED) <= set(known)
    for case in CASES:
        check_arguments(case.options["sglang"], known)
