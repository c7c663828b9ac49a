"""In a side files are written in a scratch folder: the user's own keep bytes, times and inodes."""

from __future__ import annotations

import builtins
import glob
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import gpu_doctor
from gpu_doctor.capture import RunEnded, patching
from gpu_doctor.trials.side_effects import caches, opened_in_c, overlay, redirection, scratch
from gpu_doctor.trials.side_effects.redirection import Redirection
from tests.support.files_before import digest, space
from tests.support.files_before import folder as folder


@pytest.fixture
def untouched(folder: Path) -> Iterator[Path]:
    """The user's folder, which is as it was when the test is over."""
    before = digest(folder)
    yield folder
    os.chdir(folder)
    assert digest(folder) == before and patching.active() == ()


def test_a_side_sees_what_it_wrote_and_the_next_one_begins_anew(untouched: Path) -> None:
    for _ in range(2):
        with Redirection():
            assert Path("old.txt").read_text() == "old" and not Path("new.txt").exists()
            with Path("old.txt").open("a") as file:
                file.write("er")
                assert file.name == "old.txt"
            Path("new.txt").write_text("new")
            assert Path("old.txt").read_text() == "older" and sorted(os.listdir()) == ["new.txt", "old.txt", "runs"]  # noqa: PTH208
            assert sorted(glob.glob("**", recursive=True)) == sorted(one.name for one in os.scandir("."))  # noqa: PTH207
            assert [Path(root).name for root, _, _ in os.walk(untouched)] == [untouched.name, "runs"]


def test_paths_through_links_and_other_folders(untouched: Path) -> None:
    with Redirection():
        os.symlink("runs", "link")  # noqa: PTH211
        Path("link/a.txt").write_text("a")
        Path("link/../old.txt").write_text("b")
        assert Path("runs/a.txt").read_text() == "a" and Path("old.txt").read_text() == "b"
        assert Path("link").resolve() == untouched / "runs" and os.listdir(os.fsencode("link")) == [b"a.txt"]  # noqa: PTH208
        Path("made").mkdir()
        os.chdir("made")
        Path("here.txt").write_text("c")
        assert Path.cwd() == untouched / "made" and Path("../made/here.txt").read_text() == "c"
        os.symlink("loop", "loop")  # noqa: PTH211
        with pytest.raises(OSError, match="symbolic links"):
            Path("loop").read_text()


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda: Path("none/x").write_text("x"), FileNotFoundError),
        (lambda: Path("old.txt/x").write_text("x"), NotADirectoryError),
        (lambda: Path("runs").write_text("x"), IsADirectoryError),
        (lambda: Path("old.txt").open("x"), FileExistsError),  # noqa: SIM115
        (lambda: Path("old.txt").mkdir(), FileExistsError),
        (lambda: Path("none").unlink(), FileNotFoundError),
        (lambda: Path("runs").unlink(), (IsADirectoryError, PermissionError)),
        (lambda: Path("old.txt").rmdir(), NotADirectoryError),
        (lambda: Path("none").rename("x"), FileNotFoundError),
        (lambda: Path("old.txt").replace("runs"), IsADirectoryError),
        (lambda: Path("runs").replace("old.txt"), NotADirectoryError),
        (lambda: Path("..").rmdir(), OSError),
        (lambda: torch.save(1, "none/x.pt"), RuntimeError),
        (lambda: Path("a\0b").write_text("x"), ValueError),
        (lambda: Path("x").open(mode="q"), ValueError),  # noqa: SIM115
        (lambda: os.listdir("none"), FileNotFoundError),  # noqa: PTH208
        (lambda: os.scandir("old.txt"), NotADirectoryError),
        (lambda: os.remove(3.5), TypeError),  # type: ignore[arg-type]  # noqa: PTH107
    ],
)
@pytest.mark.parametrize("written", [False, True])
def test_errors_are_those_of_a_run(untouched: Path, do: Callable[[], Any], error: Any, written: bool) -> None:
    with pytest.raises(error):
        do()
    with Redirection():
        if written:
            Path("runs/x").write_text("x")
            Path("other").write_text("x")
        with pytest.raises(error):
            do()
        assert Path("old.txt").read_text() == "old"


def test_a_folder_with_something_in_it_is_not_removed(untouched: Path) -> None:
    with Redirection():
        with pytest.raises(OSError, match="not empty"):
            untouched.rmdir()
        Path("full").mkdir()
        Path("full/x").touch()
        with pytest.raises(OSError, match="not empty"):
            Path("runs").replace("full")


