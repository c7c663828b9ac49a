"""What the stages of a step need: fetching, the loop's own work, the device, the cores; from vitals alone.

Seconds are those of processes that need not wait for a core: the kernel counts how long a fetch queued for one, and
that is taken out. What queues is told apart: our own processes that outnumber the cores, or other programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.forecast.sharing import Work
from gpu_doctor.diagnosis.forecast.worker_costs import handing_s
from gpu_doctor.diagnosis.vitals.fields import Vitals

CPU_BOUND: Final = 0.5
"""A fetch is CPU-bound if CPU is at least this part of its wall: more workers than cores then only queue."""
SATURATED: Final = 0.85
"""From this use of all cores on, a fetch's wall holds waiting for a core as well."""
SLOWEST_BYTES_PER_S: Final = 2e5
"""A disk that seeks for every page of 4 kB delivers some 80 of them a second, 0.33 MB/s; where fewer bytes come in the
time that a fetch waits, it waits for something else (a server, a lock, a sleep)."""
COPIED_BYTES_PER_S: Final = 1e9
"""A fetch that reads more than this from the page cache does little but copy memory (2 to 4 GB/s by one core into new
pages); two cores of a virtual machine copied 1.2 to 1.9 times as much as one."""
STORAGE_WAITS: Final = 0.25
"""A fetch that waits for less than this of its time gets from the storage what it asks for."""
SIBLINGS_GAIN: Final = (0.0, 0.25, 0.5)
"""What the second hardware thread of a core adds to the first: least, usual, most. 16 to 28 % in Marr et al.,
Hyper-Threading Technology (Intel Technology Journal 6(1), 2002); beside a neighbour on the other thread a Python loop
ran at 0.54 of its speed, which leaves 8 %."""
OWN_SHARE: Final = 0.01
"""Of the wall-clock our own threads take no more while the loop runs (the governor's budget), whatever its begin
took."""
FULL_QUEUE_GAP: Final = 0.05
"""A device that is behind its host and idles for less of its time has always something in its queue."""
OTHERS: Final = 0.25
"""Other programs count from so many cores on: what an idle desktop and our own poller use is below."""


@dataclass(frozen=True)
class Stages:
    """Seconds of a step's stages, as they would be with no worker waiting for a core."""

    step: float
    workers: int
    consumer: float  # the loop's own work, what remains of `next()` included
    device: float  # a GPU's busy seconds, 0 on a CPU device
    consumer_cpu: float
    fetch: float  # wall of the step's fetches
    fetch_cpu: float
    batches: float
    cores: float
    edge: float  # what iterator starts cost a step in this run
    slow: float = 1.0  # how much longer computing takes than on a machine of its own
    others: float = 0.0  # threads of other programs that run or wait for a core, on average
    queued: float = 0.0  # seconds of the step's fetches that were taken out of `fetch`
    loaders: float = 1.0  # that fetch side by side, each with workers of its own
    waiting: float = 1.0  # how many times its CPU seconds a computing thread of ours takes, queueing included
    storage: float = 0.0  # what a step lasts at least if the storage delivers no more to several readers than now
    worth: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of a usable core, if all compute: least, usual, most
    messages: float = 0.0  # seconds in which the step's batches are handed over, on either side, but for their bytes
    pages: float = 0.0  # and for these

    @property
    def handed(self) -> float:
        """Seconds in which the step's batches are handed over, on either side."""
        return self.messages + self.pages

    @property
    def speed(self) -> float:
        """How fast the loop's thread runs beside the other programs, 0..1."""
        return min(1.0, self.cores / (self.others + 1.0))

    def work(self, workers: int, handed_s: float) -> Work:
        """What a step with workers needs of the cores, handing over included."""
        threads = self.consumer_cpu / self.consumer if self.consumer > 0 else 0.0
        # A loop that has workers pays for handing over in `consumer` already.
        taking = 0.0 if self.workers else handed_s
        busy = self.consumer * min(threads, 1.0) + taking
        return Work(
            busy=busy,
            idle=max(self.consumer + taking - busy * self.waiting, 0.0),  # queueing for a core is worked out anew
            threads=max(threads, 1.0),
            fetch=self.fetch_cpu + handed_s,
            waiting=max(self.fetch - self.fetch_cpu, 0.0),
            workers=workers * self.loaders,
        )

    @property
    def frozen_cores(self) -> float:
        """Cores that we get where users or containers share them: what our threads get now, or what is idle."""
        if not self.others:
            return self.cores
        threads = max((self.fetch_cpu + self.consumer_cpu) * self.waiting / self.step, 1.0)
        return min(max(threads / self.waiting, self.cores - self.others), self.cores)


