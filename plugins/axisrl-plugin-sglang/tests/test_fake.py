"""The fake against SGLang itself: needs its wheel (``SGLANG_WHEEL``) or SGLang installed; no GPU.

pip download --no-deps sglang==0.5.16
"""

import ast
import importlib.util
import os
import sys
import zipfile
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake"
CALLS = {
    "srt/entrypoints/engine.py": {"Engine": ["__init__", "shutdown"]},
    "srt/managers/tokenizer_manager.py": {
        "TokenizerManager": ["generate_request", "abort_request"]
    },
    "srt/managers/tokenizer_control_mixin.py": {
        "TokenizerControlMixin": [
            "flush_cache",
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
        "self.server_args",
        "self._scheduler_init_result",
    ],
    "srt/managers/tokenizer_manager.py": ["self.context_len", "self.model_config"],
    "srt/configs/model_config.py": ["self.vocab_size"],
}
TEXTS = {
    "srt/managers/tokenizer_manager.py": [
        '"finish_reason"',
        '"cached_tokens"',
        '"output_token_sampling_logprobs"',
        '"output_token_logprobs"',
        'meta_info["routed_experts"] = val',
        "pybase64.b64encode(val.numpy().tobytes())",
        "rid not in self.rid_to_state",
    ],
    "srt/managers/scheduler.py": ['"max_total_num_tokens"', "rid.startswith(recv_req.rid)"],
    "srt/model_executor/model_runner_components/weight_updater.py": [
        "custom_loader(self.get_model(), named_tensors)"
    ],
    "srt/layers/quantization/kv_cache.py": ["layer.k_scale._skip_weight_check = True"],
    "srt/layers/quantization/fp8.py": [
        "layer.weight.data = weight.data",
        "layer.weight_scale_inv.data = weight_scale.data",
        '["ignored_layers", "modules_to_not_convert"]',
        'layer.register_parameter("weight_scale_inv", scale)',
    ],
    "srt/state_capturer/base.py": ["[start_len : seqlen - 1]", "dtype=torch.int32"],
    "srt/state_capturer/routed_experts.py": [
        "hf_text_config.num_experts_per_tok",
        "hf_text_config.num_hidden_layers",
    ],
    "srt/managers/tp_worker.py": [
        "monkey_patch_torch_reductions()",
        "self.model_config.context_len - 1,",
        "max_req_len - 5,",
    ],
    "srt/utils/patch_torch.py": ["_REDUCE_TENSOR_ARG_DEVICE_INDEX = 6"],
}


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    wheel = os.environ.get("SGLANG_WHEEL")
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


def test_the_data_classes_of_the_fake_are_generated_from_the_real_ones(real):
    spec = importlib.util.spec_from_file_location("generate", FAKE / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = generate
    spec.loader.exec_module(generate)
    for name in generate.CLASSES:
        assert (FAKE / "sglang" / name).read_text() == generate.module(real, name)


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


def test_every_argument_the_engine_sets_is_one_of_the_real_server(real):
    from axisrl_sglang.arguments import check_arguments, server_arguments
    from axisrl_sglang.config import OWNED
    from axisrl_sglang.conformance import CASES

    known = server_arguments(real)
    assert set(OWNED) <= set(known)
    for case in CASES:
        check_arguments(case.options["sglang"], known)
