"""What a proof leaves: one archive with all figures, the table and the recordings, at their places in the repository.

Unpacked in the root of a checkout it gives `benchmarks/gpu/<card>.json`, `<card>.md` and
`benchmarks/gpu/recordings/<card>/`. Laid into an empty output folder it is also where a later call goes on.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from benchmarks.gpu.kept import place, read, same_machine, write
from benchmarks.gpu.machine import file_name
from benchmarks.gpu.plan import Part
from benchmarks.gpu.table import table

NAME: Final = "gpu-proof.tar.gz"
FOLDER: Final = PurePosixPath("benchmarks/gpu")
RECORDINGS: Final = "recordings"
"""In the output folder: where the part of that name puts them."""


def kept(out: Path, machine: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, dict[str, Any]]:
    """What was found of each part on this machine."""
    found = {part.name: read(out, part.name) for part in parts}
    return {name: one for name, one in found.items() if one and same_machine(one, machine)}


def leave(out: Path, machine: Mapping[str, Any], parts: Sequence[Part]) -> Path:
    """Writes the archive, and the table beside it."""
    found, name = kept(out, machine, parts), file_name(dict(machine))
    figures = json.dumps({"machine": dict(machine), "parts": found}, indent=1)
    told = table(machine, found, parts)
    (out / "table.md").write_text(told, encoding="utf-8")
    files = {f"{name}.json": figures.encode(), f"{name}.md": told.encode()}
    for recording in sorted((out / RECORDINGS).glob("*.npz")) if RECORDINGS in found else ():
        files[f"{RECORDINGS}/{name}/{recording.name}"] = recording.read_bytes()
    with tarfile.open(out / NAME, "w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(str(FOLDER / path))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out / NAME


def taken_up(out: Path, parts: Sequence[Part]) -> list[str]:
    """The parts that an archive in the output folder knows of and the folder does not: written there, to go on with."""
    if not (out / NAME).exists():
        return []
    known = {part.name for part in parts}
    taken = []
    with tarfile.open(out / NAME) as archive:
        for member in archive.getmembers():
            path, opened = PurePosixPath(member.name), archive.extractfile(member)
            if opened is None:
                continue
            if path.suffix == ".json" and path.parent == FOLDER:
                for name, one in json.loads(opened.read()).get("parts", {}).items():
                    if name in known and not place(out, name).exists():
                        write(out, name, one)
                        taken.append(name)
            elif path.suffix == ".npz" and not (out / RECORDINGS / path.name).exists():
                (out / RECORDINGS).mkdir(exist_ok=True)
                (out / RECORDINGS / path.name).write_bytes(opened.read())
    return taken
