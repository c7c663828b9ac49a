"""An effect that was measured while other programs used the machine says so."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis import diagnose, others_share
from gpu_doctor.diagnosis.vitals.machine import BUSY_FROM
from gpu_doctor.recording import Recording
from gpu_doctor.trials.compare.effect import compare
from tests.support.recordings import Loop, read


def recorded(every: list[float], own: list[float]) -> Recording:
    return read(Loop(steps=50).recording(), None, cpu_util_pct=every, process_cpu_pct=own)


@pytest.mark.parametrize(
    ("every", "own", "share"),
    [
        ([50.0, 50.0], [50.0, 50.0], 0.0),
        ([90.0, 90.0], [50.0, 50.0], 0.4),
        ([30.0, 60.0, 90.0], [30.0, 60.0, 30.0], 0.2),
        ([40.0, 40.0], [60.0, 60.0], 0.0),
    ],
)
def test_what_the_machine_did_less_what_is_ours(every: list[float], own: list[float], share: float) -> None:
    assert others_share([recorded(every, own)]) == pytest.approx(share)


def test_not_read_is_none() -> None:
    assert others_share([]) is None
    assert others_share([recorded([], [])]) is None
    assert compare(*([dataclasses.replace(recorded([9.0], [9.0]), series=())] for _ in "ab")).busy is None


def test_the_effect_is_marked_from_a_tenth_on() -> None:
    quiet, loud = recorded([52.0], [50.0]), recorded([90.0], [50.0])
    assert compare(quiet, quiet).busy == pytest.approx(0.02)
    assert "busy" not in str(compare(quiet, quiet))
    effect = compare(loud, loud)
    assert effect.busy is not None and effect.busy >= BUSY_FROM
    assert "other programs used 40 % of the cores" in str(effect)
    assert effect.to_dict()["busy"] == effect.busy


def test_a_diagnosis_says_it_in_a_note() -> None:
    assert not [note for note in diagnose(recorded([52.0], [50.0])).notes if "busy" in note]
    (note,) = diagnose(recorded([90.0], [50.0])).notes
    assert "40 %" in note and note.endswith(".")
