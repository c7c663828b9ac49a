"""Records every optimizer step through torch's global step hooks; the time of `zero_grad` is the optimizer's, too.

"Optimizer in backward" steps in a hook of every parameter, as soon as its gradient is ready. On a CPU the thread that
called `backward` runs these hooks, and the steps are recorded like any other. On a GPU a thread of autograd's runs them
while the training thread waits: they are recorded as one step when the backward ends, and their time is the backward's.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpu_doctor.capture.events import ABANDONED, CPU, CPU_EVERY_NS, DONE, PHASE, STEP, STEPPED, ZERO
from gpu_doctor.capture.lines.stacks import DEEPEST, outwards
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import foreign
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import OTHER

MOST_DESCRIBED: Final = 8
"""Optimizers after which one with known parameters is no longer described: inner loops make one for each task."""
_SCALER_FILE: Final = torch.amp.GradScaler.step.__code__.co_filename
_OPTIMIZER_FILE: Final = torch.optim.Optimizer.profile_hook_step.__code__.co_filename
_backward_pass: Callable[[], int] = torch._C._current_graph_task_id
"""Returns the number of the backward pass that the calling thread works for, -1 for none."""


def _within_a_step() -> bool:
    """Returns True if the step that begins is called by another optimizer's step (a wrapper, or a closure)."""
    codes = (frame.f_code for frame in outwards(sys._getframe(1), DEEPEST))
    return sum(code.co_filename == _OPTIMIZER_FILE and code.co_name == "wrapper" for code in codes) > 1


def _within_a_scaler() -> bool:
    """Returns True if an enabled GradScaler takes the step that begins."""
    for frame in outwards(sys._getframe(1), DEEPEST):
        if frame.f_code.co_filename == _SCALER_FILE and frame.f_code.co_name == "step":
            return bool(getattr(frame.f_locals.get("self"), "_enabled", False))
    return False


def _with_closure(recorder: Recorder, args: Any, kwargs: Any) -> Any:
    """Returns the step's arguments with its closure wrapped, so that the closure's time is not the optimizer's.

    A closure is code of the loop: Lightning runs forward, loss, logging and backward of every step in one.

    Returns:
        The positional and the named arguments; None if there is no closure.
    """
    closure = kwargs.get("closure") if "closure" in kwargs else args[1] if len(args) > 1 else None
    if not callable(closure):
        return None
    log = recorder.log

    def begins(*given: Any, **named: Any) -> bool:
        log.note((PHASE, log.clock(), OTHER))
        return True

    def ends(token: bool, result: Any) -> None:
        log.note((DONE, log.clock(), None))

    call = recorder.fence.around(closure, begins, ends)
    if "closure" in kwargs:
        return args, {**kwargs, "closure": call}
    return (args[0], call, *args[2:]), kwargs


