"""Wrappers that run in place of a module's call and record the start and end of its forwards.

torch.compile traces them into the user's graph. So this file, which torch reads with the user's code, holds nothing
else (see `compiler.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import torch

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.batches import sample_count
from gpu_doctor.capture.events import CALL, CALLED
from gpu_doctor.capture.taps.first_call import record_call as _record_call
from gpu_doctor.capture.taps.listener import Listener

if TYPE_CHECKING:
    from torch import nn

SEAM: Final = models.CALL
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling
"""True inside code that Dynamo traces, ours too."""
_compiler: Final[dict[str, Any]] = vars(torch.compiler)
_FLAG: Final = "_is_compiling_flag"
"""Name of the flag that `torch.compiler.is_compiling` reads, two calls further down, while a model is exported."""


def given(ref: Callable[[], Any], forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls `forward` on the module that `ref` returns."""
    __tracebackhide__ = True
    return forward(ref(), *args, **kwargs)


def recording_forward(calls: Mapping[int, Callable[..., Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the `forward` of a class, for modules whose `forward` is called without torch's `__call__`.

    Args:
        calls: Recording calls of the modules that are observed here, by id; other modules run unobserved.
        plain: The `forward` of the class.
    """

    @functools.wraps(plain)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        call = calls.get(id(self))
        return plain(self, *args, **kwargs) if call is None else call(*args, **kwargs)

    setattr(forward, models.OURS, plain)
    return forward


def recording_call(listener: Listener, ref: Callable[[], Any], own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Returns a module's call that records its start and end, and passes its arguments and output to the listeners.

    The code of `fence.py` is written out here, for torch.compile traces it: before it is known that nothing is being
    compiled, it must call none of our functions.

    Args:
        listener: The listener of the module.
        ref: Returns the module, which its caller keeps alive.
        own: The compiled call that the module had; None if it had none.
    """
    recorder, forwarded, evaluations = listener.recorder, listener.scope.forwarded, listener.scope.evaluations
    log, broke, grad_enabled = recorder.log, recorder.fence.broke, torch.is_grad_enabled
    note, clock, events = log.note, log.clock, log.events

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        module = ref()
        if _dynamo() or get_ident() != log.thread or _compiler.get(_FLAG):
            return (own or module._call_impl)(*args, **kwargs)
        begun, hook, fed = False, None, None
        try:
            grad, training, now = grad_enabled(), module.training, clock()
            if not log.pulled:
                if log.ending and not log.calling:
                    recorder.check_end()
                if not _tracing():  # reading a size would warn inside the user's trace
                    fed = sample_count(args or tuple(kwargs.values())), id(module)
            if not listener.known:
                hook = _record_call(listener, module, training or grad)
                now = log.ours(now)
            note((CALL + training + 2 * grad + 4 * listener.trained, now, fed))
            if now >= log.due_ns or len(events) >= log.due:
                recorder.fold(now)
            if log.marker is not None:
                log.mark(CALL, listener.trained or not log.trains)
            begun = True
        except BaseException as error:
            broke(error)
        log.calling += 1
        try:
            output = (own or module._call_impl)(*args, **kwargs)
        finally:
            log.calling -= 1
            try:
                if begun:
                    if log.marker is not None:
                        log.mark(CALLED)
                    ended = clock()
                    note((CALLED, ended, None))
                    if listener.calls:
                        listener.wall_ns += ended - now
                    listener.calls += 1
                if hook is not None:
                    hook.remove()
            except BaseException as error:
                broke(error)
        if begun and (forwarded or evaluations.pending or not training):
            try:
                begin = clock()
                if training and grad:
                    evaluations.settle()
                elif not training and (listener.trained or not log.trains):
                    evaluations.add(output, grad)
                failed = f"The inputs of {type(module).__name__} could not be read"
                forwarded.notify(recorder.note, failed, module, listener.trained, args, kwargs, output)
                log.ours(begin)
            except BaseException as error:
                broke(error)
        return output

    return call
