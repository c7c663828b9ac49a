"""Synthetic recordings: a loop is written down in milliseconds a step, and gives what it would record.

A `Loop` is a loop in steady state: so many ms of waiting, copying, forward and so on a step, so many of fetch in the
process that fetches. `recording()` lays it out as rows (the first step slow, as in real loops), `vitals()` measures
that. Nothing here knows a rule: a test changes what its loop does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import (
    DeviceSetup,
    Fetch,
    LineCost,
    LoaderSetup,
    Losses,
    Metric,
    Recording,
    Series,
    SettingValue,
    Setup,
    Steps,
)
from gpu_doctor.recording.setup import Chore
from gpu_doctor.recording.steps import STEP_COLUMNS

KEY = "Images[10000] batch 32 RandomSampler #0"
NAN = float("nan")
READINGS = 24
"""Number of readings of each series that `read` makes."""


@dataclass(frozen=True)
class Loop:
    """A training loop in steady state; times in ms a step unless said otherwise. The default is healthy, on a CPU."""

    steps: int = 100
    batch: int = 32
    # the host's milliseconds of a step
    wait: float = 0.0
    transfer: float = 0.0
    forward: float = 4.0
    backward: float = 4.0
    optimizer: float = 2.0
    evaluation: float = 0.0
    sync: float = NAN
    loss: float = 0.0
    other: float = 0.0
    first: float = 3.0
    """Duration of the first step over that of the others: warm-up."""
    jitter: float = 0.0
    """Sigma of the logarithm of a step's duration."""
    seed: int = 0
    edge: float = 0.0
    """Further wait in the first step of each epoch, in ms."""
    steps_per_epoch: int = 1000
    consumer_cpu: float | None = None
    """CPU ms a step of the training process without its fetches; None for all that is not wait."""
    # the fetch of a batch
    workers: int = 0
    fetch: float | None = None
    """Wall ms of a batch's fetch; None for `wait`."""
    fetch_cpu: float | None = None
    """CPU ms of a batch's fetch; None for all of it."""
    collate: float = 0.1
    fetch_walls: Sequence[float] | None = None
    """Wall ms of single fetches; None if all are alike."""
    batch_bytes: float = 1e5
    has_loader: bool = True
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of LoaderSetup."""
    # the machine
    cores: float = 4.0
    cpu_util: float | None = None
    """Utilization of the CPU, in per cent."""
    lines: tuple[LineCost, ...] = ()
    source: str = ""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    # a GPU
    gpu: bool = False
    gpu_work: float = 10.0
    """Device ms a step in which the GPU was busy, at most."""
    gpu_gap: float = 0.0
    """Device ms a step in which the GPU had nothing to do but copy."""
    caught_up: float = 0.0
    """Part of `gpu_work` at whose end nothing that was launched remained."""
    syncs: float = 0.0
    """Number of waits for the GPU in a step."""
    gpu_util: float | None = None
    tensor_active: float | None = None
    pcie: tuple[int, int] | None = None
    """Generation and lanes of the link, as NVML reads them."""
    capability: tuple[int, int] = (9, 0)
    peak_share: float = 0.5
    transfers: float = 2.0
    pageable: float = 0.0
    """Number of `transfers` from pageable memory."""
    setup: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of Setup."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of Recording."""

    def but(self, **changes: Any) -> Loop:
        """Returns the same loop with some changes."""
        return replace(self, **changes)

    @property
    def own_ms(self) -> float:
        """Host ms a step that are not data wait."""
        parts = (self.transfer, self.forward, self.backward, self.optimizer, self.evaluation, self.loss, self.other)
        return sum(parts) + float(np.nan_to_num(self.sync))

    def recording(self) -> Recording:
        """Returns the recording that the loop would leave."""
        steps = self._steps()
        made = Recording(
            steps=steps,
            setup=self._setup(),
            settings=self.settings,
            series=self._series(),
            fetches=self._fetches(),
            lines=self.lines,
            losses=Losses(np.arange(2.0), np.arange(2.0) * self.batch, np.asarray([2.0, 1.5])),
            source=self.source,
            duration_s=float(steps.wall_s.sum()),
            overhead_s=0.001,
            peak_bytes=self.peak_share * 80e9 if self.gpu else 1e9,
        )
        return replace(made, **self.facts)

    def vitals(self) -> Vitals:
        """Returns the vitals that are measured on its recording."""
        return measure(self.recording())

    def _steps(self) -> Steps:
        n = self.steps
        first = np.arange(n) % self.steps_per_epoch == 0
        edge = np.where(first, self.edge, 0.0)
        wait = np.full(n, self.wait) + edge
        late = np.where(np.arange(n) == 0, self.first, 1.0)
        if self.jitter:
            late *= np.random.default_rng(self.seed).lognormal(0.0, self.jitter, n)
        wall = (wait + self.own_ms) * late
        fetching = (self.fetch if self.fetch is not None else self.wait) if not self.workers else 0.0
        used = fetching if self.fetch_cpu is None else min(self.fetch_cpu, fetching)
        cpu = self.own_ms if self.consumer_cpu is None else self.consumer_cpu
        columns: dict[str, Any] = {
            name: np.full(n, value * 1e-3) * late
            for name, value in {
                "transfer_s": self.transfer,
                "forward_s": self.forward,
                "backward_s": self.backward,
                "optimizer_s": self.optimizer,
                "evaluation_s": self.evaluation,
                "sync_s": self.sync,
                "loss_s": self.loss,
                "cpu_s": cpu + used,
            }.items()
        }
        if self.gpu:
            columns |= {
                "gpu_s": np.full(n, self.gpu_work * 1e-3),
                "gpu_gap_s": np.full(n, self.gpu_gap * 1e-3),
                "exposed_wait_s": np.minimum(wait * late, self.gpu_gap) * 1e-3,
                "exposed_transfer_s": np.clip(self.gpu_gap - wait * late, 0.0, self.transfer) * 1e-3,
                "gpu_caught_up_s": np.full(n, self.gpu_work * self.caught_up * 1e-3),
                "device_steps": np.ones(n),
                "transfers": np.full(n, self.transfers),
                "transfer_bytes": np.full(n, self.batch_bytes),
                "pageable": np.full(n, self.pageable),
                "syncs": np.full(n, self.syncs),
            }
        return Steps.of(
            wall_s=wall * 1e-3,
            data_wait_s=wait * 1e-3 * late,
            edge_s=edge * 1e-3,
            samples=np.full(n, float(self.batch)),
            batches=np.full(n, 1.0 if self.has_loader else 0.0),
            epoch=np.arange(n) // self.steps_per_epoch,
            **columns,
        )

    def _setup(self) -> Setup:
        loader = LoaderSetup(
            **{
                "key": KEY,
                "num_workers": self.workers,
                "batch_size": self.batch,
                "dataset": "Images",
                "dataset_len": self.batch * self.steps_per_epoch,
                "batches": self.steps_per_epoch,
                "collate": "default_collate",
                **self.loader,
            }
        )
        found: dict[str, Any] = {
            "loaders": (loader,) if self.has_loader else (),
            "usable_cores": self.cores,
            "device": "cuda:0" if self.gpu else "cpu",
            "devices": (DeviceSetup(0, "NVIDIA H200", "GPU-1", int(80e9), self.capability),) if self.gpu else (),
            "dtype": "float32",
            "layers": {"Linear": 3},
            "models": ("Net",),
            "optimizers": ("Adam",),
        }
        return Setup(**{**found, **self.setup})

    def _fetches(self) -> tuple[Fetch, ...]:
        if not self.has_loader:
            return ()
        wall = self.wait if self.fetch is None else self.fetch
        walls = np.asarray(self.fetch_walls if self.fetch_walls is not None else [wall] * 60, dtype=float)
        mean = float(walls.mean())
        cpu = mean if self.fetch_cpu is None else self.fetch_cpu
        n = self.steps
        sums = (n * mean * 1e-3, n * cpu * 1e-3, n * min(self.collate, mean) * 1e-3)
        return (Fetch(self.loader.get("key", KEY), self.workers, n, *sums, self.batch_bytes, walls * 1e-3),)

    def _series(self) -> tuple[Series, ...]:
        readings = {
            "cpu_util_pct": self.cpu_util,
            "gpu_util_pct": self.gpu_util,
            "tensor_active_pct": self.tensor_active,
            "pcie_gen": self.pcie[0] if self.pcie else None,
            "pcie_width": self.pcie[1] if self.pcie else None,
        }
        times = np.linspace(0.0, self.steps * 0.1, 20)
        return tuple(
            Series(
                Metric(name, "%", name, "utilization", 0 if name != "cpu_util_pct" else None), times, times * 0 + pct
            )
            for name, pct in readings.items()
            if pct is not None
        )


