"""Line costs of fetches, read off the pages of the processes that fetch (see `page.py`)."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from gpu_doctor.capture.fetch.tally import Sums
from gpu_doctor.capture.lines.page import read_page
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import DATA_WAIT, PHASE_NAMES

SHOWN_LINES: Final = 20


def shares(page: memoryview, sums: Sums) -> dict[Place, float]:
    """Each line's part of a process' fetch time, 0..1; they sum to less than 1 by what was in no line of the user's.

    Computing and waiting are shared out apart, each by its own looks, as the kernel's counters say how much of the
    fetch either is; where they do not say, looks count alike.
    """
    active_s, blocked_s, rows = read_page(page)
    total_s = active_s + blocked_s
    if total_s <= 0:
        return {}
    computing = active_s / total_s
    if sums.wall_s > 0 and (known := (sums.on_core_s + sums.queued_s) / sums.wall_s) == known:
        computing = min(known, 1.0)
    by_active = computing / active_s if active_s else 0.0
    by_blocked = (1.0 - computing) / blocked_s if blocked_s else 0.0
    return {place: active * by_active + blocked * by_blocked for place, active, blocked in rows}


def line_costs(pages: Iterable[tuple[memoryview, Sums]], in_worker: bool) -> tuple[LineCost, ...]:
    """The dearest lines of some processes together, dearest first, as shares of their fetch time."""
    total_s, seconds = 0.0, dict[Place, float]()
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
        lines: of all phases, shares of the wall-clock.
        fetches: of this process' own fetches, shares of their time.
        wait_s: seconds waited for data, by the steps' clock.
        wall_s: seconds of all steps.
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
