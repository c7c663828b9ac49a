"""Records the forwards of the outermost modules (see `discovery.py` and `forward.py`) and every backward pass.

Only the outermost modules carry a listener: a wrapper on every module would cost about 9 us a call and would break
compiled graphs.
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
    """Installs listeners on the outermost modules, and wrappers around `torch.autograd.backward` and `grad`."""
    recorder = scope.recorder
    scope.at_end(compiler_tables.watched(), "The compiler's tables could not be read")
    found = discover(scope)
    by_hand = ByHand(scope, found)
    # Importing the compiler stores the function then found at `torch.compile` for good: it must not hold the run.
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
    """Wraps a GradScaler's `scale` so that the loss it was given is remembered along with the scaled product."""

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
    """Wraps `torch.autograd.backward`: records its start and end, and stores the loss until the run ends.

    The code of `fence.py` is written out here: every step passes through, and each further call would slow it down.
    """
    recorder, differentiated, backed = scope.recorder, scope.differentiated, scope.backed
    log, broke, evaluations = recorder.log, recorder.fence.broke, scope.evaluations
    note, clock, events = log.note, log.clock, log.events
    passed: Any = None
    """Tensors of the outermost call that runs. Under a torch function mode or a tensor subclass, torch calls `backward`
    once more by its name, with the same tensors, in a tuple or not: that inner call is not recorded again."""

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal passed
        begun = False
        try:
            if get_ident() == log.thread and not (log.backing and _same_tensors(passed, tensors)):
                now, loss = clock(), None
                evaluations.backwards += 1
                if not log.pulled:
                    log.steps += 1
                if differentiated or log.steps >= log.loss_at:
                    loss = inspect(tensors)
                    now = log.ours(now)
                note((GRADIENT, now, loss))
                if now >= log.due_ns or len(events) >= log.due:
                    recorder.fold(now)
                if log.marker is not None:
                    log.mark(GRADIENT)
                if log.ending and not log.pulled:
                    note((BACKED, clock(), None))
                    recorder.check_end()
                passed = passed if log.backing else tensors
                log.backing += 1
                begun = True
        except BaseException as error:
            broke(error)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if begun:
                log.backing -= 1
                passed = passed if log.backing else None
                try:
                    if backed:
                        for listener in tuple(backed):
                            listener()
                    if log.marker is not None:
                        log.mark(BACKED)
                    note((BACKED, clock(), None))
                except BaseException as error:
                    broke(error)

    def inspect(tensors: Any) -> int | None:
        """Calls the listeners, inspects the graph of the first backwards, and stores the loss if it is due.

        Returns:
            The number under which the loss was stored; None if it was not.
        """
        if differentiated:
            differentiated.notify(recorder.note, "The graph of a backward could not be read", tensors)
        if log.steps < log.loss_at:
            return None
        if not log.trains and by_hand.due():
            begin = clock()
            search(tensors)
            recorder.cost.searched(begin)
        return recorder.store_loss(_loss(tensors, unscaled))

    def search(tensors: Any) -> None:
        """Finds the parameters that the backward gives gradients to, and describes its graph the first time."""
        if by_hand.begun:
            by_hand.goes_on()
            return
        graph = backward_graph(tensors, recorder.forward_number)
        recorder.facts.update(graph_operations=graph.operations)
        recorder.facts.update(loss_operations=graph.newer, attention_calls=graph.attention)
        recorder.facts.update(graph_packed=graph.packed)
        by_hand.begins(graph.leaves)

    return backward


def _same_tensors(first: Any, second: Any) -> bool:
    """Returns True if both calls have the same first argument, each in a tuple or not."""
    return (first[0] if isinstance(first, tuple) and first else first) is (
        second[0] if isinstance(second, tuple) and second else second
    )


