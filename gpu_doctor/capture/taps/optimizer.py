"""Hears every optimizer step, through torch's own global step hooks; `zero_grad` is billed to the optimizer too."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.eventnotes import BACK, OPTIMIZER_DONE, ZEROING
from gpu_doctor.capture.ledger import Ledger
from gpu_doctor.capture.taps import foreign
from gpu_doctor.capture.taps.in_backward import StepsInBackward, on_autograds_thread
from gpu_doctor.capture.taps.parameters import Parameters
from gpu_doctor.capture.taps.sleepers import StandingHooks, StandingWrapper, compiled
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import BACKWARD, OTHER

MOST_ALIKE: Final = 3
"""So often one is met again that has nothing but known parameters: the model may be wrapped or compiled meanwhile."""
_SCALERS: Final = (getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler)
_SCALER_FILES: Final = {one.step.__code__.co_filename for one in _SCALERS if one is not None}
_OPTIMIZER_FILE: Final = torch.optim.Optimizer.profile_hook_step.__code__.co_filename


def _within_a_step() -> bool:
    """Whether the step that begins is called by another optimizer's step (a wrapper, or a closure)."""
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None:
        steps += frame.f_code.co_filename == _OPTIMIZER_FILE and frame.f_code.co_name == "wrapper"
        frame = frame.f_back
    return steps > 1


