"""Where an object is held, of what some code reaches: under a name, in a dict or a list, as an attribute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_doctor.trials.snapshot.parts import dict_of
from gpu_doctor.trials.used_names import Reached


@dataclass(frozen=True)
class Place:
    """One of them; the snapshot puts back what is held there as well."""

    holder: Any
    """A dict, a list or a class."""
    key: Any

    @property
    def held(self) -> Any:
        """What is there now, None where nothing is."""
        if isinstance(self.holder, list):
            return list.__getitem__(self.holder, self.key) if self.key < list.__len__(self.holder) else None
        return vars(self.holder).get(self.key) if isinstance(self.holder, type) else dict.get(self.holder, self.key)

    def put(self, value: Any) -> None:
        """Lets it hold something else."""
        if isinstance(self.holder, type):
            setattr(self.holder, self.key, value)
        else:
            (list if isinstance(self.holder, list) else dict).__setitem__(self.holder, self.key, value)


def places(value: Any, reached: Reached) -> Iterator[Place]:
    """Every place that holds `value` itself; one in a tuple, a closure or a slot is none."""
    for space, names in reached.taken():
        yield from (Place(space, name) for name in names if space[name] is value)
    dicts = (*reached.kept["dict"], *map(dict_of, reached.kept["instance"]))
    for one in dicts:
        yield from (Place(one, key) for key, part in dict.items(one) if part is value)
    for cls in reached.kept["class"]:
        yield from (Place(cls, name) for name, part in vars(cls).items() if part is value)
    for row in reached.kept["list"]:
        yield from (Place(row, at) for at, part in enumerate(list.__iter__(row)) if part is value)
