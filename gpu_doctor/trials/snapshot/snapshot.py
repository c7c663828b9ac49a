"""Keep the state of a training before a trial, and put it back afterwards, bit for bit, in the very same objects.

A snapshot never copies an object: it keeps a shallow copy of what every container holds and the bytes of every tensor
and array, and restoring writes them back in place, so that whoever holds a list, a parameter or an optimizer still
holds the right one. It can be restored any number of times (baseline, candidate, baseline, ...).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from gpu_doctor import formatting
from gpu_doctor.machine import memory
from gpu_doctor.trials.side_effects.leftover_workers import shut_down
from gpu_doctor.trials.side_effects.open_files import undo_of
from gpu_doctor.trials.snapshot.parts import is_users
from gpu_doctor.trials.snapshot.process import process_undos
from gpu_doctor.trials.snapshot.tensors import ArrayStore, SnapshotTooLarge, TensorStore
from gpu_doctor.trials.snapshot.undo import UNDOS, Undo, namespace_undo
from gpu_doctor.trials.snapshot.walk import Walk, uncollected

__all__ = ["Snapshot", "SnapshotTooLarge"]

FREE_SHARE: Final = 0.5
"""A snapshot may take at most this part of the memory that is free: the trial needs the rest."""


def room_bytes() -> int:
    """Returns the most bytes that copies may take: half of the free memory of the machine and the container."""
    return int(memory()[0] * FREE_SHARE)


def no_room(needed: int, limit: int) -> str:
    """Returns the sentence that says why a state of `needed` bytes is not copied."""
    return (
        f"A trial needs a copy of the state, {formatting.size(needed)}, and only {formatting.size(limit)} may be used "
        "for it: free memory, or delete large variables that the cell does not need."
    )


class Snapshot:
    """The state of everything reachable from a namespace, of the random number generators, and of ten switches."""

    def __init__(self) -> None:
        self._undos: list[tuple[str, Undo]] = []
        self._stores: list[TensorStore | ArrayStore] = []
        self._loaders: list[tuple[Any, Any]] = []
        self._kept_alive: list[Any] = []
        self._process: list[tuple[str, Undo]] = []
        self.bytes = 0
        """Bytes that the snapshot holds of tensors, arrays and open buffers."""
        self.unrestorable: tuple[str, ...] = ()
        """Variables that cannot be put back, such as `it (generator)`; named before a trial."""

    @classmethod
    @uncollected()
    def take(
        cls,
        namespace: dict[str, Any],
        extra: Iterable[object] = (),
        to_host: bool = False,
    ) -> Snapshot:
        """Keeps the state of `namespace`, of everything reachable from it, and of `extra`.

        Args:
            namespace: the names that the cell runs with; IPython's own names are left alone.
            extra: further roots, such as optimizers that were seen but that no name leads to; of a function of the
                user's, the globals of its module count as a namespace too.
            to_host: nothing is kept on a device, whose memory is to be measured.

        Raises:
            SnapshotTooLarge: if it does not fit, mostly before anything was copied; the message has the figures.
        """
        roots, walk = list(extra), Walk()
        spaces = {id(space): space for space in [namespace, *_globals_of(roots)]}
        walk.over(list(spaces.values()), roots)
        limit = room_bytes()
        self = cls()
        tensors, arrays = walk.stores(to_host)
        _copy(tensors, arrays, limit)
        self._stores = [tensors, arrays]
        self.bytes = tensors.bytes + arrays.bytes
        self.unrestorable = (*walk.unrestorable, *tensors.unrestorable)
        for kind, make in UNDOS.items():
            self._undos += [(_label_of(held, kind), make(held)) for held in walk.kept[kind]]
        loaders = (instance for instance in walk.kept["instance"] if issubclass(type(instance), DataLoader))
        self._loaders = [(loader, vars(loader).get("_iterator")) for loader in loaders]
        self._undos.extend(("the namespace", namespace_undo(space)) for space in spaces.values())
        self._process = process_undos()
        self._kept_alive = list(walk.seen.values())
        self._keep_open(walk, limit)
        return self

    def restore(self) -> tuple[str, ...]:
        """Puts everything back; may be called again and again.

        Call it with every knob and tap off: what they hang on objects would be taken for a change of the cell.

        Returns:
            One sentence for each thing that could not be put back; empty if all is bit for bit as it was.
        """
        notes: list[str] = []
        with torch.no_grad():
            for loader, iterator in self._loaders:
                now = vars(loader).get("_iterator")
                if now is not None and now is not iterator:
                    _try(notes, "a loader's workers", lambda now=now: shut_down(now))  # type: ignore[misc]
            for label, undo in self._undos:
                _try(notes, label, undo)
            for store in self._stores:
                _try(notes, "tensors and arrays", lambda store=store: notes.extend(store.restore()))  # type: ignore[misc]
        for label, undo in self._process:  # last, as whether gradients are recorded is a switch
            _try(notes, label, undo)
        return tuple(dict.fromkeys(notes))

    def changed_data(self) -> list[str]:
        """Names the data that was not copied and has changed, such as `train (a tensor of 120 MiB)`."""
        return [entry for store in self._stores for entry in store.changed()]

    def _keep_open(self, walk: Walk, limit: int) -> None:
        """Stores the state of files that are open for reading, and of buffers in memory."""
        kept = [(name, *undo_of(value)) for value, name in walk.opened.values()]
        self._undos += [(name, undo) for name, _, undo in kept]
        self.bytes += sum(size for _, size, _ in kept)
        name, largest, _ = max(kept, key=lambda entry: entry[1], default=("", 0, None))
        if largest and self.bytes > limit:
            raise SnapshotTooLarge(
                f"A trial needs a copy of {name} ({formatting.size(largest)}), and only "
                f"{formatting.size(limit)} may be used for all that is kept: close it before the trial."
            )


def _copy(tensors: TensorStore, arrays: ArrayStore, limit: int) -> None:
    """Makes the planned copies within `limit` bytes of CPU memory; else raises with the size that is too large."""
    needed = tensors.host_bytes + arrays.bytes
    if needed > limit:
        raise SnapshotTooLarge(no_room(needed, limit))
    try:
        tensors.copy()
        arrays.copy()
    except (MemoryError, RuntimeError) as error:  # torch's of a device, and of the CPU's allocator, are the latter
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise SnapshotTooLarge(
            f"A trial needs a copy of the state, {formatting.size(needed)}, and memory ran out while it was "
            f"made ({formatting.clean(str(error), 80)}): free some, or delete large variables that the cell does "
            "not need."
        ) from error


def _globals_of(roots: Iterable[object]) -> list[dict[str, Any]]:
    found = []
    for root in roots:
        function: Any = root.func if isinstance(root, functools.partial) else root
        function = getattr(function, "__func__", function)
        if isinstance(function, (types.FunctionType, functools._lru_cache_wrapper)):
            function = inspect.unwrap(function)  # torch.no_grad() around it is torch's own function
        if isinstance(function, types.FunctionType) and is_users(function.__globals__.get("__name__", "__main__")):
            found.append(function.__globals__)
    return found


def _label_of(value: Any, kind: str) -> str:
    """Returns a name for people of an object that cannot be put back."""
    if kind == "class":
        return str(value.__name__)
    return {"cell": "a closure", "module": "a module"}.get(kind, f"a {type(value).__name__}")


def _try(notes: list[str], label: str, undo: Undo) -> None:
    """Runs one undo; an error becomes a note, so that the other undos still run."""
    try:
        undo()
    except Exception as error:
        notes.append(f"The state of {label} could not be put back: {error}")
