"""Finds the outermost modules of a loop, and puts a listener on each.

Modules with a name are found first: when the run begins, when a loader is first iterated, and before an optimizer's
first use. A module inside a function or a trainer is found when it is called: as long as some optimizer's parameters
are in no known module, the next module called on the training thread is added (see `next_call.py`).
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
from gpu_doctor.capture.taps.forward import given, recording_call, recording_forward
from gpu_doctor.capture.taps.listener import Listener
from gpu_doctor.capture.taps.parameters import Parameters
from gpu_doctor.capture.taps.tap import TapScope

PATIENCE: Final = 2
"""Optimizer steps without a call of a module after which its children get listeners instead. Not one: the module may
have been called in the first step before it was known."""
SOUGHT: Final = 16
"""Optimizer steps after which the search for a model ends: some optimizers do not step in each turn of the loop."""
MOST_PARTS: Final = 16
"""Maximum number of children that get listeners in place of their parent: an event costs about 2 us, and a step should
not pay for hundreds."""


class Sought:
    """Parameters that an optimizer or the loop itself trains, and whose modules are not all found yet."""

    def __init__(self, who: str, parameters: Iterable[torch.Tensor]) -> None:
        """`who` names the trainer of the parameters in notes."""
        self.who, self.parameters = who, Parameters()
        self.parameters.add(parameters)
        self.steps, self.found = 0, False
        """Optimizer steps since the search began, and True once some of the parameters' modules were found."""


class Discovery:
    """Search for the models of one run; each one found gets a listener."""

    def __init__(self, scope: TapScope) -> None:
        """Begins without a search; the models found are added to `scope.models`."""
        self._scope, self._recorder, self._models = scope, scope.recorder, scope.models
        self._direct: dict[int, Callable[..., Any]] = {}
        """Calls of the modules whose `forward` is called directly, by id."""
        self.next = NextCall(self._called, scope.recorder.mine, scope.recorder.fence.quietly, scope.patches.notes)
        self._sought: dict[int, Sought] = {}
        """Parameters whose modules are searched for, by the id of their optimizer."""
        self._shown: list[Listener] = []
        """Listeners on the modules called since the search began."""
        self._paused = False
        """True if the search for the next call is off because something is being compiled."""

    # ---- found by names ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Searches the names when the run begins; if none leads to a model, waits for the first call of one."""
        self.named()
        if not self._models.alive():
            self.next.wait()

    def named(self) -> None:
        """Listens to the models that have a name by now; the parts of known ones are not searched again."""
        for listener in self._models.listeners():
            listener.listen()
        self._take(models.outermost(self._scope.namespace, known=self._models.ids()))

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """Searches for the modules of an optimizer that is about to be used for the first time."""
        self._mark_and_seek(optimizer, type(optimizer).__name__, parameters_of(optimizer))
        self._scope.stepped.join(self._boxes)

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        """Searches for the modules of an optimizer that was just made.

        So the model's first call is recorded even in a loop that does not zero gradients before it.
        """
        owned = parameters_of(optimizer)
        if not all(p in self._scope.owned for p in owned):
            self._seek(optimizer, type(optimizer).__name__, owned)

    def trained_by_hand(self, leaves: list[torch.Tensor]) -> list[nn.Module]:
        """Marks the modules of `leaves`, which a loop without an optimizer updates, as trained, and searches for them.

        Returns:
            The outermost modules known by now that hold any of `leaves`.
        """
        self._mark_and_seek(self, "the loop", leaves)
        return self._models.holding(leaves)

    def _mark_and_seek(self, owner: object, who: str, parameters: list[torch.Tensor]) -> None:
        """Marks the modules of the parameters as trained, and searches for those that are not known.

        Args:
            owner: The optimizer, or this object if the loop updates the parameters itself.
            who: Name of the owner in notes.
            parameters: The parameters that it trains.
        """
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
        """Begins the search for the modules of an owner's parameters, or ends it if all of them are found.

        A plain tensor is in no module.
        """
        self._settle()
        unheld = [tensor for tensor in self._models.unheld(parameters) if isinstance(tensor, nn.Parameter)]
        if unheld and id(owner) not in self._sought:
            self._sought[id(owner)] = Sought(who, unheld)
            self._shown = []
            self._scope.stepped.join(self._missing)
            self.next.wait()
        elif not unheld:
            self._sought.pop(id(owner), None)
            if not self._sought:
                self.next.off()

    def _called(self, module: nn.Module) -> bool:
        """Adds an outermost module that is being called; returns True if the search goes on.

        If more than `MOST_PARTS` modules were called, all of them are forgotten and the search ends.
        """
        begin = self._recorder.clock()
        if module not in self._models:
            self._take([module])
            self._mark_trained()
            listener = self._models.get(module)
            if listener is not None:
                self._shown.append(listener)
            self._scope.found.notify(self._recorder.note, "The model could not be read", stay=True)
        self._settle()
        self._recorder.cost.searched(begin)
        if len(self._shown) <= MOST_PARTS:
            return bool(self._sought)
        for listener in self._shown:
            self._forget(listener)
        self._shown = []
        for sought in self._sought.values():
            sought.found = False
        return False

    def _missing(self) -> None:
        """Counts an optimizer step against the searches that go on, and ends those that took too long."""
        for sought in self._sought.values():
            sought.steps += 1
        self._settle(SOUGHT)
        if not self._sought:
            self.next.off()
            self._scope.stepped.leave(self._missing)

    def _settle(self, patience: float = math.inf) -> None:
        """Ends each search whose parameters are all found or gone, or that took `patience` optimizer steps.

        A note names an owner of whose parameters no module was found.
        """
        for key, sought in list(self._sought.items()):
            alive = sought.parameters.alive()
            unheld = self._models.unheld(alive)
            sought.found = sought.found or len(unheld) < len(alive)
            if unheld and sought.steps < patience:
                continue
            del self._sought[key]
            if not sought.found and sought.steps >= PATIENCE:
                self._recorder.note(
                    f"No module call was seen that uses the parameters of {sought.who}: the forward passes are not "
                    "timed, and the model is not described."
                )

    def on_step_without_optimizer(self, _: int = 0) -> None:
        """Counts a step against the searches; without a search, waits for the next call if no known model was called.

        Does nothing in a loop with an optimizer.
        """
        if self._recorder.log.trains:
            return
        if self._sought:
            self._missing()
        elif not self.next.waits and not any(listener.calls for listener in self._models.listeners()):
            self.next.wait()

    def compiles(self) -> None:
        """Arranges that the compiler, now imported, never traces the stand-in that catches the next call."""
        with suppress(Exception):  # a private name: without it a step that is compiled meanwhile is compiled once more
            around_compiling(self._scope, self._compiling, self._compiled)

    def _compiling(self, *_: Any) -> None:
        """Pauses the search when a compilation begins."""
        if self.next.waits and self._recorder.mine():
            self.next.off()
            self._paused = True

    def _compiled(self, *_: Any) -> None:
        """Resumes the search when a compilation has ended."""
        if self._paused and self._recorder.mine():
            self._paused = False
            self.next.wait()

    # ---- listening --------------------------------------------------------------------------------------------------

    def _take(self, modules: Iterable[nn.Module]) -> None:
        """Adds modules to the known ones and puts a listener on each."""
        for module in modules:
            if module in self._models:
                continue
            listener = Listener(self._scope, module, recording_call)
            self._models.add(module, listener)
            try:
                self._scope.patches.hook(f"forward of {type(module).__name__}", listener.end)
                listener.listen()
            except Exception as error:
                listener.end()
                self._recorder.note(f"The forward of {type(module).__name__} could not be timed: {error}")

    def _forget(self, listener: Listener) -> None:
        """Removes a module from the known ones, and its listener from the module."""
        module = listener.ref()
        if module is not None:
            self._models.remove(module)
        listener.end()

    def _mark_trained(self) -> None:
        """Marks the listeners whose modules hold trained parameters, except frozen teachers."""
        owned = self._scope.owned
        for listener in self._models.listeners():
            module = listener.ref()
            if module is not None:
                trained = listener.trained or any(p.requires_grad and p in owned for p in module.parameters())
                listener.trained = trained and not listener.teaches()

    def _boxes(self) -> None:
        """Counts an optimizer step against each trained module that was not called; puts listeners on its children.

        A module that steps never call is a mere container of modules that they do call. If it has no children with
        parameters, or its class has its own `__call__`, its `forward` is wrapped instead.
        """
        uncalled = [listener for listener in self._models.listeners() if listener.trained and not listener.used]
        for listener in uncalled:
            listener.missed += 1
            module = listener.ref()
            if listener.missed >= PATIENCE and module is not None:
                listener.used = True
                parts = [part for part in module.children() if any(True for _ in part.parameters())]
                if not parts or type(module).__call__ is not nn.Module.__call__:
                    record_forward(self._scope, listener, self._direct)
                elif len(parts) <= MOST_PARTS:
                    self._take(models.unboxed(parts))
                    self._mark_trained()
        if not uncalled:
            self._scope.stepped.leave(self._boxes)

    def end(self) -> None:
        """Ends the search and removes all listeners when the run is over."""
        self.next.end()
        self._settle(0)
        for listener in self._models.listeners():
            listener.end()
        self._direct.clear()
        self._shown = []
        self._models.clear()  # listeners refer to this object: a reference cycle that would outlive `del model`


