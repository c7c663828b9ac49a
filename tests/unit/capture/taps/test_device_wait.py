"""What a trial waits for is every device that the loop trains on, and is no wait of the loop's own."""

from __future__ import annotations

import pytest
import torch

from gpu_doctor.capture.events import SYNCED, WAITING
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording.setup import ModelFacts


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that were waited for."""
    found = list[str]()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: found.append(str(device)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: found.append("mps"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


@pytest.mark.parametrize(
    ("device", "others", "wanted"),
    [("cuda:1", (), ["cuda:1"]), ("cuda:0", ("cuda:2", "cpu"), ["cuda:0", "cuda:2"]), ("mps:0", (), ["mps"])],
)
def test_every_device_of_the_loop_is_waited_for(
    waited: list[str], device: str, others: tuple[str, ...], wanted: list[str]
) -> None:
    recorder = Recorder()
    with listening(recorder, {}, accelerated=True):
        recorder.facts.update(device=device, model=ModelFacts(dict.fromkeys((device, *others), 40)))
        assert recorder.device_waits.wait()
        assert waited == wanted
        assert not {code for code, _, _ in recorder.log.events} & {WAITING, SYNCED}
    assert not recorder.device_waits.possible


def test_nothing_is_waited_for_where_the_loop_trains_on_the_cpu(waited: list[str]) -> None:
    recorder = Recorder()
    with listening(recorder, {}, accelerated=True):
        assert not recorder.device_waits.wait()
    with listening(recorder, {}, accelerated=False):
        assert not recorder.device_waits.possible
    assert waited == []


def test_a_graph_that_is_captured_is_not_spoiled(waited: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    recorder = Recorder()
    with listening(recorder, {}, accelerated=True):
        recorder.facts["device"] = "cuda:0"
        assert not recorder.device_waits.wait()
    assert waited == []
