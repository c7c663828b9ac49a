"""Experiment trackers in a trial: what it reports reaches none of them, and what was open stays open.

Known by a table (`tracker_table.py`) where they are loaded; nothing is imported. The bodies of their functions are
exchanged for ones that do nothing, so that a writer or a run of an earlier cell is silent too, as is a function that
somebody took before. What the cell makes meanwhile is inert for good. A tracker that the trial itself loads first is
met as its modules arrive. Processes that a trial starts get the trackers' own switches in the environment.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_doctor.capture import Patches
from gpu_doctor.cell import is_among
from gpu_doctor.trials.side_effects import bodies
from gpu_doctor.trials.side_effects.arrivals import told_of_arrivals
from gpu_doctor.trials.side_effects.inert import NAMED, NOTHING, Later, Values, as_mapping, inert, made_inert
from gpu_doctor.trials.side_effects.tracker_table import FOLDER, TRACKERS, VALUES, Part, Tracker


@contextmanager
def unlogged(notes: list[str]) -> Iterator[None]:
    """While the context lasts, nothing is reported to a tracker.

    Args:
        notes: gets a sentence for each of them that something was held back from.
    """
    silence: _Silence | None = None
    try:
        with Patches(notes) as patches:
            silence = _Silence(patches)
            for tracker in TRACKERS:
                _switched(tracker.switches, patches)
                _unwritten(tracker.logs, patches)
            silence.over(lambda part: True)
            told_of_arrivals(lambda module: silence.over(lambda part: _is_met(part, module)), _is_awaited, patches)
            yield
    finally:
        notes.extend(f"{name}: the trial logged nothing there." for name in (silence.held if silence else ()))


def open_runs() -> tuple[str, ...]:
    """Runs that are open on somebody's account, by name, such as `wandb.run (Run)`."""
    found = []
    for tracker in TRACKERS:
        run = _open_run(tracker)
        if run is not None and getattr(run, "disabled", False) is not True:
            found.append(f"{tracker.open_run} ({type(run).__name__})")
    return tuple(found)


def reporter_of(value: Any) -> str:
    """The name of the tracker to which an object reports, such as a writer; empty where it is none."""
    module = type(value).__module__ or ""
    return next((one.name for one in TRACKERS if _is_of(module, one) and _reports(type(value), one)), "")