def record_forward(scope: TapScope, listener: Listener, calls: dict[int, Callable[..., Any]]) -> None:
    """Wraps the `forward` of a module's class, for a module whose `forward` is called without torch's `__call__`.

    Args:
        scope: The scope of the tap; the class gets its `forward` back with the scope's patches.
        listener: The listener of the module.
        calls: Calls of such modules by id; the module's is added.
    """
    module = listener.ref()
    if module is None or isinstance(module, torch.jit.ScriptModule):  # its class has no `forward` of its own
        return
    kind = type(module)
    forward = kind.forward
    plain = getattr(forward, models.OURS, forward)
    if plain.__module__.partition(".")[0] == "torch":
        return  # a layer whose weight is used without a call; and compiled models contain torch's own layers
    key = id(module)
    listener.ref = weakref.ref(module, lambda _: calls.pop(key, None))
    calls[key] = recording_call(listener, listener.ref, functools.partial(given, listener.ref, plain))
    if plain is forward:  # else another module of this class is recorded already
        scope.patches.wrap(kind, "forward", functools.partial(recording_forward, calls))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Returns the parameters of all groups of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def discover(scope: TapScope) -> Discovery:
    """Starts the search for the models of a run: those that have a name now, and those that appear later."""
    found, recorder = Discovery(scope), scope.recorder
    recorder.undo_by(found.next.end)
    found.begin()
    scope.pulled.append(found.named)
    scope.made.append(found.made)
    scope.optimized.append(found.optimized)
    recorder.listeners.on_steps(found.on_step_without_optimizer)

    def end() -> None:
        recorder.listeners.off_steps(found.on_step_without_optimizer)
        found.end()

    scope.at_end(end)
    return found
