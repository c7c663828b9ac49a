"""Finds the outermost modules of a loop, and puts a listener on each.

By names first: where the run begins, when a loader is first iterated, and before an optimizer's first use. What a
function or a trainer keeps to itself shows when it is called: while an optimizer is known whose parameters no module
holds that was found, the next module that is called on the training thread is taken (see `next_call.py`).
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.next_call import NextCall
from gpu_doctor.capture.taps.compiler import around_compiling
from gpu_doctor.capture.taps.forward import given, heard_by_name, heard_call
from gpu_doctor.capture.taps.listener import Listener
from gpu_doctor.capture.taps.parameters import Parameters
from gpu_doctor.capture.taps.tap import TapScope

PATIENCE: Final = 2
"""Optimizer steps that may pass a module by until those in it are listened to: the first may have called it unheard."""
SOUGHT: Final = 16
"""Optimizer steps after which a model that nothing has shown is looked for no longer: some do not step each turn."""
MOST_PARTS: Final = 16
"""A box of more modules than this stays unheard: an event costs about 2 us, and a step should not pay for hundreds."""


class Sought:
    """What an optimizer, or the loop itself, trains, and of which the modules are not all found."""

    def __init__(self, who: str, parameters: Iterable[torch.Tensor]) -> None:
        """`who` trains the parameters, for people."""
        self.who, self.parameters = who, Parameters()
        self.parameters.add(parameters)
        self.steps, self.found = 0, False
        """Optimizer steps since it is looked for, and whether some of it was found."""


class Discovery:
    """Finds the models of one run, listens to them, and knows what is still looked for."""

    def __init__(self, scope: TapScope) -> None:
        """Nothing is looked for yet; what is found stands in `scope.models`."""
        self._scope, self._recorder, self._models = scope, scope.recorder, scope.models
        self._direct: dict[int, Callable[..., Any]] = {}
        self.next = NextCall(self._called, scope.recorder.mine, scope.recorder.fence.quietly, scope.patches.notes)
        self._sought: dict[int, Sought] = {}
        """By the id of who trains it."""
        self._shown: list[Listener] = []
        """Listeners on what was called since something is looked for."""
        self._aside = False
        """The stand-in is off while something is compiled."""

    # ---- found by names ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The run begins: where no name leads to a model, the first one that is called is it."""
        self.named()
        if not self._models.alive():
            self.next.wait()

    def named(self) -> None:
        """Listens to the models that the code names by now; those that are known are not gone through again."""
        for listener in self._models.listeners():
            listener.listen()
        self._take(models.outermost(self._scope.namespace, known=self._models.ids()))

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to be used for the first time."""
        self._trains(optimizer, type(optimizer).__name__, parameters_of(optimizer))
        self._scope.stepped.join(self._boxes)

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer was made: so its model's first call is not lost where no gradients are zeroed before."""
        owned = parameters_of(optimizer)
        if not all(p in self._scope.owned for p in owned):
            self._seek(optimizer, type(optimizer).__name__, owned)

    def learned(self, leaves: list[torch.Tensor]) -> list[nn.Module]:
        """The loop updates these itself; returns the modules known that hold some."""
        self._trains(self, "the loop", leaves)
        return self._models.holding(leaves)

    def _trains(self, owner: object, who: str, parameters: list[torch.Tensor]) -> None:
        """Something trains these parameters."""
        self._scope.owned.add(parameters)
        for listener in self._models.listeners():
            module = listener.ref()
            if not listener.trained and module is not None:
                listener.look_inside(module)
        self.named()
        self._mark_trained()
        self._seek(owner, who, parameters)

    # ---- found by a call --------------------------------------------------------------------------------------------

    def _seek(self, owner: object, who: str, parameters: Iterable[torch.Tensor]) -> None:
        """Looks for the modules of parameters that none found holds; a plain tensor is in no module."""
        self._settle()
        left = [one for one in self._models.unheld(parameters) if isinstance(one, nn.Parameter)]
        if left and id(owner) not in self._sought:
            self._sought[id(owner)] = Sought(who, left)
            self._shown = []
            self._scope.stepped.join(self._missing)
            self.next.wait()
        elif not left:
            self._sought.pop(id(owner), None)
            if not self._sought:
                self.next.off()

    def _called(self, module: nn.Module) -> bool:
        """An outermost module is called; returns whether another one is looked for."""
        begin = self._recorder.clock()
        if module not in self._models:
            self._take([module])
            self._mark_trained()
            listener = self._models.get(module)
            if listener is not None:
                self._shown.append(listener)
            self._scope.found.tell(self._recorder.note, "The model could not be read", stay=True)
        self._settle()
        self._recorder.cost.searched(begin)
        if len(self._shown) <= MOST_PARTS:
            return bool(self._sought)
        for listener in self._shown:
            self._forget(listener)
        self._shown = []
        for one in self._sought.values():
            one.found = False
        return False

    def _missing(self) -> None:
        """An optimizer has stepped while something is looked for."""
        for one in self._sought.values():
            one.steps += 1
        self._settle(SOUGHT)
        if not self._sought:
            self.next.off()
            self._scope.stepped.leave(self._missing)

    def _settle(self, patience: float = math.inf) -> None:
        """Looks no longer for what was found or is gone, nor after so many steps; says what was not found."""
        for key, one in list(self._sought.items()):
            alive = one.parameters.alive()
            left = self._models.unheld(alive)
            one.found = one.found or len(left) < len(alive)
            if left and one.steps < patience:
                continue
            del self._sought[key]
            if not one.found and one.steps >= PATIENCE:
                self._recorder.note(
                    f"No module was seen whose call uses what {one.who} trains: its forward passes are not timed, and "
                    "its model is not described."
                )

    def rest(self, _: int = 0) -> None:
        """Steps have ended: where no optimizer steps and no known model was called, the next model is looked for."""
        if self._recorder.log.trains:
            return
        if self._sought:
            self._missing()
        elif not self.next.waits and not any(one.calls for one in self._models.listeners()):
            self.next.wait()

    def compiles(self) -> None:
        """The compiler is there: what it reads is not read with our stand-in in it."""
        with suppress(Exception):  # a private name: without it a step that is compiled meanwhile is compiled once more
            around_compiling(self._scope, self._compiling, self._compiled)

    def _compiling(self, *_: Any) -> None:
        if self.next.waits and self._recorder.mine():
            self.next.off()
            self._aside = True

    def _compiled(self, *_: Any) -> None:
        if self._aside and self._recorder.mine():
            self._aside = False
            self.next.wait()

    # ---- listening --------------------------------------------------------------------------------------------------

    def _take(self, found: Iterable[nn.Module]) -> None:
        """Knows these modules and listens to them."""
        for module in found:
            if module in self._models:
                continue
            listener = Listener(self._scope, module, heard_call)
            self._models.add(module, listener)
            try:
                self._scope.patches.hook(f"forward of {type(module).__name__}", listener.end)
                listener.listen()
            except Exception as error:
                listener.end()
                self._recorder.note(f"The forward of {type(module).__name__} could not be timed: {error}")

    def _forget(self, listener: Listener) -> None:
        module = listener.ref()
        if module is not None:
            self._models.remove(module)
        listener.end()

    def _mark_trained(self) -> None:
        owned = self._scope.owned
        for listener in self._models.listeners():
            module = listener.ref()
            if module is not None:
                trained = listener.trained or any(p.requires_grad and p in owned for p in module.parameters())
                listener.trained = trained and not listener.teaches()

    def _boxes(self) -> None:
        """A trained module that steps do not call is but a box of modules that they do call."""
        unheard = [one for one in self._models.listeners() if one.trained and not one.heard]
        for listener in unheard:
            listener.missed += 1
            module = listener.ref()
            if listener.missed >= PATIENCE and module is not None:
                listener.heard = True
                parts = [part for part in module.children() if any(True for _ in part.parameters())]
                if not parts or type(module).__call__ is not nn.Module.__call__:
                    hear_directly(self._scope, listener, self._direct)
                elif len(parts) <= MOST_PARTS:
                    self._take(models.unboxed(parts))
                    self._mark_trained()
        if not unheard:
            self._scope.stepped.leave(self._boxes)

    def end(self) -> None:
        """The run is over."""
        self.next.end()
        self._settle(0)
        for listener in self._models.listeners():
            listener.end()
        self._direct.clear()
        self._shown = []
        self._models.clear()  # what is heard knows us: a circle that would outlive `del model`


