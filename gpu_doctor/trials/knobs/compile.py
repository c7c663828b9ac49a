"""Knob `compile`: the forwards of the outermost trained modules go through torch.compile for this run.

The compiled forward takes the place of the class' `forward` for these instances only, so that what listens to the
module's call stays outside of the compiled graph, and nothing is left on the model.

What surrounds torch.compile stands here too: whether this machine can, whose error it was, and leaving nothing behind.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from gpu_doctor.capture import Patches
from gpu_doctor.cell import Edits
from gpu_doctor.diagnosis import Safety
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob
from gpu_doctor.trials.knobs.this_machine import torch_of

if TYPE_CHECKING:
    from torch import nn

WRAPPERS: Final = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_PYTHONS: Final = ((3, 14), (2, 10)), ((3, 13), (2, 6)), ((3, 12), (2, 4)), ((3, 11), (2, 1))
"""Python version -> the first torch whose torch.compile takes it (torch's release notes)."""
DEVICES: Final = ("cpu", "cuda")
CAPABILITY: Final = 7
"""Triton, which inductor writes GPU code in, needs compute capability 7.0."""
OWN = "Your code compiles the model itself: change it there."
WARM_UP = (
    "compile=True: the first steps (and each new shape) compile, which takes seconds to minutes and counts as warm-up; "
    "compiled code draws its random numbers (dropout) in another order."
)


@functools.lru_cache(maxsize=8)
def unsupported(device: str, thorough: bool = False) -> str:
    """Why torch.compile cannot be used here, in one sentence; empty if nothing speaks against it.

    Args:
        device: type of the device that the model is on.
        thorough: ask the compiler itself as well, which costs the seconds of its import once.
    """
    if device not in DEVICES:
        return f"torch.compile is offered on CUDA devices and the CPU, not on {device}."
    import torch

    torch_version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    python = sys.version_info[:2]
    needed = next((version for since, version in _PYTHONS if python >= since), (2, 0))
    if torch_version < needed:
        return (
            f"torch {torch.__version__} cannot compile on Python {python[0]}.{python[1]}: it needs torch "
            f"{needed[0]}.{needed[1]}."
        )
    if device == "cpu" and not _cpp_compiler():
        return "torch.compile needs a C++ compiler for the CPU, and none is installed (g++ or clang++)."
    if device == "cuda":
        if find_spec("triton") is None:
            return "torch.compile needs Triton for the GPU, and it is not installed."
        if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < CAPABILITY:
            return "torch.compile needs a GPU from compute capability 7.0 on."
    return _asked(device) if thorough else ""


def _cpp_compiler() -> bool:
    named = os.environ.get("CXX", "").split()
    usual = ("cl",) if sys.platform == "win32" else ("g++", "clang++")
    return any(shutil.which(one) for one in (named[:1] or usual))


def _asked(device: str) -> str:
    try:
        dynamo = import_module("torch._dynamo")
        if not dynamo.is_dynamo_supported():
            return "torch.compile says that it is not supported on this platform and Python."
        if device == "cpu" and not dynamo.is_inductor_supported():
            return "torch.compile's inductor says that it is not supported on this platform."
    except Exception as error:  # a broken installation shows here first
        return f"torch.compile cannot be imported: {error}"
    return ""


def weakly(original: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """`original` of this module, compiled at its first call; knows the module only while it runs."""
    import torch

    compiled = torch.compile(original)
    seen = weakref.ref(module)
    return lambda *args, **kwargs: compiled(seen(), *args, **kwargs)


def is_compilers(error: BaseException) -> bool:
    """Whether torch.compile raised the error, and not the code that it compiled."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "torch._functorch"))


@contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """What is compiled in the context is forgotten at its end; what was compiled before stays compiled.

    Compiled code reads helpers that the compiler keeps among the globals of the user's functions. A trial puts those
    globals back, so code that outlived it would look for helpers that are gone.
    """
    codes, cleanups = set(_compiled_codes()), set(_cleanups())
    try:
        yield
    finally:
        made = set(_cleanups()) - cleanups
        touched = [one for key, one in _compiled_codes().items() if key not in codes or _made_of(one) & made]
        _reset(touched)
        for key in made:
            _clean(_cleanups().get(key, []))


def _trackers() -> list[Any]:
    frames = sys.modules.get("torch._dynamo.convert_frame")
    found = [getattr(frames, name, None) for name in ("input_codes", "output_codes")]
    return [one for one in found if one is not None]


def _compiled_codes() -> dict[int, Any]:
    """The code objects that torch.compile has looked at and that are alive, by identity."""
    found = [one() for tracker in _trackers() for one in tracker.seen]
    return {id(code): code for code in found if code is not None}


def _made_of(code: Any) -> set[int]:
    """The compiled codes (by identity) that may run instead of this one."""
    entries = vars(sys.modules["torch._C._dynamo.eval_frame"]).get("_debug_get_cache_entry_list")
    return {id(one.code) for one in entries(code)} if entries is not None else set()


def _reset(codes: list[Any]) -> None:
    """As torch._dynamo.reset() does with all codes."""
    if not codes:
        return
    reset_code = vars(sys.modules["torch._dynamo.eval_frame"])["reset_code"]
    for code in codes:
        reset_code(code)
        for tracker in _trackers():
            if id(code) in tracker.seen_ids:
                tracker.seen_ids.discard(id(code))
                tracker.seen[:] = [one for one in tracker.seen if one() is not code]


def _cleanups() -> dict[int, list[Callable[[], None]]]:
    """What the compiler does when compiled code dies, by the code: it takes its helpers out of the globals."""
    manager = getattr(getattr(sys.modules.get("torch._dynamo.utils"), "CleanupManager", None), "instance", None)
    found: dict[int, list[Callable[[], None]]] = getattr(manager, "values", {})
    return found


def _clean(hooks: list[Callable[[], None]]) -> None:
    """Now rather than when the last frame that knows the code is gone: it would complain of what a trial put back."""
    while hooks:
        with contextlib.suppress(KeyError):
            hooks.pop()()


class Compile(OnOffKnob):
    """See `Knob`."""

    name = "compile"
    label = "torch.compile"
    safety = Safety.SAFE
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout draws other numbers."
    )
    on_label = "on (first steps take seconds to minutes)"

    def found(self, setup: Setup) -> bool | None:
        return None if setup.model is None else setup.model.compiled

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        if setup.model is not None and setup.model.compiled:
            return OWN
        if not value:
            return ""
        if not setup.optimizers:
            return "No torch optimizer stepped, so the trained model is not known."
        wrapper = setup.model.wrapper if setup.model is not None else ""
        if wrapper:
            return _wrapped(wrapper)
        return unsupported(setup.device.partition(":")[0]) if torch_of(setup) is not None else ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope, value == self.found(scope.setup))

    def code(self, value: SettingValue, setup: Setup) -> str:
        if not value:
            return "# without torch.compile(model) and model.compile()"
        return "model.compile()  # or model = torch.compile(model): once, before the loop; the first steps are slow"

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        return draft.loop.compiled()


KNOB = Compile()


@contextmanager
def _turned(value: bool, scope: TrialScope, as_written: bool) -> Iterator[None]:
    if as_written or not value:
        yield
        return
    import torch

    from gpu_doctor.trials.knobs.trained_modules import TrainedModules

    device = scope.setup.device.partition(":")[0] if scope.setup != Setup() else ""
    said = unsupported(device or ("cuda" if torch.cuda.is_available() else "cpu"), thorough=True)
    if said:
        raise Refused(said)
    patches = Patches()
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
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise Refused(f"torch.compile could not compile {type(module).__name__}: {first[:200]}") from error
            raise

    trained = TrainedModules(scope, patches, "compile", call, "forward")
    trained.allow = _allow
    with forgotten_afterwards():
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
