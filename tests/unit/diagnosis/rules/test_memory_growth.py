"""memory-growth: what is kept from step to step, and what only looks like it; on recordings and on real loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_doctor.diagnosis.rules.memory.memory_growth import WRITTEN
from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import KeptBatches, KeptGraphs
from tests.support.found import asked, surely
from tests.support.recordings import READINGS, Loop, on_gpu, read

RULE = "memory-growth"

MIB, GIB = float(1 << 20), float(1 << 30)


KEEPS = "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    losses.append(loss)\n"


SLOW = Loop(steps=400, steps_per_epoch=50, wait=1.0)


PROVED = {"kept_graphs": KeptGraphs(40, 40)}
"""The graphs of all steps that were followed are still there."""


RNG = np.random.default_rng(0)


RAMP = np.linspace(0.0, 1.0, READINGS)


def held(bytes_: Sequence[float] | Any, loop: Loop = SLOW, available: float = 8 * GIB) -> Recording:
    """The loop, while the process held so much."""
    machine = {"host_memory_available_bytes": available, "host_memory_total_bytes": 16 * GIB}
    return read(loop.recording(), None, process_held_bytes=bytes_, process_rss_bytes=bytes_, **machine)


def test_sick() -> None:
    found = surely(RULE, held(GIB + 200 * MIB * RAMP, SLOW.but(source=KEEPS, setup=PROVED)))
    assert (
        "line 4 keeps `loss` of every step" in found.headline
        and "losses.append(loss.item())" in found.prescriptions[0].code
    )
    assert found.cost_share is None and "full after about 16" in found.risk and "000 more steps" in found.risk


def test_on_a_gpu_its_memory_and_no_number_to_wait_for() -> None:
    swing = np.where(np.arange(READINGS) % 3 == 0, 20e9, 0.0)  # activations, in the middle of a step
    grown = 5e9 + 10e9 * RAMP
    recording = read(
        on_gpu(steps=400, steps_per_epoch=50, source=KEEPS, setup=PROVED).recording(),
        0,
        torch_allocated_bytes=grown + swing,
        torch_peak_bytes=grown + 20e9,
    )
    found = surely(RULE, read(recording, None, process_held_bytes=4e9))
    assert "the GPU's memory rose" in found.evidence[0] and "loss.detach()" in found.prescriptions[0].code


def test_growth_after_the_first_epoch_needs_no_line() -> None:
    found = surely(RULE, held(GIB + 400 * MIB * RAMP))
    assert "line" not in found.headline and "weakref.WeakSet" in found.prescriptions[0].code


def test_a_cache_that_will_not_fit_into_memory_within_the_first_epoch() -> None:
    first = SLOW.but(steps_per_epoch=20_000)
    assert surely(RULE, held(GIB + 2 * GIB * RAMP, first, available=GIB)).risk
    assert asked(RULE, held(GIB + 2 * GIB * RAMP, first, available=200 * GIB)) is None, "it fits"


def test_a_line_that_may_keep_graphs_is_named_only_where_they_were_seen_to_be_kept() -> None:
    """The text alone proves nothing: within the first epoch a cache of the data grows the same way."""
    first = SLOW.but(steps_per_epoch=20_000, source=KEEPS)
    assert asked(RULE, held(GIB + 200 * MIB * RAMP, first, available=20 * GIB)) is None
    let_go = first.but(setup={"kept_graphs": KeptGraphs(40, 0)})
    assert "line" not in surely(RULE, held(GIB + 2 * GIB * RAMP, let_go, available=GIB)).headline


NOTHING_TRAINED = {"optimizers": ()}


EXPORT = "outs = []\nwith torch.inference_mode():\n    for x in loader:\n        outs.append(model(x))\n"


PREDICTS = SLOW.but(steps_per_epoch=400, backward=0.0, optimizer=0.0, source=EXPORT, setup=NOTHING_TRAINED)


@pytest.mark.parametrize("workers", [0, 4])
def test_outputs_that_are_kept_on_purpose_and_fit(workers: int) -> None:
    grown = GIB + 2 * GIB * RAMP
    assert asked(RULE, held(grown, PREDICTS.but(workers=workers))) is None, "all of its batches are done"
    half = PREDICTS.but(workers=workers, steps_per_epoch=800)
    assert asked(RULE, held(grown, half, available=8 * GIB)) is None, "2 GiB more will come"


@pytest.mark.parametrize("workers", [0, 4])
def test_outputs_that_will_not_fit_are_written_as_they_come(workers: int) -> None:
    long = PREDICTS.but(workers=workers, steps_per_epoch=20_000)
    found = surely(RULE, held(GIB + 2 * GIB * RAMP, long))
    assert [one.text for one in found.prescriptions] == ["Write the outputs to a file as they come"]
    assert "loss" not in found.prescriptions[0].code
    graphs = long.but(setup={**NOTHING_TRAINED, **PROVED})
    cures = surely(RULE, held(GIB + 2 * GIB * RAMP, graphs)).prescriptions
    assert "inference_mode" in cures[0].code and "memmap" in cures[-1].code


def test_what_is_to_be_written_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    names: dict[str, Any] = {"np": np, "dataset": rows, "width": 3, "outputs": rows, "done": 0}
    monkeypatch.chdir(tmp_path)
    exec(WRITTEN.code, names)
    assert np.load("outputs.npy").tolist() == rows.tolist() and names["done"] == 4


def test_well() -> None:
    assert asked(RULE, held(GIB + 5 * MIB * RNG.standard_normal(READINGS))) is None
    assert asked(RULE, SLOW.but(source=KEEPS)) is None, "nothing was read"


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (GIB + 300 * MIB * (1 - np.exp(-5 * RAMP)), "warming up"),
        (GIB + 300 * MIB * (RAMP > 0.5), "an allocator that steps up once"),
        (GIB + 300 * MIB * (RAMP > 0.3) + 300 * MIB * (RAMP > 0.7), "twice"),
        (GIB + 300 * MIB * np.minimum(4 * RAMP, 1.0), "a list that is full"),
        (GIB - 300 * MIB * RAMP, "less and less"),
        (GIB + 300 * MIB * (RAMP * 3 % 1.0), "a saw"),
        (GIB + 300 * MIB * RNG.standard_normal(READINGS), "noise"),
        (GIB + 150 * MIB * RAMP, "too little to tell"),
    ],
)
def test_what_only_looks_like_growth(shape: Any, kind: str) -> None:
    assert asked(RULE, held(shape)) is None, kind
    if "little" not in kind:
        assert asked(RULE, held(shape, SLOW.but(source=KEEPS))) is None, kind


def test_a_short_run_tells_nothing() -> None:
    short = read(SLOW.recording(), None, process_held_bytes=[1e9, 2e9, 3e9, 4e9, 5e9])
    assert asked(RULE, short) is None


def test_a_rise_that_takes_weeks_is_left_alone() -> None:
    assert asked(RULE, held(GIB + 300 * MIB * RAMP, SLOW.but(forward=4000.0), available=4000 * GIB)) is None


@pytest.mark.parametrize("source", [KEEPS, "train(model, loader)\n"])
def test_graphs_that_outlive_their_steps_need_no_near_limit(source: str) -> None:
    """A small model on a large machine: 40 kB a step would take days to fill it."""
    far, grown = SLOW.but(forward=400.0, source=source), GIB + 16 * MIB * RAMP

    def kept(alive: int) -> Loop:
        return far.but(setup={"kept_graphs": KeptGraphs(40, alive)})

    found = surely(RULE, held(grown, kept(40), available=400 * GIB))
    named = "line 4 keeps `loss`" if source is KEEPS else "keeps the graph of every step's output"
    assert named in found.headline and "all 40 steps" in found.evidence[1]
    assert asked(RULE, held(grown, kept(5), available=400 * GIB)) is None, "a list that is cleared each epoch"
    assert asked(RULE, held(grown, far, available=400 * GIB)) is None, "nobody looked"
    assert asked(RULE, held(GIB + 2 * MIB * RAMP, kept(40), available=400 * GIB)) is None, "single pages"


@pytest.mark.parametrize(
    ("shape", "named"), [([0.0, 0.1, 0.2, 0.5, 0.7, 1.0], True), ([0.0, 0.1, 0.6, 0.5, 0.7, 1.0], False)]
)
def test_graphs_that_are_kept_need_few_readings_if_each_is_higher(shape: list[float], named: bool) -> None:
    kept = SLOW.but(setup=PROVED, source=KEEPS)
    assert (asked(RULE, held(GIB + 200 * MIB * np.asarray(shape), kept)) is not None) is named


CYCLED = KeptBatches(25, 25, 2.0 * MIB, "batches", "itertools.cycle")
"""Of SLOW's 400 steps, a batch each."""
BY_BATCHES = SLOW.but(steps_per_epoch=20_000, loader={"batches": 20_000})


