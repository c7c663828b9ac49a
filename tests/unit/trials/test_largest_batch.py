"""The largest batch that fits, on a simulated allocator: what is tried, how often, and that the answer ran."""

from __future__ import annotations

import dataclasses
import json
import queue
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.diagnosis.forecast.batch_size import batch_forecast
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.vitals.memory_fit import MemoryFit, fit_of_runs, memory_fit
from gpu_doctor.trials import rounds
from gpu_doctor.trials.largest_batch import MOST_PROBES, largest_batch
from gpu_doctor.trials.results import MARGIN, Largest
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.largest_batch_parts import GIB, Card, SimulatedCase, ran_out
from tests.support.recordings import Loop, on_gpu


@pytest.mark.parametrize(
    ("fixed_gib", "per_sample_mib", "written"),
    [(4.0, 100.0, 32), (30.0, 20.0, 64), (0.5, 700.0, 16), (1.0, 0.5, 128), (60.0, 10.0, 256), (10.0, 3000.0, 8)],
)
def test_the_largest_that_leaves_the_margin_free_in_at_most_three_trials(
    fixed_gib: float, per_sample_mib: float, written: int
) -> None:
    card = Card(fixed_gib, per_sample_mib)
    case = SimulatedCase(card, written)
    found = largest_batch(case, memory=card)
    best = int((0.95 * card.total - card.fixed) / card.slope)
    assert len(case.asked) == len(found.tried) <= MOST_PROBES
    assert found.batch_size is not None and found.peak_bytes is not None
    assert found.batch_size <= best, "the margin is kept"
    assert found.batch_size >= 0.95 * best - 8
    assert found.peak_bytes <= (1 - MARGIN) * card.total
    assert found.fit is not None
    assert found.fit.per_sample_bytes == pytest.approx(card.slope, rel=0.1)
    assert found.batch_size == written or found.batch_size in case.asked, "what is answered has run"


def test_the_largest_and_the_best_for_samples_a_second_are_both_said() -> None:
    """A card that is busy from 200 samples on: more of them take longer, and the last ones more than their share."""
    case = SimulatedCase(Card(4.0, 100.0), 128, step_ms=lambda batch: max(20.0, 0.1 * batch) + (batch > 600) * 10.0)
    found = largest_batch(case, memory=case.card)
    assert found.batch_size is not None and found.batch_size >= 700
    assert found.best_batch_size == 256
    assert found.best_samples_per_s == pytest.approx(256 / 25.6e-3, rel=0.01)
    rates = dict(found.rates)
    assert set(rates) == {128, *case.asked}
    assert found.best_samples_per_s is not None and rates[found.batch_size] < 0.97 * found.best_samples_per_s
    said = str(found)
    assert f"Largest batch that fits: {found.batch_size}" in said and "Best for samples/s: 256" in said
    assert json.loads(json.dumps(found.to_dict()))["best_batch_size"] == 256


def test_of_equally_fast_sizes_the_smallest_is_best_and_where_larger_is_faster_the_largest() -> None:
    case = SimulatedCase(Card(4.0, 100.0), 256, step_ms=lambda batch: 0.1 * batch)
    found = largest_batch(case, memory=case.card)
    assert found.best_batch_size == 256
    assert found.batch_size is not None and found.batch_size > 256
    case = SimulatedCase(Card(4.0, 100.0))
    found = largest_batch(case, memory=case.card)
    assert found.best_batch_size == found.batch_size and str(found).count(str(found.batch_size)) == 2


def test_what_is_not_known_is_said_so() -> None:
    found = Largest(None, reason="Nothing has run.")
    assert str(found).endswith("not known. Nothing has run.")
    assert found.to_dict()["batch_size"] is None


def test_every_trial_is_put_back() -> None:
    case = SimulatedCase(Card(4.0, 100.0))
    case.on_begin = lambda recorder, role: None
    outer = case.on_begin
    largest_batch(case, memory=case.card)
    assert case.on_begin is outer
    assert case.namespace["weights"].tolist() == [0.0, 0.0, 0.0]
    assert case.progress == ""
    assert case.trials == [] and len(case.recordings) == 1


