"""What a trial's cell writes is listed, and the watching changes nothing for who writes."""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import io
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpu_doctor.trials.side_effects.kept_files import KeptFiles
from gpu_doctor.trials.side_effects.written_files import WrittenFiles
from torch import nn

import gpu_doctor
from gpu_doctor.capture import RunEnded
from tests.support.written_files_parts import digest
from tests.support.written_files_parts import folder as folder


def watched(do: Any) -> WrittenFiles:
    """Does something that is watched; what it wrote is put back, and is seen to be as it was."""
    before = digest(Path.cwd())
    kept = KeptFiles()
    with WrittenFiles(kept) as files:
        do()
    assert kept.put_back() == []
    assert digest(Path.cwd()) == before
    return files


def with_open() -> None:
    with open("a.txt", "w") as f:  # noqa: PTH123
        f.write("x")


def with_log() -> None:
    import logging

    handler = logging.FileHandler("train.log")
    handler.close()


def with_rename() -> None:
    torch.save({"w": torch.zeros(2)}, "runs/tmp.pt")
    Path("runs/tmp.pt").replace("runs/last.pt")


def with_copy() -> None:
    shutil.copy("old.txt", "runs/copy.txt")


def with_os() -> None:
    os.close(os.open("raw", os.O_WRONLY | os.O_CREAT))


@pytest.mark.parametrize(
    ("do", "paths", "deleted"),
    [
        (with_open, ("a.txt",), ()),
        (lambda: Path("b.txt").write_text("x"), ("b.txt",), ()),
        (lambda: Path("old.txt").open("a").close(), ("old.txt",), ()),
        (lambda: np.save("runs/x.npy", np.zeros(2)), ("runs/x.npy",), ()),
        (lambda: np.savez("runs/x.npz", a=np.zeros(2)), ("runs/x.npz",), ()),
        (lambda: torch.save(nn.Linear(1, 1).state_dict(), Path("runs/x.pt")), ("runs/x.pt",), ()),
        (lambda: [torch.save(1, "runs/x.pt") for _ in range(3)], ("runs/x.pt",), ()),  # type: ignore[func-returns-value]
        (lambda: torch.save(1, "rüns.pt"), ("rüns.pt",), ()),
        (with_log, ("train.log",), ()),
        (with_rename, ("runs/last.pt",), ()),
        (with_copy, ("runs/copy.txt",), ()),
        (with_os, ("raw",), ()),
        (lambda: os.remove("old.txt"), (), ("old.txt",)),  # noqa: PTH107
        (lambda: Path("old.txt").unlink(), (), ("old.txt",)),
        (lambda: Path("old.txt").rename("new.txt"), ("new.txt",), ("old.txt",)),
        (lambda: shutil.rmtree("runs"), (), ("runs",)),
        (lambda: Path("old.txt").read_text(), (), ()),
        (lambda: torch.save(1, io.BytesIO()), (), ()),
        (lambda: open(os.devnull, "w").close(), (), ()),  # noqa: PTH123
        (lambda: tempfile.TemporaryFile().close(), (), ()),
        (lambda: io.FileIO("old.txt", "w").close(), ("old.txt",), ()),
        (lambda: sqlite3.Connection("k.db").execute("create table t (v)"), ("k.db",), ()),
        (
            lambda: torch.UntypedStorage.from_file("old.txt", True, 3).fill_(7),  # type: ignore[union-attr]
            ("old.txt",),
            (),
        ),
        (lambda: (Path(".cache").mkdir(), Path(".cache/log.txt").write_text("x")), (".cache/log.txt",), ()),  # type: ignore[func-returns-value]
        (lambda: (Path("t").write_text(""), Path("t").unlink()), (), ()),  # type: ignore[func-returns-value]
    ],
)
def test_each_way_of_writing(folder: Path, do: Any, paths: tuple[str, ...], deleted: tuple[str, ...]) -> None:
    files = watched(do)
    assert (files.paths, files.deleted) == (paths, deleted)
    assert files.notes == []


def published() -> None:
    for number in range(3):
        Path("new").mkdir()
        Path("new/b.txt").write_text(f"new {number}")
        Path(f"new/{number}.txt").write_text("new")
        shutil.rmtree("runs")
        Path("new").rename("runs")


def over_an_empty_folder() -> None:
    Path("empty").mkdir(exist_ok=True)
    Path("new").mkdir()
    Path("new/b.txt").write_text("new")
    Path("new").replace("empty")


