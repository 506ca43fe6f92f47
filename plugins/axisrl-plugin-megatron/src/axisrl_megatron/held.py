"""The model a trainer holds: Megatron's net, the folder it came from, and its head.

1. A packed batch goes through the net once (through several in :mod:`axisrl_megatron.passes`,
   where ranks are stages of a pipeline); attention stays inside each row.
2. The head runs at trained tokens alone, a chunk of tokens at a time (:mod:`axisrl.ops.logprobs`):
   logits are never whole. A value head computes in float32.
3. Weights have Hugging Face names outside. Tied ones count once.

It knows no optimizer and no loss.

Shapes: ``M`` trained tokens, ``O`` those of them that this rank passes through the net (all,
unless ranks divide the tokens).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.ops.head_plan import head_plan
from axisrl.ops.logprobs import VocabularyShard, token_logprobs
from axisrl.ops.masters import Division
from axisrl.ops.token_batch import TokenBatch
from axisrl.ops.value_head import drawn_value_head
from axisrl.protocols import ReadExperts
from axisrl.types import AdapterMeta, ModelSpec, PackedBatch
from axisrl_megatron.arguments import checked
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.device import check_device, check_layers, device_of
from axisrl_megatron.families import (
    architecture,
    head_size,
    read_config,
    shape_of,
    sparse_layers,
)
from axisrl_megatron.mesh import Mesh
from axisrl_megatron.portion import Portion
from axisrl_megatron.rules import ADAPTERS, EMBEDDING, OUTPUT, rule_of
from axisrl_megatron.stages import pipeline_options
from axisrl_megatron.weights import FolderTensors, NetWeights, Part, Source

if TYPE_CHECKING:
    from axisrl_megatron.lora import Adapter

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_HEAD = frozenset({"score.weight", "score.bias"})
_WEIGHT_FILES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".index.json")


class HeldModel:
    """A loaded model, or this rank's part of it."""

    def __init__(self, spec: ModelSpec, config: MegatronConfig, mesh: Mesh, *, seed: int) -> None:
        """Raises ``EnvironmentProblem`` when the folder is incomplete or of an unknown family, and
        ``ConfigError`` for options that Megatron refuses."""
        self.spec = spec
        self.device = device_of(spec.device)
        self._config = config
        self.mesh = mesh
        self._hf = read_config(spec.path)
        self._shape = shape_of(self._hf.to_dict())
        mesh.layout.check(self._shape)
        self.nets = self._build()
        self.device = next(self.net.parameters()).device
        self.adapter = self._adapt(seed)
        copies = {name for net in self.nets for name in net.copies}
        self._weights = NetWeights(
            self._parameters(), head_size(self._hf), self._shape, mesh, copies
        )
        with FolderTensors(spec.path) as folder:
            missing = set(self._weights.load(folder))
        if self.adapter is not None:
            missing -= self.adapter.names
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

    @property
    def net(self) -> Any:
        """The one with the head, on ranks that have it."""
        return self.nets[-1]

    def _build(self) -> list[Any]:
        from megatron.core.transformer import TransformerConfig

        from axisrl_megatron.mixture import dispatch
        from axisrl_megatron.net import PackedNet
        from axisrl_megatron.specs import LayerKind

        dtype, layout = _DTYPES[self.spec.dtype], self.mesh.layout
        given = checked(self._config.megatron, TransformerConfig, "trainer.megatron")
        if self.device.type == "cpu" and given.get("recompute_granularity"):
            raise ConfigError(
                "trainer.megatron.recompute_granularity: Megatron recomputes on CUDA devices alone",
                fix="leave it out on a CPU",
            )
        check_device(layout, self.device)
        check_layers(self._config.transformer_impl, self.device)
        options = {
            **self._layers(),
            "bf16": dtype == torch.bfloat16,
            "params_dtype": dtype,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "use_cpu_initialization": self.device.type == "cpu",
            "perform_initialization": False,
            "tensor_model_parallel_size": layout.tensor,
            "context_parallel_size": layout.context,
            "sequence_parallel": layout.sequence,
            **pipeline_options(layout, dtype, given),
            "expert_model_parallel_size": layout.expert,
            "expert_tensor_parallel_size": layout.expert_tensor,
            **dispatch(self.device, self._shape.experts),
            "masked_softmax_fusion": False,
            "bias_activation_fusion": False,
            "bias_dropout_fusion": False,
            **architecture(self._hf),
            **given,
        }
        tokens = layout.padded(self._hf.vocab_size)
        chunks = layout.chunks(self.mesh.place.stage)
        kind = LayerKind(self._config.attention, adapted=self._config.lora is not None)
        try:
            made = TransformerConfig(**options)
            make = partial(PackedNet, made, self._hf, tokens, kind=kind, head=self.spec.head)
            nets = [make(chunk=chunk) for chunk in chunks]
        except (AssertionError, ValueError) as problem:  # Megatron raises both for bad options
            raise ConfigError(
                f"trainer.megatron: Megatron refuses these options: {problem}",
                fix="change or leave out the options it names",
            ) from problem
        for net in nets:
            net.to(device=self.device, dtype=dtype)
            if net.score is not None:
                net.score.float()
        return nets

    def _layers(self) -> dict[str, Any]:
        """Options of ``TransformerConfig``: whose layers, and whether experts are one of them."""
        engine = self._config.transformer_impl == "transformer_engine"
        return {
            "transformer_impl": self._config.transformer_impl,
            "moe_grouped_gemm": engine and self._shape.experts > 0,
        }

    def _adapt(self, seed: int) -> Adapter | None:
        from axisrl_megatron.lora import add_adapter

        if self._config.lora is None:
            return None
        rule = partial(rule_of, head_size=head_size(self._hf))
        groups = self._shape.key_value_heads // self.mesh.layout.tensor
        adapter = add_adapter(
            self.nets,
            self._config.lora,
            rule,
            groups=groups,
            sparse=sparse_layers(self._hf.to_dict()),
            seed=seed,
        )
        if self.net.score is not None:
            self.net.score.requires_grad_(True)
        return adapter

    def replay_routing(self, read: ReadExperts) -> None:
        """Choose the experts that were kept of a batch. Raises ``ConfigError`` for a model without
        experts, and where Megatron computes routers again that were told others since."""
        if not self._shape.experts:
            raise ConfigError(
                f"rollout.routing: the model {self.spec.name} has no experts to choose from",
                fix="set rollout.routing=false, or train a mixture of experts",
            )
        config = self.net.config
        alone = config.recompute_granularity == "selective" and "moe" in config.recompute_modules
        if alone and self.mesh.layout.pipeline > 1:
            raise ConfigError(
                "trainer.megatron.recompute_modules: of a pipeline's micro-batches in flight, a "
                "router that is computed again would replay another one's experts",
                fix="use recompute_granularity: full, or set rollout.routing=false",
            )
        for net in self.nets:
            net.replay_routing(read)

    def expect(self, batches: Sequence[PackedBatch]) -> None:
        """These will pass, in this order: what they need is read ahead."""
        for net in self.nets:
            net.expect(batches)

    def freeze(self) -> None:
        """No weight gets a gradient from here on."""
        for net in self.nets:
            net.requires_grad_(False)

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """What an optimizer moves, by Megatron's names."""
        named = self._parameters().items()
        return {name: value for name, value in named if value.requires_grad}

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        return {name: value for net in self.nets for name, value in net.named()}

    def weights(self, *, on_host: bool = False) -> dict[str, Tensor]:
        """All weights by their Hugging Face names, the adapter merged in; where the model is
        divided, on rank 0."""
        return {name: value.cpu() if on_host else value for name, value in self.named()}

    def named(self, *, everywhere: bool = False) -> Iterator[tuple[str, Tensor]]:
        """The same, one after another, and on every rank if ``everywhere``."""
        factors = self.factors(everywhere=everywhere)
        base = [name for name in self._parameters() if ADAPTERS not in name]
        named = self._weights.named(base, everywhere=everywhere)
        return named if self.adapter is None else self.adapter.merge(named, factors)

    def size(self) -> int:
        """About how many bytes they are, on every rank the same number."""
        layout, of_expert = self.mesh.layout, self._weights.of_expert
        own = sum(
            value.nbytes / (layout.expert_replicas if of_expert(name) else layout.replicas)
            for name, value in self._parameters().items()
        )
        return int(sum(self.mesh.gather(own)))

    def factors(self, *, everywhere: bool = False) -> dict[str, Tensor]:
        """The adapter's tensors by their names in a weight update, where :meth:`named` are; none
        without an adapter."""
        own = [name for name in self._parameters() if ADAPTERS in name]
        return {} if self.adapter is None else dict(self._weights.named(own, everywhere=everywhere))

    def offered(
        self, *, everywhere: bool = False
    ) -> tuple[Iterable[tuple[str, Tensor]], AdapterMeta | None]:
        """What engines are given: all weights, or with ``lora.update`` adapter a policy's adapter
        alone; as :meth:`named`."""
        lora, adapter = self._config.lora, self.adapter
        if adapter is None or lora is None or lora.update == "merged" or self.spec.head != "lm":
            return self.named(everywhere=everywhere), None
        return self.factors(everywhere=everywhere).items(), adapter.meta

    def sum_gradients(self, gradients: Sequence[Tensor], *, data: bool) -> None:
        """Make this rank's gradients those of its part of the model, and with ``data`` of all
        batches; in the order of :meth:`trained`."""
        named = dict(zip(self.trained(), gradients, strict=True))
        self.mesh.sum_over_parts([named[name] for name in self._summed()])
        if data:
            experts = [one for name, one in named.items() if self._weights.of_expert(name)]
            others = [one for name, one in named.items() if not self._weights.of_expert(name)]
            self.mesh.sum_over_data(others)
            self.mesh.sum_over_expert_data(experts)
            self.mesh.sum_over_ends([named[name] for name in self._tied()])

    def division(self) -> Callable[[str], Division] | None:
        """Over which ranks the optimizer's state may be divided, by parameter; None where each has
        all of it."""
        mesh, tied = self.mesh, self._tied()
        replicas = mesh.layout.replicas
        if any(self._weights.of_expert(name) for name in self.trained()):
            replicas = max(replicas, mesh.layout.expert_replicas)
        everywhere, ends = mesh.division, mesh.division_of_ends
        of_experts = mesh.division_of_experts
        if replicas == 1 or everywhere is None or ends is None or of_experts is None:
            return None

        def by_name(name: str) -> Division:
            if self._weights.of_expert(name):
                return of_experts
            return ends if name in tied else everywhere

        return by_name

    def _tied(self) -> list[str]:
        """Parameters that the first stage and the last have, and whose gradients are parts of a sum
        over them."""
        if not any(net.share_embeddings_and_output_weights for net in self.nets):
            return []
        return [name for name in (EMBEDDING, OUTPUT) if name in self.trained()]

    def _summed(self) -> list[str]:
        """Parameters that are whole on each rank of a layer, with gradients that are parts of a
        sum: of heads, or of tokens (Megatron marks those)."""
        per_head = set(self._weights.per_head())
        return [
            name
            for name, parameter in self.trained().items()
            if name in per_head or getattr(parameter, "sequence_parallel", False)
        ]

    def norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The 2-norm of the whole model's gradients, given this rank's, by name."""
        zero = torch.zeros((), device=self.device)
        whole, parts, experts = [zero], [zero], [zero]
        for name, gradient in gradients.items():
            if not self._weights.counts(name):
                continue
            kind = parts if self._weights.divided(name) else whole
            kind = experts if self._weights.of_expert(name) else kind
            kind.append(torch.linalg.vector_norm(gradient) ** 2)
        sums = [torch.stack(kind).sum() for kind in (whole, parts, experts)]
        self.mesh.sum_over_parts(sums[1:2])
        self.mesh.sum_over_experts(sums[2:])
        total = torch.stack(sums).sum()
        self.mesh.sum_over_stages([total])
        return total.sqrt()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything the net holds on its device."""
        yield from self._parameters().items()
        for at, net in enumerate(self.nets):
            yield from ((f"{at}/{name}", value) for name, value in net.named_buffers())

    def load(self, source: Source) -> None:
        """Take all weights by their Hugging Face names; of a model that trains an adapter, what is
        trained. Raises ``KeyError`` naming the first that is missing and ``RuntimeError`` for one
        of another shape."""
        only = None if self.adapter is None else self.trained()
        if missing := self._weights.load(source, only):
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
        portion = Portion.of(tokens, self.mesh)
        return self.logprobs_of(self.net(portion), portion, entropy=entropy)

    def logprobs_of(
        self, hidden_N1H: Tensor, portion: Portion, *, entropy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The same, of the hidden states after the last norm."""
        plan = head_plan(self._config, self.device, entropy=entropy)
        hidden_OH = _trained(hidden_N1H, portion)
        weight_VH = self.net.vocabulary()
        shard = None
        if self.mesh.layout.tensor > 1:
            hidden_OH = self.net.to_parts(hidden_OH)
            start = len(weight_VH) * self.mesh.place.tensor
            shard = VocabularyShard(start, len(weight_VH), self.mesh.tensor_group)
            weight_VH = weight_VH[: self._hf.vocab_size - start]
        tokens = portion.tokens
        labels_O, temperature_O = portion.own(tokens.labels_M), portion.own(tokens.temperature_M)
        found = token_logprobs(hidden_OH, weight_VH, labels_O, temperature_O, plan, shard)
        logprobs_M, entropy_M = portion.answers(torch.stack(found))
        return logprobs_M, entropy_M

    def values(self, tokens: TokenBatch) -> Tensor:
        """V of the states that the trained tokens follow, (M,)."""
        portion = Portion.of(tokens, self.mesh)
        return self.values_of(self.net(portion), portion)

    def values_of(self, hidden_N1H: Tensor, portion: Portion) -> Tensor:
        """The same, of the hidden states after the last norm."""
        values_O1: Tensor = self.net.score(_trained(hidden_N1H, portion).float())
        return portion.answers(values_O1[:, 0])

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


def _trained(hidden_N1H: Tensor, portion: Portion) -> Tensor:
    """Of the trained tokens that are here, (O, H)."""
    return hidden_N1H[:, 0].index_select(0, portion.trained_O)
