"""Bounded memory with exact sums: what thinning keeps, and what it may not touch."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.capture.step_table import DEVICE_COLUMNS, StepTable
from tests.support.clock_bench import row


def read(gpu_s: float, gap_s: float, empty: float) -> list[float]:
    """What the device's clock gives of a step whose phases it did not tell apart."""
    values = {"gpu_s": gpu_s, "gpu_gap_s": gap_s, "caught_up": empty, "exposed_wait_s": gap_s / 2}
    return [values.get(name, np.nan) for name in DEVICE_COLUMNS]


def test_few_steps_are_kept_one_by_one() -> None:
    table = StepTable()
    numbers = [table.append(row(wall_s=i)) for i in range(5)]
    assert numbers == [0, 1, 2, 3, 4]
    assert table.steps().wall_s.tolist() == [0, 1, 2, 3, 4]
    assert table.steps(3).wall_s.tolist() == [3, 4]
    assert table.stride == 1


@pytest.mark.parametrize("n", [8, 9, 16, 17, 100, 1001])
def test_sums_stay_exact_and_both_ends_are_kept(n: int) -> None:
    table = StepTable(capacity=8)
    for i in range(n):
        table.append(row(wall_s=i, samples=2, start_s=100 + i, epoch=i // 10))
        assert table.rows <= 8
    table.finish()
    steps = table.steps()
    assert steps.count.sum() == n
    assert steps.samples.sum() == 2 * n
    assert steps.wall_s.sum() == sum(range(n))
    assert steps.start_s[0] == 100
    assert (np.diff(steps.start_s) > 0).all()
    np.testing.assert_array_equal(steps.start_s, 100 + np.concatenate([[0], np.cumsum(steps.count)[:-1]]))
    assert len(steps) >= 4


def test_rows_of_one_run_differ_in_count_by_the_open_end_alone() -> None:
    table = StepTable(capacity=16)
    for _ in range(1000):
        table.append(row())
    table.finish()
    counts = table.steps().count
    assert set(counts[:-1].tolist()) == {float(table.stride)}


def test_device_readings_come_late_and_find_their_row() -> None:
    table = StepTable()
    for i in range(3):
        table.append(row(wall_s=i))
    table.add_device(1, 0, read(0.5, 0.25, 1.0))
    steps = table.steps()
    assert steps.gpu_s[1] == 0.5
    assert steps.device_steps.tolist() == [0, 1, 0]
    assert np.isnan(steps.gpu_s[[0, 2]]).all()


def test_device_readings_of_a_row_that_was_thinned_away_are_not_lost() -> None:
    table = StepTable(capacity=4)
    for _ in range(5):
        table.append(row())
    table.finish()
    assert table.generation == 1
    table.add_device(3, 0, read(0.5, 0.25, 1.0))
    table.add_device(-1, 1, read(0.5, 0.25, 0.0))
    steps = table.steps()
    assert np.nansum(steps.gpu_s) == 1.0
    assert np.nansum(steps.gpu_gap_s) == 0.5
    assert steps.device_steps.sum() == 2


def test_a_reading_before_the_first_row_goes_nowhere() -> None:
    table = StepTable()
    table.add_device(0, 1, read(1.0, 1.0, 1.0))
    table.extend(row(wall_s=1))
    assert table.rows == 0


def test_thinning_keeps_device_sums_beside_rows_without_readings() -> None:
    table = StepTable(capacity=4)
    for i in range(4):
        table.append(row())
        if i % 2:
            table.add_device(i, 0, read(1.0, 0.5, 1.0))
    table.append(row())
    steps = table.steps()
    assert steps.gpu_s[:2].tolist() == [1.0, 1.0]
    assert steps.device_steps[:2].tolist() == [1, 1]


def test_what_comes_after_the_last_step_lengthens_its_row() -> None:
    table = StepTable()
    table.append(row(wall_s=1, samples=8))
    table.append(row(wall_s=1, samples=8))
    table.extend(row(wall_s=2, evaluation_s=2, samples=99, start_s=7))
    steps = table.steps()
    assert steps.wall_s.tolist() == [1, 3]
    assert steps.evaluation_s.tolist() == [0, 2]
    assert steps.samples.sum() == 16
    assert steps.count.sum() == 2
    assert steps.start_s.tolist() == [0, 0]


def test_a_reader_keeps_what_it_has_read() -> None:
    table = StepTable(capacity=4)
    for i in range(4):
        table.append(row(wall_s=i))
    read = table.steps()
    for _ in range(40):
        table.append(row(wall_s=99))
    assert read.wall_s.tolist() == [0, 1, 2, 3]


def test_rows_that_stand_for_several_steps_without_readings_are_not_measured_either() -> None:
    table = StepTable(capacity=4)
    for _ in range(10):
        table.append(row())
    table.finish()
    steps = table.steps()
    assert np.isnan(steps.gpu_s).all() and np.isnan(steps.exposed_wait_s).all()