class Steps:
    """The optimizers of one run, and the hooks that torch calls before and after their steps.

    The code of `fence.py` is written out in the hooks: every step passes through them.
    """

    def __init__(self, scope: TapScope) -> None:
        self._scope, self._recorder, self._log = scope, scope.recorder, scope.recorder.log
        self._broke = scope.recorder.fence.broke
        self._known: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        """Optimizers seen so far by id, which another one may have once this one is gone."""
        self._open = 0
        """Number of steps in progress: a step may call the step of its base class, which is hooked as well."""
        self._within: list[Any] = []
        """Optimizers that have stepped on autograd's threads in the backward in progress."""

    def _elsewhere(self) -> bool:
        """Returns True if the calling thread, which is not the training thread, does not become it either."""
        return _backward_pass() != -1 or not self._recorder.adopt(trains=True)

    def _add(self, optimizer: torch.optim.Optimizer) -> None:
        """Stores an optimizer and notifies the listeners before its first use.

        The time that takes counts as `other`, for it is not the optimizer's.
        """
        recorder, key, begin = self._recorder, id(optimizer), self._recorder.clock()
        self._known[key] = weakref.ref(optimizer, lambda _: self._known.pop(key, None))
        self._scope.know(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if recorder.cost.searches >= MOST_DESCRIBED and all(p in self._scope.owned for p in parameters):
            recorder.remember(optimizer)
            return
        self._scope.optimized.notify(recorder.note, "The optimizer's model could not be read", optimizer, stay=True)
        recorder.cost.searched(begin)
        recorder.cost.searches += 1

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Records the start of a step; torch's hook before it.

        Returns:
            The step's arguments if a closure among them was wrapped, else None.
        """
        try:
            log, key = self._log, id(optimizer)
            if get_ident() != log.thread and self._elsewhere():
                return None
            if log.ending and not log.pulled:
                self._recorder.check_end()
            if self._open and not _within_a_step():
                # An earlier step raised and the loop went on: that step's phase ends here.
                log.note((ABANDONED, log.clock(), None))
                self._open = 0
            if not log.trains:
                log.trains = True
                self._recorder.facts["grad_scaler"] = _within_a_scaler()
            now = log.clock()
            log.note((STEP, now, key))
            if now >= log.due_ns or len(log.events) >= log.due:
                self._fold(now)
            self._open += 1
            if log.marker is not None:
                log.mark(STEP, follow=True)
            if key not in self._known:
                self._add(optimizer)
            return _with_closure(self._recorder, args, kwargs) if kwargs or len(args) > 1 else None
        except BaseException as error:
            self._broke(error)
            return None

    def _fold(self, now: int) -> None:
        """Has the event log evaluated, and ends the run if that is due between two steps."""
        self._recorder.fold(now)
        if self._log.ending and not self._log.pulled and not self._open:
            self._recorder.check_end()

    def ended(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Records the end of a step; torch's hook after it."""
        try:
            log = self._log
            if get_ident() != log.thread:
                if log.backing and _backward_pass() != -1:
                    self._within.append(optimizer)
                    self._scope.backed.join(self.stepped_within)
            elif self._open:
                self._open -= 1
                log.stepped += 1
                if log.marker is not None:
                    log.mark(STEPPED)
                now = log.clock()
                log.note((STEPPED, now, id(optimizer)))
                if log.pulled:  # in a loop with a loader, the CPU clock is read when a batch is requested
                    log.pulled = False
                elif now >= log.cpu_due_ns:
                    log.cpu_due_ns = now + CPU_EVERY_NS
                    log.note((CPU, now, log.cpu_clock()))
                if self._scope.stepped:
                    self._scope.steps[id(optimizer)] += 1
                    if not self._open:
                        self._notify()
        except BaseException as error:
            self._broke(error)

    def _notify(self) -> None:
        """Notifies the listeners of a step's end."""
        begin = self._log.clock()
        self._scope.stepped.notify(self._recorder.note, "An optimizer step could not be read")
        self._log.ours(begin)

    def stepped_within(self) -> None:
        """Records one step for all optimizers that stepped on autograd's threads in the backward that ends.

        The event carries the optimizer that was seen first, so that it is the same one in every step.
        """
        self._scope.backed.leave(self.stepped_within)
        stepped, self._within = {id(optimizer): optimizer for optimizer in self._within}, []
        log = self._log
        key = next((key for key in self._known if key in stepped), next(iter(stepped)))
        now = log.clock()
        log.note((STEP, now, key))
        log.note((STEPPED, now, key))
        log.pulled, log.trains = False, True
        self._scope.steps.update(stepped.keys())
        for key, optimizer in stepped.items():
            if key not in self._known:
                self._add(optimizer)
        self._notify()

    def zeroing(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wraps an optimizer's `zero_grad`, and records it. The code of `fence.py` is written out, as in the hooks."""
        log, known, broke, note, clock = (
            self._log,
            self._known,
            self._recorder.fence.broke,
            self._log.note,
            self._log.clock,
        )

        @functools.wraps(original)
        def zero_grad(optimizer: torch.optim.Optimizer, /, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            begun = False
            try:
                if get_ident() == log.thread or not self._elsewhere():
                    if log.marker is not None:
                        log.mark(ZERO)
                    note((ZERO, clock(), None))
                    begun = True
                    if id(optimizer) not in known:
                        # Most loops zero the gradients before the first forward, so that forward is recorded.
                        self._add(optimizer)
            except BaseException as error:
                broke(error)
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                if begun:
                    try:
                        note((DONE, clock(), None))
                    except BaseException as error:
                        broke(error)

        return zero_grad

    def making(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wraps the constructor of optimizers: stores the new one, so that its model is found at its first call."""

        def begins(optimizer: torch.optim.Optimizer, /, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
            return optimizer

        def ends(optimizer: torch.optim.Optimizer, _: Any) -> None:
            begin = self._log.clock()
            self._scope.know(optimizer)
            self._scope.made.notify(self._recorder.note, "A new optimizer could not be read", optimizer, stay=True)
            self._log.ours(begin)

        around = self._recorder.fence.around_in_graphs
        return around(original, begins, ends, lambda optimizer, error: None, training_thread_only=True)

    def clearing(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wraps a module's `zero_grad`, and records it: in a loop without an optimizer, it begins a step."""

        def begins(module: Any, /, *args: Any, **kwargs: Any) -> bool:
            self._log.mark(ZERO)
            self._recorder.event(ZERO)
            return True

        def ends(token: bool, result: Any) -> None:
            self._log.note((DONE, self._log.clock(), None))

        return self._recorder.fence.around(original, begins, ends, training_thread_only=True)


def tap(scope: TapScope) -> None:
    """Installs torch's global step hooks, and wraps `zero_grad` and the constructor of optimizers."""
    steps = Steps(scope)
    for register, hook, kind in (
        (register_optimizer_step_pre_hook, steps.begins, "pre"),
        (register_optimizer_step_post_hook, steps.ended, "post"),
    ):
        handle = register(hook)
        scope.at_end(handle.remove)
        scope.patches.hook(f"optimizer step {kind} hook", functools.partial(_silence, handle))
    scope.patches.wrap(torch.optim.Optimizer, "__init__", steps.making)
    scope.patches.wrap(torch.optim.Optimizer, "zero_grad", steps.zeroing)
    scope.patches.wrap(torch.nn.Module, "zero_grad", steps.clearing)
    foreign.install(scope, steps.begins, steps.ended, steps.zeroing)


def _silence(handle: Any) -> None:
    """Replaces our hook by one that does nothing; removing it would disturb torch if it is iterating over its hooks."""
    hooks = handle.hooks_dict_ref()
    if hooks is not None and handle.id in hooks:
        hooks[handle.id] = _nothing


def _nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    return None