def _loss(tensors: Any, unscaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]]) -> torch.Tensor | float | None:
    """Returns the loss that is differentiated, before any scaling; None if it is not a single number."""
    loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
    if unscaled and unscaled[0][0]() is loss:
        loss = unscaled[0][1]
    return _stored(loss) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None


def _gradient(scope: TapScope, by_hand: ByHand, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `torch.autograd.grad`: records its start and end, but no loss, as it may differentiate any quantity.

    As long as no optimizer has stepped, a call that gives gradients to all parameters of a model (as `torch.func.grad`
    does) counts as training.
    """
    recorder, log = scope.recorder, scope.recorder.log
    whole: dict[tuple[Any, ...], bool] = {}

    def trains(inputs: Any) -> bool:
        """Returns True if the inputs have the shapes of all parameters of a known model; remembered by shape."""
        tensors, modules = inputs if isinstance(inputs, (tuple, list)) else (inputs,), scope.models.alive()
        try:
            key = (len(tensors), *(getattr(tensor, "shape", None) for tensor in tensors[:3]))
            if key not in whole:
                whole[key] = _all_parameters(tensors, modules)
            return whole[key]
        except Exception:  # a nested tensor has no shape, and a tensor of the user's own may raise what it likes
            return False

    def begins(*args: Any, **kwargs: Any) -> bool | None:
        """Counts and records a backward: as training if it differentiates by the parameters; None if not recorded."""
        if not recorder.started():
            return None
        scope.evaluations.backwards += 1
        training = not log.trains and trains(args[1] if len(args) > 1 else kwargs.get("inputs"))
        if training and not by_hand.begun:
            by_hand.begins([])
        recorder.event(GRADIENT if training else DIFFERENTIATE)
        log.mark(GRADIENT)
        return True

    def ends(token: bool, result: Any) -> None:
        log.mark(BACKED)
        log.note((BACKED, log.clock(), None))

    return recorder.fence.around(original, begins, ends, training_thread_only=True)


def _all_parameters(tensors: Sequence[Any], modules: Sequence[nn.Module]) -> bool:
    """Returns True if the tensors have the shapes of all trainable parameters of a module, and so may replace them."""
    shapes = Counter(tensor.shape for tensor in tensors if isinstance(tensor, torch.Tensor))
    wanted = ([p.shape for p in module.parameters() if p.requires_grad] for module in modules)
    return any(of_module and Counter(of_module) == shapes for of_module in wanted)


def _scripted(scope: TapScope, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps TorchScript's compilation of a module: takes our listeners off meanwhile, for it reads every attribute."""

    def begins(*args: Any, **kwargs: Any) -> list[Listener]:
        removed = [listener for listener in scope.models.listeners() if listener.on()]
        for listener in removed:
            listener.remove()
        return removed

    def ends(removed: list[Listener], result: Any) -> None:
        for listener in removed:
            listener.back()

    return scope.recorder.fence.around(original, begins, ends)


def _stored(loss: torch.Tensor) -> torch.Tensor | float | None:
    """Returns the loss in a form that can be stored: a number on a CPU, a copy on a device, None in a graph capture.

    On a CPU, small tensors that are stored pin the heap around them: 20 to 90 kB of resident memory a step were
    measured. On a device, reading the number would wait for the device; and a loss that a CUDA graph returns lies in
    memory that the next replay overwrites. The copy is one more kernel in the steps whose losses are stored (see
    `kept_losses.py`). While a graph is captured the loss has no value.
    """
    if loss.is_cpu and not loss.is_complex():
        return float(loss.item())
    if loss.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    return loss.detach().clone()


def _read_losses(losses: list[Any]) -> list[float]:
    """Returns the stored losses as numbers: with one copy if all lie on one device, else one by one."""
    flat = [torch.as_tensor(loss).reshape(()).float() for loss in losses]
    if len({loss.device for loss in flat}) == 1:
        return [float(value) for value in torch.stack(flat).cpu().tolist()]
    return [float(loss) for loss in flat]