def keeping(kept: KeptBatches, rise: float = 1.0, loop: Loop = BY_BATCHES, readings: int = READINGS) -> Recording:
    """A loop whose memory rose by this part of the batches that it kept."""
    made = loop.but(setup={"kept_batches": kept})
    return held(GIB + rise * 400 * kept.batch_bytes * np.linspace(0.0, 1.0, readings), made, available=100 * GIB)


@pytest.mark.parametrize("readings", [READINGS, 4])
def test_batches_that_are_kept_are_told_with_what_keeps_them(readings: int) -> None:
    found = surely(RULE, keeping(CYCLED, readings=readings))
    assert found.kind == "hint" and found.risk
    assert "`batches` (itertools.cycle)" in found.headline and "2 MiB a step" in found.headline
    assert "all 25 batches" in found.evidence[1] and "yield from loader" in found.prescriptions[0].code


def test_a_cycle_ends_with_its_pass_and_a_list_does_not() -> None:
    pass_ends = BY_BATCHES.but(loader={"batches": 500})
    assert "whole pass" in surely(RULE, keeping(CYCLED, loop=pass_ends)).risk
    kept = surely(RULE, keeping(replace(CYCLED, keeper="seen", kind="list"), loop=pass_ends))
    assert "more steps" in kept.risk and "maxlen" in kept.prescriptions[0].code
    unnamed = replace(CYCLED, keeper="", kind="")
    assert "every batch is kept" in surely(RULE, keeping(unnamed)).headline


@pytest.mark.parametrize(
    "of",
    [
        keeping(replace(CYCLED, alive=24)),
        keeping(replace(CYCLED, bounded=True)),
        keeping(CYCLED, rise=0.0),
        keeping(CYCLED, rise=0.3, readings=4),
        keeping(replace(CYCLED, batch_bytes=0.5 * MIB)),
    ],
    ids=["one is gone", "a bound", "the dataset holds them", "less than they have", "little"],
)
def test_batches_that_explain_no_growth(of: Recording) -> None:
    assert asked(RULE, of) is None
