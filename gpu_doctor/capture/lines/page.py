"""Writes and reads the page of text in which a worker reports the most expensive lines of its fetches.

A page begins with two cells: a turn (odd while the page is being written), and the sampled seconds of fetches. Then
comes a row for each line, the most expensive first, as many as fit. One process writes it, any may read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_doctor.capture.lines.places import Place

_HEAD: Final = 16


def write_page(page: memoryview, whole_s: float, seen: Mapping[Place, float]) -> None:
    """Writes rows of seconds, line, in torch, function and file, separated by tabs.

    Args:
        page: the page.
        whole_s: sampled seconds of all fetches.
        seen: sampled seconds of each line.
    """
    rows, room = [], len(page) - _HEAD - 1
    for place, seconds in sorted(seen.items(), key=lambda item: -item[1]):
        if "\t" in place.file + place.function or "\n" in place.file + place.function:
            continue
        text = f"{seconds!r}\t{place.line}\t{int(place.in_torch)}\t{place.function}\t{place.file}\n"
        row = text.encode("utf-8", "surrogateescape")
        room -= len(row)
        if room < 0:
            break
        rows.append(row)
    cells = page[:_HEAD].cast("d")
    turn = cells[0] + 1.0 + cells[0] % 2.0  # it is odd if a writer was killed half-way
    cells[0] = turn
    cells[1] = whole_s
    text_bytes = b"".join(rows) + b"\0"
    page[_HEAD : _HEAD + len(text_bytes)] = text_bytes
    cells[0] = turn + 1.0


def read_page(page: memoryview) -> tuple[float, list[tuple[Place, float]]]:
    """Returns the sampled seconds of all fetches and of each line; 0 and no line while the page is being written."""
    for _ in range(5):
        before = page[:8].cast("d")[0]
        raw = bytes(page)
        if before % 2.0 == 0.0 and before == page[:8].cast("d")[0]:
            return memoryview(raw)[8:_HEAD].cast("d")[0], list(_rows(raw[_HEAD:].partition(b"\0")[0]))
        time.sleep(2e-4)
    return 0.0, []


def _rows(text: bytes) -> Iterable[tuple[Place, float]]:
    """Parses the rows of a page; skips those that are damaged."""
    for row in text.decode("utf-8", "surrogateescape").split("\n"):
        fields = row.split("\t")
        if len(fields) == 5:
            with contextlib.suppress(ValueError):
                yield Place(fields[4], int(fields[1]), fields[3], fields[2] == "1"), float(fields[0])
