"""Line costs of the fetches in workers, from the workers' pages (see `page.py`)."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from typing import Final

from gpu_doctor.capture.lines.page import read_page
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import DATA_WAIT, PHASE_NAMES

SHOWN_LINES: Final = 20
"""Most lines that are reported."""


def line_costs(pages: Iterable[tuple[memoryview, float]]) -> tuple[LineCost, ...]:
    """Returns the most expensive lines of some workers together, as shares of their fetch time, largest first.

    The shares sum to less than 1 if some time was in no line of the user's.

    Args:
        pages: page of each worker, and wall seconds of its fetches.
    """
    total_s, seconds = 0.0, dict[Place, float]()
    for page, wall_s in pages:
        sampled_s, rows = read_page(page)
        if sampled_s > 0:
            total_s += wall_s
            for place, seen_s in rows:
                seconds[place] = seconds.get(place, 0.0) + wall_s * seen_s / sampled_s
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
            share=min(line_s / total_s, 1.0),
            in_torch=place.in_torch,
            in_worker=True,
        )
        for place, line_s in dearest
    )