def moved_and_made_again() -> None:
    Path("runs").rename("earlier")
    Path("runs/sub").mkdir(parents=True)
    Path("runs/sub/new.txt").write_text("new")
    Path("runs").rename("later")
    Path("runs").mkdir()
    Path("runs/new.txt").write_text("new")


@pytest.mark.parametrize("do", [published, over_an_empty_folder, moved_and_made_again])
def test_a_folder_that_another_one_takes_the_place_of(folder: Path, do: Any) -> None:
    for name in ("empty", "runs/sub"):
        Path(name).mkdir(parents=True)
    Path("runs/b.txt").write_text("old")
    Path("runs/sub/c.txt").write_text("old")
    kept, before = KeptFiles(), digest(folder)
    for _ in range(2):
        kept.begin(lambda: True)
        with WrittenFiles(kept):
            do()
        assert kept.put_back() == [] and digest(folder) == before


def test_a_folder_that_stays_loses_nothing_that_another_program_puts_there(folder: Path) -> None:
    kept = KeptFiles()
    Path("runs/b.txt").write_text("old")
    with WrittenFiles(kept), contextlib.suppress(OSError):
        Path("runs").rmdir()
    Path("runs/of_another.txt").write_text("x")
    assert kept.put_back() == []
    assert Path("runs/of_another.txt").exists()


def _in_a_circle(thing: Any) -> None:
    def circle() -> Any:
        return circle, thing

    circle()


def leaves_a_database() -> None:
    db = sqlite3.connect("w.db")
    db.execute("pragma journal_mode=wal")
    db.execute("insert into t values (1)")
    db.commit()
    _in_a_circle(db)


def leaves_an_archive() -> None:
    archive = zipfile.ZipFile("a.zip", "a")
    archive.writestr("trial", "x")
    _in_a_circle(archive)


@pytest.mark.parametrize("do", [leaves_a_database, leaves_an_archive])
def test_what_is_left_open_in_a_circle_writes_nothing_later(folder: Path, do: Any) -> None:
    with contextlib.closing(sqlite3.connect("w.db")) as db:
        db.execute("create table t (v)")
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("before", "x")
    before = digest(folder)
    gc.freeze()  # what was there before is not looked through: only the circles of this test
    gc.disable()
    try:
        watched(do)
    finally:
        gc.enable()
        gc.unfreeze()
    gc.collect(0)
    assert digest(folder) == before


def test_a_class_that_is_watched_is_still_what_it_was(folder: Path) -> None:
    original, kept = io.FileIO, KeptFiles()
    with WrittenFiles(kept), open("old.txt", "rb", 0) as raw, io.FileIO("old.txt", "r") as other:  # noqa: PTH123
        assert isinstance(raw, io.FileIO) and issubclass(original, io.FileIO) and not isinstance(3, io.FileIO)
        assert type(other) is original

        class Mine(io.FileIO):
            def __init__(self) -> None:
                super().__init__("mine.bin", "w")

        with Mine() as mine:
            mine.write(b"x")
        assert isinstance(mine, Mine) and not isinstance(raw, Mine) and isinstance(mine, original)
    assert io.FileIO is original and kept.put_back() == [] and not Path("mine.bin").exists()


def test_memory_that_is_a_disk_is_watched(folder: Path) -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("this system has none")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        path = Path(other, "log.txt")
        path.write_text("before")
        watched(lambda: path.write_text("trial"))
        assert path.read_text() == "before"


def test_caches_are_known_by_their_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = folder / ".cached_projects" / "x"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "cache").mkdir()
    assert watched(lambda: Path("a.txt").write_text("x")).paths == ("a.txt",)
    kept = KeptFiles()
    with WrittenFiles(kept) as files:
        (folder / "cache" / "model.bin").write_text("x")
    assert files.paths == () and kept.put_back() == []
    monkeypatch.chdir(folder / "cache")
    assert watched(lambda: Path("a.txt").write_text("x")).paths == ("a.txt",)


def test_a_partial_of_open_is_watched(folder: Path) -> None:
    space = {"append": functools.partial(open, "old.txt", "a")}
    before = dict(space)
    kept = KeptFiles()
    with WrittenFiles(kept, space), space["append"]() as file:
        file.write("x")
    assert space == before and kept.put_back() == []
    assert Path("old.txt").read_text() == "old"


