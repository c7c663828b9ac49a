"""A listener on one outermost module that records the start and end of its forwards.

It stands in the attribute where `module.compile()` stores its compiled call. torch looks there first (a hook would send
every call through torch's slow path: 7 us instead of 2) and leaves this attribute out of copies and pickles.
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
    """Listener on one outermost module: a recording call stands in place of the module's compiled call, around it.

    The listener does not keep the module alive, not even in a reference cycle until the next garbage collection: a loop
    over folds would keep every model with its gradients so long. So the module holds our call, and our call holds the
    compiled call that the module had before. The listener itself holds our call only while it is off the module.
    """

    def __init__(
        self,
        scope: Moments,
        module: nn.Module,
        recording_call: Callable[[Listener, Callable[[], Any], ModuleCall | None], ModuleCall],
    ) -> None:
        """Begins off the module.

        Args:
            scope: The moments of the run, whose listeners the calls notify.
            module: The module.
            recording_call: Returns the recording call for this listener, a function that returns the module, and the
                module's own compiled call.
        """
        self._recording_call = recording_call
        self.scope, self.recorder, self.ref = scope, scope.recorder, weakref.ref(module)
        self.parameters = self.inside = frozenset[int]()
        """Ids of the module's parameters, and of the modules inside it."""
        self.look_inside(module)
        self.trained = False
        """True if an optimizer, or the loop itself, trains the module."""
        self.used = False
        """True once it was called in training mode or with gradients, so that it is no mere container of modules that
        are called one by one."""
        self.known = False
        """True once all facts that a call shows are recorded."""
        self.calls = self.wall_ns = 0
        """Number of its forwards, and the host's time in all but the first, which may compile, in ns."""
        self.missed = 0
        """Number of optimizer steps before it was called for training."""
        self.inner: Any = None
        """Handle of a hook inside the module. Its first forward removes the hook, unless it is interrupted."""
        self._call: weakref.ref[Call] | None = None
        self._set_aside: Call | None = None
        """Our call, while it is off the module."""

    def look_inside(self, module: nn.Module) -> None:
        """Reads the ids of the module's parts again, which may have changed as long as it is not trained."""
        self.parameters = frozenset(id(p) for p in module.parameters())
        self.inside = frozenset(id(part) for part in module.modules()) - {id(module)}

    def listen(self) -> None:
        """Puts our call on the module if it is not there: `module.compile()` in the loop's code replaces it.

        A scripted module gets none.
        """
        module = self.ref()
        if module is not None and not self.on() and not isinstance(module, torch.jit.ScriptModule):
            self._listen(module, vars(module).get(models.CALL))

    def _listen(self, module: nn.Module, own: Callable[..., Any] | None) -> None:
        """Puts a new call of ours on the module, around the module's own compiled call if there is any."""
        call = Call(self._recording_call(self, self.ref, own))
        setattr(call, models.OURS, own)
        self._call, self._set_aside = weakref.ref(call), None
        setattr(module, models.CALL, call)

    @property
    def _own(self) -> Callable[..., Any] | None:
        """The module's own compiled call, None if it had none."""
        return getattr(self._call and self._call(), models.OURS, None)

    def back(self) -> None:
        """Puts our call back on the module after `remove`.

        If `module.compile()` has put another call there meanwhile, a new call of ours goes around that one.
        """
        module, ours = self.ref(), self._set_aside
        if module is None or ours is None:
            return
        current = vars(module).get(models.CALL)
        if current is not self._own:
            self._listen(module, current)
        else:
            vars(module)[models.CALL], self._set_aside = ours, None

    def on(self) -> bool:
        """Returns True if our call is on the module."""
        module, call = self.ref(), self._call and self._call()
        return module is not None and call is not None and vars(module).get(models.CALL) is call

    def remove(self) -> None:
        """Takes our call off the module and puts back the module's own; a call that replaced ours stays."""
        module = self.ref()
        if module is not None and self.on():
            self._set_aside, own = vars(module)[models.CALL], self._own
            if own is None:
                delattr(module, models.CALL)
            else:
                setattr(module, models.CALL, own)

    def teaches(self) -> bool:
        """Returns True if the module is in evaluation mode and no weight requires gradients: its training is over."""
        module = self.ref()
        return module is not None and not module.training and not any(p.requires_grad for p in module.parameters())

    def end(self) -> None:
        """Takes the listener off the module for good, and drops all references to the module."""
        self.remove()
        if self.inner is not None:
            self.inner.remove()
        self._call = self._set_aside = self.inner = None
