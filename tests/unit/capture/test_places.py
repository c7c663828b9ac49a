"""Which line of the user's a stack is on, and whether torch computes for it or the line loops over a tensor itself."""

from __future__ import annotations

import asyncio
import dis
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.lines import places as module
from gpu_doctor.capture.lines.places import Place, Places, line_before

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


def running() -> list[str]:
    """The generators of this file on the stack of whoever calls, by name, innermost first."""
    return [one.function for one in Places().generators(sys._getframe(1)) if one.file == HERE]


class Numbers:
    def __next__(self) -> list[str]:
        return running()


def test_generators_that_are_pulled_from_are_told() -> None:
    def made() -> Iterator[list[str]]:
        yield running()

    def through() -> Iterator[list[str]]:
        yield from made()

    @contextmanager
    def opened() -> Iterator[list[str]]:
        yield running()

    async def streamed() -> AsyncIterator[list[str]]:
        yield running()

    assert next(made()) == ["made"] and next(through()) == ["made", "through"]
    assert next(Numbers()) == ["__next__"]
    assert asyncio.run(anext(streamed())) == ["streamed"]  # type: ignore[arg-type]
    assert running() == [] and [running() for _ in range(1)] == [[]], "an expression is Python of its own line"
    with opened() as found:
        assert found == [], "what a with statement resumes makes no batch"


def test_a_line_that_waits_in_an_event_loop_is_the_coroutines() -> None:
    """Asked from within the loop's own wait, where no line of the user's runs."""
    found: list[Place | None] = []

    async def source() -> AsyncIterator[int]:
        await asyncio.sleep(0.001)
        yield 1

    async def train() -> None:
        async for _ in source():
            pass

    async def looking() -> None:
        task = asyncio.ensure_future(train())
        await asyncio.sleep(0)
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "run_forever":
            frame = frame.f_back
        found.append(Places().of(frame))
        found.append(Places().of(sys._getframe()))
        await task

    asyncio.run(looking())
    waits, runs = found
    assert waits is not None and waits.file == HERE and waits.function in ("train", "looking")
    assert runs is not None and runs.function == "looking", "a line of the user's runs"


def test_where_gpu_doctor_works_the_time_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = sys._getframe()
    assert Places().of(frame) is not None and Places().before_loop(frame) is not None
    monkeypatch.setattr(module, "_OURS", str(Path(HERE).parent))
    assert Places().of(frame) is None and Places().before_loop(frame) is None


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
    assert line_before(code, jump.argval) == 5


def test_a_frame_that_is_on_no_line_is_taken_to_be_on_its_functions_first() -> None:
    code = compile("\n\ndef train():\n    return 1\n", "<cell 1>", "exec").co_consts[0]
    frame = SimpleNamespace(f_code=code, f_lineno=None, f_lasti=0, f_globals={}, f_back=None)
    place = Places().of(cast(FrameType, frame))
    assert place is not None and (place.line, place.function) == (3, "train")


def caller(file: str) -> FrameType:
    """The frame of a function that stands in a file of this name."""
    space: dict[str, Any] = {}
    exec(compile("import sys\ndef here():\n    return sys._getframe()\n", file, "exec"), space)
    frame: FrameType = space["here"]()
    return frame


@pytest.mark.parametrize("place", ["beside ours", "in a package of that name", "beside Python's", "in a folder's name"])
def test_a_file_whose_path_only_begins_like_a_librarys_is_the_users(place: str) -> None:
    ours, pythons = Path(gpu_doctor.__file__).parent, Path(sysconfig.get_path("stdlib"))
    file = {
        "beside ours": f"{ours}_demo.py",
        "in a package of that name": f"{ours}_work/train.py",
        "beside Python's": f"{pythons}-projects/train.py",
        "in a folder's name": "/home/me/my-site-packages-course/train.py",
    }[place]
    found = Places().of(caller(file))
    assert found is not None and (found.file, found.line) == (file, 3)


def test_a_library_with_a_folder_named_like_torch_is_not_torch() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    space: dict[str, Any] = {"seen": Places().of}
    exec(
        compile("import sys\ndef call():\n    return seen(sys._getframe())\n", f"{packages}/ops/torch/a.py", "exec"),
        space,
    )
    found = space["call"]()
    assert found is not None and found.file == HERE and not found.in_torch
