"""Files, maps and databases that were open before the cell are put back where they stood, or no trial begins."""

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
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.trials.beforehand import beforehand, everything
from gpu_doctor.trials.kept_state import NOT_UNDONE
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.side_effects.held_open import files_behind
from gpu_doctor.trials.side_effects.kept_files import KeptFiles
from gpu_doctor.trials.side_effects.written_files import WrittenFiles
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge
from tests.support.written_files_parts import digest
from tests.support.written_files_parts import folder as folder


def sides(space: dict[str, Any], code: str, times: int = 2) -> tuple[str, ...]:
    """Runs some code as the sides of a trial; what could not be put back."""
    files = KeptFiles()
    snapshot = Snapshot.take(space, files=files)
    assert snapshot.unrestorable == ()
    for _ in range(times):
        files.begin(lambda: True)
        with WrittenFiles(files, space):
            exec(code, space)
        said = snapshot.restore()
    assert not files.copied  # it was, at the trial's start
    return said


def test_a_log_that_was_open_goes_on_where_it_was(folder: Path) -> None:
    with Path("log.txt").open("a") as log:
        log.write("before\n")
        assert sides({"log": log}, "log.write('trial\\n'); log.flush(); log.write('buffered')") == ()
        assert Path("log.txt").read_text() == "before\n"
        log.write("after\n")
    assert Path("log.txt").read_text() == "before\nafter\n"


@pytest.mark.parametrize("mode", ["w", "w+", "r+", "a", "a+"])
@pytest.mark.parametrize("code", ["f.write('xyz')", "f.seek(0); f.truncate()", "f.close()", "f.write('x'); f.close()"])
def test_text_in_every_mode(folder: Path, mode: str, code: str) -> None:
    Path("f.txt").write_text("0123456789")
    with Path("f.txt").open(mode) as f:
        f.write("abc")
        f.flush()
        before, at = digest(folder), f.tell()
        assert sides({"f": f}, code) == ()
        assert (digest(folder), f.tell(), f.closed, f.mode) == (before, at, False, mode)
        f.write("Z")
        f.flush()
        assert "Z" in Path("f.txt").read_text()


@pytest.mark.parametrize("buffering", [0, -1])
def test_bytes_with_and_without_a_buffer(folder: Path, buffering: int) -> None:
    with open("f.bin", "wb+", buffering=buffering) as f:  # noqa: PTH123
        f.write(b"0123456789")
        f.seek(4)
        assert sides({"f": f}, "f.write(b'xy'); f.seek(0); f.read(3); f.truncate(1)") == ()
        assert f.tell() == 4 and f.read() == b"456789"


def test_a_file_that_is_read_is_read_again_from_there(folder: Path) -> None:
    Path("data.txt").write_text("".join(f"line {n}\n" for n in range(9)))
    with Path("data.txt").open() as data:
        data.readline()
        assert sides({"data": data}, "data.readline(); data.read()") == ()
        assert data.readline() == "line 1\n"


def test_a_file_that_is_read_is_not_read_from_what_the_trial_wrote(folder: Path) -> None:
    Path("data.txt").write_text("before" * 10)
    with Path("data.txt").open() as data:
        code = "import pathlib; pathlib.Path('data.txt').write_text('during' * 10); data.seek(0); data.read(3)"
        assert sides_with_copies({"data": data}, code) == ()
        assert data.read() == "before" * 10


def sides_with_copies(space: dict[str, Any], code: str) -> tuple[str, ...]:
    files = KeptFiles()
    snapshot = Snapshot.take(space, files=files)
    files.begin(lambda: False)
    with WrittenFiles(files, space):
        exec(code, space)
    return snapshot.restore()


def test_what_lies_in_memory(folder: Path) -> None:
    raw, text = io.BytesIO(b"abc"), io.StringIO("abc")
    raw.seek(1)
    assert sides({"raw": raw, "text": text}, "raw.write(b'zzzz'); text.write('q'); text.read()") == ()
    assert (raw.getvalue(), raw.tell(), text.getvalue(), text.tell()) == (b"abc", 1, "abc", 0)


