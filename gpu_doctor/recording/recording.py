"""What one run left behind: frozen facts in numpy columns, and how they are saved and loaded.

A recording is the contract in the middle of the house. Left of it everything touches the world (taps, probes, knobs);
right of it everything is a pure function (vitals, rules, forecast, report, view). It never holds a live object, so it
can be saved on a big GPU machine and diagnosed on a laptop that has no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from gpu_doctor.facts import Chore, EvaluationFacts, Flops, InputFacts, ModelFacts, OptimizerFacts, Traffic, World
from gpu_doctor.linecost import LineCost as LineCost
from gpu_doctor.steps import INFERENCE as INFERENCE
from gpu_doctor.steps import PHASES as PHASES
from gpu_doctor.steps import STEP_COLUMNS as STEP_COLUMNS
from gpu_doctor.steps import TRAINING as TRAINING
from gpu_doctor.steps import Column as Column
from gpu_doctor.steps import Steps as Steps
from gpu_doctor.steps import iter_phases as iter_phases

SettingValue: TypeAlias = "str | int | float | bool"
"""Of a cell variable also the source of any other literal, as text (see `literals`)."""
Settings: TypeAlias = Mapping[str, SettingValue]
"""Knob name -> value; empty means 'as written'."""

OUTCOMES: Final = ("completed", "budget-reached", "interrupted", "stopped", "out-of-memory", "failed", "refused")


@dataclass(frozen=True)
class LoaderSetup:
    """How one DataLoader was found, as plain values."""

    key: str
    """Names the loader across runs of one cell: dataset type, its length, batch size, sampler, and ordinal."""
    role: str = "training"
    """`training`, `evaluation`, or `unknown` (nothing was seen to happen with its batches)."""
    num_workers: int = 0
    batch_size: int | None = None
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    drop_last: bool = False
    sampler: str = ""
    dataset: str = ""
    dataset_kind: str = "map"
    """`map` or `iterable`."""
    dataset_len: int | None = None
    batches: int | None = None
    """`len(loader)`, or None where it has none."""
    collate: str = ""
    start_method: str = "fork"
    loader_type: str = "DataLoader"
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Knob name -> why this loader cannot honour it, in one sentence."""


@dataclass(frozen=True)
class DeviceSetup:
    """A GPU as found by NVML or torch; None = not read."""

    index: int
    name: str
    uuid: str = ""
    memory_bytes: int | None = None
    capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Setup:
    """What was found around the loop: loaders, device, dtype, cores really usable, versions, flags."""

    loaders: tuple[LoaderSetup, ...] = ()
    device: str = "cpu"
    """Where the trained parameters live: `cpu`, `cuda:0`, `mps`, ..."""
    devices: tuple[DeviceSetup, ...] = ()
    dtype: str = ""
    """dtype of the trained parameters, such as `float32`; empty if no trained module was seen."""
    autocast: str = ""
    """dtype of the autocast that was active in the forward (the user's own or the amp knob's); empty = none."""
    parameters: int | None = None
    parameter_bytes: int | None = None
    models: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    """Kind of layer -> how many, over the trained modules, such as {"Linear": 2, "Conv2d": 53}."""
    usable_cores: float = 1.0
    """Cores this process may really use: affinity and cgroup quota, not os.cpu_count()."""
    os_cores: int = 1
    physical_cores: int | None = None
    """Cores behind the logical ones that this process may run on: two hardware threads are no two cores."""
    start_method: str = "fork"
    torch_threads: int | None = None
    torch_version: str = ""
    python_version: str = ""
    cuda_version: str = ""
    driver_version: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """torch switches as plain values, such as {"matmul_precision": "highest", "cudnn_benchmark": False}."""
    model: ModelFacts | None = None
    optimizer_facts: tuple[OptimizerFacts, ...] | None = None
    inputs: InputFacts | None = None
    evaluation: EvaluationFacts | None = None
    world: World | None = None
    graph_operations: int | None = None
    """Operations that the first backward of the run went through, and"""
    graph_leaves: int | None = None
    """tensors that it gave gradients to."""
    operation_s: float | None = None
    """Seconds that an operation of a backward takes on this machine when its numbers take none, measured after the run;
    None on a GPU."""
    grad_scaler: bool = False
    """The loop's own GradScaler, enabled, took the run's first optimizer step."""

    @property
    def on_gpu(self) -> bool:
        """True if the loop trains on a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def gpu_index(self) -> int | None:
        """torch's number of the GPU that the loop trains on; None where it trains on none."""
        if not self.on_gpu:
            return None
        _, _, number = self.device.partition(":")
        return int(number) if number.isdigit() else 0

    @property
    def training_loader(self) -> LoaderSetup | None:
        """The first loader that the run trained from, or None.

        Of a run that trained nothing (inference, an export of embeddings), the first that it pulled from.
        """
        roles = ("training",) if self.optimizers else ("training", "unknown")
        return next((one for role in roles for one in self.loaders if one.role == role), None)


@dataclass(frozen=True)
class Metric:
    """A quantity that a probe reads, with its unit."""

    name: str
    """As in DESIGN's words, such as `gpu_util_pct`; the suffix carries the unit."""
    unit: str
    """`%`, `bytes`, `W`, `C`, `MHz`, `bytes/s`, `count`, ..."""
    label: str
    """What a person reads in a legend."""
    group: str
    """Where the view draws it: `utilization`, `memory`, or `detail` (recorded, not drawn)."""
    device: int | None = None
    """GPU index (torch's order), or None for the host."""


