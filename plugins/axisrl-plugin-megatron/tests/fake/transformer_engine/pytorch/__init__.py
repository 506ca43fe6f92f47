from transformer_engine.pytorch import distributed as distributed
from transformer_engine.pytorch import ops as ops
from transformer_engine.pytorch.cpu_offload import (
    get_cpu_offload_context as get_cpu_offload_context,
)
from transformer_engine.pytorch.module import DotProductAttention as DotProductAttention
from transformer_engine.pytorch.module import GroupedLinear as GroupedLinear
from transformer_engine.pytorch.module import LayerNormLinear as LayerNormLinear
from transformer_engine.pytorch.module import Linear as Linear
from transformer_engine.pytorch.module import RMSNorm as RMSNorm
