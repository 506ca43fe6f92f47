"""Writes the fake's data classes from SGLang's real ones: ``python generate.py SGLANG_FOLDER``.

Only the fields that the plugin or its tests name, with SGLang's own types and defaults.
"""

import ast
import sys
from pathlib import Path

from axisrl_sglang.arguments import classes_of, server_arguments

HERE = Path(__file__).parent
CLASSES = {
    "srt/server_args.py": {
        "ServerArgs": [
            "model_path",
            "tokenizer_path",
            "skip_tokenizer_init",
            "dtype",
            "context_length",
            "random_seed",
            "enable_deterministic_inference",
            "custom_weight_loader",
            "weight_version",
            "incremental_streaming_output",
            "enable_memory_saver",
            "enable_weights_cpu_backup",
            "enable_return_routed_experts",
            "tp_size",
            "pp_size",
            "chunked_prefill_size",
            "speculative_algorithm",
            "dp_size",
            "nnodes",
            "node_rank",
            "dist_init_addr",
            "attention_backend",
            "grammar_backend",
            "mem_fraction_static",
            "max_total_tokens",
            "max_running_requests",
            "cuda_graph_backend_prefill",
            "cuda_graph_max_bs_decode",
            "disable_cuda_graph",
            "load_format",
            "quantization",
            "json_model_override_args",
            "enable_lora",
            "max_lora_rank",
            "lora_target_modules",
            "lora_paths",
            "max_loras_per_batch",
            "log_level",
            "speculative_algorithm",
            "speculative_draft_model_path",
            "speculative_num_draft_tokens",
            "speculative_accept_threshold_single",
            "speculative_accept_threshold_acc",
        ]
    },
    "srt/managers/io_struct.py": {
        "GenerateReqInput": [
            "rid",
            "input_ids",
            "sampling_params",
            "return_logprob",
            "return_sampling_mask",
            "return_routed_experts",
            "routed_experts_start_len",
            "lora_path",
            "stream",
        ],
        "UpdateWeightsFromTensorReqInput": [
            "serialized_named_tensors",
            "load_format",
            "flush_cache",
            "weight_version",
            "disable_draft_model",
        ],
        "LoadLoRAAdapterReqInput": ["lora_name", "lora_path"],
        "UnloadLoRAAdapterReqInput": ["lora_name"],
        "LoRAUpdateOutput": ["success", "error_message"],
        "ReleaseMemoryOccupationReqInput": ["tags"],
        "ResumeMemoryOccupationReqInput": ["tags"],
        "FlushCacheReqOutput": ["success", "message"],
    },
}


def known(folder: Path, name: str) -> dict[str, dict[str, ast.AnnAssign]]:
    """Class -> its annotated fields and its bases', of one module of the SGLang in ``folder``."""
    if name == "srt/server_args.py":
        return {"ServerArgs": server_arguments(folder)}
    source = (folder / name).read_text(encoding="utf-8")
    found = classes_of(source)
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }
    for owner in CLASSES[name]:
        for base in bases.get(owner, ()):
            found[owner] = found.get(base, {}) | found[owner]
    return found


def module(folder: Path, name: str) -> str:
    """The fake's text of one module."""
    lines = [
        f'"""Some data classes of SGLang\'s {name}; written by generate.py."""',
        "# ruff: noqa: F401, UP",
        "",
        "from dataclasses import dataclass",
        "from typing import Any, Dict, List, Literal, Optional, Union",
    ]
    found = known(folder, name)
    for owner, fields in CLASSES[name].items():
        lines += ["", "", "@dataclass(kw_only=True)", f"class {owner}:"]
        lines += [declared(found[owner][field]) for field in fields]
    return "\n".join(lines) + "\n"


def declared(field: ast.AnnAssign) -> str:
    """``name: type = default``; a default that is made is None."""
    kind = ast.unparse(bare(field.annotation))
    text = f"    {field.target.id}: {kind.replace('List[LoRARef]', 'Any')}"
    if field.value is None:
        return text
    value = field.value
    if isinstance(value, ast.Call):
        value = next((k.value for k in value.keywords if k.arg == "default"), ast.Constant(None))
    return f"{text} = {ast.unparse(value).replace(chr(39), chr(34))}"


def bare(annotation: ast.expr) -> ast.expr:
    """The type within ``Annotated`` (which SGLang calls ``A``)."""
    annotated = isinstance(annotation, ast.Subscript)
    if annotated and ast.unparse(annotation.value) in ("A", "Annotated"):
        return bare(annotation.slice.elts[0])
    return annotation


def main() -> None:
    for name in CLASSES:
        text = module(Path(sys.argv[1]), name)
        (HERE / "sglang" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
