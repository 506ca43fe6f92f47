"""PackedNet: Megatron's embedding, transformer block and output layer, for packed rows.

1. It is built of Megatron's own parts rather than of ``GPTModel``: that one computes all logits
   (here the head reads hidden states, :mod:`axisrl_megatron.held`), and counts positions by itself,
   on a CUDA device only.
2. It may be a part of the model: a run of its layers, of which the first takes tokens and the
   others hidden states (:class:`axisrl_megatron.layout.Chunk`).
3. Layers follow Megatron's layer specs, with the core attention that the options name
   (:mod:`axisrl_megatron.specs`).
4. Positions are rotated by what the batch says they are, token by token.

It loads no weights and computes no loss.

Shapes: ``N`` tokens, ``H`` hidden size, ``D`` head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from megatron.core.enums import ModelType
from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.transformer_block import TransformerBlock, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch import Tensor, nn

from axisrl.protocols import ReadExperts
from axisrl.types import PackedBatch
from axisrl_megatron.families import inverse_frequencies, sparse_layers
from axisrl_megatron.layout import Chunk
from axisrl_megatron.portion import Portion
from axisrl_megatron.replay import Replay
from axisrl_megatron.rules import LAYERS, OUTPUT
from axisrl_megatron.specs import LayerKind, block_spec


class PackedNet(LanguageModule):  # type: ignore[misc]
    """A language model, or with ``head`` "value" its body under a linear layer to 1; or a part of
    it."""

    def __init__(
        self,
        config: TransformerConfig,
        hf_config: Any,
        vocabulary: int,
        *,
        kind: LayerKind,
        head: str,
        chunk: Chunk,
    ) -> None:
        """``vocabulary`` tokens, of which the last may be padding."""
        super().__init__(config=config)
        self.model_type = ModelType.encoder_or_decoder
        self.pre_process, self.post_process = chunk.first, chunk.last
        self.vp_stage = chunk.virtual
        tied = bool(hf_config.tie_word_embeddings) and head == "lm"
        self.share_embeddings_and_output_weights = tied
        first = get_transformer_layer_offset(config, chunk.virtual)
        sparse = sparse_layers(hf_config.to_dict())
        layers = sparse[first : first + get_num_layers_to_build(config, chunk.virtual)]
        self.embedding: Any = None
        if chunk.first:
            self.embedding = LanguageModelEmbedding(
                config=config,
                vocab_size=vocabulary,
                max_sequence_length=hf_config.max_position_embeddings,
                position_embedding_type="rope",
            )
        self.decoder = TransformerBlock(
            config=config,
            spec=block_spec(config, kind, layers),
            pre_process=chunk.first,
            post_process=chunk.last,
            vp_stage=chunk.virtual,
        )
        self.output_layer: Any = None
        self.score: nn.Linear | None = None
        if chunk.last and head == "value":
            self.score = nn.Linear(config.hidden_size, 1)
        elif chunk.last:
            self.output_layer = _output_layer(config, vocabulary, tied and chunk.first)
        device = torch.device("cpu" if config.use_cpu_initialization else "cuda")
        self._frequencies = inverse_frequencies(hf_config, device)
        self._layers = (first, first + len(layers)) if any(layers) else None
        self._all_layers = len(sparse)
        self._replay: Replay | None = None

    def forward(self, portion: Portion) -> Tensor:
        """Hidden states (N, 1, H): of the last part after the last norm, of others what the next
        one takes. Ranks that share the layers all have the last part's, and give each the same
        gradient."""
        embedded_N1H = None
        if self.embedding is not None:
            embedded_N1H = self.embedding(
                input_ids=portion.ids_N[None], position_ids=portion.positions_N[None]
            )
            if torch.is_grad_enabled():
                # Under an adapter tokens have no gradient, and then Megatron would recompute no
                # layer with one, and send none back from a stage.
                embedded_N1H.requires_grad_()
        hidden_N1H: Tensor = self.decoder(
            hidden_states=embedded_N1H,
            attention_mask=None,
            rotary_pos_emb=self._rotation(portion.positions_N),
            packed_seq_params=self._replay.into(portion) if self._replay else portion.params,
        )
        if self.config.sequence_parallel and self.post_process:
            hidden_N1H = gather_from_sequence_parallel_region(
                hidden_N1H, tensor_parallel_output_grad=False
            )
        return hidden_N1H

    def replay_routing(self, read: ReadExperts) -> None:
        """Choose the experts that were kept of a batch."""
        if self._layers is not None:
            top = self.config.moe_router_topk
            self._replay = Replay(read, self._layers, (self._all_layers, top))

    def expect(self, batches: Sequence[PackedBatch]) -> None:
        """These will pass, in this order."""
        if self._replay is not None:
            self._replay.expect(batches)

    def set_input_tensor(self, received: Sequence[Tensor | None]) -> None:
        """What the part before this one handed over, one tensor; Megatron's schedules call it."""
        self.decoder.set_input_tensor(received[0])

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by their names, layers counted over the whole model."""
        yield from ((self.whole_name(name), value) for name, value in self.named_parameters())

    def whole_name(self, name: str) -> str:
        """A name inside this part, with the layer counted over the whole model."""
        if not name.startswith(LAYERS):
            return name
        number, _, rest = name.removeprefix(LAYERS).partition(".")
        before = self.decoder.layers[0].layer_number - 1
        return f"{LAYERS}{before + int(number)}.{rest}"

    @property
    def copies(self) -> frozenset[str]:
        """Names of parameters that are the embedding's, of which the first part is another one's:
        the output layer of a model with tied weights."""
        apart = self.post_process and not self.pre_process
        tied = self.share_embeddings_and_output_weights
        return frozenset({OUTPUT}) if tied and apart else frozenset()

    def to_parts(self, hidden_MH: Tensor) -> Tensor:
        """The same; its gradient is summed over the ranks that share the vocabulary."""
        found: Tensor = copy_to_tensor_model_parallel_region(hidden_MH)
        return found

    def vocabulary(self) -> Tensor:
        """The output layer's weight of the last part, which may be the embedding's; this rank's
        rows, padding included."""
        own: Tensor | None = self.output_layer.weight
        embedding: Tensor = own if own is not None else self.embedding.word_embeddings.weight
        return embedding

    def _rotation(self, positions_N: Tensor) -> Tensor:
        """Angles (N, 1, 1, D), float32."""
        angles = positions_N[:, None].float() * self._frequencies
        return torch.cat((angles, angles), dim=-1)[:, None, None]


def _output_layer(config: TransformerConfig, vocabulary: int, tied: bool) -> ColumnParallelLinear:
    return ColumnParallelLinear(
        config.hidden_size,
        vocabulary,
        config=config,
        init_method=config.init_method,
        bias=False,
        gather_output=False,
        skip_weight_param_allocation=tied,
    )
