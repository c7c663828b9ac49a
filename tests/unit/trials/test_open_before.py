"""What was open before the cell and is only read is put back; what could be written to refuses, by name."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
import logging.handlers
import mmap
import os
import shelve
import sqlite3
import sys
import tarfile
import tempfile
import types
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.trials.beforehand import beforehand, everything
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.side_effects.open_files import could_be_written
from gpu_doctor.trials.side_effects.redirection import Redirection
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge
from tests.support.files_before import digest
from tests.support.files_before import folder as folder


def sides(space: dict[str, Any], code: str) -> None:
    """Runs some code as the two sides of a trial."""
    snapshot = Snapshot.take(space)
    assert snapshot.unrestorable == ()
    for _ in range(2):
        with Redirection(space):
            exec(code, space)
        assert snapshot.restore() == ()


@pytest.mark.parametrize("cell", ["data.readline(); data.read()", "data.close()"])
@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_file_that_is_read_is_read_again_from_there(folder: Path, mode: str, cell: str) -> None:
    Path("data.txt").write_text("".join(f"line {n}\n" for n in range(9)))
    with Path("data.txt").open(mode) as data:
        data.readline()
        assert beforehand(Runner(cell, {"data": data})).refusals == ()
        sides({"data": data}, cell)
        assert data.readline() in ("line 1\n", b"line 1\n")


def test_a_file_that_is_read_is_not_read_from_what_the_side_wrote(folder: Path) -> None:
    Path("data.txt").write_text("before" * 10)
    with Path("data.txt").open() as data:
        sides({"data": data}, "import pathlib; pathlib.Path('data.txt').write_text('during' * 10); data.read(3)")
        assert data.read() == "before" * 10


def test_what_lies_in_memory(folder: Path) -> None:
    raw, text = io.BytesIO(b"abc"), io.StringIO("abc")
    raw.seek(1)
    sides({"raw": raw, "text": text}, "raw.write(b'zzzz'); text.write('q'); text.read()")
    assert (raw.getvalue(), raw.tell(), text.getvalue(), text.tell()) == (b"abc", 1, "abc", 0)


def test_a_map_that_is_only_read(folder: Path) -> None:
    with Path("old.txt").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert beforehand(Runner("mapped.seek(1)", {"mapped": mapped})).refusals == ()
        sides({"mapped": mapped}, "mapped.seek(1)")
        assert mapped.tell() == 0


_opened: list[Any] = []


def _file() -> Any:
    _opened.append(Path("old.txt").open("a"))  # noqa: SIM115
    return _opened[-1]


def _database() -> Any:
    database = sqlite3.connect("a.db")
    database.execute("create table t (v)")
    return database


def _half_read() -> Any:
    data = Path("old.txt").open()  # noqa: SIM115
    next(data)
    return data


def _map() -> Any:
    with Path("old.txt").open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _piped() -> Any:
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "wb")


OPEN: list[Callable[[], Any]] = [
    *(_file, _database, _half_read, _map, _piped),
    lambda: gzip.open("a.gz", "wb"),  # noqa: SIM115
    lambda: shelve.open("runs.shelf"),  # noqa: SIM115
    lambda: zipfile.ZipFile("a.zip", "w"),
    lambda: tarfile.open("a.tar", "w"),  # noqa: SIM115
    lambda: csv.writer(_file()),
    lambda: csv.DictWriter(_file(), ["n"]),
    lambda: codecs.getwriter("utf8")(_file().buffer),
    lambda: tempfile._TemporaryFileWrapper(_file(), "old.txt", delete=False),
    lambda: np.memmap("old.txt", mode="r+"),
    lambda: np.asarray(np.memmap("old.txt", mode="r+"))[1:],
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", OPEN, ids=range(len(OPEN)))
def test_what_the_cell_could_write_to_refuses_by_name(folder: Path, make: Callable[[], Any]) -> None:
    space = {"thing": make()}
    exec("def step():\n    return thing", space)
    for cell in ("thing.write(b'x')", "step()"):
        effect = gpu_doctor.case(cell, space).trial({"threads": 1}, steps=2, seconds=2)
        assert effect.outcome == "refused" and effect.reason.startswith("`thing` is ")
        assert everything(Runner(cell, space)).lost == ()
    assert beforehand(Runner("print(1)", space)).refusals == ()
    for one in (space["thing"], *_opened):
        if hasattr(one, "close"):
            one.close()
    _opened.clear()


@pytest.mark.parametrize("mode", ["r", "c"])
def test_an_array_that_is_mapped_to_be_read_refuses_nothing(folder: Path, mode: Any) -> None:
    assert beforehand(Runner("x[0]", {"x": np.memmap("old.txt", mode=mode)})).refusals == ()


def test_what_is_open_in_a_module_refuses_where_the_cell_uses_the_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("my_pipes")
    module.__file__ = str(folder / "my_pipes.py")
    monkeypatch.setitem(sys.modules, "my_pipes", module)
    module.thing = _piped()
    exec("def step(): return thing", vars(module))
    try:
        refusals = [beforehand(Runner(one, {"my_pipes": module})).refusals for one in ("my_pipes.step()", "1")]
        assert len(refusals[0]) == 1 and refusals[1] == ()
    finally:
        module.thing.close()


def test_a_descriptor_of_before_ends_the_side_before_it_is_written_to(folder: Path) -> None:
    fd = os.open("old.txt", os.O_WRONLY | os.O_APPEND)
    try:
        before = digest(folder)
        effect = gpu_doctor.case("import os; os.write(fd, b'in the trial')", {"fd": fd}).trial({"threads": 1})
        assert effect.outcome == "refused" and "old.txt" in effect.reason and digest(folder) == before
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "make",
    [
        lambda: logging.FileHandler("train.log"),
        lambda: logging.FileHandler("train.log", delay=True),
        lambda: logging.handlers.RotatingFileHandler("train.log", maxBytes=30, backupCount=2),
        lambda: logging.StreamHandler(_file()),
        lambda: logging.handlers.MemoryHandler(3, target=logging.FileHandler("train.log")),
    ],
)
def test_handlers_of_logging_are_mute_in_a_side(folder: Path, make: Callable[[], Any]) -> None:
    logger, handler = logging.getLogger("of_the_notebook"), make()
    target = getattr(handler, "target", None)
    logger.addHandler(handler)
    try:
        logger.warning("before")
        before, cell = digest(folder), "for _ in range(9): logger.warning('in the trial')"
        assert beforehand(Runner(cell, {"logger": logger})).refusals == ()
        sides({"logger": logger}, cell)
        assert digest(folder) == before
        logger.warning("after")
    finally:
        logger.removeHandler(handler)
        handler.close()
        for one in (target, *_opened):
            if one is not None:
                one.close()
        _opened.clear()
    written = "".join(path.read_text() for path in Path().glob("*.*"))
    assert "trial" not in written and "after\n" in written


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("import cv2\ncv2.imwrite('a.png', x)", "cv2.imwrite"),
        ("from torchvision.io import write_png as save\nsave(x, 'a.png')", "torchvision.io.write_png"),
        ("def draw(x):\n    import cv2\n    cv2.imwrite('a.png', x)\ndraw(x)", "cv2.imwrite"),
        ("image = cv2.imread('a.png')", ""),
        ("imwrite('a.png', x)", ""),
    ],
)
def test_what_writes_files_in_c_is_refused_before_the_click(cell: str, names: str) -> None:
    refusal = beforehand(Runner(cell, {})).refusal
    assert names in refusal and bool(refusal) == bool(names)


def test_what_stands_for_something_else_is_not_called() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise AssertionError("it was called")

        @__class__.setter
        def __class__(self, value: Any) -> None:
            raise AssertionError

    assert not could_be_written(types.SimpleNamespace(one=Proxy(), other=weakref.proxy(Runner("", {}))))


def test_an_archive_that_is_read_refuses_nothing(folder: Path) -> None:
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("a", "x")
    with zipfile.ZipFile("a.zip") as archive:
        assert beforehand(Runner("archive.read('a')", {"archive": archive})).refusals == ()


def test_memory_that_is_too_large_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.snapshot.room_bytes", lambda: 1_000_000)
    with pytest.raises(SnapshotTooLarge, match=r"copy of memory \(3 MiB\)"):
        Snapshot.take({"memory": io.BytesIO(b"x" * 3_000_000)})
