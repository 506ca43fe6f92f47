"""The model a trainer holds: Megatron's net, the folder it came from, and its head.

1. A packed batch goes through the net once; attention stays inside each row.
2. The head runs at trained tokens alone, a chunk of tokens at a time (:mod:`axisrl.ops.logprobs`):
   logits are never whole. A value head computes in float32.
3. Weights have Hugging Face names outside. Tied ones count once.

It knows no optimizer and no loss.

Shapes: ``M`` trained tokens, ``O`` those of them that this rank passes through the net (all,
unless ranks divide the tokens).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.ops.head_plan import head_plan
from axisrl.ops.logprobs import VocabularyShard, token_logprobs
from axisrl.ops.masters import Division
from axisrl.ops.token_batch import TokenBatch
from axisrl.ops.value_head import drawn_value_head
from axisrl.types import ModelSpec
from axisrl_megatron.arguments import checked
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.families import architecture, head_size, read_config, shape_of
from axisrl_megatron.mesh import Mesh
from axisrl_megatron.portion import Portion
from axisrl_megatron.weights import FolderTensors, NetWeights, Part, Source

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_HEAD = frozenset({"score.weight", "score.bias"})
_WEIGHT_FILES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".index.json")


class HeldModel:
    """A loaded model, or this rank's part of it."""

    def __init__(self, spec: ModelSpec, config: MegatronConfig, mesh: Mesh, *, seed: int) -> None:
        """Raises ``EnvironmentProblem`` when the folder is incomplete or of an unknown family, and
        ``ConfigError`` for options that Megatron refuses."""
        self.spec = spec
        self.device = _device(spec.device)
        self._config = config
        self.mesh = mesh
        self._hf = read_config(spec.path)
        shape = shape_of(self._hf.to_dict())
        mesh.layout.check(shape)
        self.net = self._build()
        self.device = next(self.net.parameters()).device
        self._weights = NetWeights(self.net, head_size(self._hf), shape, mesh)
        with FolderTensors(spec.path) as folder:
            missing = set(self._weights.load(folder))
        if spec.head == "value" and missing >= _HEAD:
            weight, bias = drawn_value_head(self._hf.hidden_size, seed)
            self._weights.load({"score.weight": weight, "score.bias": bias}.__getitem__)
            missing -= _HEAD
        if missing:
            raise EnvironmentProblem(
                f"model {spec.name!r} in {spec.path} lacks {len(missing)} weights, first "
                f"{min(missing)}",
                fix="fetch the model again; its safetensors files are incomplete",
            )

    def _build(self) -> Any:
        from megatron.core.transformer import TransformerConfig

        from axisrl_megatron.net import PackedNet

        dtype = _DTYPES[self.spec.dtype]
        given = checked(self._config.megatron, TransformerConfig, "trainer.megatron")
        if self.device.type == "cpu" and given.get("recompute_granularity"):
            raise ConfigError(
                "trainer.megatron.recompute_granularity: Megatron recomputes on CUDA devices alone",
                fix="leave it out on a CPU",
            )
        if self.mesh.layout.sequence and not _is_megatrons(self.device):
            raise ConfigError(
                "trainer.sequence: Megatron divides a layer's tokens on CUDA devices alone",
                fix="leave it out on a CPU",
            )
        options = {
            "bf16": dtype == torch.bfloat16,
            "params_dtype": dtype,
            "pipeline_dtype": dtype,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "use_cpu_initialization": self.device.type == "cpu",
            "perform_initialization": False,
            "tensor_model_parallel_size": self.mesh.layout.tensor,
            "context_parallel_size": self.mesh.layout.context,
            "sequence_parallel": self.mesh.layout.sequence,
            "variable_seq_lengths": True,
            "moe_token_dispatcher_type": "alltoall",
            "masked_softmax_fusion": False,
            "bias_activation_fusion": False,
            "bias_dropout_fusion": False,
            **architecture(self._hf),
            **given,
        }
        tokens = self.mesh.layout.padded(self._hf.vocab_size)
        attention, head = self._config.attention, self.spec.head
        try:
            made = TransformerConfig(**options)
            net = PackedNet(made, self._hf, tokens, attention=attention, head=head)
        except (AssertionError, ValueError) as problem:  # Megatron raises both for bad options
            raise ConfigError(
                f"trainer.megatron: Megatron refuses these options: {problem}",
                fix="change or leave out the options it names",
            ) from problem
        net.to(device=self.device, dtype=dtype)
        if net.score is not None:
            net.score.float()
        return net

    def freeze(self) -> None:
        """No weight gets a gradient from here on."""
        self.net.requires_grad_(False)

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """What an optimizer moves, by Megatron's names."""
        return dict(self.net.named_parameters())

    def weights(self) -> dict[str, Tensor]:
        """All weights by their Hugging Face names."""
        return self._weights.named()

    def sum_gradients(self, gradients: Sequence[Tensor], *, data: bool) -> None:
        """Make this rank's gradients those of its part of the model, and with ``data`` of all
        batches; in the order of :meth:`trained`."""
        named = dict(zip(self.trained(), gradients, strict=True))
        self.mesh.sum_over_parts([named[name] for name in self._summed()])
        if data:
            self.mesh.sum_over_data(gradients)

    def division(self) -> Callable[[str], Division] | None:
        """Over which ranks the optimizer's state may be divided, by parameter; None for one."""
        everywhere = self.mesh.division
        return None if everywhere is None else lambda name: everywhere

    def _summed(self) -> list[str]:
        """Parameters that are whole on each rank of a layer, with gradients that are parts of a
        sum: of heads, or of tokens (Megatron marks those)."""
        per_head = set(self._weights.per_head())
        return [
            name
            for name, parameter in self.net.named_parameters()
            if name in per_head or getattr(parameter, "sequence_parallel", False)
        ]

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The 2-norm of the whole model's gradients, given this rank's, by name."""
        squares = {name: torch.linalg.vector_norm(g) ** 2 for name, g in gradients.items()}
        parts = [value for name, value in squares.items() if self._weights.divided(name)]
        whole = [value for name, value in squares.items() if not self._weights.divided(name)]
        total = torch.stack(parts).sum()
        self.mesh.sum_over_parts([total])
        return (total + torch.stack(whole).sum()).sqrt()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything the net holds on its device."""
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()

    def load(self, source: Source) -> None:
        """Take all weights by their Hugging Face names. Raises ``KeyError`` naming the first that
        is missing and ``RuntimeError`` for one of another shape."""
        if missing := self._weights.load(source):
            raise KeyError(missing[0])

    def parts(self, tensors: Mapping[str, Tensor]) -> Iterator[Part]:
        """This rank's part of what belongs to parameters (moments, master weights)."""
        return self._weights.parts(tensors)

    def parameters_of(self, tensors: Collection[str]) -> list[str]:
        """Names of the parameters whose tensors are all among ``tensors``."""
        return self._weights.made_of(tensors)

    def named_back(self, parameter: str, source: Source) -> Tensor:
        """Inverse of :meth:`parts`, for one parameter. Raises ``KeyError``."""
        return self._weights.joined(parameter, source)

    def logprobs(self, tokens: TokenBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (0 unless asked for) of the trained tokens, (M,)."""
        plan = head_plan(self._config, self.device, entropy=entropy)
        portion = Portion.of(tokens, self.mesh)
        hidden_OH = self._hidden(portion)
        weight_VH = self.net.vocabulary()
        shard = None
        if self.mesh.layout.tensor > 1:
            hidden_OH = self.net.to_parts(hidden_OH)
            start = len(weight_VH) * self.mesh.place.tensor
            shard = VocabularyShard(start, len(weight_VH), self.mesh.tensor_group)
            weight_VH = weight_VH[: self._hf.vocab_size - start]
        labels_O, temperature_O = portion.own(tokens.labels_M), portion.own(tokens.temperature_M)
        found = token_logprobs(hidden_OH, weight_VH, labels_O, temperature_O, plan, shard)
        logprobs_M, entropy_M = portion.answers(torch.stack(found))
        return logprobs_M, entropy_M

    def values(self, tokens: TokenBatch) -> Tensor:
        """V of the states that the trained tokens follow, (M,)."""
        portion = Portion.of(tokens, self.mesh)
        values_O1: Tensor = self.net.score(self._hidden(portion).float())
        return portion.answers(values_O1[:, 0])

    def _hidden(self, portion: Portion) -> Tensor:
        """Of the trained tokens that are here, (O, H)."""
        hidden_NH: Tensor = self.net(portion)
        return hidden_NH.index_select(0, portion.trained_O)

    def export(self, target: Path, weights: Mapping[str, Tensor]) -> None:
        """Make ``target`` a folder that transformers loads: ``weights``, config and tokenizer."""
        target.mkdir()
        for file in sorted(self.spec.path.iterdir()):
            if file.is_file() and not file.name.endswith(_WEIGHT_FILES):
                shutil.copyfile(file, target / file.name)
        whole = {name: value.contiguous() for name, value in weights.items()}
        save_file(whole, target / "model.safetensors", metadata={"format": "pt"})
        if self.spec.head == "value":
            self._hf.num_labels = 1
            family = self._hf.architectures[0].partition("For")[0]
            self._hf.architectures = [f"{family}ForTokenClassification"]
        self._hf.dtype = _DTYPES[self.spec.dtype]
        self._hf.save_pretrained(target)


def _device(name: str) -> torch.device:
    """As :class:`axisrl.types.ModelSpec` says."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name.startswith("cuda") and not available:
        raise EnvironmentProblem(
            f"model.device is {name!r} but torch sees no CUDA device",
            fix="set model.device=cpu, or install a CUDA build of torch",
        )
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)  # where Megatron makes its parameters
    return device


def _is_megatrons(device: torch.device) -> bool:
    """True where Megatron's own buffers would be on ``device``: it asks for the current CUDA
    device."""
    try:
        return torch.device(torch.cuda.current_device()).type == device.type
    except (AssertionError, RuntimeError):  # a torch without CUDA, a machine without a GPU
        return False