def stages(v: Vitals) -> Stages | None:
    """The stages of the loop as it was recorded; None where the fetch or the wait was not measured."""
    if v.step_wall_s is None or v.fetch_wall_s is None or v.fetch_cpu_s is None or v.workers is None:
        return None
    if v.data_wait_share is None or v.consumer_s is None or (v.on_gpu and v.gpu_busy_share is None):
        return None
    step, batches = v.step_wall_s, v.batches_per_step or 1.0
    host = v.host_step_s or step  # the phases' shares are of it
    wait, device = v.data_wait_share * host, (v.gpu_busy_share or 0.0) * step if v.on_gpu else 0.0
    beside = (v.fetch_beside_s or 0.0) * batches
    fetch, fetch_cpu = v.fetch_wall_s * batches, min(v.fetch_cpu_s * batches - beside, v.fetch_wall_s * batches)
    consumer, consumer_cpu = v.consumer_s, _computed(v)
    cores = max(v.usable_cores, 1.0)
    consumer_cpu = max(consumer_cpu - _spun_share(v) * host, 0.0)
    # Our own threads look on beside the loop, which counts where it waits most of the time.
    consumer_cpu = max(consumer_cpu - min(v.overhead_share or 0.0, OWN_SHARE) * step, 0.0)
    # Threads of a pool that spin while the loop fetches use CPU time without needing it (measured: 3x the real need).
    consumer_cpu = min(consumer_cpu, consumer * cores)
    physical = _physical(v)
    if physical and consumer_cpu > consumer * physical:  # its own threads share cores already: what that takes of one
        consumer_cpu = consumer * computing(consumer_cpu / consumer, physical)[1]
    edge, slow = (v.edge_share or 0.0) * host, 1.0
    size = (v.batch_bytes or 0.0) * batches
    queued = None if v.fetch_queued_s is None else min(v.fetch_queued_s * batches, fetch - fetch_cpu)
    waiting = _waiting(v, fetch, fetch_cpu, queued or 0.0)
    messages, pages = handing_s(v, batches, 0.0, v.batch_tensors), handing_s(v, 0.0, size)
    others = _others(v, fetch_cpu + beside, None if queued is None else waiting, messages + pages)
    if v.workers == 0:
        # The metered mean holds warm-up fetches; the wait of the measured steps is the truth. What it holds beyond
        # the fetch (sampler, iterator) stays in the loop.
        inside = min(fetch, wait)
        fetch_cpu *= inside / fetch if fetch > 0 else 0.0
        # Without the kernel's count: on a busy machine the rest of a computing fetch's wall was waiting for a core, as
        # all work here does. The usual fetch tells whether it computes: the mean holds single ones put aside for long.
        usual = min(inside, (v.fetch_median_s or v.fetch_wall_s) * batches)
        busy = v.cpu_util_pct is None or v.cpu_util_pct >= 100 * SATURATED
        if queued is not None:
            queued *= inside / fetch if fetch > 0 else 0.0
            alone = inside - queued
        elif busy and 0 < fetch_cpu >= CPU_BOUND * usual:
            slow, fetch_cpu = max(inside / fetch_cpu, 1.0), inside
        consumer, fetch, edge = consumer + wait - inside, inside if queued is None else alone, 0.0
    elif queued is not None:
        fetch -= queued
    else:
        fetch = _uncontended(fetch, fetch_cpu, consumer_cpu, v, cores)
    storage = _storage(v, fetch, fetch_cpu, batches) / (max(v.workers, 1) * (v.loaders_at_once or 1.0))
    return Stages(
        *(step, v.workers, consumer, device, consumer_cpu, fetch, fetch_cpu + beside),
        *(batches, cores, edge, slow),
        others=others,
        queued=queued or 0.0,
        waiting=waiting,
        loaders=v.loaders_at_once or 1.0,
        storage=min(storage, step),
        worth=core_worth(v),
        messages=slow * messages,
        pages=slow * pages,
    )


def _computed(v: Vitals) -> float:
    """CPU seconds of the loop in a step without its fetches; all of its time where nobody counted."""
    return (v.consumer_s or 0.0) if v.consumer_cpu_s is None else v.consumer_cpu_s


def _spun_share(v: Vitals) -> float:
    """Part of the host's wall-clock, 0..1, in which its CPU seconds may be CUDA's driver spinning: the device's time.

    The driver spins on a whole core while a wait or a blocking copy lasts. While the queue is full it does so in each
    launch, which no clock of the host tells from launching: where the device is behind its host without a break, all
    phases that launch are left out, and only the loop's own Python is sure to need a core.
    """
    if not v.on_gpu:
        return 0.0
    launching = ("forward", "loss", "backward", "optimizer") if always_behind(v) else ()
    return v.together("sync", "transfer", *launching)


def always_behind(v: Vitals) -> bool:
    """Whether a GPU is behind its host without a break, so that no clock tells what launching takes the host."""
    return v.device_limits and v.gpu_gap_share is not None and v.gpu_gap_share < FULL_QUEUE_GAP


def _physical(v: Vitals) -> float | None:
    """Physical cores, of those that this process shares with other ranks its part."""
    found, whole = v.setup.physical_cores, v.setup.usable_cores
    return max(found * min(v.usable_cores / whole, 1.0), 1.0) if found and whole else found