def test_a_map_of_a_file(folder: Path) -> None:
    with Path("old.txt").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert sides({"mapped": mapped}, "mapped[:2] = b'zz'; mapped.seek(1)") == ()
        assert (mapped[:], mapped.tell(), Path("old.txt").read_text()) == (b"old", 0, "old")


@pytest.mark.parametrize("path", ["a.db", ":memory:"])
def test_a_database(folder: Path, path: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table t (v)")
        db.execute("insert into t values (1)")
        db.commit()
        before = digest(folder)
        code = "db.execute('insert into t values (2)'); db.commit(); db.execute('delete from t')"
        assert sides({"db": db}, code) == ()
        assert digest(folder) == before
        assert db.execute("select v from t").fetchall() == [(1,)]
        db.execute("insert into t values (3)")
        db.commit()
        assert db.execute("select v from t").fetchall() == [(1,), (3,)]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("of_the_notebook")
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mode", ["a", "w"])
def test_the_file_of_a_handler_of_logging(folder: Path, logger: logging.Logger, mode: str, late: bool) -> None:
    logger.addHandler(logging.FileHandler("train.log", mode, delay=late))
    if not late:
        logger.warning("before")
    before = digest(folder)
    assert sides({"logger": logger}, "logger.warning('in the trial')") == ()
    assert digest(folder) == before
    logger.warning("after")
    assert Path("train.log").read_text() == ("" if late else "before\n") + "after\n"


def test_a_handler_that_turned_its_file_over(folder: Path, logger: logging.Logger) -> None:
    logger.addHandler(logging.handlers.RotatingFileHandler("train.log", maxBytes=30, backupCount=2))
    logger.warning("before")
    before = digest(folder)
    assert sides({"logger": logger}, "for _ in range(9): logger.warning('in the trial')") == ()
    assert digest(folder) == before
    logger.warning("after")
    assert Path("train.log").read_text() == "before\nafter\n"


@pytest.mark.parametrize(
    ("make", "cell"),
    [
        (csv.writer, "log.writerow([1])"),
        (lambda file: csv.DictWriter(file, ["n"]), "log.writerow({'n': 1})"),
        (lambda file: codecs.getwriter("utf8")(file.buffer), "log.write('x')"),
        (lambda file: tempfile._TemporaryFileWrapper(file, file.name, delete=False), "log.write('x'); log.flush()"),
        (logging.StreamHandler, "log.stream.write('x'); log.flush()"),
    ],
)
def test_a_file_that_something_of_a_library_holds(folder: Path, make: Any, cell: str) -> None:
    with Path("log.txt").open("a") as file:
        space, before = {"log": make(file)}, digest(folder)
        assert sides(space, cell) == ()
        space["log"] = None
    assert digest(folder) == before


def test_a_file_that_a_handler_of_logging_was_given(folder: Path, logger: logging.Logger) -> None:
    with Path("log.txt").open("a") as file:
        logger.addHandler(logging.StreamHandler(file))
        before = digest(folder)
        assert sides({}, "import logging; logging.getLogger('of_the_notebook').warning('in the trial')") == ()
        assert digest(folder) == before


def test_records_that_a_handler_holds_back(folder: Path, logger: logging.Logger) -> None:
    with Path("log.txt").open("a") as file:
        handler = logging.handlers.MemoryHandler(3, target=logging.StreamHandler(file))
        logger.addHandler(handler)
        logger.warning("before")
        before = digest(folder)
        code = "import logging\nfor _ in range(4): logging.getLogger('of_the_notebook').warning('in the trial')"
        assert sides({}, code) == ()
        assert [record.getMessage() for record in handler.buffer] == ["before"] and digest(folder) == before
        logger.removeHandler(handler)
        handler.close()
    assert Path("log.txt").read_text() == "before\n"


def test_a_descriptor_that_appends(folder: Path) -> None:
    fd = os.open("old.txt", os.O_WRONLY | os.O_APPEND)
    try:
        before = digest(folder)
        assert sides({"fd": fd}, "import os; os.write(fd, b'in the trial')") == ()
        assert digest(folder) == before
    finally:
        os.close(fd)


def test_what_stands_for_something_else_is_asked_nothing() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise AssertionError("it was asked what it stands for")

        @__class__.setter
        def __class__(self, value: Any) -> None:
            raise AssertionError

    assert list(files_behind(types.SimpleNamespace(one=Proxy(), other=weakref.proxy(Runner("", {}))))) == []


def test_an_archive_that_is_read_refuses_nothing(folder: Path) -> None:
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("a", "x")
    with zipfile.ZipFile("a.zip") as archive:
        assert beforehand(Runner("archive.read('a')", {"archive": archive})).refusals == ()


def _piped() -> tuple[Any, str]:
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "wb"), "is no file on a disk"


