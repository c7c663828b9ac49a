"""Knob `non_blocking`: copies from pinned memory to the GPU no longer hold the loop up. GPU: not yet run on one.

Only copies of tensors that nobody has written into since they were made are let go on by themselves: a buffer that the
loop fills again and again could be overwritten before its copy is done.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.capture import Patches, Seam
from gpu_doctor.cell import Edits, LoopLines, NotPlaced
from gpu_doctor.cell.arguments import ADD, REPLACE, Slot, set_arguments
from gpu_doctor.cell.calls import Site
from gpu_doctor.cell.dataflow import holds, names_holding
from gpu_doctor.cell.syntax import Loop
from gpu_doctor.machine import cuda_available
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.framework_fix import framework_copies
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.found_loaders import trained_from
from gpu_doctor.trials.knobs.knob import Choice, Refused, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob

if TYPE_CHECKING:
    import torch

NO_GPU = "The loop trains on the CPU: there is no copy to a GPU."
_DTYPES: Final = ("float", "half", "double", "int", "long", "bool", "dtype", "bfloat")


class NonBlocking(OnOffKnob):
    """See `Knob`; off is as the code says, call by call."""

    name = "non_blocking"
    label = "non_blocking"

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        return None if setup == Setup() else False

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        """See `Knob`."""
        return (Choice(False, "as written"), Choice(True, "on", self.refusal(True, setup)))

    def why_not(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if not value:
            return ""
        if not setup.on_gpu:
            other = f"non_blocking is offered on CUDA devices, and the loop trains on {setup.device}."
            return NO_GPU if setup.device == "cpu" else other
        loader = trained_from(setup)
        if loader is not None and not loader.pin_memory:
            return "A copy from pageable memory always waits: set pin_memory=True too."
        return ""

    def left(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`."""
        return not value

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`."""
        import torch

        if scope.setup == Setup() and cuda_available() is False:
            raise Refused("No GPU: non_blocking acts on copies to a GPU only.")
        acted = 0

        def copy(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal acted
            if not any(isinstance(one, bool) for one in args) and _fresh(self):
                acted += 1
                return original(self, *args, **{**kwargs, "non_blocking": True})
            return original(self, *args, **kwargs)

        try:
            with Patches(scope.notes) as patches:
                for name in ("to", "cuda"):
                    patches.wrap(torch.Tensor, name, lambda original: Seam(original, functools.partial(copy, original)))
                yield
        finally:
            if not acted:
                scope.notes.append("non_blocking=True changed nothing: no copy of a batch in pinned memory was seen.")

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if not value:
            return "inputs = inputs.to(device)"
        device = setup.device if setup.on_gpu else "cuda"
        return f'inputs = inputs.to("{device}", non_blocking=True)  # from pinned memory: DataLoader(pin_memory=True)'

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        value = bool(settings[self.name])
        own = framework_copies(draft.cells) if value else None
        return own if own is not None else non_blocking(draft.loop, value)


KNOB = NonBlocking()


def _fresh(tensor: torch.Tensor) -> bool:
    """In pinned host memory, and never written to since it was made (as what a loader hands out)."""
    if tensor.device.type != "cpu":
        return False
    try:
        return bool(tensor.is_pinned()) and (tensor.is_inference() or tensor._version == 0)
    except RuntimeError:  # no driver to ask, or a kind of tensor that has no memory
        return False


def non_blocking(lines: LoopLines, value: bool) -> Edits:
    """Copies of the batch to the device no longer wait; those to the host do.

    Raises:
        NotPlaced: if the loop makes none, or they are made by a class that takes no such word.
    """
    cell, loop = lines.loop()
    slots: dict[Slot, str] = {}
    for call in ast.walk(loop):
        func = call.func if isinstance(call, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda") or lines.is_model(func.value):
            continue
        assert isinstance(call, ast.Call)
        if any(ast.unparse(one).rpartition(".")[2].startswith(_DTYPES) for one in call.args[:1]) or len(call.args) > 1:
            continue
        if not call.args and not any(one.arg == "device" for one in call.keywords) and func.attr == "to":
            continue
        outputs = names_holding(loop, call.lineno, lambda node: _forward(lines, node))
        if value and (_to_the_host(lines, call) or holds(func.value, outputs)):
            continue
        site = Site(cell, call, ())
        node = site.argument("non_blocking")
        if node is None:
            _let_pass(lines, loop, func.value)
        slots[Slot(ADD if node is None else REPLACE, site, "non_blocking", node)] = repr(value)
    if not slots:
        raise NotPlaced(f"No copy of the batch to the device was found in the loop of {cell.label}.")
    return list(set_arguments(slots))


def _forward(lines: LoopLines, node: ast.expr) -> bool:
    """Whether an expression is a model's output, or lets go of its graph."""
    if not isinstance(node, ast.Call):
        return False
    return lines.is_model(node.func) or (isinstance(node.func, ast.Attribute) and node.func.attr == "detach")


def _to_the_host(lines: LoopLines, call: ast.Call) -> bool:
    """A copy that must wait: what is read on the host behind it would not have arrived."""
    assert isinstance(call.func, ast.Attribute)
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "device")]
    texts = {one.value for node in given for one in ast.walk(node) if isinstance(one, ast.Constant)}
    host = any(isinstance(one, str) and one.partition(":")[0] == "cpu" for one in texts)
    return host or any(_forward(lines, one) for one in ast.walk(call.func.value) if isinstance(one, ast.expr))


def _let_pass(lines: LoopLines, loop: Loop, batch: ast.expr) -> None:
    """Lets a batch pass whose `to` takes the keyword.

    Raises:
        NotPlaced: if it is of a class whose own does not.
    """
    held: Any = lines.cells.namespace.get(batch.id) if isinstance(batch, ast.Name) else None
    name = type(held).__name__
    own = getattr(type(held), "to", None) if held is not None else None
    if own is None:
        classes = (node for cell in lines.cells.cells for node in cell.walk(ast.ClassDef))
        without = [node.name for node in classes if _moves_by_itself(node)]
        name = without[0] if without and isinstance(batch, ast.Name) and batch.id == _whole_batch(loop) else ""
    elif _takes(own, "non_blocking"):
        return
    if name:
        raise NotPlaced(f"`to` of {name} takes no non_blocking: pass it to the copies inside that method.")


def _moves_by_itself(node: ast.ClassDef) -> bool:
    """A class of the cells with a `to` of its own that takes no non_blocking."""
    own = [one.args for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "to"]
    return any(
        one.kwarg is None and not any(arg.arg == "non_blocking" for arg in (*one.args, *one.kwonlyargs)) for one in own
    )


def _takes(function: Any, name: str) -> bool:
    """Whether a function takes a keyword; what does not tell, as those of C, takes it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _whole_batch(loop: Loop) -> str:
    """The one name of a loop's batch, also behind a counter; empty where it is taken apart at once."""
    target = getattr(loop, "target", None)
    counted = ast.unparse(getattr(loop, "iter", loop)).partition("(")[0] == "enumerate"
    target = target.elts[-1] if counted and isinstance(target, ast.Tuple) else target
    return target.id if isinstance(target, ast.Name) else ""
