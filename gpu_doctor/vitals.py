"""The numbers read off a recording: some dozens, each maybe None. None means not measured and is never zero.

Shares are of the wall-clock after warm-up, made of sums (a loader with n workers delivers in bursts: the median wait
is 0 while the mean is large), and each of one clock only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_doctor.recording import LineCost, LoaderSetup, SettingValue, Setup


@dataclass(frozen=True)
class Vitals:
    """What `measure` reads off a recording. Every field but the counts may be None = not measured."""

    # how much was measured
    steps: int = 0
    """Steps (optimizer steps, or batches of a loop without optimizer), warm-up included."""
    measured_steps: int = 0
    """Steps after warm-up: what every share below is made of."""
    warmup_steps: int = 0
    warmup_s: float | None = None
    samples: float | None = None
    """Training samples in all steps."""
    samples_per_s: float | None = None
    """After warm-up."""
    steps_per_s: float | None = None
    step_wall_s: float | None = None
    """Mean host seconds of a step after warm-up."""
    samples_per_step: float | None = None
    batches_per_step: float | None = None

    # where the wall-clock went (host clock, 0..1; they sum to 1 with other_share)
    data_wait_share: float | None = None
    transfer_share: float | None = None
    forward_share: float | None = None
    backward_share: float | None = None
    optimizer_share: float | None = None
    sync_share: float | None = None
    evaluation_share: float | None = None
    other_share: float | None = None
    loss_share: float | None = None
    """Part of other_share: between forward and backward."""
    edge_share: float | None = None
    """Part of data_wait_share: worker start and first batch, at epoch edges."""

    # what it cost the device
    exposed_wait_share: float | None = None
    """Part of the wall-clock in which the device had nothing to do because of the loader: on a CPU device the wait,
    on a GPU the smaller of wait and GPU gap."""
    exposed_transfer_share: float | None = None
    gpu_gap_share: float | None = None
    """Device-clock gap between steps over wall-clock."""
    gpu_busy_share: float | None = None
    """1 - gap share, over the steps with device readings; an upper bound of busy time (gaps inside a step unseen)."""
    queue_empty_share: float | None = None
    """Share of steps at whose end the GPU had already finished everything that was launched."""

    # the fetch of a batch, in the process where it runs (means)
    fetch_wall_s: float | None = None
    fetch_cpu_s: float | None = None
    collate_s: float | None = None
    batch_bytes: float | None = None
    workers: int | None = None
    """num_workers of the training loader during this run."""
    consumer_s: float | None = None
    """Mean seconds per step that are not data wait."""
    consumer_cpu_s: float | None = None
    """CPU seconds per step of the training process without its own fetching (all threads)."""

    # copies
    transfers_per_step: float | None = None
    transfer_bytes_per_step: float | None = None
    pageable_share: float | None = None
    """Of the host-to-device copies that were looked at, the share from pageable memory."""

    # machine readings (means over the run after warm-up unless said otherwise)
    gpu_util_pct: float | None = None
    tensor_active_pct: float | None = None
    cpu_util_pct: float | None = None
    """Of all usable cores, machine-wide."""
    peak_bytes: float | None = None
    memory_total_bytes: float | None = None
    peak_share: float | None = None
    """peak_bytes over the device's memory, GPU only."""
    usable_cores: float = 1.0

    overhead_share: float | None = None
    final_loss: float | None = None
    on_gpu: bool = False
    loader: LoaderSetup | None = None
    """The training loader, None if the loop pulls from none."""
    setup: Setup = field(default_factory=Setup)
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    lines: tuple[LineCost, ...] = ()
    """Line costs, dearest first."""
    source: str = ""
