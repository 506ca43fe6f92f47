"""Some data classes of SGLang's srt/server_args.py; written by generate.py."""
# ruff: noqa: F401, UP

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Union


@dataclass(kw_only=True)
class ServerArgs:
    model_path: str
    tokenizer_path: Optional[str] = None
    skip_tokenizer_init: bool = False
    dtype: str = "auto"
    context_length: Optional[int] = None
    random_seed: Optional[int] = None
    enable_deterministic_inference: bool = False
    custom_weight_loader: Optional[List[str]] = None
    weight_version: str = "default"
    incremental_streaming_output: bool = False
    enable_memory_saver: bool = False
    enable_weights_cpu_backup: bool = False
    enable_return_routed_experts: bool = False
    tp_size: int = 1
    pp_size: int = 1
    chunked_prefill_size: Optional[int] = None
    speculative_algorithm: Optional[str] = None
    dp_size: int = 1
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: Optional[str] = None
    attention_backend: Optional[str] = None
    grammar_backend: Optional[str] = None
    mem_fraction_static: Optional[float] = None
    max_total_tokens: Optional[int] = None
    max_running_requests: Optional[int] = None
    cuda_graph_backend_prefill: Optional[Literal['full', 'breakable', 'tc_piecewise', 'disabled']] = None
    cuda_graph_max_bs_decode: Optional[int] = None
    disable_cuda_graph: bool = False
    load_format: str = "auto"
    quantization: Optional[str] = None
    json_model_override_args: str = "{}"
    enable_lora: Optional[bool] = None
    max_lora_rank: Optional[int] = None
    lora_target_modules: Optional[Union[set[str], List[str]]] = None
    lora_paths: Optional[Union[dict[str, str], List[dict[str, str]], List[str], Any]] = None
    max_loras_per_batch: int = 8
    log_level: str = "info"
    speculative_algorithm: Optional[str] = None
    speculative_draft_model_path: Optional[str] = None
    speculative_num_draft_tokens: Optional[int] = None
    speculative_accept_threshold_single: float = 1.0
    speculative_accept_threshold_acc: float = 1.0
