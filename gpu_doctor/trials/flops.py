"""Counts the floating-point operations of a trial's steps; never at work in the user's own loop.

torch's counter stands under every operation and costs many microseconds each, so it is turned on for a trial of a few
steps alone, whose times nobody looks at. Compiled functions run as they are written meanwhile: inside of compiled code
nothing can be counted.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from gpu_doctor import formatting
from gpu_doctor.capture import Recorder
from gpu_doctor.recording.setup import Flops
from gpu_doctor.trials import run
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.runner import Runner


def _attention_on_cpu() -> dict[Any, Any]:
    """How the CPU's fused attention is counted, which torch's counter leaves out: as the GPU's."""
    from torch.utils import flop_counter

    def forward(query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> int:
        return int(flop_counter.sdpa_flop_count(query, key, value))

    def backward(grad_out: Any, query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> int:
        counted = flop_counter.sdpa_backward_flop_count(grad_out, query, key, value)
        return int(counted)

    found = {}
    for name, formula in (("", forward), ("_backward", backward)):
        operation = getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention_for_cpu{name}", None)
        if operation is not None and operation not in flop_counter.flop_registry:
            found[operation] = formula
    return found


def _recomputing() -> bool:
    """Whether an operation that runs now is a forward's, done again in a backward by torch.utils.checkpoint.

    Such a forward records gradients, which the rest of a backward does not unless it is differentiated itself; then the
    calls that led here tell, on the thread that autograd computes on.
    """
    if torch._C._current_graph_task_id() == -1 or not torch.is_grad_enabled():
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _counted_again(meter: FlopMeter) -> Any:
    """A mode above torch's counter that adds up what the counter counts of repeated forwards."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Again(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not _recomputing():
                return func(*args, **(kwargs or {}))
            before = meter.total()
            try:
                return func(*args, **(kwargs or {}))
            finally:
                meter.again += meter.total() - before

    return Again()  # type: ignore[no-untyped-call]


class FlopMeter:
    """The count at the begin of the loop and at the end of every step."""

    def __init__(self) -> None:
        self._mode: Any = None
        self.again = 0.0
        """Operations so far of forwards that activation checkpointing repeated,"""
        self.repeated: list[float] = []
        """and at each step's end."""
        self.totals: list[float] = []
        """Operations so far, at each step's end."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what the calling thread computes, and autograd for it."""
        from torch.utils.flop_counter import FlopCounterMode  # imports much; only a count needs it

        with ExitStack() as stack:
            if hasattr(torch.compiler, "set_stance"):  # torch 2.6
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            self._mode = FlopCounterMode(display=False, custom_mapping=_attention_on_cpu())
            stack.enter_context(self._mode)
            stack.enter_context(_counted_again(self))
            yield

    def total(self) -> float:
        """Operations so far."""
        return float(self._mode.get_total_flops())

    def step_ended(self) -> None:
        """A step ended: what was counted since the one before was its own."""
        if self._mode is not None:
            self.totals.append(self.total())
            self.repeated.append(self.again)

    def flops(self, samples: list[float]) -> Flops | None:
        """What a step takes: the median, so that an evaluation in one of them does not count.

        Args:
            samples: of each step, in order; NaN where that is not known.

        Returns:
            None where fewer than two steps ended, or nothing that is counted was computed.
        """
        # From one step's end to the next: before the first end may lie what the cell did before its loop.
        known = [after - before for before, after in itertools.pairwise(self.totals)]
        if not known or statistics.median(known) <= 0:
            return None
        rates = [one / each for one, each in zip(known, samples[1:], strict=False) if each > 0]
        per_sample = statistics.median(rates) if len(rates) == len(known) else None
        again = [after - before for before, after in itertools.pairwise(self.repeated)]
        useful = statistics.median(1.0 - one / each for one, each in zip(again, known, strict=True) if each > 0)
        return Flops(statistics.median(known), per_sample, len(known), useful)


STEPS: Final = 4
"""Steps of the trial: three whole ones from step's end to step's end, so that an evaluation in one is outvoted."""
FEWEST_STEPS: Final = 2
SECONDS: Final = 60.0


class NotCounted(RuntimeError):
    """The operations of a step could not be counted; the message says why."""


def counted(case: Runner, steps: int = STEPS, seconds: float = SECONDS) -> tuple[Flops, tuple[str, ...]]:
    """Runs a few steps of the code as written under torch's counter, and puts everything back.

    Args:
        case: whose code.
        steps: budget of the trial.
        seconds: the same.

    Returns:
        What a step computes, and sentences on what the trial left behind. Matrix products, convolutions and attention
        are counted, of the forward and the backward pass; sums, norms and activations are not, nor what a kernel of
        one's own does.

    Raises:
        NotCounted: if no trial may begin, it did not come to a step, or nothing that is counted is computed in one.
        KeyboardInterrupt: if it is interrupted, after everything was put back.
        SnapshotTooLarge: if what must be put back does not fit into memory.
        ValueError: if steps or seconds are not positive.
        Busy: if a run is already being recorded in this process.
    """
    run.check_start(steps, seconds, "count")
    if refusal := beforehand(case).refusal:
        raise NotCounted(refusal)
    meter, outer = FlopMeter(), case.on_begin

    def began(recorder: Recorder, role: str) -> None:
        def ended(now: int) -> None:
            if not recorder.over.is_set():  # what is closed at the run's end may have ended long before
                meter.step_ended()

        recorder.listeners.hear_steps(ended)
        recorder.plan.fold_each_step()

    with case.aside() as aside:
        try:
            case.on_begin = began  # a view does not follow this one: its times are the counter's
            with meter.counting():
                result = case.once({}, "count", steps, seconds)
        finally:
            case.on_begin = outer
    recording = result.recording
    if isinstance(result.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    wrapped = recording.setup.model is not None and recording.setup.model.wrapper == "DataParallel"
    if wrapped:
        raise NotCounted("DataParallel computes on its own threads, where operations cannot be counted.")
    found = meter.flops(recording.steps.samples.tolist())
    if found is None:
        raise NotCounted(_why(recording.outcome, recording.reason, len(meter.totals)))
    return found, formatting.left_behind(recording.written or (), aside.left)


def _why(outcome: str, reason: str, steps: int) -> str:
    if steps >= FEWEST_STEPS:
        return "The steps have no matrix product, convolution or attention that could be counted."
    why = f": {reason}" if reason else ""
    return f"The trial ended after {steps} steps, and a count needs {FEWEST_STEPS} (outcome: {outcome}{why})."