class _Silence:
    """Keeps the trackers silent while its patches are on."""

    def __init__(self, patches: Patches) -> None:
        self.held: dict[str, None] = {}
        """Names of trackers that something was held back from."""
        self._patches = patches
        self._done: set[Any] = set()
        """ids of functions that have another body and of dicts that are kept, and names that are bound."""
        self._begun: dict[str, Any] = {}
        """Tracker -> the newest run or object that the trial made."""
        self._folder: str | None = None

    def over(self, is_meant: Callable[[Part], bool]) -> None:
        """Holds back what some parts of the table report, as far as they are loaded."""
        for tracker in TRACKERS:
            for part in tracker.parts:
                try:
                    if is_meant(part) and (place := _loaded(part.place)) is not None:
                        self._part(tracker, part, place)
                except Exception as error:  # a form that nobody foresaw: the trial goes on, and says so
                    self._patches.notes.append(f"{tracker.name} was not held back in {part.place}: {error}.")

    def _part(self, tracker: Tracker, part: Part, place: Any) -> None:
        self._kept_state(tracker)
        for owner in _owners(place, part, tracker):
            for name, value in list(vars(owner).items()):
                self._attribute(tracker, part, owner, name, value)

    def _attribute(self, tracker: Tracker, part: Part, owner: Any, name: str, value: Any) -> None:
        if isinstance(value, property):
            if is_among(name, part.hides) and value.fget is not None:
                self._exchanged(owner, name, value.fget, lambda function: self._holding(tracker, NOTHING))
            elif is_among(name, part.holds) and value.fset is not None:
                self._exchanged(owner, name, value.fset, lambda function: self._holding(tracker, None))
        elif name == "__init__":
            if part.makes and not is_among(name, part.keeps):
                self._exchanged(owner, name, value, lambda function: self._making(tracker, part, owner, function))
        elif not isinstance(value, type) and (make := self._instead(tracker, part, name)) is not None:
            self._exchanged(owner, name, value, make)

    def _instead(self, tracker: Tracker, part: Part, name: str) -> Callable[[Any], Callable[..., Any]] | None:
        """What makes the other body of a function, given the function; None = it is left alone."""
        if is_among(name, part.begins):
            return lambda function: self._beginning(tracker, part, function)
        if is_among(name, part.asks):
            return lambda function: self._asking(tracker, function)
        if name in part.passes:
            return lambda function: self._passing(tracker, part.passes[name], function)
        if is_among(name, part.holds) and not is_among(name, part.keeps):
            result = None if part.silent or name.startswith("__") else NOTHING
            return lambda function: self._holding(tracker, result)
        return None

    def _exchanged(self, owner: Any, name: str, value: Any, make: Callable[[Any], Callable[..., Any]]) -> None:
        function = getattr(value, "__func__", value) if isinstance(value, (classmethod, staticmethod)) else value
        if id(function) in self._done or not callable(function):
            return
        self._done.add(id(function))
        if isinstance(function, types.FunctionType):
            bodies.exchange(function, make(function), self._patches)
        else:
            with contextlib.suppress(TypeError, AttributeError):  # of C, on a class that cannot be changed
                self._patches.wrap(owner, name, make)

    # ---- what stands in place of a function ----------------------------------------------------------------------

    def _holding(self, tracker: Tracker, result: Any) -> Callable[..., Any]:
        def held(*args: Any, **named: Any) -> Any:
            self.held[tracker.name] = None
            return result

        return held

    def _passing(self, tracker: Tracker, argument: str, function: Any) -> Callable[..., Any]:
        names = _parameters(function)

        def passing(*args: Any, **named: Any) -> Any:
            self.held[tracker.name] = None
            return {**dict(zip(names, args, strict=False)), **named}.get(argument)

        return passing

    def _asking(self, tracker: Tracker, function: Any) -> Callable[..., Any]:
        original = _copy(function)

        def asking(*args: Any, **named: Any) -> Any:
            return self._begun[tracker.name] if tracker.name in self._begun else original(*args, **named)

        return asking

    def _beginning(self, tracker: Tracker, part: Part, function: Any) -> Callable[..., Any]:
        names = _parameters(function)
        opened = next((one for one in tracker.parts if one.place == part.opens and one.values), Part(part.opens))

        def begin(*args: Any, **named: Any) -> Any:
            self.held[tracker.name] = None
            run = _blank(_loaded(part.opens), opened)
            self._given(run, tracker, opened, {**dict(zip(names, args, strict=False)), **named})
            self._begun[tracker.name] = run
            self._bound(tracker, run)
            return run

        return begin

    def _making(self, tracker: Tracker, part: Part, owner: type, function: Any) -> Callable[..., Any]:
        names = _parameters(function)

        def make(*args: Any, **named: Any) -> None:
            self.held[tracker.name] = None
            made = args[0]
            with contextlib.suppress(TypeError):  # its class has a form of C that no other has
                made_inert(made, owner, tuple(part.shows.split()), part.passes)
                self._given(made, tracker, part, {**dict(zip(names, args, strict=False)), **named})
            if part.is_run:
                self._begun[tracker.name] = made

        return make

    # ---- what is read of what a trial made -----------------------------------------------------------------------

    def _given(self, made: Any, tracker: Tracker, part: Part, given: Mapping[str, Any]) -> None:
        for name, (kind, arguments) in part.values.items():
            found = next((given[one] for one in arguments.split() if given.get(one) is not None), None)
            if kind == FOLDER:
                there = isinstance(found, (str, os.PathLike)) and Path(found).is_dir()
                value = os.fspath(found) if there and found is not None else Later(self._temporary)
            elif kind == VALUES:
                value = Values(as_mapping(found if found is not None else self._configuration(tracker, name)))
            else:
                value = NAMED if found is None else found
            vars(made)[name] = value

    def _configuration(self, tracker: Tracker, name: str) -> Any:
        """That of the run that is open already: a second one of the same name goes on with it."""
        run = _open_run(tracker)
        return getattr(run, name, None) if run is not None and name == "config" else None

    def _temporary(self) -> str:
        """A folder that goes with the trial; behind it there is none."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="gpu_doctor-trial-")
            self._patches.hook("a tracker's folder", functools.partial(shutil.rmtree, self._folder, ignore_errors=True))
        return self._folder

    def _bound(self, tracker: Tracker, run: Any) -> None:
        """Puts the run under the names of its module that stand for it, until the patches come off."""
        module = sys.modules.get(tracker.packages[0])
        space = vars(module) if isinstance(module, types.ModuleType) else {}
        for name in tracker.binds.split():
            if name in space:
                if (tracker.name, name) not in self._done:
                    self._done.add((tracker.name, name))
                    undo = functools.partial(space.__setitem__, name, space[name])
                    self._patches.hook(f"{tracker.name}.{name}", undo)
                space[name] = run if name == "run" else getattr(run, name)

    def _kept_state(self, tracker: Tracker) -> None:
        """Has what a cell changes in an open run, without a report, put back."""
        for path in tracker.state:
            found: Any = sys.modules.get(tracker.packages[0])
            for part in path.split("."):
                found = getattr(found, part, None)
            if isinstance(found, dict) and id(found) not in self._done:
                self._done.add(id(found))
                self._patches.hook(f"{tracker.name}.{path}", functools.partial(_refilled, found, dict(found)))


# ---- the table, looked up ------------------------------------------------------------------------------------------


def _loaded(place: str) -> Any:
    """The module or class of a place; None where it is not loaded."""
    name, _, cls = place.partition(":")
    module = sys.modules.get(name)
    if not isinstance(module, types.ModuleType):
        return None
    found = vars(module).get(cls) if cls else module
    return found if not cls or isinstance(found, type) else None


def _owners(place: Any, part: Part, tracker: Tracker) -> list[Any]:
    """The module; or the class, what it inherits of the tracker's own, and its loaded family."""
    if not isinstance(place, type):
        return [place]
    if part.family:
        return [one for one in _deriving(place) if one.__module__.startswith(part.family)]
    return [one for one in place.__mro__ if _is_of(one.__module__ or "", tracker)]