CPU = Metric("cpu_util_pct", "%", "CPU, all usable cores", "utilization")
PROCESS = Metric("process_rss_bytes", "bytes", "process", "memory")
WORKERS = Metric("workers_rss_bytes", "bytes", "workers (shared pages counted in each)", "memory")
GPU = Metric("gpu_util_pct", "%", "GPU (NVML utilization)", "utilization", 0)


def starved(gpu: bool = False, steps: int = 60, wait_s: float = 0.030, workers: int = 0, **facts: Any) -> Recording:
    """Returns the recording of a loop whose steps are `wait_s` of data wait and 10 ms of the rest, as a panel shows it.

    Args:
        facts: further fields of Recording.
    """
    end_s = steps * (wait_s + 0.010)
    times = np.arange(0.5, end_s, 0.5)
    read_there = {CPU: 40.0, PROCESS: 2.0 * 2**30, WORKERS: 0.0, **({GPU: 24.0} if gpu else {})}
    loop = Loop(
        steps=steps,
        batch=128,
        steps_per_epoch=60,
        first=1.0,
        workers=workers,
        gpu=gpu,
        wait=wait_s * 1e3,
        forward=3.0,
        backward=5.0,
        optimizer=1.0,
        other=1.0,
        fetch_cpu=3.0,
        consumer_cpu=9.0,
        collate=1.0,
        batch_bytes=1e6,
        gpu_work=9.0,
        gpu_gap=20.0,
        caught_up=NAN,
        transfers=NAN,
        pageable=NAN,
        syncs=NAN,
        loader={"key": "rows", "dataset": "Rows"},
        setup={"models": ("Linear",), "torch_threads": 2, "torch_version": "2.13.0+cpu"},
        facts={
            "series": tuple(Series(one, times, np.full(len(times), value)) for one, value in read_there.items()),
            "losses": Losses(),
            "duration_s": end_s,
            "overhead_s": 0.0,
            **facts,
        },
    )
    return loop.recording()


