"""own-python: code that can be pasted, and what is not the loop's habit: our own threads, a stall that came once."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.host.own_python import BY_CLOCK
from gpu_doctor.recording import Recording
from tests.support.found import named
from tests.support.rule_loops.host import LOGGING, PLOT, stalled

RULE = "slow-python"


def test_a_checkpoint_by_the_clock_runs_as_pasted() -> None:
    saved: list[str] = []
    torch = types.SimpleNamespace(save=lambda state, path: saved.append(path))
    exec(BY_CLOCK, {"torch": torch, "state": {}, "path": "x.pt"})
    assert not saved, "the clock has just been started"


@pytest.mark.parametrize(
    ("overhead", "ours", "expected"),
    [
        (0.02, None, True),
        (0.2, None, False),
        (0.2, 0.05, True),  # what our threads took beside the loop is no matter then
        (0.02, 0.15, False),
        (0.2, 0.15, False),
    ],
)
def test_what_watching_itself_may_have_caused_is_nobodys(overhead: float, ours: float | None, expected: bool) -> None:
    recording = LOGGING.but(lines=(PLOT,)).recording()
    watched = replace(recording, overhead_s=overhead * recording.duration_s)
    if ours is not None:
        watched = replace(watched, steps=replace(watched.steps, ours_s=ours * watched.steps.wall_s))
    assert (RULE in named(watched)) is expected


def test_what_our_threads_took_is_taken_off_the_price() -> None:
    recording = LOGGING.but(lines=(PLOT,)).recording()
    taken = replace(recording, steps=replace(recording.steps, ours_s=0.05 * recording.steps.wall_s))
    assert diagnose(taken).findings[0].cost_share == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize(
    ("recording", "habit"),
    [(stalled(50), False), (stalled(20, 50, 80), True), (stalled(50, steps_per_epoch=50), True)],
    ids=["a single step that stood still", "several", "between two epochs"],
)
def test_what_comes_once_is_said_and_is_no_bottleneck(recording: Recording, habit: bool) -> None:
    diagnosis = diagnose(recording)
    assert (diagnosis.vitals.other_share or 0.0) > 0.2, "where the time went is said as it was"
    assert (diagnosis.bottleneck == "host") is habit
