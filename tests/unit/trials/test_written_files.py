"""What a trial's cell writes is listed, and the watching changes nothing for who writes."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.trials.side_effects.written_files import WrittenFiles
from tests.support.written_files_parts import folder as folder


def watched(do: Any) -> WrittenFiles:
    with WrittenFiles() as files:
        do()
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
        (lambda: (Path("t").write_text(""), Path("t").unlink()), (), ()),  # type: ignore[func-returns-value]
    ],
)
def test_each_way_of_writing(folder: Path, do: Any, paths: tuple[str, ...], deleted: tuple[str, ...]) -> None:
    files = watched(do)
    assert (files.paths, files.deleted) == (paths, deleted)
    assert files.notes == []


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
    with pytest.raises(error) as under_watch, WrittenFiles() as files:
        do()
    assert str(under_watch.value) == str(plain.value)
    assert files.paths == ()


def test_everything_is_taken_off_again(folder: Path) -> None:
    before = builtins.open, io.open, os.open, os.remove, os.replace, shutil.rmtree
    with WrittenFiles():
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


def test_a_forked_process_tells_each_file_once_and_goes_on_where_it_cannot(folder: Path) -> None:
    with WrittenFiles() as files:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                for _ in range(3):
                    Path("a\nb.txt").write_text("x")
                files._told.close()
                Path("late.txt").write_text("x")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        told = files._told
        assert os.fstat(told.fileno()).st_size == len(f"0{folder / 'a'}\nb.txt") + 1
    assert files.paths == ("a\nb.txt",) and (folder / "late.txt").exists()
    assert told.closed


def test_a_forked_process_that_closes_everything_keeps_its_own_files(folder: Path) -> None:
    with WrittenFiles() as files:
        if (child := os.fork()) == 0:
            os.closerange(3, 256)
            for number in range(40):  # one of them is where ours was
                (folder / f"own{number}.txt").open("w").write(f"mine {number}")
            os._exit(0)
        os.waitpid(child, 0)
    assert [(folder / f"own{number}.txt").read_text() for number in range(40)] == [f"mine {n}" for n in range(40)]
    assert not files.deleted


def test_without_a_place_for_it_only_this_process_is_watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**given: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    with WrittenFiles() as files:
        Path("own.txt").write_text("x")
    assert files.paths == ("own.txt",)
