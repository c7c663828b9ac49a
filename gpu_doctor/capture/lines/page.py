"""How a worker reports the dearest lines of its fetches: a page of text.

A page has two cells: a turn (odd while it is being written), and seconds of looks at fetches; then a row for each line,
dearest first, as many as fit. One process writes it, any may read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_doctor.capture.lines.places import Place

_HEAD: Final = 16


def write_page(page: memoryview, whole_s: float, seen: Mapping[Place, float]) -> None:
    """Writes rows of `seconds`, `line`, `in torch`, `function`, `file` with tabs between them."""
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
    turn = cells[0] + 1.0 + cells[0] % 2.0  # a writer that was killed half-way left it odd
    cells[0] = turn
    cells[1] = whole_s
    text_bytes = b"".join(rows) + b"\0"
    page[_HEAD : _HEAD + len(text_bytes)] = text_bytes
    cells[0] = turn + 1.0


def read_page(page: memoryview) -> tuple[float, list[tuple[Place, float]]]:
    """Seconds of all looks, and of those at each line; nothing while the page is being written."""
    for _ in range(5):
        before = page[:8].cast("d")[0]
        raw = bytes(page)
        if before % 2.0 == 0.0 and before == page[:8].cast("d")[0]:
            return memoryview(raw)[8:_HEAD].cast("d")[0], list(_rows(raw[_HEAD:].partition(b"\0")[0]))
        time.sleep(2e-4)
    return 0.0, []


def _rows(text: bytes) -> Iterable[tuple[Place, float]]:
    for row in text.decode("utf-8", "surrogateescape").split("\n"):
        fields = row.split("\t")
        if len(fields) == 5:
            with contextlib.suppress(ValueError):
                yield Place(fields[4], int(fields[1]), fields[3], fields[2] == "1"), float(fields[0])
