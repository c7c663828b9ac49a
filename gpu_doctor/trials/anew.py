"""Iterators of earlier cells in a trial: each side gets one of its own, and the user's stays where it is.

An iterator is used up by going through it, and nobody can put it back. So a side gets another in its place. Of one that
tells where it is (over a list, a range, of counting) that is a copy at the same place, wherever a name, a container or
an object holds it. Else it is made anew by the line that made it, if that line means the same today (`origins`,
`pure_calls`), and begins at the start of its data: while the side runs, under its settings and with its random numbers.
Where neither can be done, as outside of IPython, which alone keeps the cells' texts, or where something else than a
name holds what would be made anew, no trial begins.
"""

from __future__ import annotations

import ast
import codecs
import copy
import functools
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor import formatting
from gpu_doctor.trials.cell_code import cells_entered
from gpu_doctor.trials.origins import origin
from gpu_doctor.trials.places import Place, places
from gpu_doctor.trials.pure_calls import is_of, makes
from gpu_doctor.trials.used_names import Coded, Reached

_COPIED: Final = frozenset(
    type(one) for one in (iter([]), iter(()), reversed([]), iter(range(0)), iter("a"), iter("\u00e4"), iter(b""))
)
"""Iterators that Python copies with their place: of lists, tuples, ranges, texts and bytes."""
_WORDS: Final = (
    (types.GeneratorType, "a generator"),
    (types.CoroutineType, "a coroutine"),
    (types.AsyncGeneratorType, "an asynchronous generator"),
    ((codecs.StreamReader, codecs.StreamReaderWriter, codecs.StreamRecoder), "a file of codecs"),
)


@dataclass(frozen=True)
class OneAnew:
    """A user's iterator, and what makes one for a side."""

    kept: Any
    names: tuple[str, ...]
    """Names of the notebook that the code may take it by."""
    places: tuple[Place, ...]
    """All that the code may take it from."""
    make: Callable[[], Any]
    line: str = ""
    """The line that makes it; empty for a copy at the same place."""


@dataclass
class Anew:
    """The iterators of earlier cells that a case's code can reach."""

    given: list[OneAnew] = field(default_factory=list)
    stuck: dict[int, str] = field(default_factory=dict)
    """id of what no side can have one of its own of -> why no trial may begin."""
    _lent: list[tuple[OneAnew, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, case: Coded) -> Anew:
        """The iterators as things stand; nothing is made or drawn."""
        reached = Reached.of(case)
        self, cells = cls(), [text for text, _ in cells_entered(case.namespace)]
        for value, labels in reached.iterators.values():
            names = tuple(one for one in case.namespace if one in labels and case.namespace[one] is value)
            if not names and getattr(value, "gi_frame", value) is None:
                continue  # a generator at its end, in an object that has no more use for it
            make, line = _copied(value), ""
            if make is None and len(names) == len(labels):  # else a container or an object led there too
                make, line = _made(value, names, cells, case.namespace)
            found = tuple(places(value, reached))
            if make is not None and len(found) == len(labels):
                self.given.append(OneAnew(value, names, found, make, line))
            else:
                self.stuck[id(value)] = _refusal(value, names[0] if names else labels[0], not names, case.namespace)
        return self

    @property
    def from_start(self) -> tuple[str, ...]:
        """Names of those that begin at the start of their data."""
        return tuple(name for one in self.given if one.line for name in one.names)

    @property
    def said(self) -> tuple[str, ...]:
        """A clause on those, for the result of a trial."""
        return (formatting.from_start(self.from_start),) if self.from_start else ()

    def before(self, execute: Callable[[], Any]) -> Callable[[], Any]:
        """Puts a side's own in the place of the user's, then executes: they are made as the side's code would."""

        def instead() -> Any:
            __tracebackhide__ = True
            for one in self.given:
                own = one.make()
                self._lent.append((one, own))
                for place in one.places:
                    place.put(own)
            return execute()

        return instead if self.given else execute

    def take_back(self) -> None:
        """Puts the user's where a side's own still are: those end here, before the state is put back."""
        for one, own in self._lent:
            for place in one.places:
                if place.held is own:
                    place.put(one.kept)
        self._lent.clear()


def _copied(value: Any) -> Callable[[], Any] | None:
    if type(value) in _COPIED:
        return functools.partial(copy.copy, value)
    if type(value) is itertools.count:
        try:  # Python 3.14 copies none, and every one shows where it is
            given = ast.literal_eval(repr(value).removeprefix("count").replace(")", ",)"))
        except (ValueError, SyntaxError):
            return None
        return functools.partial(itertools.count, *given)
    return None


def _made(
    value: Any, names: tuple[str, ...], cells: Sequence[str], space: dict[str, Any]
) -> tuple[Callable[[], Any] | None, str]:
    """What makes it anew, and the line that did."""
    every = [one for one, other in space.items() if other is value]  # `same = stream` is no call
    for name in dict.fromkeys((*names, *every)):
        found = origin(name, cells)
        if found is not None and makes(found.value, value, space):
            code = compile(ast.Expression(found.value), "<an earlier cell>", "eval")
            return functools.partial(eval, code, space), found.text
    return None, ""


def _refusal(value: Any, name: str, held: bool, space: Mapping[str, Any]) -> str:
    kind = next((word for cls, word in _WORDS if isinstance(value, cls)), "an iterator")
    line = ""
    if not held and isinstance(value, _BaseDataLoaderIter):
        of = (key for key, one in space.items() if isinstance(one, DataLoader) and is_of(value, one))
        line = next((f" ({name} = iter({loader}))" for loader in of), "")
    return (
        f"`{name}` {'holds' if held else 'is'} {kind} from before this cell, and a trial would use it up: create it in "
        f"the cell{line}."
    )
