"""Some data classes of SGLang's srt/managers/io_struct.py; written by generate.py."""
# ruff: noqa: F401, UP

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Union


@dataclass(kw_only=True)
class GenerateReqInput:
    rid: Optional[Union[str, List[str]]] = None
    input_ids: Optional[Union[List[List[int]], List[int]]] = None
    sampling_params: Optional[Union[List[Dict[str, Any]], Dict[str, Any]]] = None
    return_logprob: Optional[Union[List[bool], bool]] = None
    return_sampling_mask: Optional[Union[List[bool], bool]] = None
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    lora_path: Optional[Union[List[Optional[str]], str]] = None
    stream: bool = False


@dataclass(kw_only=True)
class UpdateWeightsFromTensorReqInput:
    serialized_named_tensors: List[bytes]
    load_format: Optional[str] = None
    flush_cache: bool = True
    weight_version: Optional[str] = None
    disable_draft_model: Optional[bool] = None


@dataclass(kw_only=True)
class LoadLoRAAdapterReqInput:
    lora_name: str
    lora_path: str


@dataclass(kw_only=True)
class UnloadLoRAAdapterReqInput:
    lora_name: str


@dataclass(kw_only=True)
class LoRAUpdateOutput:
    success: bool
    error_message: Optional[str] = None


@dataclass(kw_only=True)
class ReleaseMemoryOccupationReqInput:
    tags: Optional[List[str]] = None


@dataclass(kw_only=True)
class ResumeMemoryOccupationReqInput:
    tags: Optional[List[str]] = None


@dataclass(kw_only=True)
class FlushCacheReqOutput:
    success: bool
    message: str = ""
