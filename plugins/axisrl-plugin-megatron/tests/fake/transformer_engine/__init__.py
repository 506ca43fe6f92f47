"""What Megatron's extension calls of Transformer Engine, in plain torch, for tests on CPUs. Not
Transformer Engine: names and signatures are, and what it refuses."""

from transformer_engine import common as common
from transformer_engine import pytorch as pytorch

__version__ = "2.11.0"
