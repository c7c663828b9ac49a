"""Replaces attributes for a while and restores them: the only module that does so.

Everything that we put on other people's objects goes through `Patches`. So one function, `active()`, says what is
patched now, there is one way back, and one test fixture fails if a patch survives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_MISSING: Final = object()
TRIES: Final = 2
"""Number of tries to undo a patch: a patch that stays on would outlive the run."""
_active: dict[int, str] = {}
"""Labels of the patches that are on, by id of their undo function. There is no lock: single calls of a dict need none,
and a worker forked at the wrong moment would find a lock held forever, while it has to patch its fetchers."""


def active() -> tuple[str, ...]:
    """Returns the names of everything that is patched or hooked now; empty if nothing of ours is left on."""
    return tuple(_active.values())


class _Patch:
    """The replacement of one attribute."""

    def __init__(self, owner: Any, name: str, previous: Any, replacement: Any) -> None:
        self.owner, self.name, self.replacement = owner, name, replacement
        self.previous = previous
        """The owner's own value of the attribute before the patch; `_MISSING` if the owner had none."""
        self.label = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"

    def now(self) -> Any:
        """Returns the owner's own value of the attribute now, or `_MISSING`."""
        return vars(self.owner).get(self.name, _MISSING) if hasattr(self.owner, "__dict__") else _MISSING

    def put(self) -> None:
        """Replaces the attribute."""
        _standing.append(self)  # first: an interrupt between the two leaves nothing on
        try:
            setattr(self.owner, self.name, self.replacement)
        except Exception:
            _standing.remove(self)
            raise

    def undo(self) -> str | None:
        """Restores the attribute; returns a sentence if other code has replaced it meanwhile."""
        now = self.now()
        if self in _standing:
            _standing.remove(self)
        if now is self.replacement:
            if self.previous is _MISSING:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.previous)
        elif now is not self.previous:  # they are the same if an interrupt came before `put`
            above = next(
                (patch for patch in _standing if patch.previous is self.replacement and patch.owner is self.owner), None
            )
            if above is None:
                return f"{self.label} was replaced by other code during the run; gpu_doctor did not change it back."
            above.previous = self.previous  # another patch of ours is on top, and comes off later
        return None


_standing: list[_Patch] = []
"""The patches of all sets, oldest first."""


class Patches:
    """A set of patches and removable hooks that is taken off as a whole, in reverse order, and for good.

    It can be used as a context manager. If other code has replaced the attribute of a patch meanwhile, the attribute is
    left alone, as restoring it would take off the other code's patch; `notes` then says so.
    """

    def __init__(self, notes: list[str] | None = None) -> None:
        """`notes`: list to which a sentence is added for each patch that cannot be restored; None = a new list."""
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
        """Replaces `owner.name` by `make(original)` until `restore`; does nothing after `restore`.

        An attribute that `owner` only inherits is set on `owner` itself and deleted again afterwards.

        Raises:
            AttributeError: if `owner` has no such attribute.
        """
        if self._closed:
            return
        previous = vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        patch = _Patch(owner, name, previous, make(getattr(owner, name)))
        undo = patch.undo
        self._register(patch.label, undo)
        try:
            patch.put()
        except Exception:
            self._undo[:] = [entry for entry in self._undo if entry[1] is not undo]
            _active.pop(id(undo), None)
            raise
        if self._closed:  # another thread has taken everything off meanwhile
            undo()
            self.restore()

    def hook(self, label: str, remove: Callable[[], None]) -> None:
        """Adds a hook that `remove` removes at `restore`; if `restore` has run already, removes it at once."""
        if self._closed:
            remove()
            return

        def undo() -> None:
            remove()

        self._register(label, undo)
        if self._closed:  # another thread has taken everything off meanwhile
            self.restore()

    def _register(self, label: str, undo: Callable[[], str | None]) -> None:
        """Adds a function that takes a patch or hook off, under its label."""
        self._undo.append((label, undo))
        _active[id(undo)] = label

    def restore(self) -> None:
        """Takes everything off, last first; if one patch cannot be undone, the others still are.

        After an interrupt it may be called again: patches that are still on are still in the list.
        """
        self._closed = True
        while self._undo:
            label, undo = last = self._undo[-1]
            message: str | None = None
            for _ in range(TRIES):
                try:
                    message = undo()
                    break
                except Exception as error:
                    message = f"{label} could not be restored: {error}"
            _active.pop(id(undo), None)
            if last in self._undo:  # another thread may have taken it off
                self._undo.remove(last)
            if message:
                self.notes.append(message)