def test_what_the_search_leaves_behind_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = "A Stream is closed."
    monkeypatch.setattr(Snapshot, "restore", lambda snapshot: (lost,))
    case = SimulatedCase(Card(4.0, 100.0))
    case.namespace["waiting"] = queue.SimpleQueue()
    found = largest_batch(case, memory=case.card)
    kept, last = found.notes
    assert "waiting (SimpleQueue)" in kept and last == lost
    assert all(one in str(found) for one in found.notes)
    assert json.loads(json.dumps(found.to_dict()))["notes"] == list(found.notes)
    assert '"tried": [[' in json.dumps(found.to_dict())


def test_memory_that_is_lost_in_pieces_makes_one_trial_fail_and_the_next_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[bool] = []
    monkeypatch.setattr(rounds, "_free", lambda: freed.append(True))
    card = Card(4.0, 100.0, waste_share=0.10)
    case = SimulatedCase(card)
    found = largest_batch(case, memory=card)
    sizes = dict(found.tried)
    assert None in sizes.values()
    assert freed == [True], "what did not fit was given back"
    assert len(found.tried) == MOST_PROBES
    assert found.batch_size is not None
    failed = next(size for size, peak in found.tried if peak is None)
    assert 32 < found.batch_size < failed
    assert card.needs(found.batch_size) * 1.10 <= card.total


def test_where_the_batch_is_nearly_the_largest_half_of_it_is_tried_for_the_slope() -> None:
    card = Card(4.0, 100.0)
    case = SimulatedCase(card, batch=700)
    found = largest_batch(case, memory=card)
    assert case.asked[0] == 350
    assert found.batch_size is not None and found.batch_size >= 700


def test_a_batch_that_already_fills_the_card_is_the_answer() -> None:
    card = Card(4.0, 100.0)
    case = SimulatedCase(card, batch=736)
    found = largest_batch(case, memory=card)
    assert found.batch_size == 736
    assert len(case.asked) == 1


def test_no_batch_is_larger_than_the_dataset() -> None:
    case = SimulatedCase(Card(4.0, 10.0), dataset_len=500)
    found = largest_batch(case, memory=case.card)
    assert case.largest_batch(memory=case.card) == found
    assert found.batch_size == 496
    assert max(case.asked) <= 500


def test_without_a_peak_of_the_run_the_batch_as_written_is_tried_first() -> None:
    case = SimulatedCase(Card(4.0, 100.0))
    case.recordings[0] = dataclasses.replace(case.recordings[0], peak_bytes=float("nan"))
    found = largest_batch(case, memory=case.card)
    assert case.asked[0] == 32
    assert len(case.asked) == MOST_PROBES
    assert found.batch_size is not None and found.batch_size >= 700


def test_where_the_memory_ran_out_before_the_loader_was_known_to_train_it_is_taken() -> None:
    case = SimulatedCase(Card(4.0, 100.0), batch=800)
    ran_out(case, role="unknown")
    found = largest_batch(case, memory=case.card)
    assert found.batch_size is not None and found.batch_size in case.asked


def test_a_trial_that_fails_ends_the_search_with_what_is_known() -> None:
    case = SimulatedCase(Card(4.0, 100.0), fails_at=64)
    found = largest_batch(case, memory=case.card)
    assert found.batch_size == 32
    assert found.reason == "ValueError: no such size"
    assert len(case.asked) == 1


def test_stop_ends_the_search() -> None:
    case = SimulatedCase(Card(4.0, 100.0))
    case.on_begin = None
    once = case.once

    def stopping(*args: Any) -> Result:
        case.stop()
        return once(*args)

    case.once = stopping  # type: ignore[assignment, method-assign]
    found = largest_batch(case, memory=case.card)
    assert len(case.asked) == 1
    assert found.reason


def test_a_stop_while_the_state_is_kept_ends_the_search_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    case = SimulatedCase(Card(4.0, 100.0))
    take = Snapshot.take

    def taking(*args: Any, **kwargs: Any) -> Snapshot:
        case.stop()
        return take(*args, **kwargs)

    monkeypatch.setattr(Snapshot, "take", taking)
    assert largest_batch(case, memory=case.card).reason == "The search was stopped."
    assert case.asked == []


