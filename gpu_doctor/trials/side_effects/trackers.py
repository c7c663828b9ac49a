"""Mutes experiment trackers during a trial: nothing is reported to them, and open runs stay open.

Trackers are found by a table (`tracker_table.py`) if they are loaded; nothing is imported. The bodies of reporting
functions are exchanged, so that a writer or run of an earlier cell is muted too, as is a function stored before.
Environment variables keep trackers offline that a side loads first, and the processes that it starts.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpu_doctor.capture import Patches
from gpu_doctor.cell import is_among
from gpu_doctor.trials.side_effects import bodies
from gpu_doctor.trials.side_effects.inert import NAMED, NOTHING, Configured
from gpu_doctor.trials.side_effects.tracker_table import TRACKERS, Tracker


@contextmanager
def unlogged(notes: list[str]) -> Iterator[None]:
    """Mutes all trackers inside the context.

    Args:
        notes: receives a sentence for each tracker that the code reported to.
    """
    held: dict[str, None] = {}
    try:
        with Patches(notes) as patches:
            for tracker in TRACKERS:
                _mute(tracker, patches, held)
            yield
    finally:
        notes.extend(f"{name}: the trial logged nothing there." for name in held)


def open_runs() -> tuple[str, ...]:
    """Returns the names of open tracker runs, such as `wandb.run (Run)`."""
    found = []
    for tracker in TRACKERS:
        run = _open_run(tracker)
        if run is not None and getattr(run, "disabled", False) is not True:
            found.append(f"{tracker.open_run} ({type(run).__name__})")
    return tuple(found)


def reporter_of(value: Any) -> str:
    """Returns the name of the tracker that an object (a writer, say) reports to; empty if it is none."""
    for tracker in TRACKERS:
        classes = (_loaded(place) for place in tracker.muted if ":" in place)
        if any(isinstance(cls, type) and issubclass(type(value), cls) for cls in classes):
            return tracker.name
    return ""


def _mute(tracker: Tracker, patches: Patches, held: dict[str, None]) -> None:
    """Mutes the loaded parts of one tracker."""
    for name, value in tracker.offline.items():
        patches.hook(name, partial(_set_variable, name, os.environ.get(name)))
        os.environ[name] = value
    module, done = sys.modules.get(tracker.packages[0]), set[int]()
    if tracker.begins and isinstance(module, types.ModuleType):
        names = dict(vars(module))  # a run binds some of them: `wandb.run`, `wandb.log`
        patches.hook(f"the names of {tracker.name}", partial(vars(module).update, names))
        settings = _at(module, tracker.settings)
        if isinstance(settings, dict):
            patches.hook(f"the settings of {tracker.name}", partial(_refill, settings, dict(settings)))
        _exchanged(vars(module).get(tracker.begins), partial(_beginning, tracker, held), patches, done)
    for place, patterns in tracker.muted.items():
        for owner in _owners(_loaded(place), tracker):
            for name, value in list(vars(owner).items()):
                if is_among(name, patterns) and name != tracker.begins:
                    make = _making if name == "__init__" else _muting
                    _exchanged(value, partial(make, tracker, held), patches, done)


def _exchanged(value: Any, make: Callable[[Any], Callable[..., Any]], patches: Patches, done: set[int]) -> None:
    function = getattr(value, "__func__", value) if isinstance(value, (classmethod, staticmethod)) else value
    if isinstance(function, types.FunctionType) and id(function) not in done:
        done.add(id(function))
        bodies.exchange(function, make(function), patches)


# ---- what stands in place of a function ------------------------------------------------------------------------------


def _muting(tracker: Tracker, held: dict[str, None], function: types.FunctionType) -> Callable[..., Any]:
    """Returns a stand-in that records the tracker in `held` and returns an argument, the configuration, or NOTHING."""
    names, passed = bodies.parameters(function), tracker.passes.get(function.__name__)

    def muted(*args: Any, **named: Any) -> Any:
        held[tracker.name] = None
        given = {**dict(zip(names, args, strict=False)), **named}
        if passed is not None:
            return given.get(passed)
        return Configured(given["config"]) if given.get("config") else NOTHING

    return muted


def _making(tracker: Tracker, held: dict[str, None], function: types.FunctionType) -> Callable[..., Any]:
    """Returns a stand-in for a constructor: the object does nothing, and has the folder of a real one."""
    names = bodies.parameters(function)

    def make(*args: Any, **named: Any) -> None:
        held[tracker.name] = None
        made, given = args[0], {**dict(zip(names, args, strict=False)), **named}
        with contextlib.suppress(TypeError):  # a class with slots, or of C
            made.__class__ = _with_nothing(type(made))
        if named_folder := tracker.folder.split():
            folder = Path(next((given[argument] for argument in named_folder if given.get(argument)), f"runs/{NAMED}"))
            folder.mkdir(parents=True, exist_ok=True)
            vars(made).update(dict.fromkeys(named_folder, str(folder)))

    return make


def _beginning(tracker: Tracker, held: dict[str, None], function: types.FunctionType) -> Callable[..., Any]:
    original = bodies.copy_of(function)

    def begin(*args: Any, **named: Any) -> Any:
        held[tracker.name] = None
        return original(*args, **{**named, "mode": "disabled"})

    return begin


def _with_nothing(cls: type) -> type:
    """Returns a subclass whose missing attributes are `NOTHING`."""
    if "_made_in_a_trial" in vars(cls):
        return cls
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_made_in_a_trial": True}
    return types.new_class(cls.__name__, (cls,), {}, lambda space: space.update(body, __getattr__=_nothing))


def _nothing(own: Any, name: str) -> Any:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return NOTHING


# ---- the table, looked up --------------------------------------------------------------------------------------------


def _loaded(place: str) -> Any:
    """Returns the module or class of a place; None if it is not loaded."""
    name, _, cls = place.partition(":")
    module = sys.modules.get(name)
    if not isinstance(module, types.ModuleType):
        return None
    found = vars(module).get(cls) if cls else module
    return found if not cls or isinstance(found, type) else None


def _owners(place: Any, tracker: Tracker) -> list[Any]:
    """Returns the module, or the class with those of its bases that belong to the tracker."""
    if not isinstance(place, type):
        return [] if place is None else [place]
    return [cls for cls in place.__mro__ if (cls.__module__ or "").startswith(tracker.packages)]


def _open_run(tracker: Tracker) -> Any:
    """Returns the tracker's open run; None if there is none."""
    package, _, path = tracker.open_run.removesuffix("()").partition(".")
    try:
        found = _at(sys.modules.get(package), path)
        return found() if tracker.open_run.endswith("()") and callable(found) else found
    except Exception:
        return None


def _at(found: Any, path: str) -> Any:
    """Returns the object at a dotted path; None if there is none."""
    for part in path.split(".") if path else ():
        found = getattr(found, part, None)
    return found if path else None


def _refill(found: dict[Any, Any], before: dict[Any, Any]) -> None:
    found.clear()
    found.update(before)


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
