"""What metering the fetches costs: one metered fetch by path, and a worker's fetches with and without looks at them.

Run with `python benchmarks/fetching.py`; takes half a minute. Prints microseconds a fetch and parts of a fetch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from threading import active_count
from typing import Any

from gpu_doctor.taps.fetch_lines import FetchLines
from gpu_doctor.taps.metering import FLOOR, Meter, metered
from gpu_doctor.taps.tally import LINES_BYTES, TALLY_BYTES, Tally
from gpu_doctor.taps.thread_counters import ThreadCounters

ROUNDS = 7


class Fetcher:
    """Stands in for torch's."""

    collate_fn = staticmethod(list)


def plain(fetcher: Fetcher, index: Any) -> None:
    """A fetch that does nothing but put together."""
    fetcher.collate_fn(())


def a_call(call: Callable[[], object], n: int) -> float:
    """Best microseconds of a call over some rounds, on the CPU clock: other programs may run beside it."""
    times = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(n):
            call()
        times.append((time.thread_time() - begin) / n)
    return min(times) * 1e6


def by_path() -> None:
    """Each path through the meter."""
    fetcher, meter = Fetcher(), Meter()
    fetch = metered(plain, meter, time.thread_time)
    bare = a_call(lambda: plain(fetcher, None), 20_000)
    print(f"not metered (after the run)      {a_call(lambda: fetch(fetcher, None), 20_000) - bare:6.2f} us")

    def path(name: str, weight: int, counted: bool) -> None:
        meter.tally = tally = Tally(bytearray(TALLY_BYTES))

        def one() -> None:
            tally.weight, tally.counted = weight, counted
            fetch(fetcher, None)

        print(f"{name:<32} {a_call(one, 5_000) - bare:6.2f} us")

    path("wall only", 0, False)
    path("in full", 1, False)
    path("in full and counted", 1, True)
    counters = ThreadCounters()
    print(f"reading the counters once        {a_call(counters.read, 20_000):6.2f} us")


def with_looks(fetch_s: float, n: int) -> None:
    """Fetches that compute a fixed amount of Python, bare, metered, and metered and looked at, in turns."""

    def spin(fetcher: Fetcher, index: Any) -> int:
        total = 0
        for i in range(loops):
            total += i
        return total

    loops = 1000
    begin = time.perf_counter()
    spin(Fetcher(), None)
    loops = max(int(loops * fetch_s / (time.perf_counter() - begin)), 1)
    meter, looked = Meter(), Meter()
    meter.tally, looked.tally = Tally(bytearray(TALLY_BYTES)), Tally(bytearray(TALLY_BYTES))
    looked.tally.lines = lines = FetchLines(memoryview(bytearray(LINES_BYTES)), FLOOR, active_count())
    lines.start()
    ways = {
        "bare": spin,
        "metered": metered(spin, meter, time.thread_time),
        "looked at": metered(spin, looked, time.thread_time),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, fetch in ways.items():
            cpu = time.thread_time()
            fetcher = Fetcher()
            for _ in range(n):
                fetch(fetcher, None)
            times[name].append(time.thread_time() - cpu)
    lines.stop(1.0)
    bare = statistics.median(times["bare"])
    print(f"a fetch of {1e3 * bare / n:.2f} ms that computes (CPU of the fetching thread):", end="")
    for name in ("metered", "looked at"):
        each = [one / base - 1.0 for one, base in zip(times[name], times["bare"], strict=True)]
        print(f"  {name} {100 * statistics.median(each):+.2f} %", end="")
    print(f"  (looking thread's own CPU {100 * lines.cpu_s / sum(times['looked at']):.2f} %)")


if __name__ == "__main__":
    by_path()
    for seconds, count in ((1e-3, 1000), (1e-2, 100)):
        with_looks(seconds, count)