def test_outside_of_the_folder_the_path_is_whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "x.txt"
    assert watched(lambda: other.write_text("x")).paths == (str(other),)


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda: open("missing/x", "w"), FileNotFoundError),  # noqa: PTH123, SIM115
        (lambda: open("old.txt", "w", -1, None, None, None, True, None, 9), TypeError),  # type: ignore  # noqa: PTH123, SIM115
        (lambda: open("old.txt", mode="no"), ValueError),  # type: ignore  # noqa: PTH123, SIM115
        (lambda: open(file=3.5, mode="w"), TypeError),  # type: ignore  # noqa: PTH123, SIM115
        (lambda: os.remove("missing"), FileNotFoundError),  # noqa: PTH107
        (lambda: torch.save(1, "missing/x.pt"), RuntimeError),
    ],
)
def test_errors_are_the_callers(folder: Path, do: Any, error: type[BaseException]) -> None:
    with pytest.raises(error) as plain:
        do()
    with pytest.raises(error) as under_watch, WrittenFiles(KeptFiles()) as files:
        do()
    assert str(under_watch.value) == str(plain.value)
    assert files.paths == ()


def test_everything_is_taken_off_again(folder: Path) -> None:
    before = builtins.open, io.open, os.open, os.remove, os.replace, shutil.rmtree
    with WrittenFiles(KeptFiles()):
        with open("old.txt") as file:  # noqa: PTH123
            assert file.read() == "old"
        assert builtins.open is not before[0]
    assert (builtins.open, io.open, os.open, os.remove, os.replace, shutil.rmtree) == before


def test_the_open_of_a_notebooks_cells_is_watched(folder: Path) -> None:
    """IPython gives cells an `open` of its own, which holds on to the one that it found."""
    from IPython.core import interactiveshell

    if not hasattr(interactiveshell, "_modified_open"):
        pytest.skip("this IPython gives cells Python's own")
    before = interactiveshell.io_open
    assert watched(lambda: interactiveshell._modified_open("a.txt", "w").close()).paths == ("a.txt",)
    assert interactiveshell.io_open is before


def test_open_as_an_attribute_of_a_class_is_not_bound(folder: Path) -> None:
    def do() -> None:
        class Store:
            opener = open
            remove = os.remove

        Store().opener("a.txt", "w").close()  # type: ignore[call-overload, misc]
        Store().remove("old.txt")  # type: ignore[arg-type, call-arg, misc]

    files = watched(do)
    assert (files.paths, files.deleted) == (("a.txt",), ("old.txt",))


def test_a_cell_that_looks_for_the_temporary_folder_anew_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look opens files under a lock of tempfile's."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    done = threading.Thread(target=lambda: watched(lambda: setattr(tempfile, "tempdir", None) or tempfile.gettempdir()))  # type: ignore[func-returns-value]
    done.daemon = True
    done.start()
    done.join(10.0)
    assert not done.is_alive()


def test_built_in_functions_that_a_cell_replaces_are_put_back(folder: Path) -> None:
    before = builtins.open, builtins.print
    cell = (
        "import builtins\nmine = builtins.open\n"
        "builtins.open = lambda *args, **named: mine(*args, **named)\nbuiltins.print = lambda *args: None\n"
        "open('a.txt', 'w').close()"
    )
    case = gpu_doctor.case(cell, {})
    effect = case.trial({}, steps=1, seconds=5)
    assert (builtins.open, builtins.print) == before
    assert effect.written == ("a.txt",)
    assert not [note for pair in case.trials for side in pair for note in side.notes if "builtins" in note]


class Caching(torch.utils.data.Dataset[torch.Tensor]):
    """Keeps what it has computed in a file, as datasets do that are slow."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        Path(f"cache-{index % 3}.txt").write_text("computed")
        Path("old.txt").unlink(missing_ok=True)
        return torch.ones(4)


CACHED = """
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


