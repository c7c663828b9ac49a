"""Knob `compile`: the forwards of the outermost trained modules go through torch.compile for this run.

The compiled forward takes the place of the class' `forward` for these instances only, so that what listens to the
module's call stays outside of the compiled graph, and nothing is left on the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from gpu_doctor.capture.describe.models import compiles_itself
from gpu_doctor.capture.patching import Patches
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs import compiling
from gpu_doctor.trials.knobs.knob import Choice, Refused, TrialScope
from gpu_doctor.trials.knobs.loader import on_or_off
from gpu_doctor.trials.knobs.trained_modules import TrainedModules, device_type

OWN = "Your code compiles the model itself: change it there."
WARM_UP = (
    "compile=True: the first steps (and each new shape) compile, which takes seconds to minutes and counts as warm-up; "
    "compiled code draws its random numbers (dropout) in an order of its own."
)


class Compile:
    """See `Knob`."""

    name = "compile"
    label = "torch.compile"
    safety = Safety.SAFE
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout draws other numbers."
    )
    front = False

    def found(self, setup: Setup) -> bool | None:
        return None if setup.model is None else setup.model.compiled

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        on = "on (first steps take seconds to minutes)"
        return tuple(Choice(value, on if value else "off", self.refusal(value, setup)) for value in (False, True))

    def parsed(self, text: str) -> bool:
        return on_or_off(text, self.name)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        if setup.model is not None and setup.model.compiled:
            return OWN
        if not value:
            return ""
        if not setup.optimizers:
            return "No optimizer of torch stepped, so no trained module is known that could be compiled."
        wrapper = setup.model.wrapper if setup.model is not None else ""
        if wrapper:
            return _wrapped(wrapper)
        return compiling.unsupported(setup.device.partition(":")[0])

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope, value == self.found(scope.setup))

    def code(self, value: SettingValue, setup: Setup) -> str:
        if not value:
            return "# without torch.compile(model) and model.compile()"
        return "model.compile()  # or model = torch.compile(model): once, before the loop; the first steps are slow"


KNOB = Compile()


@contextmanager
def _turned(value: bool, scope: TrialScope, as_written: bool) -> Iterator[None]:
    if as_written or not value:
        yield
        return
    device = scope.setup.device.partition(":")[0] if scope.setup != Setup() else ""
    said = compiling.unsupported(device or ("cuda" if torch.cuda.is_available() else "cpu"), thorough=True)
    if said:
        raise Refused(said)
    patches, compiled = Patches(), WeakKeyDictionary[nn.Module, Callable[..., Any]]()

    def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trained.called(module)
        run = compiled.get(module)
        if run is None:
            run = compiled[module] = compiling.weakly(original, module)
        try:
            return run(*args, **kwargs)
        except Exception as error:
            if compiling.is_compilers(error):
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise Refused(f"torch.compile could not compile {type(module).__name__}: {first[:200]}") from error
            raise

    trained = TrainedModules(scope, patches, "compile", call, "forward")
    trained.allow = _allow
    with compiling.forgotten_afterwards():
        try:
            trained.start()
            yield
        finally:
            patches.restore()
            compiled.clear()
            scope.notes.append(WARM_UP)
            scope.notes.extend(patches.notes)


def _allow(module: nn.Module) -> None:
    """Lets pass what can be compiled from outside.

    Raises:
        Refused: with the reason.
    """
    name = type(module).__name__
    if name in compiling.WRAPPERS:
        raise Refused(_wrapped(name))
    for part in module.modules():
        if issubclass(type(part), torch.jit.ScriptModule):
            raise Refused(f"{name} has scripted parts (torch.jit), which torch.compile does not take.")
        if compiles_itself(part):
            raise Refused(OWN)
    if "forward" in vars(module):
        raise Refused(f"The forward of this {name} was replaced by other code: compile it there.")
    said = compiling.unsupported(device_type(module))
    if said:
        raise Refused(said)


def _wrapped(name: str) -> str:
    return f"The model is inside of {name}: compile it by hand before it is wrapped."