def test_the_copies_of_the_state_are_kept_off_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    case, asked, take = SimulatedCase(Card(4.0, 100.0)), [], Snapshot.take

    def taking(*args: Any, **kwargs: Any) -> Snapshot:
        asked.append(kwargs["to_host"])
        return take(*args, **kwargs)

    monkeypatch.setattr(Snapshot, "take", taking)
    assert largest_batch(case, memory=case.card).batch_size
    assert asked == [True]


@pytest.mark.parametrize(
    ("batch", "at_least", "said"), [(2, 16, True), (16, 144, True), (40, 160, False), (64, 296, False)]
)
def test_a_peak_that_is_the_optimizers_does_not_end_the_search(batch: int, at_least: int, said: bool) -> None:
    """Adam's step needs more than the backward of a small batch: twice the batch has the same peak, or hardly more."""
    case = SimulatedCase(Card(1.07, 9.0, total_gib=4.0, least_gib=1.6), batch=batch)
    found = largest_batch(case, memory=case.card)
    assert found.batch_size is not None and found.batch_size >= at_least
    assert len(found.tried) <= MOST_PROBES
    assert found.peak_bytes is not None and found.peak_bytes <= (1 - MARGIN) * 4 * GIB
    assert ("larger batches may fit" in str(found)) == said


def test_no_answer_is_invented_where_there_is_no_gpu_no_loader_or_no_run() -> None:
    case = gpu_doctor.case("pass", {})
    unknown = largest_batch(case)
    assert unknown == Largest(None, reason=unknown.reason) and "Run the code once first" in unknown.reason
    case.recordings.append(Loop().recording())
    assert "does not use a GPU" in largest_batch(case).reason
    case.recordings.append(on_gpu(has_loader=False).recording())
    assert "no DataLoader" in largest_batch(case).reason
    held = on_gpu(loader={"refusals": {"batch_size": "A custom batch sampler owns the batches."}}).recording()
    case.recordings.append(held)
    assert "batch sampler" in largest_batch(case).reason


def test_the_fixed_part_and_the_slope_are_those_of_the_two_largest_sizes() -> None:
    fit = memory_fit([(32, 10e9), (64, 16e9)])
    assert fit == memory_fit([(1, 9e9), (32, 10e9), (64, 16e9)]) == MemoryFit(4e9, 187_500_000.0)
    assert fit is not None and fit.peak_bytes(96) == 22e9
    assert [fit.most_samples(size) for size in (22e9, 21.9e9, 1e9)] == [96, 95, 0]
    assert memory_fit([(10, 1e9), (20, 4e9)]) == MemoryFit(0.0, 3e8), "no negative fixed part"


@pytest.mark.parametrize(
    "points", [[], [(32, 1e9)], [(32, 1e9), (32, 2e9)], [(32, 2e9), (64, 2e9)], [(0, 1e9), (8, 2e9)]]
)
def test_what_cannot_be_fitted_is_none(points: list[tuple[float, float]]) -> None:
    assert memory_fit(points) is None


def test_the_fit_of_two_runs_is_what_the_forecast_says_and_a_cpu_has_none() -> None:
    small = on_gpu(batch=32, peak_share=0.2).vitals()
    large = on_gpu(batch=64, peak_share=0.35, forward=7.0).vitals()
    fit = fit_of_runs((small, large))
    assert fit is not None
    assert fit.fixed_bytes == pytest.approx(0.05 * 80e9)
    said = batch_forecast(small, 128, (large,))
    assert said is not None
    assert said.peak_bytes == pytest.approx(fit.peak_bytes(128))
    assert fit_of_runs((Loop(batch=32).vitals(), Loop(batch=64).vitals())) is None
    assert fit_of_runs((measure(on_gpu(batch=32).recording()),)) is None


def test_a_batch_that_ran_out_of_memory_is_never_the_answer() -> None:
    case = SimulatedCase(Card(4.0, 100.0), batch=800)
    ran_out(case)
    found = largest_batch(case, memory=case.card)
    assert case.asked[0] == 400
    assert found.batch_size is not None and 600 <= found.batch_size < 800
    assert found.batch_size in case.asked and 800 not in case.asked
    case = SimulatedCase(Card(79.0, 100.0), batch=64)
    ran_out(case)
    assert largest_batch(case, memory=case.card).batch_size is None, "nothing ran within the limit"
