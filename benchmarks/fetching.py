"""What metering the fetches costs: one metered fetch by path, and a worker's fetches with and without looks at them.

Run with `python benchmarks/fetching.py`; takes half a minute. Prints microseconds a fetch and parts of a fetch.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from threading import active_count
from typing import Any, Final

from gpu_doctor.capture.fetch.meter import FLOOR, Meter, WorkerMeter, metered
from gpu_doctor.capture.fetch.tally import LINES_BYTES, TALLY_BYTES, SlotFile, Tally
from gpu_doctor.capture.fetch.thread_counters import ThreadCounters
from gpu_doctor.capture.lines.fetch_sampler import FetchLines

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
            tally.left, tally.weight, tally.counted = 0 if weight else 1, weight, counted
            fetch(fetcher, None)

        print(f"{name:<32} {a_call(one, 5_000) - bare:6.2f} us")

    path("wall only", 0, False)
    path("in full", 1, False)
    path("in full and counted", 1, True)
    with worker(plain) as quick:
        print(f"a worker's, all in all           {a_call(lambda: quick(fetcher, None), 20_000) - bare:6.2f} us")
    counters = ThreadCounters()
    print(f"reading the counters once        {a_call(counters.read, 20_000):6.2f} us")


@contextmanager
def worker(plain: Callable[[Any, Any], Any]) -> Iterator[Callable[[Any, Any], Any]]:
    """A fetch as it is metered in a worker process; nobody looks at its lines."""
    file = SlotFile.made()
    file.generation, meter = 1.0, WorkerMeter(file, 0)
    fetch = metered(plain, meter, time.process_time)
    fetch(Fetcher(), None)
    if meter.tally is not None and meter.tally.lines is not None:
        meter.tally.lines.stop(1.0)
    try:
        yield fetch
    finally:
        file.remove()


BLOCK: Final = 200
"""So many fetches in a row are looked at before their thread is stopped again (its start is not what is measured)."""


def in_fetches(fetch_s: float, n: int) -> None:
    """Fetches that compute a fixed amount of Python: bare, metered, and metered and looked at.

    A machine whose speed wanders by tenths gives blocks of one way a few percent that are nobody's; one fetch of each
    way after the other, in changing order, leaves the differences. Fetches with looks come in short blocks, as the
    looking thread would touch the others too. "bare again" says what is left of the machine's mood.
    """

    def spin(fetcher: Fetcher, index: Any) -> Any:
        # Without making objects: a sum of integers runs up to 2 % slower or faster by what else lives in their pool.
        found = fetcher
        for _ in repeat(None, loops):
            found, fetcher = fetcher, found
        return found

    loops = 1000
    begin = time.perf_counter()
    spin(Fetcher(), None)
    loops = max(int(loops * fetch_s / (time.perf_counter() - begin)), 1)
    meter = Meter()
    meter.tally = Tally(bytearray(TALLY_BYTES))
    own, fetcher = metered(spin, meter, time.thread_time), Fetcher()
    with worker(spin) as quick:
        ways = {"bare": spin, "bare again": spin, "metered": own, "in a worker": quick}
        times: dict[str, list[float]] = {name: [] for name in ways}
        dice, order = random.Random(0), list(ways)
        for _ in range(n):
            dice.shuffle(order)
            for name in order:
                times[name].append(cpu_s(ways[name], 1, fetcher))
    bare = statistics.median(times["bare"])
    print(f"a fetch of {1e3 * bare:.2f} ms that computes (CPU of the fetching thread)")
    for name in ("bare again", "metered", "in a worker"):
        told(name, times["bare"], times[name])
    alone, looked, looking_s = [], [], 0.0
    for _ in range(n // BLOCK):
        alone.append(cpu_s(own, BLOCK, fetcher) / BLOCK)
        watched = Meter()
        watched.tally = Tally(bytearray(TALLY_BYTES))
        lines = watched.tally.lines = FetchLines(memoryview(bytearray(LINES_BYTES)), FLOOR, active_count())
        fetch = metered(spin, watched, time.thread_time)
        lines.start()
        looked.append(cpu_s(fetch, BLOCK, fetcher) / BLOCK)
        lines.stop(1.0)
        looking_s += lines.cpu_s
    told("looks besides", alone, looked)
    print(f"  the looking thread's own CPU: {100 * looking_s / (BLOCK * sum(looked)):.2f} %")


def cpu_s(fetch: Callable[[Fetcher, Any], Any], n: int, fetcher: Fetcher) -> float:
    """CPU seconds of this thread for so many fetches."""
    begin = time.thread_time()
    for _ in range(n):
        fetch(fetcher, None)
    return time.thread_time() - begin


def told(name: str, bare: list[float], other: list[float]) -> None:
    """The median and the mean of the differences (interrupted fetches left out), and how well they are known."""
    n, usual = len(bare), statistics.median(bare)
    extra = sorted(one - base for one, base in zip(other, bare, strict=True))
    middle, spread = extra[n // 2], (extra[3 * n // 4] - extra[n // 4]) / math.sqrt(n)
    mean = statistics.mean(min(one, 2 * usual) for one in other) - statistics.mean(min(one, 2 * usual) for one in bare)
    print(
        f"  {name:14} {1e6 * middle:+7.2f} us ({100 * middle / usual:+.2f} %), mean {1e6 * mean:+.2f} us "
        f"({100 * mean / usual:+.2f} %), give or take {1e6 * spread:.2f} us"
    )


if __name__ == "__main__":
    by_path()
    for seconds, count in ((1e-3, 4000), (1e-2, 800)):
        in_fetches(seconds, count)
