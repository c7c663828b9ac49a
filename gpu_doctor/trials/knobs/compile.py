"""Knob `compile`: the trained model goes through torch.compile, by a line of `model.compile()` before the loop."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from gpu_doctor.cell import Edit, Edits
from gpu_doctor.machine import cuda_devices
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.framework_fix import handed_model
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import NO_MODEL, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.this_machine import torch_of

DEVICES: Final = ("cpu", "cuda")
CAPABILITY: Final = 7
"""Triton, which inductor writes GPU code in, needs compute capability 7.0."""
NO_COMPILER: Final = "torch.compile needs a C++ compiler for the CPU, and none is installed (g++ or clang++)."
OWN: Final = "Your code compiles the model itself: change it there."
WARM_UP: Final = (
    "compile=True: the first steps (and each new shape) compile, which takes seconds to minutes and counts as warm-up; "
    "compiled code draws its random numbers (dropout) in another order."
)

_COMPILED: Final = ("_compiled_call_impl", "forward")
"""Attributes of a module that the lines of the knob set."""
NOTHING: Final = "compile=True compiled nothing: no graph was made."


class Compile(OnOffKnob):
    """See `Knob`."""

    name = "compile"
    label = "torch.compile"
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout draws other numbers."
    )
    on_label = "on (first steps take seconds to minutes)"
    lines_only = True
    written_late = 1

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        return None if setup.model is None else setup.model.compiled

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup.model is not None and setup.model.compiled:
            return OWN
        if not value:
            return ""
        if setup == Setup():
            return unsupported("cuda" if cuda_devices() else "cpu")
        if not setup.optimizers:
            return NO_MODEL
        if setup.model is not None and setup.model.wrapper:
            return f"Compile the model by hand before {setup.model.wrapper} wraps it."
        return unsupported(setup.device.partition(":")[0]) if torch_of(setup) is not None else ""

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`."""
        return not value or super().is_noop(value, setup)

    def draws_anew(self, setup: Setup) -> bool:
        """See `Knob`: dropout draws another mask."""
        return any("Dropout" in layer for layer in setup.layers)

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`: the text compiles; what it compiled is forgotten afterwards.

        Compiled code reads helpers that the compiler keeps among the globals of the user's functions. A trial puts
        those globals back, so code that outlived it would look for helpers that are gone.
        """
        from gpu_doctor.capture.describe import named

        modules = named(scope.namespace, import_module("torch").nn.Module)
        kept = [
            (vars(module), {name: vars(module)[name] for name in _COMPILED if name in vars(module)})
            for module in modules
        ]
        before = _graphs()
        try:
            yield
        finally:
            scope.notes.append(WARM_UP if _graphs() > before else NOTHING)
            for attributes, own in kept:
                for name in _COMPILED:
                    attributes.pop(name, None)
                attributes.update(own)
            if (dynamo := sys.modules.get("torch._dynamo")) is not None:
                dynamo.reset()

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if not value:
            return "# without torch.compile(model) and model.compile()"
        return "model.compile()  # or model = torch.compile(model): once, before the loop; the first steps are slow"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        handed, (torch, edits) = handed_model(draft.cells), draft.torch()
        if handed is None:
            lines = draft.loop.compiled(torch)
            return [*edits, *lines] if any(f"{torch}." in edit.text for _, edit in lines) else lines
        cell, node = handed
        begin, end = cell.begin(node), cell.end(node)
        return [*edits, (cell, Edit(begin, begin, f"{torch}.compile(")), (cell, Edit(end, end, ")"))]


KNOB = Compile()


def _graphs() -> int:
    """Returns how many graphs torch.compile has made in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters["stats"]["unique_graphs"]) if "stats" in counters else 0


@functools.lru_cache(maxsize=8)
def unsupported(device: str) -> str:
    """Returns why torch.compile cannot be used here on a type of device, in one sentence; empty if it can."""
    if device not in DEVICES:
        return f"torch.compile is offered on CUDA devices and the CPU, not on {device}."
    if device == "cpu":
        named = os.environ.get("CXX", "").split()
        usual = ("cl",) if sys.platform == "win32" else ("g++", "clang++")
        found = any(shutil.which(compiler) for compiler in (named[:1] or usual))
        return "" if found else NO_COMPILER
    if find_spec("triton") is None:
        return "torch.compile needs Triton for the GPU, and it is not installed."
    known = [device.capability[0] for device in cuda_devices() if device.capability is not None]
    return "torch.compile needs a GPU from compute capability 7.0 on." if known and max(known) < CAPABILITY else ""
