"""Keeps a switch of torch at a knob's value even if the code sets it: otherwise the trial would change nothing.

Seed helpers do (`torch.backends.cudnn.benchmark = False`). Every way to a switch ends in a function of `torch._C`, of
which `torch` and `torch.backends` keep some by themselves: all of them are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import TrialScope


@contextmanager
def set_and_held(
    knob: str,
    scope: TrialScope,
    value: Any,
    read: Callable[[], Any],
    write: Callable[[Any], None],
    setter: str,
    *,
    properties: tuple[str, ...] = (),
) -> Iterator[None]:
    """A switch that one function sets is set, held while the context lasts, and put back.

    Args:
        knob: whose setting is kept.
        scope: gets the notes.
        value: what the switch is set to.
        read: tells the switch.
        write: sets it.
        setter: the function of `torch._C` behind `write`.
        properties: as for `held`.
    """
    before = read()
    try:
        write(value)
        with held(knob, scope, {setter: value}, properties=properties):
            yield
    finally:
        if read() != value:
            scope.notes.append(f"{knob}: the code replaced the trial's setting with its own.")
        write(before)


@contextmanager
def held(knob: str, scope: TrialScope, setters: Mapping[str, Any], *, properties: tuple[str, ...]) -> Iterator[None]:
    """While the context lasts, the code's own settings of a switch leave it, and a note says so.

    Args:
        knob: whose setting is kept.
        scope: gets the notes.
        setters: functions of `torch._C`, with the value that the knob gave; those that this torch lacks are left out.
        properties: attributes of `torch.backends.cudnn` that set the same.
    """
    notes, on = list[str](), [True]

    def instead_of(kept: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
            def setter(*args: Any, **named: Any) -> Any:
                value = args[-1] if args and not named else None
                if not on[0] or not _taken(value, kept) or _of_the_cpu(args):
                    return original(*args, **named)
                if value != kept and not notes:
                    notes.append(f"{knob}: the code sets {value!r}; the trial kept its own setting.")
                return None

            return setter

        return wrapped

    try:
        with Patches(scope.notes) as patches:
            for name, kept in setters.items():
                for owner in (torch._C, torch):
                    if name in vars(owner):
                        patches.wrap(owner, name, instead_of(kept))
            for name in properties:
                found: Any = vars(type(torch.backends.cudnn)).get(name)
                if hasattr(found, "setter"):
                    patches.wrap(found, "setter", instead_of(setters[f"_set_cudnn_{name}"]))
            yield
    finally:
        on[0] = False
        scope.notes.extend(notes)


def _taken(value: Any, kept: Any) -> bool:
    """Whether torch would take a value where it took the knob's; else it is torch's to refuse."""
    return type(value) is type(kept) and (type(value) is not int or value > 0)


def _of_the_cpu(args: tuple[Any, ...]) -> bool:
    """A newer setter's first argument names a backend: what the CPU computes with is the code's own affair."""
    return len(args) > 1 and args[0] == "mkldnn"
