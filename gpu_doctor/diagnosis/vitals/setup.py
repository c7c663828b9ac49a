"""Vitals of the setup: facts on model, inputs and device, each under a name of its own so that a rule can need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpu_doctor.recording import DeviceSetup, Setup
from gpu_doctor.recording.setup import EvaluationFacts, FrozenForward, InputFacts, ModelFacts, OptimizerFacts, Padding

FEWEST_FORWARDS: Final = 5
"""Fewest inspected forwards that show whether shapes change."""
FEW_SHAPES: Final = 2
"""Number of shapes of a loop with constant ones: a full batch and the last one."""


@dataclass(frozen=True)
class SetupVitals:
    """Fields of Vitals on the setup. None = not inspected, or not readable."""

    setup: Setup = field(default_factory=Setup)
    on_gpu: bool = False

    @property
    def gpu(self) -> str | None:
        """The device that the loop trains on, such as `cuda:0`; None on a CPU."""
        return self.setup.device if self.on_gpu else None

    @property
    def card(self) -> DeviceSetup | None:
        """Facts on the GPU that the loop trains on; None on a CPU."""
        return self.setup.card if self.on_gpu else None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of that GPU; None on a CPU."""
        return None if self.card is None else self.card.capability

    def at_least(self, capability: tuple[int, int]) -> bool:
        """True if the loop trains on a GPU of this compute capability or more."""
        return self.card is not None and self.card.at_least(capability)

    def layers(self, *kinds: str) -> int:
        """Counts the layers of some kinds in the trained modules."""
        return sum(self.setup.layers.get(kind, 0) for kind in kinds)

    @property
    def model(self) -> ModelFacts | None:
        """Facts on the trained modules."""
        return self.setup.model

    @property
    def parameters(self) -> int | None:
        """Number of parameters of the trained modules."""
        return self.setup.parameters

    @property
    def dtype(self) -> str:
        """Number format of the matrix products, such as `bfloat16`: autocast's if it was on, else the weights'."""
        return self.setup.autocast or self.setup.dtype

    @property
    def optimizer_facts(self) -> tuple[OptimizerFacts, ...] | None:
        """Facts on the optimizers."""
        return self.setup.optimizer_facts

    @property
    def inputs(self) -> InputFacts | None:
        """Facts on the model's inputs."""
        return self.setup.inputs

    @property
    def static_shapes(self) -> bool:
        """True if all inputs but a last batch are known to have one shape, so that torch.compile compiles only once."""
        inputs = self.inputs
        return inputs is not None and inputs.looked_at >= FEWEST_FORWARDS and inputs.shapes <= FEW_SHAPES

    @property
    def padding(self) -> tuple[Padding, ...] | None:
        """Facts on the padding of batches."""
        return self.setup.padding

    @property
    def frozen(self) -> tuple[FrozenForward, ...] | None:
        """Frozen models that compute the same results again and again."""
        return self.setup.frozen

    @property
    def evaluation_facts(self) -> EvaluationFacts | None:
        """Facts on forwards in evaluation mode."""
        return self.setup.evaluation

    @property
    def torch_threads(self) -> int | None:
        """Number of threads that torch computes with."""
        return self.setup.torch_threads
