"""Vitals of the setup: what was found around the loop, each under a name of its own, so that a rule can need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.recording.setup import EvaluationFacts, FrozenForward, InputFacts, ModelFacts, OptimizerFacts, Padding

LOOKED_AT: Final = 5
"""Forwards after which it is known whether shapes change."""
FEW_SHAPES: Final = 2
"""A full and a last batch."""


@dataclass(frozen=True)
class SetupVitals:
    """A part of Vitals. None = nobody looked, or it could not be read."""

    setup: Setup = field(default_factory=Setup)
    on_gpu: bool = False

    @property
    def gpu(self) -> str | None:
        """The device that the loop trains on, such as `cuda:0`; None on a CPU."""
        return self.setup.device if self.on_gpu else None

    @property
    def card(self) -> DeviceSetup | None:
        """What was found of that device."""
        return self.setup.card if self.on_gpu else None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Its compute capability."""
        return None if self.card is None else self.card.capability

    def at_least(self, capability: tuple[int, int]) -> bool:
        """Whether it is known to be a GPU of this compute capability or more."""
        return self.card is not None and self.card.at_least(capability)

    def layers(self, *kinds: str) -> int:
        """How many layers of some kinds the trained modules have."""
        return sum(self.setup.layers.get(kind, 0) for kind in kinds)

    @property
    def model(self) -> ModelFacts | None:
        """The make of the trained modules."""
        return self.setup.model

    @property
    def parameters(self) -> int | None:
        """How many numbers the trained modules have."""
        return self.setup.parameters

    @property
    def dtype(self) -> str:
        """The number format of its products, such as `bfloat16`: of the autocast that was on, else of its weights."""
        return self.setup.autocast or self.setup.dtype

    @property
    def optimizer_facts(self) -> tuple[OptimizerFacts, ...] | None:
        """The make of the optimizers."""
        return self.setup.optimizer_facts

    @property
    def inputs(self) -> InputFacts | None:
        """What the model was handed."""
        return self.setup.inputs

    @property
    def static_shapes(self) -> bool:
        """The model is known to get inputs of one shape, a last batch aside: torch.compile compiles them once."""
        inputs = self.inputs
        return inputs is not None and inputs.looked_at >= LOOKED_AT and inputs.shapes <= FEW_SHAPES

    @property
    def padding(self) -> tuple[Padding, ...] | None:
        """What is padded in the batches."""
        return self.setup.padding

    @property
    def frozen(self) -> tuple[FrozenForward, ...] | None:
        """Models that compute the same results anew."""
        return self.setup.frozen

    @property
    def evaluation_facts(self) -> EvaluationFacts | None:
        """Forwards in evaluation mode."""
        return self.setup.evaluation

    @property
    def torch_threads(self) -> int | None:
        """Threads that torch computes with."""
        return self.setup.torch_threads
