"""Every damaged file is refused in one sentence, or read as what it was; and no file fills the memory."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_doctor.recording import Recording, RecordingError, load, npz
from tests.support.properties import examples
from tests.support.recordings import full, same

CHECK: Final = examples(60)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEADER: Final = "header.npy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files lie; hypothesis has no folder for each example."""
    made = tmp_path_factory.mktemp("files")
    full().save(made / "whole.npz")

    @settings(CHECK, max_examples=1)
    @given(st.integers(0, 1))
    def example(number: int) -> None:
        """At its first example hypothesis reads all modules that are loaded, which is no test's own time."""

    example()
    return made


def read(folder: Path, file: bytes) -> Recording | None:
    """The recording of such a file; None where it is refused, in one sentence that names the file."""
    path = folder / "broken.npz"
    path.write_bytes(file)
    try:
        return load(path)
    except RecordingError as error:
        said = str(error)
        assert "\n" not in said and str(path) in said and ": " in said
        return None


def entries(folder: Path) -> dict[str, bytes]:
    """What the whole file holds, by name."""
    with zipfile.ZipFile(folder / "whole.npz") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(held: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """A file that holds so much, its checksums right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return file.getvalue()


def header_of(header: Any) -> bytes:
    """The entry of a header."""
    file = io.BytesIO()
    np.save(file, np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    return file.getvalue()


@CHECK
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_noticed_or_change_nothing(folder: Path, changes: list[tuple[float, int]]) -> None:
    file = bytearray((folder / "whole.npz").read_bytes())
    for at, by in changes:
        file[int(at * len(file))] ^= by
    found = read(folder, bytes(file))
    if found is not None:
        same(found, full())


@CHECK
@given(begin=st.floats(0, 1), end=st.floats(0, 1), more=st.binary(max_size=8))
def test_a_part_of_a_file_is_refused(folder: Path, begin: float, end: float, more: bytes) -> None:
    whole = (folder / "whole.npz").read_bytes()
    first, last = sorted((int(begin * len(whole)), int(end * len(whole))))
    if last - first < len(whole):
        assert read(folder, whole[:first] + more + whole[last:]) is None or last - first <= len(more)


@CHECK
@given(data=st.data())
def test_any_other_value_in_the_header_is_refused_or_makes_a_recording(folder: Path, data: st.DataObject) -> None:
    held = entries(folder)
    header = json.loads(np.load(io.BytesIO(held[HEADER])).tobytes())
    place: Any = header
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    found = read(folder, packed({**held, HEADER: header_of(header)}))
    if found is not None:  # what is read can be told, and saved again
        same(load(found.save(folder / "again.npz")), found)


@CHECK
@given(data=st.data())
def test_any_other_array_is_refused_or_makes_a_recording(folder: Path, data: st.DataObject) -> None:
    held = entries(folder)
    name = data.draw(st.sampled_from(sorted(held)))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=2).map(tuple))
    kind = data.draw(st.sampled_from(["<f8", ">f8", "<f4", "<i8", "?", "<U2", "<M8[s]", "<c16", "V3"]))
    file = io.BytesIO()
    np.save(file, np.zeros(shape, kind))
    found = read(folder, packed({**held, name: file.getvalue()}))
    if found is not None:
        same(load(found.save(folder / "again.npz")), found)


@pytest.mark.parametrize("version", [1, 2])
def test_what_an_array_claims_is_no_memory_taken(folder: Path, version: int) -> None:
    claim = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == 1 else np.lib.format.write_array_header_2_0
    write(claim, {"descr": "<f8", "fortran_order": False, "shape": (1 << 28,)})
    tracemalloc.start()
    try:
        assert read(folder, packed({**entries(folder), "steps.wall_s.npy": claim.getvalue()})) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["steps.wall_s.npy", HEADER, "more.npy"])
def test_a_file_that_unpacks_to_more_than_a_run_leaves_is_refused_unread(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert npz.MOST_BYTES + npz.MOST_HEADER_BYTES < 1e9
    monkeypatch.setattr(npz, "MOST_BYTES", 4 << 20)
    monkeypatch.setattr(npz, "MOST_HEADER_BYTES", 1 << 20)
    bomb = packed({**entries(folder), name: bytes(32 << 20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    try:
        assert read(folder, bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(npz, "MOST_BYTES", 1000)
    with pytest.raises(RecordingError, match="more than any recording"):
        load(folder / "whole.npz")


def test_a_file_of_endless_entries_is_refused_unread(folder: Path) -> None:
    many = {f"notes.{number}.npy": b"" for number in range(npz.MOST_ARRAYS)}
    (folder / "many.npz").write_bytes(packed({**many, **entries(folder)}))
    with pytest.raises(RecordingError, match="more than any recording"):
        load(folder / "many.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_entry_that_unpacks_to_more_than_it_claims_takes_no_memory(folder: Path, method: int) -> None:
    """The directory of the zip says 4 kB, and behind it are 64 MB of zeros."""
    large, small = bytes(64 << 20), bytes(4 << 10)
    bomb = bytearray(packed({**entries(folder), "more.npy": large}, method))
    for size in (bomb.index(b"more.npy") - 8, bomb.rindex(b"more.npy") - 22):  # of the entry, and of the directory
        assert bomb[size : size + 4] == len(large).to_bytes(4, "little")
        bomb[size : size + 4] = len(small).to_bytes(4, "little")
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    try:
        assert read(folder, bytes(bomb)) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_column_where_none_belongs_is_refused(folder: Path) -> None:
    column = io.BytesIO()
    np.save(column, np.zeros(3))
    for place in ("settings.batch_size", "setup.flags.cudnn_benchmark", "steps", "name", "series.0", "series.9.values"):
        assert read(folder, packed({**entries(folder), f"{place}.npy": column.getvalue()})) is None, place


def test_a_header_by_another_name_is_bounded_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = entries(folder)
    text = held.pop(HEADER)
    (folder / "named.npz").write_bytes(packed({**held, "header": text}))
    same(load(folder / "named.npz"), full())
    monkeypatch.setattr(npz, "MOST_HEADER_BYTES", len(text) - 1)
    with pytest.raises(RecordingError, match="more than any recording"):
        load(folder / "named.npz")