@dataclass(frozen=True)
class Series:
    """The readings of one metric: `times_s` (seconds after the run began) and `values`, same length."""

    metric: Metric
    times_s: Column
    values: Column


@dataclass(frozen=True)
class Fetch:
    """How the batches of one loader were fetched, measured in the process where it happened (main or workers).

    Sums over `batches` fetches: `wall_s` and `cpu_s` of the whole fetch (all `__getitem__`s and the collate),
    `collate_s` the wall seconds of the collate alone. `walls_s` are the wall seconds of single recent fetches. Of quick
    fetches in the training process only some are metered: `batches` says how many of these were, `delivered` of all.
    """

    loader: str
    """`LoaderSetup.key`."""
    workers: int
    batches: int
    wall_s: float
    cpu_s: float
    collate_s: float
    batch_bytes: float
    """Mean bytes of a batch's tensors, NaN if it holds none."""
    walls_s: Column
    queued_s: float | None = None
    """Seconds of `wall_s` in which the fetching thread could run and waited for a core; None = not measured."""
    read_bytes: float | None = None
    """Bytes read from files (the page cache included) during the fetches; None = not measured."""
    stored_bytes: float | None = None
    """Of `read_bytes`, those that came from the storage itself and not from the page cache; None = not measured."""
    stored_s: float | None = None
    """Of `wall_s`, that of fetches during which anything came from the storage; None = not measured."""
    batch_tensors: float | None = None
    """Mean number of a batch's tensors; None = it holds none, or nobody counted."""
    delivered: int | None = None
    """Batches that the loop got from the loader, metered or not; None = not counted."""
    passes: int | None = None
    """Evaluation passes over the loader that have begun, 0 where it is trained from; None = not counted."""
    ready_batches: float | None = None
    """Batches that the workers had fetched and nobody had taken, mean over the loop's asks but each epoch's first;
    None = no workers, or not counted."""
    empty_share: float | None = None
    """Part of these asks at which there was none."""
    starts: int | None = None
    """How often worker processes were started; None = there are none, or not noted."""
    start_s: float | None = None
    """Seconds of `iter(loader)` at all these starts,"""
    first_s: float | None = None
    """and from the first ask to the first batch after them."""
    ends: int | None = None
    """How often the loop asked on after the last batch, which ends workers that do not stay,"""
    end_s: float | None = None
    """and what that took."""
    collate_cpu_s: float | None = None
    """Of `cpu_s`, that of the collate alone; None = not measured."""


@dataclass(frozen=True)
class Losses:
    """Loss of the first backward of recorded steps: step index, samples seen before it, value (all same length)."""

    step: Column = field(default_factory=lambda: np.empty(0))
    samples: Column = field(default_factory=lambda: np.empty(0))
    value: Column = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Recording:
    """All that one run left behind. Build one in a test with only `steps`; every other field has an honest default."""

    steps: Steps
    settings: Settings = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    outcome: str = "completed"
    """One of OUTCOMES."""
    reason: str = ""
    """One sentence where the outcome is not `completed`: the exception's last line, or why a knob refused."""
    series: tuple[Series, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    lines: tuple[LineCost, ...] = ()
    looks: int | None = None
    """How many stack samples the lines' shares come from; None = not counted."""
    losses: Losses = field(default_factory=Losses)
    chores: tuple[Chore, ...] | None = None
    """Costly calls besides training, dearest first; None = nobody listened."""
    traffic: Traffic | None = None
    """Copies between host and devices; None = there is no device to copy to, or nobody listened."""
    flops: Flops | None = None
    """What a step computes, counted on a trial of the same code; None = not counted."""
    notes: tuple[str, ...] = ()
    written: tuple[str, ...] | None = None
    """Files that a trial's code wrote or deleted and that stayed so (`gone.pt (deleted)`); None = nobody watched."""
    name: str = ""
    source: str = ""
    """The cell's text, for the bars beside its lines."""
    started_at: float = 0.0
    """Unix time of the begin."""
    duration_s: float = 0.0
    """Host seconds from begin to close, steps or not."""
    overhead_s: float = 0.0
    """What gpu_doctor itself cost: calibrated cost of the tap events plus CPU seconds of its own threads."""
    peak_bytes: float = float("nan")
    """Peak memory of the run where the loop trains: the allocator's peak on a GPU, the process' RSS on a CPU."""

    @property
    def overhead_share(self) -> float | None:
        """Own cost over the run's wall-clock (0..1), None for an empty run."""
        return self.overhead_s / self.duration_s if self.duration_s > 0 else None

    def one_series(self, name: str, device: int | None = None) -> Series | None:
        """The series of a metric by name (and GPU index), or None if it was not read."""
        for one in self.series:
            if one.metric.name == name and (device is None or one.metric.device == device):
                return one
        return None

    def save(self, path: str | Path) -> Path:
        """Writes the recording as a compressed `.npz` with a JSON header; returns the path written."""
        from gpu_doctor.recording_file import save  # the file format stands on these types, so it is met here

        return save(self, path)


def describe(settings: Settings) -> str:
    """Settings in a person's words: `num_workers=4, amp=bf16`, or `as written`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "as written"
