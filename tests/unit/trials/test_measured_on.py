"""An effect names where it was measured; what another machine gave is never shown as this one's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.machine.host import cpu_name
from gpu_doctor.recording import DeviceSetup, Recording, Setup, here, load
from gpu_doctor.recording.place import UNKNOWN
from gpu_doctor.report.runs import rows
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect, compare
from gpu_doctor.trials.results import Sweep
from tests.support.recordings import Loop, on_gpu
from tests.support.repository import SAVED
from tests.support.training_worlds import DECODING, case_of

H100 = (DeviceSetup(0, "NVIDIA H100"),)
T4 = (DeviceSetup(0, "Tesla T4"),)
EPYC = "AMD EPYC 7B13"


def run(wait: float = 30.0, gpu: bool = False, **setup: Any) -> Recording:
    """A run on a machine."""
    loop = (on_gpu if gpu else Loop)(steps=60, wait=wait, setup=setup)
    return loop.recording()


def faster(base: dict[str, Any], candidate: dict[str, Any], **given: Any) -> Effect:
    """Three pairs of which the candidate is three times as fast."""
    return compare([run(30.0, **base, **given)] * 3, [run(3.0, **candidate, **given)] * 3)


def test_the_device_is_named() -> None:
    given = {"host": here(), "cpu": EPYC}
    assert faster(given, given).device == f"CPU, 4 cores ({EPYC})"
    card = {"host": here(), "devices": H100, "device": "cuda:0"}
    assert faster(card, card, gpu=True).device == "NVIDIA H100 (cuda:0)"
    mps = {"host": here(), "device": "mps"}
    assert faster(mps, mps).device == "mps"
    assert Effect({"num_workers": 2}, outcome="refused").device == ""


def test_what_was_measured_here_is_shown_without_the_machine() -> None:
    given = {"host": here(), "cpu": EPYC}
    effect = faster(given, given)
    assert effect.verdict == "faster" and not effect.elsewhere
    assert "EPYC" not in str(effect) and effect.notes == ()


def test_what_was_measured_elsewhere_says_so_wherever_it_is_shown() -> None:
    given = {"host": "node-7", "devices": H100, "device": "cuda:0"}
    effect = faster(given, given, gpu=True)
    where = "NVIDIA H100 (cuda:0) on node-7"
    assert (effect.device, effect.elsewhere, effect.verdict) == (where, True, "faster")
    assert f"; measured on {where}" in str(effect)
    assert effect.to_dict()["device"] == where
    row = rows((), (effect,))[0]
    assert row.cells[1].text.endswith(f" on {where}")
    unfolded = row.unfolded()
    assert unfolded is not None and where in unfolded.measured
    assert any(where in note for note in unfolded.notes)
    assert f"Measured on {where}, not on this machine." in str(Sweep((effect,)))


def test_a_report_of_another_machines_run_names_the_machine() -> None:
    diagnosis = gpu_doctor.diagnose(run(host="node-7"))
    assert "measured on node-7" in str(diagnosis) and "measured on node-7" in diagnosis._repr_html_()
    assert "measured on" not in str(gpu_doctor.diagnose(run(host=here())))


@pytest.mark.parametrize(
    "other",
    [{"host": "node-8", "cpu": EPYC}, {"host": "node-7", "cpu": "Xeon"}, {"host": "node-7", "usable_cores": 64.0}],
)
def test_two_machines_have_no_verdict(other: dict[str, Any]) -> None:
    effect = faster({"host": "node-7", "cpu": EPYC}, {"cpu": EPYC, **other})
    assert effect.speedup is not None and effect.speedup > 2.0  # it is what it is
    assert effect.verdict == "inconclusive"
    assert "CPU, 4 cores (AMD EPYC 7B13) on node-7, the candidate" in effect.reason
    assert effect.reason.endswith("this compares machines, not settings")
    assert effect.device.count(" on node-") == 2 and effect.elsewhere


def test_pairs_on_nodes_of_another_speed_say_nothing_of_each_others_spread() -> None:
    """Each node gains the same; that the second is half as fast is no spread from run to run."""
    fast: dict[str, Any] = {"host": "node-7", "cpu": EPYC}
    slow: dict[str, Any] = {"host": "node-8", "cpu": EPYC}

    def width(second: dict[str, Any]) -> float:
        bases = [run(3.0, **fast), run(6.0, **second)]
        found = compare(bases, [run(2.0, **fast), run(4.0, **second)])
        assert found.low is not None and found.high is not None
        return found.high / found.low

    assert width(slow) < 1.3 < width(fast)


def test_the_same_machine_with_another_device_keeps_its_verdict_and_names_both() -> None:
    """`device = "cuda"` is a setting like any other, and what it gives is the effect."""
    cpu, card = run(host=here(), devices=H100), run(3.0, gpu=True, host=here(), devices=H100, device="cuda:0")
    effect = compare([cpu] * 3, [card] * 3)
    assert effect.verdict == "faster"
    assert effect.device == "CPU, 4 cores (baseline) and NVIDIA H100 (cuda:0) (candidate)"
    assert f"measured on {effect.device}" in str(effect)


def test_a_side_that_ended_no_step_has_no_device() -> None:
    """It may not have come to its device: memory that ran out in the first forward is no trial of the CPU."""
    card = run(gpu=True, host=here(), devices=H100, device="cuda:0")
    failed = dataclasses.replace(card, steps=card.steps.rows(0, 0), setup=Setup(host=here()), outcome="out-of-memory")
    effect = compare(card, failed)
    assert (effect.device, effect.elsewhere) == ("NVIDIA H100 (cuda:0)", False)


def test_a_file_of_an_older_version_is_of_an_unknown_machine() -> None:
    old = load(SAVED / "starved-on-a-cpu.npz")
    assert old.setup.host == UNKNOWN
    effect = compare(old, old)
    assert effect.device.endswith(" on an unknown machine") and effect.elsewhere
    assert "an unknown machine" in str(effect) and "an unknown machine" in str(gpu_doctor.diagnose(old))
    assert compare(old, run(host=here())).verdict == "inconclusive"


def test_unknown_machines_with_different_cards_are_not_taken_for_one() -> None:
    cards = [{"host": UNKNOWN, "devices": one, "device": "cuda:0"} for one in (T4, H100)]
    assert "compares machines" in faster(*cards, gpu=True).reason


def test_a_recording_keeps_where_it_was_made(tmp_path: Path) -> None:
    made = gpu_doctor.case("x = 1", {}).run()
    assert (made.setup.host, made.setup.cpu) == (here(), cpu_name())
    kept = load(made.save(tmp_path / "run.npz"))
    assert (kept.setup.host, kept.setup.cpu, kept.setup.machine) == (here(), cpu_name(), made.setup.machine)


def test_the_processors_name_is_read_from_linux(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: other\n")
    assert cpu_name.__wrapped__(told) == "AMD EPYC 7B13"
    told.write_text("processor\t: 0\nCPU part\t: 0xd0c\n")
    assert cpu_name.__wrapped__(told) == ""


def test_names_of_other_machines_are_cleaned() -> None:
    effect = faster({"host": "a\x1b[31mb"}, {"host": "a\x1b[31mb"})
    assert effect.elsewhere and "\x1b" not in effect.device


def case_of_runs(*recordings: Recording) -> Any:
    case = gpu_doctor.case("x = 1", {})
    case.recordings += recordings
    return case


def test_a_forecast_is_read_off_runs_on_the_same_hardware() -> None:
    """A loop that waits there and computes here: its run there foretells nothing of the trial here."""
    case = case_of_runs(run(90.0, host="node-7"), run(5.0, host=here()))
    entry = race.Entry({"num_workers": 2}, bases=[run(5.0, host="node-7")], candidates=[run(host="node-7")])
    there = race._predicted(case, entry, {})
    assert there == forecast(measure(run(90.0, host="node-7")), {"num_workers": 2}, ())
    entry = race.Entry({"num_workers": 2}, bases=[run(7.0, host="node-9")], candidates=[run(host="node-9")])
    assert race._predicted(case, entry, {}) == forecast(measure(run(7.0, host="node-9")), {"num_workers": 2}, ())


def test_what_came_back_from_a_sweep_names_its_machine() -> None:
    there: dict[str, Any] = {"host": "node-7", "cpu": EPYC}
    entry = race.Entry({"num_workers": 2}, [run(30.0, **there)], [run(3.0, **there)])
    effect = race.concluded(gpu_doctor.case("x = 1", {}), entry, {})
    assert effect.device == f"CPU, 4 cores ({EPYC}) on node-7" and effect.elsewhere


def test_a_plan_says_where_it_was_measured() -> None:
    case = case_of(DECODING)
    plan = case.treat(3, steps=50)
    assert not any("Measured on" in note for note in plan.notes)
    made = case.once

    def elsewhere(*given: Any) -> Any:
        result = made(*given)
        setup = dataclasses.replace(result.recording.setup, host="node-7")
        return dataclasses.replace(result, recording=dataclasses.replace(result.recording, setup=setup))

    case.once = elsewhere  # type: ignore[assignment]
    plan = case.treat(3, steps=50)
    assert plan.effects and plan.notes[0] == f"Measured on {plan.effects[0].device}, not on this machine."
    assert "on node-7" in plan.notes[0] and plan.notes[0] in str(plan)