def computing(threads: float, physical: float) -> tuple[float, float, float]:
    """Cores' worth of computing that so many busy hardware threads give: at least, usually, at most."""
    low, usual, high = (min(threads, physical) + gain * max(threads - physical, 0.0) for gain in SIBLINGS_GAIN)
    return low, usual, high


def core_worth(v: Vitals) -> tuple[float, float, float]:
    """What a usable core is worth when all of them compute, 0..1: less than 1 where they are hardware threads."""
    physical, usable = _physical(v), max(v.usable_cores, 1.0)
    if not physical:
        return 1.0, 1.0, 1.0
    low, usual, high = (one / usable for one in computing(usable, physical))
    return low, usual, high


def _storage(v: Vitals, fetch: float, fetch_cpu: float, batches: float) -> float:
    """Seconds of a step's fetches in which storage or memory may have been busy: all of those that it gave bytes to."""
    waiting, stored = fetch - fetch_cpu, (v.fetch_stored_bytes or 0.0) * batches
    reading = 1.0 if v.fetch_stored_share is None else v.fetch_stored_share
    if (v.fetch_read_bytes or 0.0) * batches >= COPIED_BYTES_PER_S * fetch > 0:
        return fetch
    waits = waiting >= STORAGE_WAITS * fetch and stored >= SLOWEST_BYTES_PER_S * waiting
    return fetch * reading if stored > 0 and waits else 0.0


def _waiting(v: Vitals, fetch: float, fetch_cpu: float, queued: float) -> float:
    """How many times as long as on a free core a computing thread of ours takes.

    A fetch that sleeps queues anew each time it wakes, for its few instructions as long as another would for many: of
    that loop the training tells better, which computes without a break.
    """
    inside = 1.0 + (queued / fetch_cpu if fetch_cpu > 0 else 0.0)
    if v.on_gpu or not v.consumer_s or not v.consumer_cpu_s or fetch_cpu >= CPU_BOUND * (fetch - queued):
        return inside
    return min(inside, max(v.consumer_s / v.consumer_cpu_s, 1.0))


def _others(v: Vitals, fetch_cpu: float, waiting: float | None, packing: float) -> float:
    """Threads of other programs that run or wait for a core: the cores that they use, and as much queueing as ours."""
    if waiting is None or not v.step_wall_s:
        return 0.0  # a recording without the kernel's count: see `slow` and `_uncontended`
    cores = max(v.usable_cores, 1.0)
    if v.cpu_util_pct is None:
        threads = cores * waiting - 1.0 if not v.workers and waiting > 1.0 / SATURATED else 0.0
    else:
        own = (fetch_cpu + _computed(v) + (packing if v.workers else 0.0)) / v.step_wall_s
        threads = max(cores * v.cpu_util_pct / 100 - own, 0.0) * waiting
    return threads if threads >= OTHERS else 0.0


def unqueued_fetch_s(vitals: Vitals) -> float | None:
    """Wall seconds that a step's fetches would take if no process had to wait for a core."""
    found = stages(vitals)
    return found.fetch if found is not None else None


def fetched_s(v: Vitals) -> float:
    """Seconds after which workers have fetched the batches of a next step; 0 where the loop fetches them itself."""
    if not v.workers:
        return 0.0
    return (v.fetch_wall_s or 0.0) * (v.batches_per_step or 1.0) / (v.workers * (v.loaders_at_once or 1.0))


def on_cores_s(vitals: Vitals) -> float | None:
    """Seconds that the usable cores need at least for the CPU work of a step, fetching and training."""
    found = stages(vitals)
    return (found.fetch_cpu + found.consumer_cpu) / found.cores if found is not None else None


def crowding_share(v: Vitals) -> float:
    """Part of the wall-clock, 0..1, by which a CPU's loop takes longer because its workers compute on the same cores.

    Beside its wait for batches: what the loop computes queues for a core as its workers do, which the kernel has
    counted. Of that, other programs have their part. 0 on a GPU, and where nobody counted.
    """
    found = stages(v)
    if found is None or v.on_gpu or not v.workers or found.step <= 0:
        return 0.0
    workers = found.fetch_cpu / found.step
    theirs = workers / (workers + found.others) if workers > 0 else 0.0
    return min(found.consumer / found.step, 1.0) * (1.0 - 1.0 / found.waiting) * theirs


def _uncontended(fetch: float, fetch_cpu: float, consumer_cpu: float, v: Vitals, cores: float) -> float:
    """The wall of fetches if every process had its core: the queueing is taken out of computing ones."""
    step = v.step_wall_s or fetch
    if (fetch_cpu + consumer_cpu) < SATURATED * step * cores and (v.cpu_util_pct or 0.0) < 100 * SATURATED:
        return fetch
    alone = max(fetch_cpu, fetch * min(1.0, cores * step / (fetch + consumer_cpu)))
    return alone if fetch_cpu >= CPU_BOUND * alone else fetch
