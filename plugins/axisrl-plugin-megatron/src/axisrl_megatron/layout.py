"""Layout: over how many processes a model is divided, and which models that divides evenly.

Pure arithmetic, so that an impossible layout is refused before a process is started. It makes no
process group (:mod:`axisrl_megatron.mesh`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from axisrl.errors import ConfigError
from axisrl.types import Share

SIZES = ("tensor", "pipeline", "virtual", "context", "expert", "expert_tensor")
"""Sizes that are said; the ranks that are left are data parallel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """The numbers of a model that a layout must divide."""

    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    """0 where every layer is a mixture of experts."""
    vocabulary: int
    experts: int = 0
    """0 for a dense model."""
    expert_intermediate: int = 0
    """Columns of one expert."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Indices of a rank, one a dimension."""

    tensor: int
    context: int
    data: int
    stage: int
    expert: int = 0
    """Which of the parts of the experts it has."""
    expert_tensor: int = 0
    """Which part of each of those."""
    expert_data: int = 0
    """Which of the ranks that have the same part of the experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A run of layers that is one net: a stage of the pipeline, or one of its virtual stages."""

    first: bool = True
    """It has the embedding."""
    last: bool = True
    """It has the final norm and the head."""
    virtual: int | None = None
    """Which of the stage's, where it has several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Sizes of the dimensions; their product is the number of processes."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    data: int = 1
    sequence: bool = False
    """``tensor`` ranks divide the tokens between the matrix products of a layer, too."""

    @classmethod
    def over(cls, world: int, *, sequence: bool = False, **sizes: int) -> Layout:
        """The layout of ``world`` processes; what ``sizes`` leave is data parallel.

        Raises ``ConfigError`` with the arithmetic when they do not divide it.
        """
        alone = cls(**sizes, sequence=sequence)
        model = alone.tensor * alone.pipeline * alone.context
        if world % model:
            raise ConfigError(
                f"{world} trainer ranks cannot be divided into tensor {alone.tensor} x pipeline "
                f"{alone.pipeline} x context {alone.context} = {model}",
                fix=f"set placement.trainer_ranks to a multiple of {model}, or the sizes lower",
            )
        ranks = world // alone.pipeline
        if ranks % alone.expert_parts:
            raise ConfigError(
                f"the {ranks} trainer ranks of a stage cannot be divided into expert "
                f"{alone.expert} x expert_tensor {alone.expert_tensor} = {alone.expert_parts}",
                fix="choose sizes of trainer.expert and trainer.expert_tensor that divide them",
            )
        return cls(**sizes, data=world // model, sequence=sequence)

    @property
    def world(self) -> int:
        """Processes."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def parts(self) -> int:
        """Ranks that have something of a model which no rank before them has: the first ones of
        each stage."""
        return max(self.tensor, self.expert_parts) * self.pipeline

    def has_part(self, rank: int) -> bool:
        """True of one of :attr:`parts`."""
        return rank % (self.world // self.pipeline) < max(self.tensor, self.expert_parts)

    @property
    def replicas(self) -> int:
        """Ranks that have the same part of the model, and a gradient of it each."""
        return self.context * self.data

    @property
    def expert_replicas(self) -> int:
        """The same of the experts."""
        return self.world // (self.pipeline * self.expert_parts)

    def place(self, rank: int) -> Place:
        """Where a rank is: tensor changes fastest, then context, data, pipeline (Megatron's
        order). Of the experts expert_tensor does, then expert."""
        rest, tensor = divmod(rank, self.tensor)
        rest, context = divmod(rest, self.context)
        stage, data = divmod(rest, self.data)
        rest, expert_tensor = divmod(rank % (self.world // self.pipeline), self.expert_tensor)
        expert_data, expert = divmod(rest, self.expert)
        return Place(
            tensor=tensor,
            context=context,
            data=data,
            stage=stage,
            expert=expert,
            expert_tensor=expert_tensor,
            expert_data=expert_data,
        )

    def share(self, rank: int) -> Share:
        """What a rank gets of the batches. The last stage has what a share computed, so a rank of
        it speaks."""
        at = self.place(rank)
        first = at.tensor == at.context == 0
        return Share(
            index=at.data,
            count=self.data,
            speaks=first and at.stage == self.pipeline - 1,
            whole=self.parts == 1,
        )

    @property
    def expert_parts(self) -> int:
        """Ranks that have different parts of the experts."""
        return self.expert * self.expert_tensor

    @property
    def coupled(self) -> bool:
        """Shares have different experts, so that they pass tokens to each other."""
        return self.tensor * self.context % self.expert_parts != 0

    @property
    def token_multiple(self) -> int:
        """So many tokens, or a multiple, have the batches that the ranks of a share divide."""
        chunks = 2 * self.context if self.context > 1 else 1
        return chunks * self.tensor if self.sequence else chunks

    def chunks(self, stage: int) -> list[Chunk]:
        """The nets of a stage, in the order in which tokens pass them."""
        return [
            Chunk(
                first=stage == at == 0,
                last=(stage, at) == (self.pipeline - 1, self.virtual - 1),
                virtual=at if self.virtual > 1 else None,
            )
            for at in range(self.virtual)
        ]

    def padded(self, vocabulary: int) -> int:
        """So many tokens that ``tensor`` divides them."""
        return -(-vocabulary // self.tensor) * self.tensor

    def check(self, shape: ModelShape) -> None:
        """Raise ``ConfigError`` that lists every division of ``shape`` which leaves a rest."""
        problems = [*_divisions(self, shape), *_experts(self, shape)]
        if self.virtual > 1 and self.pipeline == 1:
            problems.append(f"virtual {self.virtual} needs pipeline above 1")
        if problems:
            raise ConfigError(
                f"the model does not fit the trainer's layout: {'; '.join(problems)}",
                fix="choose sizes of trainer.tensor, pipeline, virtual and expert that divide it",
            )


def _divisions(layout: Layout, shape: ModelShape) -> Iterator[str]:
    stages = layout.pipeline * layout.virtual
    for what, number, name, size in (
        ("attention heads", shape.heads, "tensor", layout.tensor),
        ("key-value heads", shape.key_value_heads, "tensor", layout.tensor),
        ("columns of the MLP", shape.intermediate, "tensor", layout.tensor),
        ("layers", shape.layers, "pipeline x virtual", stages),
    ):
        if number % size:
            yield f"{number} {what} / {name} {size} leaves {number % size}"
    if shape.vocabulary < layout.tensor**2:  # the last rank's part could be padding alone
        yield f"{shape.vocabulary} tokens of the vocabulary are too few for tensor {layout.tensor}"


def _experts(layout: Layout, shape: ModelShape) -> Iterator[str]:
    if not shape.experts:
        if layout.expert_parts > 1:
            yield f"expert {layout.expert} x {layout.expert_tensor} needs a model with experts"
        return
    if shape.experts % layout.expert:
        rest = shape.experts % layout.expert
        yield f"{shape.experts} experts / expert {layout.expert} leaves {rest}"
    if shape.expert_intermediate % layout.expert_tensor:
        rest = shape.expert_intermediate % layout.expert_tensor
        yield (
            f"{shape.expert_intermediate} columns of an expert / expert_tensor "
            f"{layout.expert_tensor} leaves {rest}"
        )
    if layout.tensor > 1 and not layout.sequence:
        yield f"tensor {layout.tensor} of a model with experts needs sequence: true"
