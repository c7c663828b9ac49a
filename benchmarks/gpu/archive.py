"""What a proof leaves in its output folder: at most eight files, and one archive of them all.

Unpacked in the root of a checkout the archive gives `benchmarks/gpu/<card>.json`, which the documentation shows, and
`benchmarks/gpu/out/`, from where the next call goes on.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from benchmarks.gpu.kept import read
from benchmarks.gpu.machine import file_name
from benchmarks.gpu.table import table

NAME: Final = "gpu-results.tar.gz"
FOLDER: Final = PurePosixPath("benchmarks/gpu")
RECORDINGS: Final = "recordings.tar.gz"
TRACE: Final = "trace.json.gz"
NAMES: Final = (
    *("rows.jsonl", "log.txt", "pytest.txt", "table.md", "probe.json", "01_quickstart.ipynb", "panel.jsonl.gz"),
    *(RECORDINGS, TRACE),
)
"""Nothing else in the folder is ours."""
MOST_BYTES: Final = 16 << 20
"""A file that is larger does not come back."""
MOST_LOG: Final = 2 << 20
"""The middle of a longer log is cut out: a library that repeats itself says more."""


def resumed(out: Path, *earlier: Path) -> None:
    """Copies into the output folder what earlier calls left in these folders, or in the archives there."""
    for folder in (out, *earlier):
        for name in NAMES:
            if (folder / name).is_file() and not (out / name).exists():
                shutil.copyfile(folder / name, out / name)
        if (folder / NAME).exists():
            for name, content in _members(folder / NAME).items():
                place = out / PurePosixPath(name).name
                if PurePosixPath(name).parent == FOLDER / "out" and not place.exists():
                    place.write_bytes(content)


def forget(out: Path) -> None:
    """Removes what earlier calls left in a folder."""
    for name in (*NAMES, NAME):
        (out / name).unlink(missing_ok=True)


def gathered(work: Path, out: Path) -> None:
    """Moves what a block has left in its folder to the output folder, packed; after each block."""
    for path in sorted(one for one in work.iterdir() if one.is_file()):
        content = path.read_bytes()
        if path.suffix in (".json", ".jsonl"):
            (out / f"{path.name}.gz").write_bytes(gzip.compress(content, 6))
        elif path.suffix == ".txt":
            with (out / path.name).open("ab") as file:
                file.write(content)
        else:
            (out / path.name).write_bytes(content)
        path.unlink()
    log = out / "log.txt"
    if log.exists() and log.stat().st_size > MOST_LOG:
        said = log.read_bytes()
        log.write_bytes(said[: MOST_LOG // 2] + b"\n...\n" + said[-MOST_LOG // 2 :])
    fresh = {one.name: one.read_bytes() for one in sorted(work.glob("recordings/*.npz"))}
    if fresh:
        _pack(out / RECORDINGS, {**_members(out / RECORDINGS), **fresh})
        shutil.rmtree(work / "recordings")


def leave(out: Path, machine: Mapping[str, Any]) -> Path:
    """Writes table and archive, and packs away what need not lie loose; an archive that is too large is dropped.

    Returns:
        The archive, or the folder where there is none.
    """
    (out / NAME).unlink(missing_ok=True)
    found = read(out, machine)
    (out / "table.md").write_text(table(machine, found), encoding="utf-8")
    probe = found.get("probe", {}).get("rows", {})
    (out / "probe.json").write_text(json.dumps(probe, indent=1), encoding="utf-8")
    files = {f"{FOLDER}/out/{name}": (out / name).read_bytes() for name in NAMES if (out / name).is_file()}
    figures = json.dumps({"machine": dict(machine), "parts": found}, indent=1)
    _pack(out / NAME, {f"{FOLDER}/{file_name(dict(machine))}.json": figures.encode(), **files})
    whole = (out / NAME).stat().st_size <= MOST_BYTES
    for name in (RECORDINGS, TRACE) if whole else (NAME, "probe.json"):
        (out / name).unlink(missing_ok=True)
    return out / NAME if whole else out


def _pack(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _members(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    if path.exists():
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                opened = archive.extractfile(member)
                if opened is not None:
                    found[member.name] = opened.read()
    return found
