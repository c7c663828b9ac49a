"""How much longer steps with a new shape take: more than chance, or nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gpu_doctor.capture.taps.inputs import InputSampler
from gpu_doctor.capture.taps.shapes import Shapes


def played(*steps: tuple[int, float]) -> Shapes:
    """Each step a forward of so many rows, and the seconds that it took; what warms up comes before."""
    shapes = Shapes()
    for rows, seconds in [(100, 1.0)] * 8 + list(steps):
        shapes.add(torch.empty(rows, 4))
        shapes.step(seconds)
    return shapes


def test_slow_firsts_are_priced() -> None:
    steps = [(100 + i // 5, 0.03 if i % 5 == 0 else 0.01) for i in range(5, 100)]
    assert played(*steps).new_shape_s() == pytest.approx(19 * 0.02, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_graphs_of_ever_new_sizes_are_no_slow_firsts(seed: int) -> None:
    """PyG batches: nearly every one is new, and on a busy machine some steps of either kind take long."""
    dice = random.Random(seed)
    steps = [(dice.randint(780, 820), 0.02 * dice.paretovariate(2.5)) for _ in range(64)]
    assert played(*steps).new_shape_s() == 0.0


def test_larger_inputs_take_longer_without_being_first() -> None:
    steps = [(rows, rows * 1e-4 + 1e-5 * (n % 3)) for n, rows in enumerate((50, 60, 90, 140, 200) * 8)]
    assert played(*steps).new_shape_s() == 0.0


def handed(*steps: tuple[tuple[int, ...], float]) -> Shapes:
    shapes = Shapes()
    for shape, seconds in [((100, 4), 1.0)] * 8 + list(steps):
        shapes.add(torch.empty(shape))
        shapes.step(seconds)
    return shapes


BUCKETS = {16: 40, 32: 30, 64: 20, 128: 10, 256: 5}
"""Length of a batch's texts, with 1024 tokens in every batch -> batches: the long ones are rare, and slow."""


@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_a_shape_is_timed_against_itself(late_s: float) -> None:
    steps = [
        ((1024 // length, length), length * 1e-4 + 1e-6 * (n % 3) + (0.0 if n else late_s))
        for length, count in BUCKETS.items()
        for n in range(count)
    ]
    assert handed(*steps).new_shape_s() == pytest.approx(5 * late_s, rel=0.01)


def test_shapes_as_large_as_others_and_longer_are_not_alike() -> None:
    steps = [((64, 16), 0.01 + 1e-5 * (n % 3)) for n in range(20)] + [((16, 64), 0.05)] * 2
    assert handed(*steps).new_shape_s() == 0.0


def test_whether_shapes_go_on_being_new() -> None:
    seen = handed(*[((rows, 4), 0.01) for rows in range(50, 60)] * 10).facts()
    assert (seen.new_shape_steps, seen.new_late) == (10, 0)
    ever = handed(*[((rows, 4), 0.01) for rows in range(200, 392)]).facts()
    assert (ever.new_shape_steps, ever.new_late) == (63, 100), "those that are too many to be told apart too"


def test_nothing_to_compare_is_not_measured() -> None:
    assert math.isnan(Shapes().new_shape_s())
    assert math.isnan(played(*[(1000 * rows, 0.01) for rows in range(1, 20)]).new_shape_s())


def test_three_steps_alike_are_too_few_to_tell_chance_by() -> None:
    """Each of them has only two others to be compared with."""
    assert math.isnan(played(*[(1000, 0.01)] * 3, (1001, 0.02)).new_shape_s())
    assert math.isnan(played(*[(1000, 0.01)] * 3, (2000, 0.02)).new_shape_s())


def test_forwards_of_a_step_are_counted_and_cut_where_there_are_too_many() -> None:
    assert Shapes().facts().per_step is None
    assert played((100, 1.0)).facts().per_step == 1.0
    many = Shapes()
    for _ in range(3):
        for _ in range(40):
            many.add(torch.empty(784))
        many.cut()
        many.cut()  # the window is closed already
    facts = many.facts(most=40)
    assert (facts.per_step, facts.most_per_step) == (40.0, 40)
    assert math.isnan(facts.new_shape_s), "no step of it was timed"


def test_a_step_that_was_looked_at_from_its_middle_is_no_whole_one() -> None:
    shapes = Shapes()
    for forwards, seconds in ((32, 1.0), (5, None), (32, 1.0), (7, None)):
        for _ in range(forwards):
            shapes.add(torch.empty(1, 4))
        shapes.step(seconds)
    assert shapes.facts().per_step == 32.0


def test_a_view_may_ask_while_the_loop_goes_on() -> None:
    """Steps of further shapes end while they are compared."""

    class Growing(list[tuple[tuple[int, ...], bool, float]]):
        def __iter__(self) -> Iterator[tuple[tuple[int, ...], bool, float]]:
            self.append(((len(self),), True, 0.1))
            return super().__iter__()

    shapes = played(*((1, 0.1) for _ in range(40)))
    shapes._timed = Growing(shapes._timed)
    assert shapes.new_shape_s() == 0.0 or shapes.new_shape_s() != shapes.new_shape_s()


def test_a_view_may_ask_while_further_modules_are_met() -> None:
    class Growing(dict[int, Shapes]):
        def items(self) -> Any:
            for pair in super().items():
                self[len(self)] = Shapes()
                yield pair

    sampler = InputSampler.__new__(InputSampler)
    sampler.trained = set()
    sampler.idle_inputs = Growing({0: played((1, 0.1), (1, 0.1))})
    found = sampler.idle()
    assert found is not None and found.looked_at == 10