def _zipped() -> tuple[Any, str]:
    return gzip.open("a.gz", "wb"), "has a state that nobody can copy"


def _shelved() -> tuple[Any, str]:
    return shelve.open("runs.shelf"), "has a state that nobody can copy"


def _archived() -> tuple[Any, str]:
    return zipfile.ZipFile("a.zip", "w"), "is being written to"


def _taped() -> tuple[Any, str]:
    return tarfile.open("a.tar", "w"), "is being written to"


def _transacting() -> tuple[Any, str]:
    db = sqlite3.connect("a.db")
    db.execute("create table t (v)")
    db.execute("insert into t values (1)")
    return db, "has a transaction open"


def _wal() -> tuple[Any, str]:
    db = sqlite3.connect("a.db")
    db.execute("pragma journal_mode=wal")
    return db, "is in WAL mode"


def _half_read() -> tuple[Any, str]:
    data = Path("old.txt").open()  # noqa: SIM115
    next(data)
    return data, "cannot be asked where it stands"


@pytest.mark.parametrize("make", [_piped, _zipped, _shelved, _archived, _taped, _transacting, _wal, _half_read])
def test_what_cannot_be_kept_refuses_by_name_where_the_cell_can_reach_it(folder: Path, make: Any) -> None:
    thing, why = make()
    try:
        space = {"thing": thing, "step": eval("lambda: thing", {})}
        exec("def step():\n    return thing", space)
        for cell in ("thing.write(b'x')", "step()"):
            case = gpu_doctor.case(cell, space)
            effect = case.trial({"threads": 1}, steps=2, seconds=2)
            assert effect.outcome == "refused"
            name = f"thing ({type(thing).__name__})"
            assert f"could not put {name} back" in effect.reason and f"before the cell and {why}" in effect.reason
            assert effect.reason.count("close it") + effect.reason.count("commit it first") == 1
            assert everything(Runner(cell, space)).lost == ()
        assert beforehand(Runner("print(1)", space)).refusals == ()
    finally:
        thing.close()


def test_what_is_open_in_a_module_refuses_where_the_cell_uses_the_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("my_pipes")
    module.__file__ = str(folder / "my_pipes.py")
    monkeypatch.setitem(sys.modules, "my_pipes", module)
    module.thing, _ = _piped()
    exec("def step(): return thing", vars(module))
    try:
        refusals = [beforehand(Runner(one, {"my_pipes": module})).refusals for one in ("my_pipes.step()", "1")]
        assert len(refusals[0]) == 1 and refusals[1] == ()
    finally:
        module.thing.close()


def test_what_nobody_sees_is_said_before(folder: Path) -> None:
    (said,) = everything(Runner("print(1)", {})).notes
    assert said.endswith(NOT_UNDONE)


def test_a_file_that_is_open_and_too_large_is_named_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("big.bin").open("wb") as big:
        big.write(b"x" * 3_000_000)
        with pytest.raises(SnapshotTooLarge, match=r"big.bin \(3 MiB\).* may copy only 2 MiB"):
            Snapshot.take({"big": big}, files=KeptFiles(room=lambda where: 2_000_000))
    monkeypatch.setattr("gpu_doctor.trials.snapshot.snapshot.room_bytes", lambda: 1_000_000)
    with pytest.raises(SnapshotTooLarge, match=r"copy of memory \(3 MiB\)"):
        Snapshot.take({"memory": io.BytesIO(b"x" * 3_000_000)}, files=KeptFiles())
