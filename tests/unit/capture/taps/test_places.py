"""Which line of the user's a stack is on, and whether torch computes for it or the line loops over a tensor itself."""

from __future__ import annotations

import dis
import json
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
import torch

from gpu_doctor.capture.lines.places import Place, Places, lineless

HERE = str(Path(__file__))


class Caught(torch.Tensor):
    """A tensor that keeps the frames from which torch's Python asks for its dimensions."""

    frames: list[FrameType] = []  # noqa: RUF012

    def dim(self) -> int:
        frame = sys._getframe(1)
        self.frames.append(frame)
        self.places.append(Places().of(frame))
        return 1

    places: list[Place | None] = []  # noqa: RUF012


def test_a_loop_over_a_tensors_elements_is_python_of_its_line() -> None:
    Caught.frames.clear()
    Caught.places.clear()
    for _ in torch.arange(3.0).as_subclass(Caught):
        pass
    asked = [
        place
        for frame, place in zip(Caught.frames, Caught.places, strict=True)
        if frame.f_code.co_name == "__iter__" and frame.f_code.co_filename.endswith("/torch/_tensor.py")
    ]
    assert asked and all(place is not None and place.file == HERE and not place.in_torch for place in asked)


def test_what_torchs_own_python_computes_is_torchs() -> None:
    seen: list[Any] = []

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frame = sys._getframe(1)  # torch.nn.Module's own
            seen.append(Places().of(frame))
            return x

    Net()(torch.zeros(1))
    assert seen[0] is not None and seen[0].file == HERE and seen[0].in_torch


def test_a_line_is_innermost_where_no_library_runs_inside_of_it() -> None:
    seen: list[Place | None] = []

    def look(_: int) -> int:
        seen.append(Places().of(sys._getframe()))
        return 0

    sorted([1], key=look)
    here = Places().of(sys._getframe())
    assert here is not None and here.innermost
    assert seen[0] is not None and seen[0].innermost, "compiled code has no frames"
    (asked,) = (one for one in [Places().of(frame) for frame in _within_a_library()] if one is not None)
    assert asked.file == HERE and not asked.innermost


def _within_a_library() -> list[FrameType]:
    """The frame of `json`'s own Python that calls back."""
    frames: list[FrameType] = []

    def parsed(_: str) -> int:
        frame = sys._getframe(1)
        frames.append(frame)
        return 1

    json.loads("[1]", parse_int=parsed)
    return frames


LOOPS = """
for epoch in range(3):
    for x in data:
        if x > 4:
            break
        use(x)
"""


def test_the_jump_between_two_loops_is_the_break_that_left_the_inner_one() -> None:
    code = compile(LOOPS, "<cell 1>", "exec")
    jumps = (one for one in dis.get_instructions(code) if one.opname.startswith("JUMP") and "BACK" not in one.opname)
    jump = next(jumps, None)
    if jump is None:
        pytest.skip("this Python goes from the inner loop's break straight back to the outer loop's head")
    assert lineless(code, jump.argval) == 5


def test_a_frame_that_is_on_no_line_is_taken_to_be_on_its_functions_first() -> None:
    code = compile("\n\ndef train():\n    return 1\n", "<cell 1>", "exec").co_consts[0]
    frame = SimpleNamespace(f_code=code, f_lineno=None, f_lasti=0, f_globals={}, f_back=None)
    place = Places().of(cast(FrameType, frame))
    assert place is not None and (place.line, place.function) == (3, "train")
