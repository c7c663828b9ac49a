"""Finds the outermost modules of a loop, and puts a listener on each.

By names first: where the run begins, when a loader is first iterated, and before an optimizer's first use. What a
function or a trainer keeps to itself shows when it is called: while an optimizer is known whose parameters no module
holds that was found, the next module that is called on the training thread is taken (see `next_call.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.next_call import NextCall
from gpu_doctor.capture.taps.compilations import around_compiling
from gpu_doctor.capture.taps.listener import Listener, hear_directly
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
    """The listeners of one run, and what is still looked for."""

    def __init__(self, scope: TapScope) -> None:
        """Nothing is looked for yet; the listeners stand in `scope.listeners`, what is known in `scope.models`."""
        self._scope, self._recorder = scope, scope.recorder
        self._listeners: dict[int, Listener] = scope.listeners
        self._direct: dict[int, Callable[..., Any]] = {}
        self._stepped = Parameters()
        fence = scope.recorder.fence
        self.next = NextCall(self._called, scope.recorder.mine, fence.quietly, scope.patches.notes)
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
        if not self._scope.models.alive():
            self.next.wait()

    def named(self) -> None:
        """Listens to the models that the code names by now."""
        self._take(models.outermost(self._scope.namespace))

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to be used for the first time."""
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        self.named()
        self._stepped.add(p for p in owned if p.requires_grad)
        self._mark_trained()
        self._scope.stepped.join(self._boxes)
        self._seek(optimizer, type(optimizer).__name__, owned)

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer was made: so its model's first call is not lost where no gradients are zeroed before."""
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        if not all(p in self._scope.owned for p in owned):
            self._seek(optimizer, type(optimizer).__name__, owned)

    def learned(self, leaves: list[torch.Tensor]) -> list[nn.Module]:
        """The loop updates these itself; returns the modules known that hold some."""
        self.named()
        self._stepped.add(leaves)
        self._mark_trained()
        self._seek(self, "the loop", leaves)
        return self._scope.models.holding(leaves)

    # ---- found by a call --------------------------------------------------------------------------------------------

    def _seek(self, owner: object, who: str, parameters: Iterable[torch.Tensor]) -> None:
        """Looks for the modules of parameters that none found holds; a plain tensor is in no module."""
        self._settle()
        left = [one for one in self._scope.models.unheld(parameters) if isinstance(one, nn.Parameter)]
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
        if module not in self._scope.models:
            self._take([module])
            self._mark_trained()
            listener = self._listeners.get(id(module))
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
            left = self._scope.models.unheld(alive)
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
        elif not self.next.waits and not any(one.calls for one in self._listeners.values() if one.ref() is not None):
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
        scope = self._scope
        for key in [key for key, one in self._listeners.items() if one.ref() is None]:
            del self._listeners[key]
        for module in found:
            scope.models.add([module])
            known = self._listeners.get(id(module))
            if (known is not None and known.on()) or isinstance(module, torch.jit.ScriptModule):
                continue
            try:
                listener = Listener(scope, module)
            except Exception as error:
                self._recorder.note(f"The forward of {type(module).__name__} could not be timed: {error}")
                continue
            try:
                scope.patches.hook(f"forward of {type(module).__name__}", listener.end)
            except Exception:
                listener.end()
                raise
            self._listeners[id(module)] = listener

    def _forget(self, listener: Listener) -> None:
        module = listener.ref()
        if module is not None:
            self._listeners.pop(id(module), None)
            self._scope.models.remove(module)
        listener.end()

    def _mark_trained(self) -> None:
        ids = self._stepped.ids()
        for listener in self._listeners.values():
            owned = listener.trained or not listener.parameters.isdisjoint(ids)
            listener.trained = owned and not listener.teaches()

    def _boxes(self) -> None:
        """A trained module that steps do not call is but a box of modules that they do call."""
        unheard = [one for one in self._listeners.values() if one.trained and not one.heard and one.ref() is not None]
        for listener in unheard:
            listener.missed += 1
            module = listener.ref()
            if listener.missed >= PATIENCE and module is not None:
                listener.heard = True
                parts = [part for part in module.children() if any(True for _ in part.parameters())]
                if not parts or type(module).__call__ is not nn.Module.__call__:
                    hear_directly(self._scope, listener, self._direct)
                elif len(parts) <= MOST_PARTS:
                    self._take(parts)
                    self._mark_trained()
        if not unheard:
            self._scope.stepped.leave(self._boxes)

    def end(self) -> None:
        """The run is over."""
        self.next.end()
        self._settle(0)
        for listener in self._listeners.values():
            listener.end()
        self._direct.clear()
        self._shown = []
        self._listeners.clear()  # what is heard knows us: a circle that would outlive `del model`


def discover(scope: TapScope) -> Discovery:
    """Listens to the models of a run, those known now and those that show up."""
    found, recorder = Discovery(scope), scope.recorder
    recorder.undo_by(found.next.end)
    scope.patches.wrap(torch, "compile", functools.partial(_handed_over, scope, found.next))
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


def _handed_over(scope: TapScope, following: NextCall, original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile`, which may keep the call of the module that it is handed: without ours."""

    def begins(*args: Any, **kwargs: Any) -> bool | None:
        if not following.waits:
            return None
        following.off()
        return True

    return scope.recorder.fence.around_in_graphs(original, begins, lambda token, result: following.wait(), anyone=False)
