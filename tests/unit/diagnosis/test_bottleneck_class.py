"""The class of a bottleneck, by how parts of the time are billed to one another; its sentence where it has one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.verdict import classified
from gpu_doctor.recording.setup import Traffic
from tests.support.recordings import Loop, line, on_gpu


@pytest.mark.parametrize(
    ("gap", "outside", "launching", "bottleneck"),
    [
        (0.15, 0.15, 0.0, "compute"),  # all that the loop's own code takes lies in the gap that was seen
        (0.15, 0.25, 0.0, "host"),  # a tenth of it hides in steps that the GPU seemed to compute in
        (0.15, 0.15, 0.1, "host"),
        (0.10, 0.10, 0.05, "compute"),
    ],
)
def test_what_the_host_of_an_outrun_gpu_does_within_steps_is_billed_once(
    gap: float, outside: float, launching: float, bottleneck: str
) -> None:
    vitals = replace(
        on_gpu().vitals(),
        caught_up_share=1.0,
        exposed_wait_share=0.0,
        exposed_transfer_share=0.0,
        gpu_gap_share=gap,
        gpu_busy_share=1.0 - gap,
        other_share=outside,
        loss_share=0.0,
        other_once_share=0.0,
        launching_share=launching,
    )
    assert classified(vitals) == bottleneck
    assert classified(replace(vitals, caught_up_share=0.0)) == "compute", "its own clock is believed"


def test_from_a_fifth_of_the_time_on_something_else_names_the_class() -> None:
    assert classified(replace(Loop().vitals(), data_wait_share=0.2)) == "input"
    assert classified(replace(Loop().vitals(), data_wait_share=0.199)) == "compute"


@pytest.mark.parametrize(
    ("trips", "seen", "bottleneck"),
    [(0.15, 0.15, "compute"), (0.15, 0.0, "compute"), (0.25, 0.1, "transfer"), (0.25, 0.25, "transfer")],
)
def test_trips_to_the_host_that_the_gpus_clock_saw_are_billed_once(trips: float, seen: float, bottleneck: str) -> None:
    vitals = on_gpu().vitals()
    gone = Traffic(round_trips=vitals.steps, round_trip_s=trips * (vitals.run_s or 0.0))
    vitals = replace(
        vitals,
        traffic=gone,
        exposed_wait_share=0.0,
        exposed_transfer_share=0.0,
        tripped_share=seen,
        gpu_gap_share=seen,
        gpu_busy_share=1.0 - seen,
    )
    assert classified(vitals) == bottleneck


def test_a_loop_that_changes_its_parameters_itself_computes_where_it_runs_no_plain_python() -> None:
    by_hand = {"optimizers": (), "optimizer_facts": ()}
    update = line("p.data.add_(p.grad, alpha=-lr)", 0.5)
    loop = Loop(forward=1.0, backward=3.0, optimizer=0.0, other=6.0, lines=(update,), setup=by_hand)
    assert diagnose(loop.recording()).bottleneck == "compute"
    python = replace(update, outside_torch=True)
    assert diagnose(loop.but(lines=(python,)).recording()).bottleneck == "host"