def losses(steps: int = 50, factor: float = 1.0, batch: float = 128.0) -> Losses:
    """Returns a loss that falls over the samples."""
    seen = np.arange(float(steps)) * batch
    return Losses(np.arange(float(steps)), seen, factor * (2 * np.exp(-seen / 4000) + 0.3))


def on_gpu(**changes: Any) -> Loop:
    """Returns a healthy loop on a GPU: its queue is full, and nothing is waited for."""
    loop = Loop(gpu=True, sync=0.0, gpu_util=98.0, tensor_active=40.0, gpu_gap=0.05, gpu_work=9.95, loader=PINNED)
    return loop.but(**changes)


PINNED = {"pin_memory": True, "num_workers": 4, "prefetch_factor": 2}


def line(text: str, share: float, phase: str = "other", in_torch: bool = False) -> LineCost:
    """Returns a line of the user's cell with its cost."""
    return LineCost("<cell>", 7, "<module>", text, phase, share, in_torch)


def with_more(loop: Loop, **facts: Any) -> Loop:
    """Returns the loop with further fields of its recording."""
    return loop.but(facts={**loop.facts, **facts})


def read(of: Loop | Recording, device: int | None = 0, **values: float | Sequence[float] | NDArray[Any]) -> Recording:
    """Returns the recording with these readings, evenly over its steps; a single number is read every time."""
    recording = of.recording() if isinstance(of, Loop) else of
    steps = recording.steps
    end_s = float(steps.start_s[-1] + steps.wall_s[-1])
    series = []
    for name, value in values.items():
        column = np.full(READINGS, float(value)) if isinstance(value, (int, float)) else np.asarray(value, dtype=float)
        times = np.linspace(0.0, end_s, len(column))
        series.append(Series(Metric(name, "", name, "detail", device), times, column))
    taken = {(one.metric.name, one.metric.device) for one in series}
    kept = [one for one in recording.series if (one.metric.name, one.metric.device) not in taken]
    return replace(recording, series=(*kept, *series))