def test_what_a_loaders_workers_write_is_listed(folder: Path) -> None:
    """They are forked during the trial, and what a process notes of its own is lost with it."""
    (folder / "old.txt").write_text("there before")
    model = torch.nn.Linear(4, 2)
    loader = torch.utils.data.DataLoader(Caching(), batch_size=8, num_workers=2)
    space = {"loader": loader, "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    effect = gpu_doctor.case(CACHED, space).trial({"prefetch_factor": 4}, steps=6, seconds=10, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect
    assert sorted(effect.written) == ["cache-0.txt", "cache-1.txt", "cache-2.txt", "old.txt (deleted)"]


def forked(do: Any) -> None:
    """Does something in a forked process, and waits for its end."""
    if (child := os.fork()) == 0:
        code = 1
        with contextlib.suppress(BaseException):
            do()
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_process_tells_each_file_once_and_what_it_was(folder: Path) -> None:
    def do() -> None:
        for _ in range(3):
            Path("a\nb.txt").write_text("x")
        Path("old.txt").write_text("new")
        Path("old.txt").unlink()

    before, kept = digest(folder), KeptFiles()
    with WrittenFiles(kept) as files:
        forked(do)
    assert (files.paths, files.deleted) == (("a\nb.txt",), ("old.txt",))
    assert kept.copied
    assert kept.put_back() == []
    assert digest(folder) == before


def test_of_two_processes_the_first_that_touches_a_file_is_believed(folder: Path) -> None:
    before, kept = digest(folder), KeptFiles()
    with WrittenFiles(kept):
        forked(lambda: Path("old.txt").write_text("one"))
        forked(lambda: Path("old.txt").write_text("two"))
        Path("old.txt").write_text("three")
    assert kept.put_back() == []
    assert digest(folder) == before


def test_a_forked_process_that_closes_everything_keeps_its_own_files(folder: Path) -> None:
    def do() -> None:
        os.closerange(3, 256)
        for number in range(40):
            (folder / f"own{number}.txt").open("w").write(f"mine {number}")
        Path("old.txt").write_text("new")

    with WrittenFiles(kept := KeptFiles()) as files:
        forked(do)
        assert [(folder / f"own{n}.txt").read_text() for n in range(40)] == [f"mine {n}" for n in range(40)]
    assert len(files.paths) == 41
    kept.put_back()
    assert sorted(path.name for path in folder.iterdir()) == ["old.txt", "runs"]
    assert Path("old.txt").read_text() == "old"


def test_a_forked_process_that_outlives_the_trial_writes_on(folder: Path) -> None:
    kept = KeptFiles()
    aside = kept._aside
    with WrittenFiles(kept):
        ready, go = os.pipe()
        child = os.fork()
        if not child:
            os.read(ready, 1)
            with contextlib.suppress(BaseException):
                Path("old.txt").write_text("late")
            os._exit(0)
    del kept
    gc.collect()
    assert aside is not None and not aside.exists()
    os.write(go, b"x")
    os.waitpid(child, 0)
    assert Path("old.txt").read_text() == "late"


def test_without_a_place_for_it_new_files_go_and_old_ones_are_not_touched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(**given: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", none)
    before, kept = digest(folder), KeptFiles()
    with WrittenFiles(kept) as files:
        Path("own.txt").write_text("x")
        with pytest.raises(RunEnded):
            Path("old.txt").write_text("x")
    assert files.paths == ("own.txt",)
    assert "no folder for temporary files" in kept.refusal
    assert kept.put_back() == []
    assert digest(folder) == before


def test_a_module_that_is_loaded_meanwhile_keeps_no_stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "late_module.py").write_text("from os import remove as taken\nfrom builtins import open as opened\n")
    monkeypatch.syspath_prepend(str(folder))
    held: list[Any] = []

    def do() -> None:
        import late_module  # type: ignore[import-not-found]

        held.append(open)
        late_module.taken("old.txt")

    try:
        assert watched(do).deleted == ("old.txt",)
        module = sys.modules["late_module"]
        assert (module.taken, module.opened) == (os.remove, open)
        with held[0]("after.txt", "w") as file:  # whoever holds on to one has the original in it
            file.write("x")
        assert Path("after.txt").read_text() == "x"
    finally:
        sys.modules.pop("late_module", None)


def test_a_function_by_another_name_is_watched_too(folder: Path) -> None:
    space: dict[str, Any] = {"gone": os.remove}
    with WrittenFiles(KeptFiles(), space) as files:
        space["gone"]("old.txt")
    assert files.deleted == ("old.txt",)
    assert space == {"gone": os.remove}
    files.kept.put_back()
    assert Path("old.txt").read_text() == "old"


def test_shutil_finds_the_same_functions_supported(folder: Path) -> None:
    supported = set(os.supports_dir_fd), set(os.supports_follow_symlinks)
    with WrittenFiles(KeptFiles()):
        assert os.unlink in os.supports_dir_fd and os.utime in os.supports_follow_symlinks
    assert (os.supports_dir_fd, os.supports_follow_symlinks) == supported
