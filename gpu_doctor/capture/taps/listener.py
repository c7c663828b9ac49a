"""A listener on one outermost module: its forwards begin and end.

It stands where `module.compile()` puts its compiled call: torch asks that place first (a hook would send every call the
slow way round, 7 us against 2), and leaves it out of every copy and pickle of the module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.taps.copies import Call
from gpu_doctor.capture.taps.moments import Moments

ModuleCall: TypeAlias = Callable[..., Any]


class Listener:
    """One outermost module that is listened to: a call of ours stands on it as its compiled call, around what runs.

    The module lives no longer for it, and is in no circle that only the garbage collector would find: of a loop over
    folds every model would be there with its gradients until then. So the module holds our call, and that one the
    compiled call which stood there before; we hold ours while it is off the module.
    """

    def __init__(
        self,
        scope: Moments,
        module: nn.Module,
        heard_call: Callable[[Listener, Callable[[], Any], ModuleCall | None], ModuleCall],
    ) -> None:
        """Stands nowhere yet.

        Args:
            scope: who is told of the calls.
            module: the module.
            heard_call: makes the call that notes begin and end, from this, what says the module, and its own call.
        """
        self._heard_call = heard_call
        self.scope, self.recorder, self.ref = scope, scope.recorder, weakref.ref(module)
        self.parameters = self.inside = frozenset[int]()
        """Ids of its parameters, and of the modules inside of it."""
        self.look_inside(module)
        self.trained = False
        self.heard = False
        """It was called in training mode or with gradients: it is no box of modules that are called one by one."""
        self.known = False
        """What a call tells of it, once, has been written down."""
        self.calls = self.wall_ns = 0
        """Its forwards, and the host's time in all but the first, which may compile."""
        self.missed = 0
        """Optimizer steps since it is listened to without being heard."""
        self.inner: Any = None
        """The handle of a hook inside of it, which its first forward takes off; an interrupt may come before that."""
        self._call: weakref.ref[Call] | None = None
        self._kept: Call | None = None
        """Our call, while it does not stand on the module."""

    def look_inside(self, module: nn.Module) -> None:
        """Reads what it is made of, which may have changed while nothing of it is trained."""
        self.parameters = frozenset(id(p) for p in module.parameters())
        self.inside = frozenset(id(part) for part in module.modules()) - {id(module)}

    def listen(self) -> None:
        """Stands on its module, if it does not already: `module.compile()` in the loop's code takes its place.

        A scripted module can be known, but not listened to.
        """
        module = self.ref()
        if module is not None and not self.on() and not isinstance(module, torch.jit.ScriptModule):
            self._listen(module, vars(module).get(models.CALL))

    def _listen(self, module: nn.Module, own: Callable[..., Any] | None) -> None:
        """Stands around what the module has of its own; `module.compile()` leaves its compiled call there."""
        call = Call(self._heard_call(self, self.ref, own))
        setattr(call, models.OURS, own)
        self._call, self._kept = weakref.ref(call), None
        setattr(module, models.CALL, call)

    @property
    def _own(self) -> Callable[..., Any] | None:
        """What stood on the module itself."""
        return getattr(self._call and self._call(), models.OURS, None)

    def back(self) -> None:
        """Stands on its module again, around a compiled call that `module.compile()` has put there meanwhile."""
        module, kept = self.ref(), self._kept
        if module is None or kept is None:
            return
        stands = vars(module).get(models.CALL)
        if stands is not self._own:
            self._listen(module, stands)
        else:
            vars(module)[models.CALL], self._kept = kept, None

    def on(self) -> bool:
        """Whether our call stands on its module."""
        module, call = self.ref(), self._call and self._call()
        return module is not None and call is not None and vars(module).get(models.CALL) is call

    def remove(self) -> None:
        """Puts back what stood there; what somebody else has put in its place stays."""
        module = self.ref()
        if module is not None and self.on():
            self._kept, own = vars(module)[models.CALL], self._own
            if own is None:
                delattr(module, models.CALL)
            else:
                setattr(module, models.CALL, own)

    def teaches(self) -> bool:
        """It is in evaluation mode and no weight of it asks for gradients: if it was trained, that is over."""
        module = self.ref()
        return module is not None and not module.training and not any(one.requires_grad for one in module.parameters())

    def end(self) -> None:
        """Off for good; nothing of ours goes on holding the module."""
        self.remove()
        if self.inner is not None:
            self.inner.remove()
        self._call = self._kept = self.inner = None
