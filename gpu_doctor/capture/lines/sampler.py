"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.

The whole way from the cell down to the line is kept: a metric between the forward and the backward is told from the
loss, and a second forward from the one that is trained on, by the statement of the training step that called it (see
`gpu_doctor.cell.unused_work`). What a forward makes anew though it is the same in every step is told by the texts and
by what the names hold that they read (see `gpu_doctor.cell.constant_work`).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from torch import nn

from gpu_doctor.capture.describe.plain_values import plain_names
from gpu_doctor.capture.lines.places import MOST_THROUGH, Place, Places
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.step_clock import Look
from gpu_doctor.cell import (
    barred_rows,
    constant_rows,
    gradient_rows,
    loop_rows,
    one_by_one_rows,
    operator_rows,
    saving_rows,
    trains_nothing,
)
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import BACKWARD, FORWARD, LOSS, NO_GRAD, OTHER, PHASE_NAMES

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 120

Way: TypeAlias = "tuple[tuple[str, int], ...]"
"""File and line of every frame of the user's, innermost first."""
_OF_STEPS: Final = (FORWARD, NO_GRAD, LOSS, OTHER, BACKWARD)
"""Phases in which the texts are asked about the way to a line; in a backward, only whose gradients are asked for."""


class _Seen(NamedTuple):
    """Where a look fell."""

    place: Place
    through: Way
    """Empty in phases of which nothing of it is asked."""


class _Told(NamedTuple):
    """What the texts tell of a way."""

    beside: str = ""
    """As `LineCost.beside` says, of the innermost statement of a step, or of a forward in it."""
    looped: bool = False
    """It leads through a loop inside of the step,"""
    saves: bool = False
    """through a statement that writes data to a file,"""
    one_by_one: str = ""
    """and through this call, made for one thing after the other without need,"""
    gradients: str = ""
    """or through this one, which asks for the gradients of one sample after the other without need."""
    operates: bool = False
    """Its innermost line, in a step and in no loop inside of it, only makes operations on whole tensors."""
    constant: bool = False
    """It leads through a statement that makes the same in every step."""


class _Texts(NamedTuple):
    """The texts of all files passed through, and what they have told so far."""

    by_file: dict[str, str]
    plain: frozenset[str]
    """Names in them that hold plain values."""
    told: dict[Way, _Told]

    def constant(self, way: Way) -> bool:
        """Whether a way leads through a statement that makes the same in every step."""
        rows = dict(zip(self.by_file, constant_rows(tuple(self.by_file.values()), self.plain), strict=True))
        return any(line in rows[file] for file, line in way)


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, recorder.clock
        self._seen: dict[tuple[_Seen, int], float] = {}
        self._total = 0.0
        self.looks = 0
        """How often the running loop was looked at."""
        self._before: int | None = None
        self._places = Places()
        self._texts = _Texts({}, frozenset(), {})
        recorder.looked = self.placed

    def look(self) -> None:
        """One look: what the thread is doing there, the step clock finds out when it comes to that time."""
        begin, before = self._clock(), self._before
        if not self._recorder.started():
            return
        self._before = begin
        if before is None:
            return
        stack = stack_of(self._recorder.thread)
        frame = stack[0] if stack else None
        place = self._places.of(frame)
        end = self._clock()
        seen = None if place is None else _Seen(place, self._places.through(frame))
        self._recorder.log.looks.append(Look(begin, end, (seen, (begin - before) * 1e-9)))

    def placed(self, phase: int, look: tuple[_Seen | None, float]) -> None:
        """A look fell into a phase; -1: the thread went on to another one meanwhile (on a busy machine)."""
        seen, seconds = look
        self.looks += 1
        self._total += seconds
        if seen is None or phase < 0:
            return
        key = (seen if phase in _OF_STEPS else seen._replace(through=())), phase
        if len(self._seen) < MOST_LINES or key in self._seen:
            self._seen[key] = self._seen.get(key, 0.0) + seconds

    def costs(self) -> tuple[LineCost, ...]:
        """The dearest lines so far, dearest first; empty before anything was seen."""
        seen, total = self._seen.copy(), self._total
        if total <= 0:
            return ()
        texts = self._known({file for (_, through), _ in seen for file, _ in through})
        found: dict[LineCost, float] = {}
        for ((place, through), phase), seconds in seen.items():
            told = texts.told.get(through)
            if told is None:
                told = texts.told[through] = _asked(through, texts)
            constant = phase == FORWARD and told.constant and not told.beside
            cost = LineCost(
                *(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip()),
                phase=PHASE_NAMES[phase],
                share=0.0,
                in_torch=place.in_torch,
                before_backward=phase == LOSS,
                no_grad=phase == NO_GRAD,
                beside="constant" if constant else told.beside if phase != BACKWARD else "",
                looped=phase in (LOSS, OTHER) and told.looped,
                saves=phase == OTHER and told.saves,
                one_by_one=told.gradients if phase == BACKWARD else told.one_by_one,
                computes=(phase in (LOSS, OTHER) or constant) and told.operates and (place.innermost or place.in_torch),
            )
            found[cost] = found.get(cost, 0.0) + seconds / total
        dearest = sorted(found.items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(replace(cost, share=share) for cost, share in dearest)

    def _known(self, files: set[str]) -> _Texts:
        """What the texts have told so far: anew where there are more of them, or of what their names hold."""
        before = self._texts
        plain = before.plain
        models = [one for ref in tuple(self._recorder.met) if isinstance(one := ref(), nn.Module)]
        if models and any("def forward" in one for one in before.by_file.values()):
            plain = plain_names(models)
        if not files <= before.by_file.keys():
            self._texts = _Texts({file: "".join(linecache.getlines(file)) for file in sorted(files)}, plain, {})
            return self._known(files)
        if plain != before.plain:
            self._texts = before._replace(plain=plain, told={})
        return self._texts


def _asked(through: Way, known: _Texts) -> _Told:
    """What the texts tell of a way; nothing of a text that no parser gets through."""
    texts = known.by_file
    try:
        told = _told(through, texts)
        saves = any(line in saving_rows(texts[file]) for file, line in through)
        told = told._replace(saves=saves, constant=known.constant(through))
        told = told._replace(one_by_one=_in_turn(through, texts, one_by_one_rows))
        told = told._replace(gradients=_in_turn(through, texts, gradient_rows))
        return told._replace(operates=told.operates and through[0][1] in operator_rows(texts[through[0][0]]))
    except (RecursionError, MemoryError, ValueError):
        return _Told()


def _in_turn(through: Way, texts: dict[str, str], rows: Callable[[str], dict[int, int]]) -> str:
    """File and row of the call made for one thing after the other that the way leads through.

    As `rows` tells of a text; only if it is the innermost loop around it, and nothing between trains.
    """
    for file, line in through:
        row = rows(texts[file]).get(line)
        if row is not None:
            return f"{file}:{row}"
        if line in barred_rows(texts[file]):
            return ""
    return ""


def _told(through: Way, texts: dict[str, str]) -> _Told:
    """Whether the innermost statement of a step, or one of a forward in it, trains nothing, as `LineCost.beside` says.

    And whether the way to it leads through a loop inside of the step: then it may be of any number of calls.
    """
    looped, others = False, tuple(texts.values())
    for file, line in through:
        looped = looped or line in loop_rows(texts[file])
        told = trains_nothing(texts[file], line, others)
        if told == "model" and len(through) == MOST_THROUGH:
            break  # the step itself was not reached
        if told is not None:
            return _Told(told, looped, operates=not looped)
    return _Told()
