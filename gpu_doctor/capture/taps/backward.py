"""Hears the forward of the outermost modules (see `discovery.py` and `forward.py`) and every backward pass.

Only the outermost modules carry a listener: a wrapper on every module call costs about 9 us each and breaks compiled
graphs.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.describe.backward_graph import backward_graph
from gpu_doctor.capture.events import BACKED, DIFFERENTIATE, GRADIENT
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import compiler_tables
from gpu_doctor.capture.taps.by_hand import ByHand
from gpu_doctor.capture.taps.compiler import leave_us_out
from gpu_doctor.capture.taps.copies import replicating as _replicating
from gpu_doctor.capture.taps.discovery import discover
from gpu_doctor.capture.taps.listener import Listener
from gpu_doctor.capture.taps.tap import TapScope


def tap(scope: TapScope) -> None:
    """Listeners on the outermost modules and around `torch.autograd.backward` and `grad`."""
    recorder = scope.recorder
    scope.at_end(compiler_tables.watched(), "The compiler's tables could not be read")
    found = discover(scope)
    by_hand = ByHand(scope, found)
    # torch keeps what stands at `torch.compile` where it imports the compiler meanwhile: nothing of the run is in it.
    compiles: list[Callable[[], None]] = [found.compiles]
    leave_us_out(recorder.fence, scope.patches, functools.partial(_each, compiles))
    recorder.losses.read_by(_read_losses)
    unscaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []
    scope.patches.wrap(torch.amp.GradScaler, "scale", functools.partial(_scaling, recorder, unscaled))
    make = functools.partial(_backward, scope, by_hand, unscaled)
    scope.patches.wrap(torch.autograd, "backward", make)
    scope.patches.wrap(torch.autograd, "grad", functools.partial(_gradient, scope, by_hand))
    scope.patches.wrap(torch.jit._recursive, "create_script_module", functools.partial(_scripted, scope))
    replicating = functools.partial(_replicating, recorder.fence)
    if scope.accelerated:
        scope.patches.wrap(nn.Module, "_replicate_for_data_parallel", replicating)

    def end() -> None:
        compiles.clear()
        unscaled.clear()

    scope.at_end(end)


def _each(calls: list[Callable[[], None]]) -> None:
    for call in list(calls):
        call()


def _scaling(
    recorder: Recorder, unscaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]], original: Callable[..., Any]
) -> Callable[..., Any]:
    """A GradScaler's `scale` that remembers what was scaled: that is the loss, not the product."""

    def begins(scaler: Any, outputs: Any) -> Any:
        return outputs if isinstance(outputs, torch.Tensor) else None

    def ends(outputs: torch.Tensor, scaled: Any) -> None:
        if isinstance(scaled, torch.Tensor):
            unscaled[:] = [(weakref.ref(scaled), outputs.detach())]

    return recorder.fence.around(original, begins, ends, training_thread_only=True)


def _backward(
    scope: TapScope,
    by_hand: ByHand,
    unscaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]],
    original: Callable[..., Any],
) -> Callable[..., Any]:
    """A wrapper that bills the call to `backward` and keeps the loss for the end of the run.

    A fence of its own, as in `fence.py`, written out: every step goes through here, and each call of ours costs it.
    """
    recorder, differentiated, backed = scope.recorder, scope.differentiated, scope.backed
    log, broke, evaluations = recorder.log, recorder.fence.broke, scope.evaluations
    note, clock, events = log.note, log.clock, log.events
    handed: Any = None
    """What the outermost call that runs was given: torch hands itself over, in a tuple or not, where a mode or a
    subclass of tensors stands around its functions, and then what is found by its name is called again."""

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal handed
        begun = False
        try:
            if get_ident() == log.thread and not (log.backing and _alike(handed, tensors)):
                now, loss = clock(), None
                evaluations.backwards += 1
                if not log.pulled:
                    log.steps += 1
                if differentiated or log.steps >= log.loss_at:
                    loss = looked_at(tensors)
                    now = log.ours(now)
                note((GRADIENT, now, loss))
                if now >= log.due_ns or len(events) >= log.due:
                    recorder.fold(now)
                if log.marker is not None:
                    log.mark(GRADIENT)
                if log.ending and not log.pulled:
                    note((BACKED, clock(), None))
                    recorder.check_end()
                handed = handed if log.backing else tensors
                log.backing += 1
                begun = True
        except BaseException as error:
            broke(error)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if begun:
                log.backing -= 1
                handed = handed if log.backing else None
                try:
                    if backed:
                        for tell in tuple(backed):
                            tell()
                    if log.marker is not None:
                        log.mark(BACKED)
                    note((BACKED, clock(), None))
                except BaseException as error:
                    broke(error)

    def looked_at(tensors: Any) -> int | None:
        """The number of the loss, if it is to be kept; at the first backwards, what they learn from is looked at."""
        if differentiated:
            differentiated.tell(recorder.note, "The graph of a backward could not be read", tensors)
        if log.steps < log.loss_at:
            return None
        if not log.trains and by_hand.due():
            begin = clock()
            look(tensors)
            recorder.cost.searched(begin)
        return recorder.keep_loss(_loss(tensors, unscaled))

    def look(tensors: Any) -> None:
        if by_hand.begun:
            by_hand.goes_on()
            return
        graph = backward_graph(tensors, recorder.forward_number)
        recorder.facts.update(graph_operations=graph.operations)
        recorder.facts.update(loss_operations=graph.newer, attention_calls=graph.attention)
        recorder.facts.update(graph_packed=graph.packed)
        by_hand.begins(graph.leaves)

    return backward


