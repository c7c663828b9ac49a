"""A replay tells the same story as the recording that it plays, in any portions."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.recording import Cursor, Metric, News, Recording, Replay, Series, Steps
from gpu_doctor.recording.feed import readings_since, series_key

WATT = Metric("power_w", "W", "power", "detail", device=0)
RAM = Metric("ram_bytes", "bytes", "RAM", "memory")


def recording() -> Recording:
    """Ten steps of 0.1 s, two metrics."""
    return Recording(
        steps=Steps.of(wall_s=[0.1] * 10, count=[1.0] * 9 + [3.0]),
        series=(
            Series(WATT, np.arange(5) / 4, np.arange(5.0) * 10.0),
            Series(RAM, np.array([0.9]), np.array([7.0])),
        ),
        duration_s=1.2,
    )


def test_a_replay_gives_everything_at_once() -> None:
    news = Replay(recording()).news(Cursor())
    assert len(news.steps) == 10
    assert {series_key(one.metric): one.values.tolist() for one in news.series} == {
        "power_w@0": [0, 10, 20, 30, 40],
        "ram_bytes": [7],
    }
    assert (news.step_count, news.elapsed_s, news.done, news.reset) == (12, 1.2, True, False)


def test_nothing_is_told_twice() -> None:
    replay = Replay(recording())
    again = replay.news(replay.news(Cursor()).cursor)
    assert len(again.steps) == 0
    assert again.series == ()
    assert again.done


def test_portions_sum_to_the_whole() -> None:
    replay, cursor = Replay(recording(), until_s=0.0), Cursor()
    told: list[News] = []
    for until in np.arange(0.0, 1.3, 0.15):
        replay.until_s = float(until)
        told.append(replay.news(cursor))
        cursor = told[-1].cursor
    assert sum(len(news.steps) for news in told) == 10
    assert [v for news in told for one in news.series if one.metric == WATT for v in one.values] == [0, 10, 20, 30, 40]
    assert [news.done for news in told] == [False] * 8 + [True]


def test_what_comes_later_is_hidden() -> None:
    news = Replay(recording(), until_s=0.55).news(Cursor())
    assert len(news.steps) == 5
    assert news.step_count == 5
    assert news.elapsed_s == 0.55
    assert all((one.times_s <= 0.55).all() for one in news.series)
    assert not news.done


def test_readings_are_told_by_key() -> None:
    series = recording().series
    fresh, read = readings_since(series, {"power_w@0": 3})
    assert [(one.metric.name, one.values.tolist()) for one in fresh] == [("power_w", [30, 40]), ("ram_bytes", [7])]
    assert read == {"power_w@0": 5, "ram_bytes": 1}


@pytest.mark.parametrize(("device", "key"), [(None, "m"), (0, "m@0"), (1, "m@1")])
def test_metrics_of_two_gpus_differ(device: int | None, key: str) -> None:
    assert series_key(Metric("m", "", "", "", device)) == key
