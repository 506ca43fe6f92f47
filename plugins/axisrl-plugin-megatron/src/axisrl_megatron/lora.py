"""Low-rank adapters (LoRA, arXiv 2106.09685) in Megatron's linear layers.

1. Megatron holds query, key and value (and gate and up) in one layer. Each gets A and B of its own,
   as in a Hugging Face model, and its output is added where the layer has it: exported tensors are
   those of peft.
2. Of ranks that share a layer, each has B's rows (or A's columns, where the layer's input is
   divided) for its part of the layer; the other factor is whole on all. They exchange what is
   between A and B: as many numbers a token as the rank, not as the layer is wide.
3. A starts random, drawn by the name of its layer, so that no layout changes it; B at 0: the first
   policy is the base model, which gets no gradient.

Layer specs (:mod:`axisrl_megatron.specs`) name these classes; without :func:`add_adapter` they
do what Megatron's do. Weights that have an adapter added are :mod:`axisrl.ops.low_rank`'s.

Shapes: ``N`` tokens, of one rank; ``R`` the adapter's rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.utils import get_pg_rank, get_pg_size
from torch import Tensor, nn
from torch.nn.functional import linear

from axisrl.config.lora import LoraOptions
from axisrl.ops.low_rank import factor_names, merged, weight_name
from axisrl.types import AdapterMeta
from axisrl_megatron.rules import Rule, linear_layers

if TYPE_CHECKING:
    from axisrl_megatron.net import PackedNet


class Factors(nn.Module):
    """A and B of one Hugging Face layer: this rank's part."""

    def __init__(self, weight: Tensor, drawn: Tensor, scale: float) -> None:
        """``weight`` is of the layer, (out, in), and ``drawn`` its A, (R, in), as they are here."""
        super().__init__()
        self.A = nn.Parameter(drawn.to(weight).contiguous())  # as fused optimizers need it
        self.B = nn.Parameter(weight.new_zeros(weight.shape[0], len(drawn)))
        self.scale = scale

    def output(self, hidden_N1R: Tensor) -> Tensor:
        """(N, 1, out), given what A made of the tokens."""
        return linear(hidden_N1R, self.B) * self.scale


class ColumnAdapters(nn.Module):
    """Beside a class of Megatron's whose ranks have some of the outputs each: of one Hugging Face
    layer, or of several side by side."""

    weight: Tensor
    sequence_parallel: bool
    tp_group: Any
    widths: Mapping[str, int]
    """Outputs that are here, by layer, with an adapter or without."""
    groups: int
    """Into so many groups each of them is cut, which alternate."""

    def __init__(self, *given: Any, **options: Any) -> None:
        """As Megatron's."""
        super().__init__(*given, **options)
        self.adapters = cast("Mapping[str, Factors]", nn.ModuleDict())

    @property
    def inputs(self) -> int:
        """Of the whole layer."""
        return self.weight.shape[1]

    def adapt(self, rule: Rule, groups: int, drawn: Mapping[str, Tensor], scale: float) -> None:
        """Give those layers an adapter, by their last names, whose A is ``drawn``."""
        parts = rule.split(self.weight.detach(), groups)
        weights = dict(zip(map(_leaf, rule.names), parts, strict=True))
        self.widths = {name: len(weight) for name, weight in weights.items()}
        self.groups = groups if rule.head_size else 1
        made = {name: Factors(weights[name], a, scale) for name, a in drawn.items()}
        self.adapters = cast("Mapping[str, Factors]", nn.ModuleDict(made))
        for factors in made.values():  # its gradient is of this rank's tokens: Megatron's mark
            factors.A.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, input_: Tensor, *given: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """See Megatron's."""
        output, bias = super().forward(input_, *given, **options)
        if len(self.adapters):
            output = output + self._added(input_)
        return output, bias

    def _added(self, input_: Tensor) -> Tensor:
        adapters = self.adapters
        hidden = linear(input_, torch.cat([factors.A for factors in adapters.values()]))
        if self.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(
                hidden, tensor_parallel_output_grad=True, group=self.tp_group
            )
        else:
            hidden = copy_to_tensor_model_parallel_region(hidden, group=self.tp_group)
        seen = dict(zip(adapters, hidden.chunk(len(adapters), dim=-1), strict=True))
        outputs = [
            adapters[name].output(seen[name])
            if name in seen
            else hidden.new_zeros(*hidden.shape[:-1], width)
            for name, width in self.widths.items()
        ]
        grouped = [output.unflatten(-1, (self.groups, -1)) for output in outputs]
        return torch.cat(grouped, dim=-1).flatten(-2)