def hear_directly(scope: TapScope, listener: Listener, heard: dict[int, Callable[..., Any]]) -> None:
    """Hears a module whose `forward` is called past torch's own call: by its name, or by a `__call__` of its class.

    Args:
        scope: the tap's; the class gets its `forward` back with it.
        listener: of the module.
        heard: the modules of this kind by id, to which it is added.
    """
    module = listener.ref()
    if module is None or isinstance(module, torch.jit.ScriptModule):  # whose class has no `forward` of its own
        return
    kind = type(module)
    forward = kind.forward
    plain = getattr(forward, models.OURS, forward)
    if plain.__module__.partition(".")[0] == "torch":
        return  # a layer whose weight is used without it; and torch's own layers stand inside of compiled models
    key = id(module)
    listener.ref = weakref.ref(module, lambda _: heard.pop(key, None))
    heard[key] = heard_call(listener, listener.ref, functools.partial(given, listener.ref, plain))
    if plain is forward:  # else another module of this class is heard already
        scope.patches.wrap(kind, "forward", functools.partial(heard_by_name, heard))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def discover(scope: TapScope) -> Discovery:
    """Listens to the models of a run, those known now and those that show up."""
    found, recorder = Discovery(scope), scope.recorder
    recorder.undo_by(found.next.end)
    found.begin()
    scope.pulled.append(found.named)
    scope.made.append(found.made)
    scope.optimized.append(found.optimized)
    recorder.listeners.hear_steps(found.rest)

    def end() -> None:
        recorder.listeners.hear_no_steps(found.rest)
        found.end()

    scope.at_end(end)
    return found
