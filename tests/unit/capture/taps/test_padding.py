"""Some batches are looked at as a loader hands them over: those that are trained on, and none is kept."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.batch_samples import BatchSamples
from gpu_doctor.recording.setup import Padding

TEXTS: Any = [torch.arange(1, 4 + n % 20) for n in range(40)]


def collate(items: list[torch.Tensor], length: int = 32) -> torch.Tensor:
    """Padded to a constant."""
    rows = torch.zeros(len(items), length, dtype=torch.long)
    for row, one in zip(rows, items, strict=True):
        row[: len(one)] = one
    return rows


class Ticks:
    """A clock that moves a microsecond a look."""

    now = 0

    def __call__(self) -> int:
        """The time."""
        self.now += 1000
        return self.now


def counted(batches: Iterator[Any], notes: list[str] | None = None) -> tuple[BatchSamples, int]:
    """The looks at some batches, counted as the tap counts them."""
    heard: list[str] = [] if notes is None else notes
    looks, done = BatchSamples(heard.append), 0
    for batch in batches:
        looks.remaining -= 1
        if looks.remaining < 0:
            looks.add(batch)
            done += 1
    return looks, done


def test_looks_become_rarer() -> None:
    rows = collate(TEXTS[:4])
    some, few = (counted(rows for _ in range(count))[1] for count in (45, 20_000))
    assert 15 <= some <= 30 and 50 <= few <= 80


def test_sums_are_of_the_padded_batches() -> None:
    looks, _ = counted(iter([collate(TEXTS[:4]), torch.arange(1, 129).reshape(4, 32), collate(TEXTS[4:8], 40)]))
    assert looks.padding.facts() == (
        Padding("batch", "0", 3, 2, 8, 4 * 32 + 4 * 40, 4 * 6 + 4 * 10, 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10, 3, 10, 32, 40),
    )


def test_no_tensor_in_the_memory_of_the_cpu_is_not_measured() -> None:
    looks, _ = counted(iter([torch.zeros(4, 32, device="meta")] * 5))
    assert looks.padding.facts() is None
    assert counted(iter([torch.randn(4, 32)] * 5))[0].padding.facts() == ()


def test_a_batch_whose_reading_raises_is_the_last_that_is_looked_at() -> None:
    class Odd(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise ValueError("no")

    notes: list[str] = []
    looks, done = counted(iter([Odd()] * 20), notes)
    assert looks.padding.facts() is None and done == 1
    (note,) = notes
    assert note.startswith("The batches could not") and note.endswith(": no")


def test_the_loader_that_is_trained_on_is_told() -> None:
    recorder, model = Recorder(), torch.nn.Linear(32, 1)
    refs: list[weakref.ref[torch.Tensor]] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with listening(recorder):
        for batch in DataLoader(TEXTS, batch_size=8, collate_fn=collate):
            assert torch.equal(batch, collate(TEXTS[8 * len(refs) : 8 * len(refs) + 8]))
            refs.append(weakref.ref(batch))
            model(batch.float()).sum().backward()
            optimizer.step()
        del batch
        model.eval()
        with torch.no_grad():
            for rows in DataLoader(TEXTS, batch_size=4, collate_fn=lambda items: collate(items, 64)):
                model(rows[:, :32].float())
        assert not any(ref() is not None for ref in refs), "none is kept"
    (found,) = recorder.close().setup.padding or ()
    assert (found.rows, found.positions, found.least_length, found.most_length) == (40, 40 * 32, 32, 32)
    assert found.real == sum(map(len, TEXTS))
