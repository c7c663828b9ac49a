"""Keeps a switch of torch at a knob's value even if the code sets it: otherwise the trial would change nothing.

Seed helpers do (`torch.backends.cudnn.benchmark = False`). Every way to a switch ends in a function of `torch._C`, of
which `torch.backends` keeps some by itself: both are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import TrialScope


@contextmanager
def held(knob: str, scope: TrialScope, setters: Mapping[str, Any], *, properties: tuple[str, ...]) -> Iterator[None]:
    """While the context lasts, the code's own settings of a switch leave it, and a note says so.

    Args:
        knob: whose setting is kept.
        scope: gets the notes.
        setters: functions of `torch._C`, with the value that the knob gave; those that this torch lacks are left out.
        properties: attributes of `torch.backends.cudnn` that set the same.
    """
    patches, notes, on = Patches(), list[str](), [True]

    def instead_of(kept: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
            def setter(*args: Any) -> Any:
                value = args[-1] if args else None
                if not on[0] or type(value) not in (bool, str) or _of_the_cpu(args):  # else torch's to refuse
                    return original(*args)
                if value != kept and not notes:
                    notes.append(f"{knob}: the code sets {value!r}; the trial kept its own setting.")
                return None

            return setter

        return wrapped

    try:
        with patches:
            for name, kept in setters.items():
                if hasattr(torch._C, name):
                    patches.wrap(torch._C, name, instead_of(kept))
            for name in properties:
                found: Any = vars(type(torch.backends.cudnn)).get(name)
                if hasattr(found, "setter"):
                    patches.wrap(found, "setter", instead_of(setters[f"_set_cudnn_{name}"]))
            yield
    finally:
        on[0] = False
        scope.notes.extend((*notes, *patches.notes))


def _of_the_cpu(args: tuple[Any, ...]) -> bool:
    """A newer setter's first argument names a backend: what the CPU computes with is the code's own affair."""
    return len(args) > 1 and args[0] == "mkldnn"