def test_what_another_process_appends_or_makes_meanwhile_stays(folder: Path) -> None:
    log = os.open("old.txt", os.O_WRONLY | os.O_APPEND)  # as another process has it open
    with Redirection():
        with Path("old.txt").open("a") as file:
            file.write(" side")
        shutil.rmtree("runs")
        redirected = threading.Event()
        assert not redirected.is_set()
        posix = __import__("posix" if os.name == "posix" else "nt")
        posix.write(log, b" other")
        posix.mkdir("made")
    os.close(log)
    assert Path("old.txt").read_text() == "old other" and Path("made").is_dir() and Path("runs").is_dir()


def test_a_thread_of_before_writes_where_it_always_did(folder: Path) -> None:
    begin, done = threading.Event(), threading.Event()

    def log() -> None:
        begin.wait(10)
        with Path("log.txt").open("a") as file:
            file.write("kernel")
        further = threading.Thread(target=lambda: Path("further.txt").write_text("kernel"))
        further.start()
        further.join()
        done.set()

    thread = threading.Thread(target=log)
    thread.start()
    with Redirection():
        begin.set()
        assert done.wait(10)
        own = threading.Thread(target=lambda: Path("own.txt").write_text("side"))
        own.start()
        own.join()
        assert Path("own.txt").exists()
    thread.join()
    assert Path("log.txt").read_text() == "kernel" == Path("further.txt").read_text() and not Path("own.txt").exists()