class RowAdapters(nn.Module):
    """Beside a class of Megatron's whose ranks have some of the inputs each; outputs are summed
    over the ranks."""

    weight: Tensor
    sequence_parallel: bool
    tp_group: Any

    def __init__(self, *given: Any, **options: Any) -> None:
        """As Megatron's."""
        super().__init__(*given, **options)
        self.adapters = cast("Mapping[str, Factors]", nn.ModuleDict())

    @property
    def inputs(self) -> int:
        """Of the whole layer."""
        return self.weight.shape[1] * int(get_pg_size(self.tp_group))

    def adapt(self, rule: Rule, groups: int, drawn: Mapping[str, Tensor], scale: float) -> None:
        """Give the layer an adapter whose A is ``drawn``, of the whole input."""
        width = self.weight.shape[1]
        start = width * get_pg_rank(self.tp_group)
        ((name, a),) = drawn.items()
        factors = Factors(self.weight.detach(), a[:, start : start + width], scale)
        factors.B.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]
        self.adapters = cast("Mapping[str, Factors]", nn.ModuleDict({name: factors}))

    def forward(self, input_: Tensor, *given: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """See Megatron's."""
        output, bias = super().forward(input_, *given, **options)
        for factors in self.adapters.values():
            hidden = linear(input_, factors.A)
            if self.sequence_parallel:
                hidden = reduce_scatter_to_sequence_parallel_region(hidden, group=self.tp_group)
            else:
                hidden = reduce_from_tensor_model_parallel_region(hidden, group=self.tp_group)
            output = output + factors.output(hidden)
        return output, bias


class AdaptedColumn(ColumnAdapters, ColumnParallelLinear):  # type: ignore[misc]
    """Megatron's own linear layer of which each rank has some of the outputs."""


class AdaptedRow(RowAdapters, RowParallelLinear):  # type: ignore[misc]
    """Megatron's own linear layer of which each rank has some of the inputs."""


class Adapter:
    """The adapter of a whole model, among its weights by Hugging Face names."""

    def __init__(self, options: LoraOptions, targets: Sequence[str]) -> None:
        self.meta = AdapterMeta(
            rank=options.rank, scale=options.alpha / options.rank, targets=tuple(targets)
        )
        self.names = frozenset(name for target in targets for name in factor_names(target))

    def ends(self) -> list[str]:
        """Last names of the targets where each layer has all of them, else whole names."""
        targets = self.meta.targets
        layers = {target.split(".")[2] for target in targets}
        leaves = list(dict.fromkeys(map(_leaf, targets)))
        return leaves if len(targets) == len(layers) * len(leaves) else list(targets)

    def merge(
        self, base: Iterable[tuple[str, Tensor]], factors: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, Tensor]]:
        """The base's weights, the targets' replaced by merged copies."""
        adapted = {weight_name(target): factor_names(target) for target in self.meta.targets}
        for name, weight in base:
            if name in adapted:
                a, b = (factors[factor] for factor in adapted[name])
                weight = merged(weight, a, b, self.meta.scale)
            yield name, weight


def add_adapter(
    nets: Sequence[PackedNet],
    options: LoraOptions,
    rule: Callable[[str], Rule],
    *,
    groups: int,
    sparse: Sequence[bool],
    seed: int,
) -> Adapter:
    """Freeze ``nets``, a rank's parts of the model, and give their targeted layers an adapter.

    ``rule`` of a parameter by its name; ``groups`` are the key-value heads that are here;
    ``sparse`` says of each layer of the whole model whether it is a mixture of experts, which get
    no adapter. Raises ``ConfigError`` for a target that no layer has.
    """
    adapted = {}
    for net in nets:
        net.requires_grad_(False)
        for name, module in net.named_modules():
            if isinstance(module, ColumnAdapters | RowAdapters):
                adapted[net.whole_name(name)] = module
    rules = {name: rule(f"{name}.weight") for name in adapted}
    targets = options.chosen(_linear(sparse))
    adapter = Adapter(options, targets)
    for name, module in adapted.items():
        shape = (options.rank, module.inputs)
        drawn = {
            _leaf(found): _drawn(found, shape, seed)
            for found in rules[name].names
            if found.removesuffix(".weight") in targets
        }
        if drawn:
            module.adapt(rules[name], groups, drawn, adapter.meta.scale)
    return adapter


def _linear(sparse: Sequence[bool]) -> list[str]:
    """Full names of the layers that can get an adapter."""
    return [
        f"model.layers.{number}.{end}"
        for number, of_experts in enumerate(sparse)
        for end in linear_layers()
        if not (of_experts and end.startswith("mlp."))
    ]


def _leaf(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _drawn(name: str, shape: tuple[int, int], seed: int) -> Tensor:
    """(R, in), as torch draws the weight of a linear layer; float32 on the CPU."""
    generator = np.random.default_rng([seed, *name.encode()])
    bound = 1 / math.sqrt(shape[1])
    return torch.from_numpy(generator.uniform(-bound, bound, shape).astype(np.float32))