def _alike(one: Any, other: Any) -> bool:
    """Whether two calls are given the same, each in a tuple or not."""
    return (one[0] if isinstance(one, tuple) and one else one) is (
        other[0] if isinstance(other, tuple) and other else other
    )


def _loss(tensors: Any, unscaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]]) -> torch.Tensor | float | None:
    """The loss that is differentiated, as it was before it was scaled; None where it is no single number."""
    loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
    if unscaled and unscaled[0][0]() is loss:
        loss = unscaled[0][1]
    return _kept(loss) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None


def _gradient(scope: TapScope, by_hand: ByHand, original: Callable[..., Any]) -> Callable[..., Any]:
    """As `_backward`, without a loss: what is differentiated may be an energy or a penalty.

    Where no optimizer steps, gradients of all of a model's parameters are learned from (`torch.func.grad`).
    """
    recorder, log = scope.recorder, scope.recorder.log
    whole: dict[tuple[Any, ...], bool] = {}

    def learns(inputs: Any) -> bool:
        ones, modules = inputs if isinstance(inputs, (tuple, list)) else (inputs,), scope.models.alive()
        try:
            key = (len(ones), *(getattr(one, "shape", None) for one in ones[:3]))
            if key not in whole:
                whole[key] = _all_parameters(ones, modules)
            return whole[key]
        except Exception:  # a nested tensor has no shape, and a tensor of the user's own may raise what it likes
            return False

    def begins(*args: Any, **kwargs: Any) -> bool | None:
        if not recorder.started():
            return None
        scope.evaluations.backwards += 1
        learning = not log.trains and learns(args[1] if len(args) > 1 else kwargs.get("inputs"))
        if learning and not by_hand.begun:
            by_hand.begins([])
        recorder.event(GRADIENT if learning else DIFFERENTIATE)
        log.mark(GRADIENT)
        return True

    def ends(token: bool, result: Any) -> None:
        log.mark(BACKED)
        log.note((BACKED, log.clock(), None))

    return recorder.fence.around(original, begins, ends, training_thread_only=True)


def _all_parameters(tensors: Sequence[Any], found: Sequence[nn.Module]) -> bool:
    """Whether the tensors have the shapes of all parameters of one of the modules: they may stand in for these."""
    shapes = Counter(one.shape for one in tensors if isinstance(one, torch.Tensor))
    wanted = ([p.shape for p in module.parameters() if p.requires_grad] for module in found)
    return any(one and Counter(one) == shapes for one in wanted)


def _scripted(scope: TapScope, original: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript looks at everything that stands on a module: it gets the modules without ours."""

    def begins(*args: Any, **kwargs: Any) -> list[Listener]:
        ours = [one for one in scope.models.listeners() if one.on()]
        for one in ours:
            one.remove()
        return ours

    def ends(ours: list[Listener], result: Any) -> None:
        for one in ours:
            one.back()

    return scope.recorder.fence.around(original, begins, ends)


def _kept(loss: torch.Tensor) -> torch.Tensor | float | None:
    """The loss as it is now: a number on a CPU; a copy on a device, where reading it would wait; None in a capture.

    On a CPU, small tensors that live on pin the heap around them: 20 to 90 kB of resident memory a step were measured.
    On a device, a loss that a CUDA graph returns lies in memory that the next replay overwrites; its copy is one more
    kernel in the steps whose losses are kept (see `kept_losses.py`). While a graph is captured the loss has no value.
    """
    if loss.is_cpu and not loss.is_complex():
        return float(loss.item())
    if loss.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    return loss.detach().clone()


def _read_losses(losses: list[Any]) -> list[float]:
    """Reads all kept losses in one copy a device."""
    flat = [torch.as_tensor(one).reshape(()).float() for one in losses]
    if len({one.device for one in flat}) == 1:
        return [float(value) for value in torch.stack(flat).cpu().tolist()]
    return [float(one) for one in flat]