def _deriving(cls: type) -> list[type]:
    found: list[type] = [cls]
    for one in found:  # it grows meanwhile
        below: list[type] = type.__subclasses__(one)
        found += [other for other in below if other not in found]
    return found


def _is_of(module: str, tracker: Tracker) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in tracker.packages)


def _reports(cls: type, tracker: Tracker) -> bool:
    places = (_loaded(part.place) for part in tracker.parts if ":" in part.place)
    return any(isinstance(one, type) and issubclass(cls, one) for one in places)


def _open_run(tracker: Tracker) -> Any:
    """The run that is open on somebody's account, None = none."""
    package, _, path = tracker.open_run.removesuffix("()").partition(".")
    found: Any = sys.modules.get(package)
    try:
        for part in path.split(".") if found is not None else ():
            found = getattr(found, part, None)
        return found() if tracker.open_run.endswith("()") and callable(found) else found
    except Exception:
        return None


def _is_met(part: Part, module: str) -> bool:
    return part.place.partition(":")[0] == module or bool(part.family and module.startswith(part.family))


def _is_awaited(module: str) -> bool:
    """Whether the arrival of a module may bring something of the table."""
    return any(_is_met(part, module) for tracker in TRACKERS for part in tracker.parts)


def _parameters(function: Any) -> tuple[str, ...]:
    return bodies.parameters(function) if isinstance(function, types.FunctionType) else ()


def _copy(function: Any) -> Callable[..., Any]:
    """A function that does what this one did, whatever becomes of its body."""
    if not isinstance(function, types.FunctionType):
        return function  # type: ignore[no-any-return]
    own = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = types.FunctionType(function.__code__, *own)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _blank(cls: Any, part: Part) -> Any:
    """An object of a tracker's class that was never made and reports nothing."""
    try:
        return object.__new__(inert(cls, tuple(part.shows.split()), part.passes))
    except TypeError:  # no class is known, or one that only its library makes
        return object.__new__(type(NOTHING))


def _switched(switches: Mapping[str, str], patches: Patches) -> None:
    """Sets variables of the environment until the patches come off."""
    for name, value in switches.items():
        patches.hook(name, functools.partial(_set_variable, name, os.environ.get(name)))
        os.environ[name] = value


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def _unwritten(name: str, patches: Patches) -> None:
    """Has what is said to a logger go nowhere until the patches come off."""
    if not name:
        return
    logger = logging.getLogger(name)
    before = logger.handlers, logger.propagate

    def undo() -> None:
        logger.handlers, logger.propagate = before

    patches.hook(f"the logger {name}", undo)
    logger.handlers, logger.propagate = [logging.NullHandler()], False


def _refilled(found: dict[Any, Any], before: dict[Any, Any]) -> None:
    found.clear()
    found.update(before)