def with_outcome(of: Loop | Recording, outcome: str, reason: str) -> Recording:
    """Returns the recording with this outcome."""
    recording = of.recording() if isinstance(of, Loop) else of
    return replace(recording, outcome=outcome, reason=reason)


def zipped(recording: Recording, workers: int | None = None) -> Recording:
    """Returns the recording as of a loop that pulls from a second loader too: `zip(labelled, unlabelled)`."""
    (mine,), (loader,) = recording.fetches, recording.setup.loaders
    others = loader.num_workers if workers is None else workers
    beside = replace(loader, key="Unlabelled[9000] #1", num_workers=others)
    return replace(
        recording,
        steps=replace(recording.steps, batches=recording.steps.batches * 2),
        setup=replace(recording.setup, loaders=(loader, beside)),
        fetches=(mine, replace(mine, loader=beside.key, workers=others)),
    )


def fetched(loop: Loop, queued_s: float | None = None, **more: Any) -> Recording:
    """Returns the loop's recording with further fields of its fetches.

    Args:
        loop: a loop with one loader.
        queued_s: seconds that each fetch waits for a core.
        more: fields of Fetch.
    """
    recording = loop.recording()
    (fetch,) = recording.fetches
    if queued_s is not None:
        more["queued_s"] = queued_s * fetch.batches
    return replace(recording, fetches=(replace(fetch, **more),))


def with_columns(of: Loop | Recording, **values: float | NDArray[Any]) -> Recording:
    """Returns the recording with these columns of its steps; a single number stands in every row."""
    recording = of.recording() if isinstance(of, Loop) else of
    rows = len(recording.steps)
    columns = {name: np.broadcast_to(np.asarray(value, dtype=float), rows) for name, value in values.items()}
    return replace(recording, steps=replace(recording.steps, **columns))


def calling(loop: Loop, kind: str, share: float, calls: int, nbytes: float = NAN) -> Recording:
    """Returns the recording of the loop with `calls` calls of a kind, which take `share` of the time of all steps."""
    recording = loop.recording()
    seconds = share * float(recording.steps.wall_s.sum())
    chore = Chore(kind, calls, seconds, nbytes, "<cell>", 9, "<module>", f"{kind}()", seconds)
    return replace(recording, chores=(chore,))


def full() -> Recording:
    """Returns a recording in which every field, and every field of its facts, has another value than its default."""
    made: Recording = _other_than(Recording)
    return replace(made, steps=Steps(**{name: np.arange(3.0) + 10 * i for i, name in enumerate(STEP_COLUMNS)}))


def _other_than(kind: Any, default: Any = None) -> Any:
    """Returns a value of a type that is not the default."""
    of = [one for one in get_args(kind) if one is not type(None)]
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{one.name: _other_than(hints[one.name], one.default) for one in fields(kind)})
    if get_origin(getattr(get_origin(kind), "__value__", kind)) is np.ndarray:
        return np.array([0.5, NAN, 2.0])
    if get_origin(kind) is tuple:
        return tuple(_other_than(one) for one in of if one is not ...)
    if get_origin(kind) is Mapping:
        return {"zwei äöü": _other_than(of[1])}
    if of:  # one of several types, or None
        return _other_than(of[0], default)
    return {bool: default is not True, int: 7, float: 1.5, str: "<x> & äöü"}.get(kind, False)


def same(one: Any, other: Any) -> None:
    """Compares nested frozen facts, arrays by their values (NaN equals NaN)."""
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(other)
        for item in dataclasses.fields(one):
            same(getattr(one, item.name), getattr(other, item.name))
    elif isinstance(one, tuple):
        assert isinstance(other, tuple)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, float) and one != one:
        assert other != other
    else:
        assert type(one) is type(other)
        assert one == other
