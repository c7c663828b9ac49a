"""In a side every way to write shows what it shows in a run, and the user's folder stays as it is.

Each writer is run in a folder that `prepared` has filled.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import logging
import logging.handlers
import os
import pickle
import shelve
import shutil
import sqlite3
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from os import remove as remove_by_name
from os import rename as rename_by_name
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import nn

from gpu_doctor.trials.side_effects.redirection import Redirection
from tests.support.files_before import contents, digest

WRITERS: Final[list[Callable[[], Any]]] = []


def writer(do: Callable[[], Any]) -> Callable[[], Any]:
    WRITERS.append(do)
    return do


def prepared(folder: Path) -> None:
    """What there is before: files, a tree, links, a database, an array."""
    for name in (
        "a.txt",
        "b.txt",
        "log.csv",
        "best.pt",
        "b-too.txt",
        "runs/1/x.txt",
        "runs/1/deep/y.txt",
        "runs/2/z.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"what was in {name}\n".encode() * 50)
    (folder / "a.txt").chmod(0o640)
    (folder / "latest").symlink_to("best.pt")
    (folder / "folder-link").symlink_to("runs")
    with closing(sqlite3.connect(folder / "runs.db")) as database, database:
        database.execute("create table losses (v)")
        database.executemany("insert into losses values (?)", [(n,) for n in range(500)])
    np.save(folder / "array.npy", np.arange(1000))
    with shelve.open(str(folder / "shelf")) as shelf:
        shelf["a"] = 1
    old = 1_600_000_000_000_000_000
    for path in folder.rglob("*"):
        os.utime(path, ns=(old, old), follow_symlinks=False)


@writer
def python() -> None:
    Path("a.txt").write_text("new")
    with open("new.txt", "x") as file:  # noqa: PTH123
        file.write("new")
    with open("b.txt", "r+") as file:  # noqa: PTH123
        file.write("NEW")
        file.truncate(7)
    with open("log.csv", "a", newline="") as file:  # noqa: PTH123
        csv.writer(file).writerow([1, 2])
    with open("log.csv", "w") as file:  # noqa: PTH123
        json.dump({"a": 1}, file)
    with open("b-too.txt", "ab") as file:  # noqa: PTH123
        pickle.dump([1], file)
    with io.open("latest", "wb") as file:  # noqa: UP020
        file.write(b"through a link")
    with open("folder-link/2/z.txt", "w") as file:  # noqa: PTH123
        file.write("through a folder's link")


@writer
def pathlib_() -> None:
    Path("made/in/here").mkdir(parents=True)
    Path("made/in/here/x").write_bytes(b"x")
    Path("a.txt").rename("made/a.txt")
    Path("made/a.txt").write_text("changed at its new place")
    Path("b.txt").replace("a.txt")
    Path("best.pt").unlink()
    Path("best.pt").touch()
    Path("log.csv").chmod(0o600)
    Path("log.csv").touch()
    Path("latest").unlink()
    Path("latest").symlink_to("a.txt")
    Path("hard").hardlink_to("log.csv")
    Path("hard").write_text("through a hard link")
    Path("empty").mkdir()
    Path("empty").rmdir()


@writer
def shutil_() -> None:
    shutil.copytree("runs", "copied")
    shutil.copy2("a.txt", "runs/1/x.txt")
    shutil.move("runs/1", "moved")
    Path("moved/x.txt").write_text("changed after the move")
    shutil.rmtree("runs")
    shutil.move("b.txt", "copied")
    Path("runs").write_text("a file where a folder was")
    shutil.copyfile("a.txt", "best.pt")
    shutil.make_archive("packed", "zip", "copied")
    shutil.unpack_archive("packed.zip", "unpacked")


@writer
def os_() -> None:
    place = os.open("a.txt", os.O_RDWR)
    os.ftruncate(place, 3)
    os.pwrite(place, b"!", 0)
    os.close(place)
    os.truncate("b.txt", 5)
    os.makedirs("deep/er")  # noqa: PTH103
    os.close(os.open("raw", os.O_WRONLY | os.O_CREAT))
    remove_by_name("best.pt")  # noqa: PTH107
    open_to_write("partial").close()
    rename_by_name("log.csv", "best.pt")  # noqa: PTH104
    folder = os.open("runs", os.O_RDONLY)
    os.remove("1/x.txt", dir_fd=folder)
    os.rename("2", "two", src_dir_fd=folder, dst_dir_fd=folder)
    os.close(os.open("inside", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    os.mkfifo("pipe")
    os.symlink("nowhere", "dangling")  # noqa: PTH211
    os.chmod("a.txt", 0o400)  # noqa: PTH101
    os.removedirs("deep/er")


@writer
def again_and_again() -> None:
    for number in range(5):
        torch.save({"step": number}, "tmp.pt")
        os.replace("tmp.pt", "best.pt")  # noqa: PTH105
        Path("best.pt").rename(f"step-{number}.pt")
        Path("a.txt").write_text(str(number))
        Path("a.txt").unlink()
        shutil.rmtree("runs", ignore_errors=True)
        Path("runs").mkdir()


@writer
def archives() -> None:
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.write("a.txt")
    with zipfile.ZipFile("a.zip", "a") as archive:
        archive.write("b.txt")
    with tarfile.open("a.tar.gz", "w:gz") as tar:
        tar.add("runs")
    with tarfile.open("a.tar.gz") as tar:
        tar.extractall("out")
    with gzip.open("b.txt", "wt") as packed:
        packed.write("gz")
    for name in ("bz2", "lzma"):
        with __import__(name).open(f"a.{name}", "wb") as squeezed:
            squeezed.write(b"x")


@writer
def temporary() -> None:
    for do in (tempfile.NamedTemporaryFile, tempfile.TemporaryFile):
        with do(dir=".") as file:
            file.write(b"x")
    tempfile.mkdtemp(dir=".")
    os.close(tempfile.mkstemp(dir="runs")[0])
    with tempfile.TemporaryDirectory(dir=".") as folder:
        Path(folder, "x").write_text("x")
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as kept:
        kept.write(b"x")


@writer
def logs() -> None:
    for kind, more in (
        (logging.FileHandler, {}),
        (logging.handlers.RotatingFileHandler, {"maxBytes": 5, "backupCount": 2}),
    ):
        logger, handler = logging.getLogger("zoo"), kind("log.csv", **more)  # type: ignore[arg-type]
        logger.addHandler(handler)
        for _ in range(3):
            logger.warning("something long enough")
        logger.removeHandler(handler)
        handler.close()


@writer
def databases() -> None:
    for mode in ("delete", "wal"):
        with closing(sqlite3.connect("runs.db")) as database, database:
            database.execute(f"pragma journal_mode={mode}")
            database.execute("insert into losses values (7)")
            database.commit()
            database.execute("delete from losses where v < 300")
    with closing(sqlite3.connect("file:new.db?mode=rwc", uri=True)) as database, database:
        database.execute("create table t (v)")
    with closing(sqlite3.connect("file:runs.db?mode=ro", uri=True)) as database:
        assert database.execute("select count(*) from losses where v < 300").fetchone() == (0,)
    with shelve.open("shelf") as shelf:
        shelf["a"] = 2


@writer
def numbers() -> None:
    np.save("array.npy", np.zeros(3))
    np.savez("a.npz", a=np.zeros(3))
    np.savez_compressed("best.pt", a=np.zeros(3))
    np.savetxt("a.txt", np.zeros(3))
    np.arange(5).tofile("raw.bin")
    mapped = np.memmap("b.txt", dtype="u1", mode="r+")
    mapped[:3] = 0
    mapped.flush()
    held = np.lib.format.open_memmap("new.npy", mode="w+", shape=(3,), dtype="f4")
    held[:] = 1
    np.load("new.npy", mmap_mode="r+")[0] = 2
    assert np.load("new.npy")[0] == 2


@writer
def torch_() -> None:
    torch.save(nn.Linear(2, 2).state_dict(), "best.pt")
    torch.save([1], "runs/old-form.pt", _use_new_zipfile_serialization=False)
    torch.save([1], Path("a.txt"))
    torch.save([1], "rüns.pt")
    scripted = torch.jit.script(nn.Linear(2, 2))
    scripted.save("b.txt")
    torch.jit.save(scripted, "scripted.pt")
    torch.from_file("shared.bin", shared=True, size=10).fill_(1.0)
    assert [torch.load("best.pt", mmap=mapped)["weight"].shape for mapped in (False, True)] == [(2, 2)] * 2
    with torch.profiler.profile() as profile:
        torch.ones(2).add(1)
    profile.export_chrome_trace("trace.json")
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), "exported.pt2")


@writer
def guests() -> None:
    if find_spec("pandas"):
        import pandas as pd

        frame = pd.DataFrame({"a": [1, 2]})
        frame.to_csv("log.csv", mode="a")
        frame.to_csv("a.txt")
        frame.to_json("a.json")
        frame.to_pickle("best.pt")
        assert len(pd.read_csv("a.txt")) == 2
        if find_spec("pyarrow"):
            frame.to_parquet("a.parquet")
            assert len(pd.read_parquet("a.parquet")) == 2
        with closing(sqlite3.connect("runs.db")) as database:
            frame.to_sql("frame", database)
    if find_spec("safetensors"):
        from safetensors.numpy import save_file as save_arrays
        from safetensors.torch import load_file, save_file

        save_file({"a": torch.zeros(2)}, "best.pt")
        assert load_file("best.pt")["a"].sum() == 0
        save_arrays({"a": np.zeros(2)}, "a.safetensors")
    if find_spec("PIL"):
        from PIL import Image

        Image.new("L", (4, 4)).save("a.png")
        with Image.open("a.png") as drawn:
            assert drawn.size == (4, 4)
    if find_spec("h5py"):
        h5py: Any = import_module("h5py")
        for mode in ("w", "a", "r+"):
            with h5py.File("a.h5", mode) as held:
                held[mode] = [1, 2]
        with h5py.File("a.h5", "r") as held:
            assert sorted(held) == ["a", "r+", "w"]
    if find_spec("matplotlib"):
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt

        plt.savefig("plot.png")


open_to_write = functools.partial(open, mode="w")
STAMPED = frozenset(("archives", "databases", "guests", "numbers", "torch_"))
"""They write the time of day, or what a library numbers."""


@pytest.mark.parametrize("write", WRITERS, ids=lambda one: one.__name__)
def test_a_writer(write: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in ("run", "side"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        prepared(folder)
        before = digest(folder)
        if name == "run":
            write()
            seen.append(contents(folder))
        else:
            with Redirection(globals()) as side:
                write()
                seen.append(contents(folder))
            assert digest(folder) == before and side.notes == [] and not Path(side._root or "").exists()
    if write.__name__ == "temporary":  # names that are drawn
        assert len(seen[0]) == len(seen[1])
        return
    assert {path: mode for path, (mode, _) in seen[0].items()} == {path: mode for path, (mode, _) in seen[1].items()}
    if write.__name__ not in STAMPED:
        assert seen[0] == seen[1]
