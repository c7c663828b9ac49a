"""Knob `compile`: the forwards of the outermost trained modules go through torch.compile for this run.

The compiled forward takes the place of the class' `forward` for these instances only, so that what listens to the
module's call stays outside of the compiled graph, and nothing is left on the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from gpu_doctor import formatting
from gpu_doctor.capture import Patches
from gpu_doctor.cell import Edit, Edits
from gpu_doctor.machine import cuda_devices
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.framework_fix import handed_model
from gpu_doctor.trials.knobs.compiler import forgotten_afterwards, is_compilers, unsupported, weakly
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import NO_MODEL, Refused, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.this_machine import torch_of

if TYPE_CHECKING:
    from torch import nn

WRAPPERS: Final = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
OWN = "Your code compiles the model itself: change it there."
WARM_UP = (
    "compile=True: the first steps (and each new shape) compile, which takes seconds to minutes and counts as warm-up; "
    "compiled code draws its random numbers (dropout) in another order."
)


class Compile(OnOffKnob):
    """See `Knob`."""

    name = "compile"
    label = "torch.compile"
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout draws other numbers."
    )
    on_label = "on (first steps take seconds to minutes)"
    written_late = 1

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        return None if setup.model is None else setup.model.compiled

    def why_not(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup.model is not None and setup.model.compiled:
            return OWN
        if not value:
            return ""
        if not setup.optimizers:
            return NO_MODEL
        wrapper = setup.model.wrapper if setup.model is not None else ""
        if wrapper:
            return _wrapped(wrapper)
        return unsupported(setup.device.partition(":")[0]) if torch_of(setup) is not None else ""

    def left(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`."""
        return not value or super().left(value, setup)

    def draws_anew(self, setup: Setup) -> bool:
        """See `Knob`: dropout draws another mask."""
        return any("Dropout" in one for one in setup.layers)

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`."""
        from gpu_doctor.trials.knobs.trained_modules import TrainedModules

        device = scope.setup.device.partition(":")[0] if scope.setup != Setup() else ""
        said = unsupported(device or ("cuda" if cuda_devices() else "cpu"), thorough=True)
        if said:
            raise Refused(said)
        compiled: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()

        def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            trained.called(module)
            run = compiled.get(module)
            if run is None:
                run = compiled[module] = weakly(original, module)
            try:
                return run(*args, **kwargs)
            except Exception as error:
                if is_compilers(error):
                    first = formatting.first_line(error)[:200]
                    raise Refused(f"torch.compile could not compile {type(module).__name__}: {first}") from error
                raise

        with forgotten_afterwards(), Patches(scope.notes) as patches:
            trained = TrainedModules(scope, patches, "compile", call, "forward")
            trained.allow = _allow
            try:
                trained.start()
                yield
            finally:
                compiled.clear()
                scope.notes.append(WARM_UP)

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if not value:
            return "# without torch.compile(model) and model.compile()"
        return "model.compile()  # or model = torch.compile(model): once, before the loop; the first steps are slow"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        handed = handed_model(draft.cells)
        if handed is None:
            return draft.loop.compiled()
        (cell, node), (torch, edits) = handed, draft.torch()
        begin, end = cell.begin(node), cell.end(node)
        return [*edits, (cell, Edit(begin, begin, f"{torch}.compile(")), (cell, Edit(end, end, ")"))]


KNOB = Compile()


def _allow(module: nn.Module) -> None:
    """Lets pass what can be compiled from outside.

    Raises:
        Refused: with the reason.
    """
    import torch

    from gpu_doctor.capture.describe import compiles_itself
    from gpu_doctor.trials.knobs.trained_modules import device_type

    name = type(module).__name__
    if name in WRAPPERS:
        raise Refused(_wrapped(name))
    for part in module.modules():
        if issubclass(type(part), torch.jit.ScriptModule):
            raise Refused(f"{name} has scripted parts (torch.jit), which torch.compile cannot compile.")
        if compiles_itself(part):
            raise Refused(OWN)
    if "forward" in vars(module):
        raise Refused(f"Other code replaced the forward of this {name}: compile it there.")
    said = unsupported(device_type(module))
    if said:
        raise Refused(said)


def _wrapped(name: str) -> str:
    return f"Compile the model by hand before {name} wraps it."
