"""Some backwards are looked at for logits that no loss reads; what a device counted is read when the loop has ended."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from gpu_doctor.capture.describe.unused_logits import Layer, Limit
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import backward, unused_logits
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.unused_logits import FIRST, LOOKS, Looks, Seen
from gpu_doctor.recording.setup import UnusedLogits
from tests.support.one_tap import on
from tests.support.told_loop import begun

X = torch.rand(8, 4)


def trained(kept: list[int]) -> tuple[Recorder, TapScope]:
    """A loop whose loss reads so many of 8 positions, backward by backward; what is found, and who still listens."""
    recorder, body, head = begun(Recorder()), nn.Linear(4, 4), nn.Linear(4, 5)
    with on(backward.tap, recorder) as scope:
        unused_logits.tap(scope)
        for count in kept:
            target = torch.zeros(8, dtype=torch.long).masked_fill(torch.arange(8) >= count, -100)
            functional.cross_entropy(head(body(X).relu()), target).backward()
        listening = list(scope.differentiated)
    scope.differentiated[:] = listening
    return recorder, scope


def test_it_is_counted_over_backwards() -> None:
    recorder, _ = trained([2, 4, 3])
    head, body = 8 * 5 * 4, 8 * 4 * 4
    assert recorder.facts["unused_logits"] == UnusedLogits(
        "ignore_index", 3, 24, 9, 5, 4, "float32", 2, True, all_products=2 * head + body
    )


def test_a_loss_that_reads_all_is_looked_at_a_few_times() -> None:
    recorder, scope = trained([8] * (FIRST + 1))
    assert recorder.facts["unused_logits"] is None and scope.differentiated == []


def test_later_backwards_are_looked_at_more_rarely_and_to_an_end() -> None:
    recorder, scope = trained([2] * 100)
    assert recorder.facts["unused_logits"].looked_at == LOOKS and scope.differentiated == []
    some = trained([2] * 20)[0].facts["unused_logits"]
    assert 8 <= some.looked_at < LOOKS


def test_of_two_layers_that_which_wastes_more() -> None:
    recorder, heads = begun(Recorder()), (nn.Linear(4, 5), nn.Linear(4, 3))
    target = torch.tensor([0, 1] + 6 * [-100])
    with on(backward.tap, recorder) as scope:
        unused_logits.tap(scope)
        sum((functional.cross_entropy(head(X), target) for head in heads), torch.zeros(())).backward()
    assert recorder.facts["unused_logits"].classes == 5


def test_what_lies_on_a_device_is_read_at_the_end() -> None:
    seen = Seen(1, [Layer(8, 5, 4, "float32", 2, True, 1, (Limit("ignore_index", torch.tensor(3)),))])
    assert seen.fact() is None, "reading it would wait for the device"
    seen.read()
    assert seen.fact() == UnusedLogits("ignore_index", 1, 8, 3, 5, 4, bias=True)


def test_a_large_graph_is_let_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unused_logits, "MOST_OPERATIONS", 3)
    assert trained([2])[0].facts["unused_logits"] is None


def test_what_cannot_be_read_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Looks) -> None:
        raise ValueError("no")

    monkeypatch.setattr(Looks, "end", broken)
    recorder, _ = trained([2])
    assert recorder.facts["unused_logits"] is None
    assert [one for one in recorder.notes if "How many logits" in one and one.endswith(": no")]
