"""How a process reports the most expensive lines of its fetches: a page of text, read back as line costs.

A page has three cells: a turn (odd while it is being written), seconds of looks at a computing thread, seconds of
looks at a sleeping one; then a row for each line, dearest first, as many as fit. One process writes it, any may read.
"""

from __future__ import annotations

import contextlib
import linecache
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpu_doctor.capture.fetch.sums import Sums
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import DATA_WAIT, PHASE_NAMES

Key = Place
SHOWN_LINES: Final = 20
_HEAD: Final = 24


def write_page(page: memoryview, active_s: float, blocked_s: float, seen: Mapping[Key, Sequence[float]]) -> None:
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


def read_page(page: memoryview) -> tuple[float, float, list[tuple[Key, float, float]]]:
    """Seconds of active and blocked looks, and the same for each line; nothing while the page is being written."""
    for _ in range(5):
        before = page[:8].cast("d")[0]
        raw = bytes(page)
        if before % 2.0 == 0.0 and before == page[:8].cast("d")[0]:
            _, active_s, blocked_s = memoryview(raw)[:_HEAD].cast("d").tolist()
            return active_s, blocked_s, list(_rows(raw[_HEAD:].partition(b"\0")[0]))
        time.sleep(2e-4)
    return 0.0, 0.0, []


def _rows(text: bytes) -> Iterable[tuple[Key, float, float]]:
    for row in text.decode("utf-8", "surrogateescape").split("\n"):
        fields = row.split("\t")
        if len(fields) == 6:
            with contextlib.suppress(ValueError):
                place = Place(fields[5], int(fields[2]), fields[4], fields[3] == "1")
                yield place, float(fields[0]), float(fields[1])


def shares(page: memoryview, sums: Sums) -> dict[Key, float]:
    """Each line's part of a process' fetch time, 0..1; they sum to less than 1 by what was in no line of the user's.

    Computing and waiting are shared out apart, each by its own looks, as the kernel's counters say how much of the
    fetch either is; where they do not say, looks count alike.
    """
    active_s, blocked_s, rows = read_page(page)
    total_s = active_s + blocked_s
    if total_s <= 0:
        return {}
    computing = active_s / total_s
    if sums.counted_wall_s > 0 and (known := (sums.on_core_s + sums.queued_s) / sums.counted_wall_s) == known:
        computing = min(known, 1.0)
    by_active = computing / active_s if active_s else 0.0
    by_blocked = (1.0 - computing) / blocked_s if blocked_s else 0.0
    return {place: active * by_active + blocked * by_blocked for place, active, blocked in rows}


def line_costs(pages: Iterable[tuple[memoryview, Sums]], in_worker: bool) -> tuple[LineCost, ...]:
    """The dearest lines of some processes together, dearest first, as shares of their fetch time."""
    total_s, seconds = 0.0, dict[Key, float]()
    for page, sums in pages:
        found = shares(page, sums)
        if found:
            total_s += sums.wall_s
            for place, share in found.items():
                seconds[place] = seconds.get(place, 0.0) + share * sums.wall_s
    if total_s <= 0:
        return ()
    dearest = sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN_LINES]
    return tuple(
        LineCost(
            file=place.file,
            line=place.line,
            function=place.function,
            text=linecache.getline(place.file, place.line).strip(),
            phase=PHASE_NAMES[DATA_WAIT],
            share=min(one / total_s, 1.0),
            in_torch=place.in_torch,
            in_worker=in_worker,
        )
        for place, one in dearest
    )


def with_fetches(
    lines: Sequence[LineCost], fetches: Sequence[LineCost], wait_s: float, wall_s: float
) -> tuple[LineCost, ...]:
    """Line costs of the training thread in which the wait for data is told apart by looks at the fetches.

    Args:
        lines: of all phases, shares of the wall-clock. fetches: of this process' own fetches, shares of their time.
        wait_s: seconds waited for data, by the steps' clock. wall_s: seconds of all steps.
    """
    wait = PHASE_NAMES[DATA_WAIT]
    known = sum(one.share for one in lines if one.phase == wait)
    share = wait_s / wall_s if wall_s > 0 else known
    if not fetches or not 0.0 < share <= 1.0:
        return tuple(lines)
    places = {(one.file, one.line) for one in fetches}
    left = [one for one in lines if one.phase == wait and (one.file, one.line) not in places]
    rest = max(1.0 - sum(one.share for one in fetches), 0.0) * share
    elsewhere = sum(one.share for one in left)
    others = (1.0 - share) / (1.0 - known) if known < 1.0 else 1.0
    found = [replace(one, share=one.share * others) for one in lines if one.phase != wait]
    found += [replace(one, share=one.share * share) for one in fetches]
    found += [replace(one, share=min(one.share / elsewhere * rest, rest)) for one in left if elsewhere > 0]
    return tuple(sorted(found, key=lambda one: -one.share))