def test_a_pool_of_before_works_for_whoever_gives_it_something(folder: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with Redirection():
            pool.submit(Path("side.txt").write_text, "x").result()
            assert Path("side.txt").exists()
        pool.submit(Path("kernel.txt").write_text, "x").result()
    assert not Path("side.txt").exists() and Path("kernel.txt").exists()


def test_a_library_that_cannot_be_led_elsewhere_refuses(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sealed(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError("immutable")

    polars: Any = types.ModuleType("polars")
    polars.DataFrame = Sealed("DataFrame", (), {"write_csv": lambda self, path: None})
    monkeypatch.setitem(sys.modules, "polars", polars)
    effect = gpu_doctor.case("open('old.txt', 'w')", {}).trial({"threads": 1}, steps=2, seconds=2)
    assert effect.outcome == "refused" and "DataFrame.write_csv" in effect.reason


def test_threads_that_change_one_file_at_once_copy_it_whole(untouched: Path) -> None:
    def add(number: int) -> None:
        with Path("old.txt").open("a") as file:
            file.write("+")

    with Redirection():
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(64)))
        assert Path("old.txt").read_text() == "old" + "+" * 64


class Writes(Dataset[Any]):
    """Its workers append, remove and read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> str:
        with Path("old.txt").open("a") as file:
            file.write("+")
        Path(f"made-{at}").write_text("x")
        return Path("old.txt").read_text()[:3]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_write_there_too(untouched: Path, method: str) -> None:
    with Redirection():
        loader = DataLoader(Writes(), num_workers=2, multiprocessing_context=method, batch_size=None)
        assert list(loader) == ["old"] * 4
        assert Path("old.txt").read_text() == "old++++" and len(os.listdir()) == 6  # noqa: PTH208


def test_a_process_that_was_forked_sees_what_another_removed(untouched: Path) -> None:
    with Redirection():
        process = multiprocessing.get_context("fork").Process(target=os.remove, args=("old.txt",))
        process.start()
        process.join()
        assert process.exitcode == 0 and not Path("old.txt").exists()


def test_temporary_files_go_with_the_side(untouched: Path) -> None:
    with Redirection():
        name = tempfile.mkstemp()[1]
        made = Path(tempfile.mkdtemp(), "x")
        made.write_text("x")
        with tempfile.NamedTemporaryFile(dir=".") as file, tempfile.TemporaryFile() as other:
            other.write(b"x")
            assert Path(file.name).exists()
        assert not Path(file.name).exists() and made.exists()
        stays = tempfile.mkdtemp(prefix="pymp-")
    assert not Path(name).exists() and not made.exists() and Path(stays).exists()
    Path(stays).rmdir()


def test_a_file_that_is_too_large_ends_the_side_before_it_is_touched(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "COPIED_BYTES", 2)
    effect = gpu_doctor.case("open('old.txt', 'a').write('x')", space()).trial({"threads": 1}, steps=2, seconds=2)
    assert effect.outcome == "refused" and "old.txt (3 B)" in effect.reason


def test_what_is_overwritten_as_a_whole_is_not_copied(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "COPIED_BYTES", 2)
    with Redirection() as side:
        Path("old.txt").write_text("longer")
        torch.save(1, "old.txt")
        Path("other").touch()
        Path("other").replace("old.txt")
    assert side.refusal == ""


def test_on_a_disk_without_links_files_are_copied_too(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **named: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    with Redirection():
        with Path("old.txt").open("a") as file:
            file.write("er")
        assert Path("old.txt").read_text() == "older"


def test_without_a_folder_for_temporary_files_no_side_begins(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "make_folder", lambda: None)
    effect = gpu_doctor.case("open('old.txt', 'w')", space()).trial({"threads": 1}, steps=2, seconds=2)
    assert effect.outcome == "refused" and "TMPDIR" in effect.reason


def test_what_a_killed_kernel_left_is_removed_and_that_of_a_living_one_stays() -> None:
    ours = scratch.make_folder()
    assert ours is not None
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    names = (f"-{process.pid}-abc", f"-{os.getppid()}-abc")
    left, living = (Path(str(ours).replace(f"-{os.getpid()}-", name)) for name in names)
    (left / "files").mkdir(parents=True)
    living.mkdir()
    try:
        scratch.remove_scratch_folders()
        assert not left.exists() and living.exists() and Path(ours).exists()
    finally:
        shutil.rmtree(ours)
        living.rmdir()


def test_caches_are_known_by_their_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
    (folder / "triton").mkdir()
    with Redirection():
        Path("triton/kernel").write_text("x")
        Path("mine").write_text("x")
    assert Path("triton/kernel").exists() and not Path("mine").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))
    assert str(folder.parent) + os.sep not in caches.caches("/tmp", folder)


def test_a_module_that_is_loaded_meanwhile_keeps_no_stand_in(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("loaded_meanwhile")
    with Redirection():
        monkeypatch.setitem(sys.modules, "loaded_meanwhile", module)
        exec("from os import remove\nclass A: opener = open\nA().opener('new', 'w').close()", vars(module))
    assert module.remove is os.remove


def test_everything_is_taken_off_again(folder: Path) -> None:
    before = (builtins.open, io.open, io.FileIO, os.open, os.stat, torch.save, tempfile._sanitize_params)  # type: ignore[attr-defined]
    supported = set(os.supports_follow_symlinks)
    side = Redirection()
    with side:
        kept = open  # as a module may keep it
        with io.FileIO("old.txt") as file:
            assert isinstance(file, io.FileIO) and shutil.copy2("old.txt", "copied")
    assert before == (builtins.open, io.open, io.FileIO, os.open, os.stat, torch.save, tempfile._sanitize_params)  # type: ignore[attr-defined]
    assert os.supports_follow_symlinks == supported and patching.active() == () and side.notes == []
    with kept("new", "w"):
        assert Path("new").exists()
    gone = weakref.ref(side)
    del side, kept
    assert gone() is None


@pytest.mark.parametrize("sql", ["attach 'b.db' as b", "vacuum into 'b.db'"])
def test_a_database_that_sql_names_refuses(untouched: Path, sql: str) -> None:
    cell = (
        f"import sqlite3; c = sqlite3.connect('a.db'); c.execute('create table t (v)'); c.commit(); c.execute({sql!r})"
    )
    effect = gpu_doctor.case(cell, {}).trial({"threads": 1}, steps=2, seconds=2)
    assert effect.outcome == "refused" and "b.db" in effect.reason


@pytest.mark.parametrize(
    ("full", "call", "refuses"),
    [
        ("cv2.imwrite", "cv2.imwrite('old.txt', 0)", True),
        ("lmdb.open", "lmdb.open('old.txt')", True),
        ("lmdb.open", "lmdb.open('old.txt', readonly=True)", False),
        ("rasterio.open", "rasterio.open('old.txt', 'w')", True),
        ("rasterio.open", "rasterio.open('old.txt')", False),
        ("duckdb.connect", "duckdb.connect()", False),
        ("polars.DataFrame.write_csv", "polars.DataFrame.write_csv(None, 'old.txt')", True),
    ],
)
def test_what_writes_files_in_c_is_refused_by_name(
    untouched: Path, monkeypatch: pytest.MonkeyPatch, full: str, call: str, refuses: bool
) -> None:
    module, *classes, name = full.split(".")
    owner: Any = types.ModuleType(module)
    monkeypatch.setitem(sys.modules, module, owner)
    for one in classes:
        setattr(owner, one, type(one, (), {}))
        owner = getattr(owner, one)
    setattr(owner, name, lambda *args, **named: None)
    with Redirection() as side:
        if refuses:
            with pytest.raises(RunEnded):
                exec(f"import {module}; {call}")
        else:
            exec(f"import {module}; {call}")
    assert (full in side.refusal) == refuses


def test_every_opener_that_is_loaded_has_the_argument_that_is_led_elsewhere() -> None:
    for one in opened_in_c.OPENERS:
        there = opened_in_c.found(f"{one.module}:{one.name}")
        if there is not None:
            assert callable(getattr(*there))
    with Redirection() as side, pytest.raises(RunEnded):
        side.refuse("why")
    assert side.refusal == "why" and redirection._BELOW
