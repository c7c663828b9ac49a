"""The calls of ours that run in the place of a module's: its forwards begin and end.

A graph that torch compiles goes right through them. So nothing else is in this file, which torch reads with the user's
code (see `compiler.py`).
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
from gpu_doctor.capture.taps.first_call import meet as _meet
from gpu_doctor.capture.taps.listener import Listener

if TYPE_CHECKING:
    from torch import nn

SEAM: Final = models.CALL
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling
"""Dynamo takes it for true while it reads our code."""
_compiler: Final[dict[str, Any]] = vars(torch.compiler)
_FLAG: Final = "_is_compiling_flag"
"""What `torch.compiler.is_compiling` returns, two calls further down, while a model is exported."""


def given(ref: Callable[[], Any], forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`forward` of the module that `ref` says."""
    __tracebackhide__ = True
    return forward(ref(), *args, **kwargs)


def heard_by_name(heard: Mapping[int, Callable[..., Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A class' `forward`, which is called past torch's own call: the modules in `heard`, by id, are heard here."""

    @functools.wraps(plain)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        call = heard.get(id(self))
        return plain(self, *args, **kwargs) if call is None else call(*args, **kwargs)

    setattr(forward, models.OURS, plain)
    return forward


def heard_call(listener: Listener, ref: Callable[[], Any], own: Callable[..., Any] | None) -> Callable[..., Any]:
    """A module's call that notes its begin and end, and shows its values to who wants to look.

    It is a fence of its own, for a graph goes right through it: until it is known that nothing is being compiled, it
    must call nothing of ours.

    Args:
        listener: of the module.
        ref: says the module, which whoever calls it holds.
        own: what stood there as its compiled call, if anything did.
    """
    recorder, heard, evaluations = listener.recorder, listener.scope.heard, listener.scope.evaluations
    log, broke, grad_enabled = recorder.log, recorder.fence.broke, torch.is_grad_enabled
    note, clock, events = log.note, log.clock, log.events

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        module = ref()
        if _dynamo() or get_ident() != log.thread or _compiler.get(_FLAG):
            return (own or module._call_impl)(*args, **kwargs)
        begun, look, fed = False, None, None
        try:
            grad, training, now = grad_enabled(), module.training, clock()
            if not log.pulled:
                if log.ending and not log.calling:
                    recorder.check_end()
                if not _tracing():  # reading a size would warn inside the user's trace
                    fed = sample_count(args or tuple(kwargs.values())), id(module)
            if not listener.known:
                look = _meet(listener, module, training or grad)
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
                if look is not None:
                    look.remove()
            except BaseException as error:
                broke(error)
        if begun and (heard or evaluations.pending or not training):
            try:
                begin = clock()
                if training and grad:
                    evaluations.settle()
                elif not training and (listener.trained or not log.trains):
                    evaluations.add(output, grad)
                said = f"The inputs of {type(module).__name__} could not be read"
                heard.tell(recorder.note, said, module, listener.trained, args, kwargs, output)
                log.ours(begin)
            except BaseException as error:
                broke(error)
        return output

    return call
