"""Put a wrapper on an attribute for a while and restore it: the one place with that policy.

Everything we hang on other people's objects goes through `Patches`, so that there is one answer to "what is patched
now" (`active()`), one way back, and one test fixture that fails when something survives.

`Seam` is a stand-in for a tensor method that passes for the original: `__torch_function__` of tensor subclasses is
handed the method that stands on `torch.Tensor` at that moment, and some libraries (torchvision's tv_tensors) look it up
in a set of methods. So it equals the method that it wraps and has its hash.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

_MISSING: Final = object()
_lock = threading.Lock()
_active: dict[int, str] = {}


def active() -> tuple[str, ...]:
    """What is patched or hooked right now, by name; empty when nothing of ours is left in the process."""
    with _lock:
        return tuple(_active.values())


class Patches:
    """A set of patches and removable hooks that is taken off as a whole, in reverse order.

    Used as a context manager. A patch whose attribute was replaced by somebody else in the meantime is left alone,
    because restoring over it would take *their* patch off; `notes` then says so.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[str, Callable[[], str | None]]] = []
        self.notes: list[str] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.restore()

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces `owner.name` by `make(original)` until `restore`.

        An attribute that `owner` only inherits is put on `owner` itself and deleted again afterwards.

        Raises:
            AttributeError: if `owner` has no such attribute.
        """
        own = vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        original = getattr(owner, name)
        replacement = make(original)
        label = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"

        def undo() -> str | None:
            now = vars(owner).get(name, _MISSING)
            if now is own:  # an interrupt came before it was put on
                return None
            if now is not replacement:
                return f"{label} was replaced by other code during the run; gpu_doctor did not change it back."
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
            return None

        self._register(label, undo)  # first: an interrupt between the two leaves nothing on
        try:
            setattr(owner, name, replacement)
        except Exception:
            self._undo.pop()
            with _lock:
                _active.pop(id(undo), None)
            raise

    def hook(self, label: str, remove: Callable[[], None]) -> None:
        """Remembers a removable hook (its `remove`) under `label` until `restore`."""

        def undo() -> None:
            remove()

        self._register(label, undo)

    def _register(self, label: str, undo: Callable[[], str | None]) -> None:
        self._undo.append((label, undo))
        with _lock:
            _active[id(undo)] = label

    def restore(self) -> None:
        """Takes everything off, last first; one failing undo never keeps the others on."""
        while self._undo:
            label, undo = self._undo.pop()
            try:
                said = undo()
            except Exception as error:
                said = f"{label} could not be restored: {error}"
            with _lock:
                _active.pop(id(undo), None)
            if said:
                self.notes.append(said)


class Seam:
    """Callable and descriptor: `call(original, self, *args, **kwargs)` runs instead of the method."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._original, self._call = original, call
        functools.update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._original, *args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)
