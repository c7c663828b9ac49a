"""How a process reports the most expensive lines of its fetches: a page of text.

A page has three cells: a turn (odd while it is being written), seconds of looks at a computing thread, seconds of
looks at a sleeping one; then a row for each line, dearest first, as many as fit. One process writes it, any may read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpu_doctor.capture.lines.places import Place

_HEAD: Final = 24


def write_page(page: memoryview, active_s: float, blocked_s: float, seen: Mapping[Place, Sequence[float]]) -> None:
    """Writes rows of `active`, `blocked`, `line`, `in torch`, `function`, `file` with tabs between them."""
    rows, room = [], len(page) - _HEAD - 1
    for place, (active, blocked) in sorted(seen.items(), key=lambda item: -sum(item[1])):
        if "\t" in place.file + place.function or "\n" in place.file + place.function:
            continue
        text = f"{active!r}\t{blocked!r}\t{place.line}\t{int(place.in_torch)}\t{place.function}\t{place.file}\n"
        row = text.encode("utf-8", "surrogateescape")
        room -= len(row)
        if room < 0:
            break
        rows.append(row)
    cells = page[:_HEAD].cast("d")
    turn = cells[0] + 1.0 + cells[0] % 2.0  # a writer that was killed half-way left it odd
    cells[0] = turn
    cells[1], cells[2] = active_s, blocked_s
    text_bytes = b"".join(rows) + b"\0"
    page[_HEAD : _HEAD + len(text_bytes)] = text_bytes
    cells[0] = turn + 1.0


def read_page(page: memoryview) -> tuple[float, float, list[tuple[Place, float, float]]]:
    """Seconds of active and blocked looks, and the same for each line; nothing while the page is being written."""
    for _ in range(5):
        before = page[:8].cast("d")[0]
        raw = bytes(page)
        if before % 2.0 == 0.0 and before == page[:8].cast("d")[0]:
            _, active_s, blocked_s = memoryview(raw)[:_HEAD].cast("d").tolist()
            return active_s, blocked_s, list(_rows(raw[_HEAD:].partition(b"\0")[0]))
        time.sleep(2e-4)
    return 0.0, 0.0, []


def _rows(text: bytes) -> Iterable[tuple[Place, float, float]]:
    for row in text.decode("utf-8", "surrogateescape").split("\n"):
        fields = row.split("\t")
        if len(fields) == 6:
            with contextlib.suppress(ValueError):
                place = Place(fields[5], int(fields[2]), fields[4], fields[3] == "1")
                yield place, float(fields[0]), float(fields[1])
