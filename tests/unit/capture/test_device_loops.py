"""Training loops on the simulated GPU: what it did, by our columns and by its own timeline; the first finding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpu_doctor.capture.events import CPU, EXHAUSTED, MARK, NEXT, OURS, Event
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.diagnosis import diagnose
from tests.support.device_loops import KINDS, our_shares, played, true_shares
from tests.support.leftovers import one_thread as one_thread
from tests.support.one_tap import batches
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import Noted, SimulatedDevice

NEAR = 0.02
"""Of the wall-clock, so much may a share be off."""


PRICED = 0.1
"""Of the wall-clock: what costs less may be found or not."""


@pytest.mark.parametrize("name", KINDS)
def test_the_device_did_what_its_timeline_says_and_the_first_finding_is_right(name: str) -> None:
    kind = KINDS[name]
    cuda, recording = played(kind)
    ours, true, found = our_shares(recording), true_shares(cuda.device), diagnose(recording)
    first = [one.rule for one in found.findings if (one.cost_share or 0.0) >= PRICED][:1]
    assert (first and first[0] in kind.first) or not (first or kind.first), first
    assert not recording.notes
    if kind.idles_within:
        assert 0.0 < ours.busy - true.busy <= (found.vitals.caught_up_share or 0.0)
        assert ours.busy - true.busy == pytest.approx(true.gap - ours.gap, abs=NEAR)
        ours, true = ours._replace(busy=0.0, gap=0.0), true._replace(busy=0.0, gap=0.0)
    assert tuple(ours) == pytest.approx(tuple(true), abs=NEAR)


def test_a_loop_of_small_kernels_is_bound_by_its_host() -> None:
    found = diagnose(played(KINDS["small kernels"])[1])
    assert found.bottleneck == "host" and (found.vitals.caught_up_share or 0.0) > 1.0 - PRICED


@pytest.mark.parametrize("name", ["starved", "item each step", "prefetcher, starved", "accumulation 4, 60 % wait"])
def test_no_event_is_left_behind(name: str) -> None:
    """A loop that is twice as long needs hardly more: how many wait at once depends on when the log is folded."""
    (short, _), (long, _) = (played(KINDS[name], steps=steps) for steps in (24, 48))
    assert len(long.device.marks) > 1.8 * len(short.device.marks)
    assert long.events < 1.3 * short.events


def heard(recorder: Recorder) -> list[tuple[int, int | None]]:
    """Codes of the events that are noted from now on, those of marks with what they were put for."""
    found: list[tuple[int, int | None]] = []
    note = recorder.log.note

    def noted(event: Event) -> None:
        if event[0] not in (OURS, CPU):  # when those are noted is a matter of time
            found.append((event[0], event[2][0] if event[0] == MARK else None))
        note(event)

    recorder.log.note = noted
    return found


def test_what_a_loop_is_told_to_do_is_noted_as_the_taps_note_it() -> None:
    """A loader, a copy, a forward, a backward, gradients that are set to zero, a step and a value that is read."""
    with SimulatedCuda(SimulatedDevice(exact=True), kernel_ms=0.1) as cuda:
        net = nn.Linear(4, 1).to("cuda")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        recorder = cuda.device.recorder()
        real = heard(recorder)
        with listening(recorder, {"net": net}, accelerated=True):
            optimizer.zero_grad()  # so that the first forward is heard
            for x, _ in batches(24):
                loss = net(x.to("cuda")).mean()
                loss.backward()
                optimizer.zero_grad()
                optimizer.step()
                loss.item()
    told_on = SimulatedDevice(exact=True)
    recorder = told_on.recorder()
    told, loop = heard(recorder), Noted(recorder, told_on)
    for _ in range(3):
        loop.pull()
        loop.copying()
        loop.copied(128, True)
        loop.forward()
        loop.called()
        loop.backward()
        loop.backed()
        loop.zero()
        loop.step()
        loop.stepped()
        loop.awaits(told_on)
    loop.exhaust()
    assert told[-1] == real[-1] == (EXHAUSTED, None)
    assert told == real[real.index((MARK, NEXT)) :]
