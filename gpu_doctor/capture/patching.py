"""Put a wrapper on an attribute for a while and restore it: the one place with that policy.

Everything we hang on other people's objects goes through `Patches`, so that there is one answer to "what is patched
now" (`active()`), one way back, and one test fixture that fails when something survives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_MISSING: Final = object()
TRIES: Final = 2
"""What stays on would outlive the run: an undo that fails is tried once more."""
_active: dict[int, str] = {}
"""No lock goes with it: single calls of a dict need none, and one would be held forever in a worker that was forked at
the wrong moment, which patches its fetchers."""


def active() -> tuple[str, ...]:
    """What is patched or hooked right now, by name; empty when nothing of ours is left in the process."""
    return tuple(_active.values())


class _Patch:
    """An attribute that was replaced."""

    def __init__(self, owner: Any, name: str, own: Any, replacement: Any) -> None:
        self.owner, self.name, self.replacement = owner, name, replacement
        self.own = own
        """What stood there of the owner's own, `_MISSING` = nothing."""
        self.label = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"

    def now(self) -> Any:
        """What stands there now."""
        return vars(self.owner).get(self.name, _MISSING) if hasattr(self.owner, "__dict__") else _MISSING

    def put(self) -> None:
        """Replaces it."""
        _standing.append(self)  # first: an interrupt between the two leaves nothing on
        try:
            setattr(self.owner, self.name, self.replacement)
        except Exception:
            _standing.remove(self)
            raise

    def undo(self) -> str | None:
        """Puts back what stood there; returns a sentence where somebody else has put something over it."""
        now = self.now()
        if self in _standing:
            _standing.remove(self)
        if now is self.replacement:
            if self.own is _MISSING:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.own)
        elif now is not self.own:  # it is where an interrupt came before it was put on
            above = next((one for one in _standing if one.own is self.replacement and one.owner is self.owner), None)
            if above is None:
                return f"{self.label} was replaced by other code during the run; gpu_doctor did not change it back."
            above.own = self.own  # another one of ours stands on it, and comes off later
        return None


_standing: list[_Patch] = []
"""Those of all sets, oldest first."""


class Patches:
    """A set of patches and removable hooks that is taken off as a whole, in reverse order, and for good.

    Used as a context manager. A patch whose attribute was replaced by somebody else in the meantime is left alone,
    because restoring over it would take *their* patch off; `notes` then says so.
    """

    def __init__(self, notes: list[str] | None = None) -> None:
        """`notes`: takes a sentence for each that could not be put back; None = a list of their own."""
        self._undo: list[tuple[str, Callable[[], str | None]]] = []
        self._closed = False
        self.notes = [] if notes is None else notes

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.restore()
        except BaseException:  # an interrupt
            self.restore()
            raise

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces `owner.name` by `make(original)` until `restore`; nothing happens after it.

        An attribute that `owner` only inherits is put on `owner` itself and deleted again afterwards.

        Raises:
            AttributeError: if `owner` has no such attribute.
        """
        if self._closed:
            return
        own = vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        patch = _Patch(owner, name, own, make(getattr(owner, name)))
        undo = patch.undo
        self._register(patch.label, undo)
        try:
            patch.put()
        except Exception:
            self._undo[:] = [one for one in self._undo if one[1] is not undo]
            _active.pop(id(undo), None)
            raise
        if self._closed:  # another thread has taken everything off meanwhile
            undo()
            self.restore()

    def hook(self, label: str, remove: Callable[[], None]) -> None:
        """Remembers a removable hook (its `remove`) under `label` until `restore`; after it, removes it at once."""
        if self._closed:
            remove()
            return

        def undo() -> None:
            remove()

        self._register(label, undo)
        if self._closed:  # another thread has taken everything off meanwhile
            self.restore()

    def _register(self, label: str, undo: Callable[[], str | None]) -> None:
        self._undo.append((label, undo))
        _active[id(undo)] = label

    def restore(self) -> None:
        """Takes everything off, last first; one failing undo never keeps the others on.

        After an interrupt it may be called again: what was not taken off by then still stands in the list.
        """
        self._closed = True
        while self._undo:
            label, undo = last = self._undo[-1]
            said: str | None = None
            for _ in range(TRIES):
                try:
                    said = undo()
                    break
                except Exception as error:
                    said = f"{label} could not be restored: {error}"
            _active.pop(id(undo), None)
            if last in self._undo:  # another thread may take the same ones off
                self._undo.remove(last)
            if said:
                self.notes.append(said)