def _within_a_scaler() -> bool:
    """Whether the step that begins is taken by a GradScaler that scales."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in _SCALER_FILES and frame.f_code.co_name == "step":
            return bool(getattr(frame.f_locals.get("self"), "_enabled", False))
        frame = frame.f_back
    return False


def _with_closure(ledger: Ledger, args: Any, kwargs: Any) -> Any:
    """The step's arguments with a closure that is none of the optimizer's time: it is the loop's own code.

    Lightning runs forward, loss, logging and backward of every step in one.
    """
    closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
    if not callable(closure):
        return None

    def call(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        before = ledger.switch(OTHER)
        try:
            return closure(*given, **named)
        finally:
            ledger.switch(before)

    if "closure" in kwargs:
        return args, {**kwargs, "closure": call}
    return (args[0], call, *args[2:]), kwargs


def _again(optimizer: torch.optim.Optimizer, owned: Parameters, alike: Counter[tuple[Any, ...]]) -> bool:
    """Whether optimizers of this make were met often enough with these parameters: inner loops make one a task.

    Args:
        owned: the parameters of all that were met. alike: how often which make had none but these.
    """
    if not all(p in owned for group in optimizer.param_groups for p in group["params"]):
        return False
    defaults = getattr(optimizer, "defaults", {})  # a library's own has none
    make = (type(optimizer), *(defaults.get(name) for name in ("fused", "foreach", "capturable")))
    alike[make] += 1
    return alike[make] > MOST_ALIKE


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """A step begins and ends; before an optimizer's first use the scope's
    `optimized` listeners hear of it."""
    recorder, ledger = scope.recorder, scope.recorder.ledger
    known: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
    """By id, which another optimizer may have once this one is gone."""
    rests = ledger.steady.rests
    befores: list[int] = []
    pulse, clock = ledger.pulse, ledger.clock
    codes = ledger.steady.notes.codes
    code, stamp = codes.append, ledger.steady.notes.times.append

    alike: Counter[tuple[Any, ...]] = Counter()
    inner = StepsInBackward(clock)

    def elsewhere() -> bool:
        """Of a thread that is not the training thread: whether it is not to become it either."""
        return on_autograds_thread() or not recorder.adopt(trains=True)

    def meet(optimizer: torch.optim.Optimizer) -> None:
        """What that takes is in `other`: it is not what the optimizer costs."""
        begin = recorder.clock()
        key = id(optimizer)
        known[key] = weakref.ref(optimizer, lambda _: known.pop(key, None))
        if _again(optimizer, scope.owned, alike):
            recorder.meet(optimizer)
            return
        with models.one_scan():
            for hear in scope.optimized:
                try:
                    hear(optimizer)
                except Exception as error:
                    recorder.note(f"The optimizer's model could not be read: {error}")
        took = recorder.clock() - begin
        recorder.searched_s += took * 1e-9
        recorder.searches += 1
        if ledger.started:
            ledger.carve(OTHER, took)

    def stepping(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        key = id(optimizer)
        if (
            pulse.taking
            and get_ident() == pulse.thread
            and key in known
            and not befores
            and not kwargs
            and len(args) < 2
            and not (pulse.ending and pulse.alone)
        ):
            code(key)
            stamp(clock())
            # A loop that pulls from nothing ends its step here; one that has left its loader has gone beyond a step.
            if len(codes) >= pulse.events and (pulse.alone or len(codes) > pulse.events):
                ledger.steady.step()
            befores.append(BACK)
            return None
        if get_ident() != pulse.thread and elsewhere():
            if on_autograds_thread():
                if ledger.phase_now() == BACKWARD:  # else it is a backward of a thread that nothing is known of
                    inner.begin(_within_a_step())
            else:
                rests.allowed = False  # in a rest it would not be known whose step it was
            return None
        if not ledger.asked:
            recorder.check_end()
        if "grad_scaler" not in recorder.facts:
            recorder.facts["grad_scaler"] = _within_a_scaler()
        if befores and not _within_a_step():
            # A step before raised, and the loop went on: its phase ends here.
            ledger.switch(befores[0])
            befores.clear()
        befores.append(ledger.optimizer(key))
        if key not in known:
            meet(optimizer)
        return _with_closure(ledger, args, kwargs) if kwargs or len(args) > 1 else None

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if get_ident() != pulse.thread:
            inner.end(optimizer)
        elif befores:
            if pulse.taking and befores[-1] == BACK:
                befores.pop()
                code(OPTIMIZER_DONE)
                stamp(clock())
            else:
                ledger.optimizer_done(id(optimizer), befores.pop())
            # A step may call its base class' own, which is hooked as well: that is one step.
            if scope.stepped and not befores:
                shown()

    def shown() -> None:
        for hear in tuple(scope.stepped):  # some take themselves out
            try:
                hear()
            except Exception as error:
                if hear in scope.stepped:
                    scope.stepped.remove(hear)
                recorder.note(f"An optimizer step could not be read: {error}")

    def stepped_within() -> None:
        """A backward ends, in which autograd's threads may have stepped optimizers: one event stands for them all.

        It is that of the one among them that was met first: it must be the same step after step. What they took is
        the end of the backward's time.
        """
        if not inner.done:
            return
        optimizers, took = inner.taken()
        stepped_ids, now = {id(one) for one in optimizers}, clock()
        key = next((key for key in known if key in stepped_ids), id(optimizers[0]))
        begin = max(now - took, ledger.mark)
        if pulse.taking and known.keys() >= stepped_ids:
            code(key)
            stamp(begin)
            code(OPTIMIZER_DONE)
            stamp(now)
            return
        ledger.clock = lambda: begin
        try:
            before = ledger.optimizer(key)
        finally:
            ledger.clock = clock
        for one in optimizers:
            if id(one) not in known:
                meet(one)
        ledger.optimizer_done(key, before)
        shown()

    def zeroing(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def zero_grad(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            if get_ident() != pulse.thread and elsewhere():
                return original(self, *args, **kwargs)
            if pulse.taking and id(self) in known:
                code(ZEROING)
                stamp(clock())
                try:
                    return original(self, *args, **kwargs)
                finally:
                    if pulse.taking:
                        code(BACK)
                        stamp(clock())
                    else:
                        ledger.switch(BACK)
            if pulse.resting and rests.has(ZEROING):
                return original(self, *args, **kwargs)
            before = ledger.zeroing() if ledger.started else OTHER
            try:
                if id(self) not in known:
                    # Most loops zero the gradients before the first forward: met here, that forward is heard already.
                    meet(self)
                return original(self, *args, **kwargs)
            finally:
                if ledger.started:
                    ledger.switch(before)

        return zero_grad

    def clearing(original: Callable[..., None]) -> Callable[..., None]:
        """`zero_grad` of a module: where no optimizer steps, it is the begin of a step (see `ownupdates`)."""

        @functools.wraps(original)
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            if get_ident() != pulse.thread or not ledger.started:
                ledger.clears = True
                return original(self, *args, **kwargs)
            if pulse.resting and rests.has(ZEROING):
                return original(self, *args, **kwargs)
            before = ledger.zeroing()
            try:
                return original(self, *args, **kwargs)
            finally:
                ledger.switch(before)

        return zero_grad

    scope.backed.append(stepped_within)
    before, after = register_optimizer_step_pre_hook(stepping), register_optimizer_step_post_hook(stepped)
    scope.patches.hook("optimizer step pre hook", before.remove)
    scope.patches.hook("optimizer step post hook", after.remove)
    zeroes = StandingWrapper(scope.patches, torch.optim.Optimizer, "zero_grad", zeroing, lambda: rests.has(ZEROING))
    scope.patches.wrap(torch.nn.Module, "zero_grad", clearing)
    foreign.hear(scope, stepping, stepped, zeroing)
    hooks = StandingHooks(before, after, rests.steps.put)
    rests.sleepers += [hooks, zeroes]
    rests.hear_steps = hooks.on
    rests.busy.append(lambda: bool(befores) or compiled())
    try:
        yield
    finally:
        rests.over_for_good()
