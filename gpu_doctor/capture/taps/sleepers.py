"""Taps that can stand down for most steps of a short rhythm and come back, see `gpu_doctor.capture.rests`.

While one stands down, what the code finds is what would be there without us. If the code puts something of its own
there in the meantime, we come back around that and it loses nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.patching import Patches

MOST_ANEW: Final = 8
"""So often a wrapper is put anew around what others have put in its place."""
MOST_FLIPS: Final = math.inf if sys.version_info < (3, 13) else 200
"""From 3.13 on Python no longer caches the attributes of a class that was changed a thousand times (typeobject.c,
MAX_VERSIONS_PER_CLASS): so often at most is a wrapper taken off a class and put back, in the life of the process;
after that it stays and lets calls through."""
_flips: dict[str, int] = {}
_NOTHING: Final[Callable[..., None]] = ().__init__  # type: ignore[misc]
"""C code that takes anything and does nothing."""


class StandingWrapper:
    """A wrapper on an attribute of a module or a class."""

    def __init__(
        self, patches: Patches, owner: Any, name: str, make: Callable[[Any], Any], used: Callable[[], bool]
    ) -> None:
        """Puts `make(original)` on `owner.name` until `patches` are restored.

        Args:
            used: whether the loop calls it in its steps; where not, it is to be heard in a rest too.
        """
        self._used = used
        self._patches, self._owner, self._name, self._make = patches, owner, name, make
        self._pairs: list[tuple[Any, Any]] = []
        """What was found there, and the wrapper around it."""
        self._wrap()

    def _wrap(self) -> None:
        original = vars(self._owner).get(self._name)
        self._patches.wrap(self._owner, self._name, self._make)
        self._pairs.append((original, vars(self._owner).get(self._name)))

    def off(self) -> bool:
        """Puts back what stood there, if nobody has put something around ours."""
        if not self._used():
            return True
        now = vars(self._owner).get(self._name)
        for original, ours in self._pairs:
            if now is ours and original is not None:
                if self._may_flip():
                    setattr(self._owner, self._name, original)
                return True
        return False

    def on(self) -> None:
        """Puts ours back, around whatever stands there now."""
        now = vars(self._owner).get(self._name)
        for original, ours in self._pairs:
            if now is ours:
                return
            if now is original:
                setattr(self._owner, self._name, ours)
                return
        if now is not None and len(self._pairs) <= MOST_ANEW:
            self._wrap()

    def _may_flip(self) -> bool:
        if not isinstance(self._owner, type):
            return True
        key = f"{self._owner.__qualname__}.{self._name}"
        _flips[key] = _flips.get(key, 0) + 1
        return _flips[key] <= MOST_FLIPS


class StandingHooks:
    """Our two hooks on every optimizer's step; while they stand down, torch itself writes the steps to a list.

    What stands in torch's table is exchanged, not taken out: a table that is being read may not change its keys.
    """

    def __init__(self, before: Any, after: Any, put: Callable[..., None]) -> None:
        """Args: before, after: torch's handles. put: C code that takes the optimizer first, such as a queue's."""
        self._before, self._after, self._put = before, after, put
        self._ours = [_table(one).get(one.id) for one in (before, after)]

    def off(self) -> bool:
        """Only C code is called around a step."""
        return self._stand([self._put, _NOTHING])

    def on(self) -> None:
        """Steps are heard."""
        self._stand(self._ours)

    def _stand(self, ones: list[Any]) -> bool:
        for handle, one in zip((self._before, self._after), ones, strict=True):
            table = _table(handle)
            if handle.id not in table:
                return False
            table[handle.id] = one
        return True


def _table(handle: Any) -> dict[int, Any]:
    return handle.hooks_dict_ref() or {}


def compiled() -> bool:
    """Whether torch has compiled Python code: what it made would be made anew where we come and go."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters is not None and counters.get("frames"))
