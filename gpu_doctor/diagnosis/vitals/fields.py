"""The vitals as a table: the name of every number that is read off a recording, its meaning and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.arithmetic import ArithmeticVitals
from gpu_doctor.diagnosis.vitals.compiling import Recompiled
from gpu_doctor.diagnosis.vitals.device import DeviceVitals
from gpu_doctor.diagnosis.vitals.distributed import WorldVitals
from gpu_doctor.diagnosis.vitals.evaluation import EvaluationVitals
from gpu_doctor.diagnosis.vitals.hardware import HardwareVitals
from gpu_doctor.diagnosis.vitals.lines import enough
from gpu_doctor.diagnosis.vitals.memory import MemoryVitals
from gpu_doctor.diagnosis.vitals.setup import SetupVitals
from gpu_doctor.machine.cards import TENSOR_CORES
from gpu_doctor.recording import LineCost, LoaderSetup, SettingValue
from gpu_doctor.recording.setup import Chore, Traffic

SYNC_SHARE: Final = 0.05
"""From here on waits for values empty the queue, not slow launches (host-sync)."""


@dataclass(frozen=True)
class Vitals(MemoryVitals, HardwareVitals, WorldVitals, ArithmeticVitals, EvaluationVitals, SetupVitals, DeviceVitals):
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
    """Mean seconds of a step after warm-up: by the host's clock, or, where it only launched what a device did later, as
    long as that took (see `vitals.pace`)."""
    host_ahead: float = 1.0
    """step_wall_s over the host's own seconds of a step: 1 where the host's clock times the steps."""
    epochs: int | None = None
    """Training epochs that the measured steps touch; each but the first begins inside of them."""
    samples_per_step: float | None = None
    batches_per_step: float | None = None
    loaders_at_once: float | None = None
    """Loaders that a step pulls from in turn, so that their fetches could run side by side: all of their fetching
    over that of the dearest one, so that a cheap one beside a dear one counts little."""

    loaders_pulled: float | None = None
    """Loaders that a step pulls a batch from, whatever their fetching takes: `zip(labelled, unlabelled)` is 2."""

    run_s: float | None = None
    """Host seconds of all steps, warm-up included."""

    # where the host's wall-clock went (host clock, 0..1; with ours_share and other_share they sum to 1, of host_step_s)
    data_wait_share: float | None = None
    transfer_share: float | None = None
    forward_share: float | None = None
    backward_share: float | None = None
    optimizer_share: float | None = None
    sync_share: float | None = None
    evaluation_share: float | None = None
    ours_share: float | None = None
    """What gpu_doctor itself took of the training thread, in no phase; see `Steps.ours_s`."""
    other_share: float | None = None
    loss_share: float | None = None
    """Part of other_share: between forward and backward."""
    no_grad_share: float | None = None
    """Part of forward_share: forwards in training mode that recorded no gradients."""
    syncs_per_step: float | None = None
    """Recorded waits of the host for the device, per step; their time is sync_share."""
    closures_per_step: float | None = None
    """Times that the optimizer called its closure (forward and backward), 0 where it was given none."""
    edge_share: float | None = None
    """Part of data_wait_share: end and start of workers and the first batch, at epoch edges."""

    # the fetch of a batch, in the process where it runs (means)
    fetch_wall_s: float | None = None
    fetch_cpu_s: float | None = None
    fetch_beside_s: float | None = None
    """Part of fetch_cpu_s that other threads of the loop's process used; None if it was not told apart."""
    collate_s: float | None = None
    collate_cpu_s: float | None = None
    """Of collate_s, seconds that the fetching thread was on a core."""
    batch_bytes: float | None = None
    batch_tensors: float | None = None
    workers: int | None = None
    """num_workers of the training loader during this run."""
    fetch_median_s: float | None = None
    fetch_p99_s: float | None = None
    """Of single recent fetches, 60 at most per process."""
    consumer_s: float | None = None
    """Mean seconds per step that are not data wait."""
    consumer_cpu_s: float | None = None
    """CPU seconds per step of the training process without its own fetching (all threads)."""

    fetch_queued_s: float | None = None
    """Of fetch_wall_s, seconds in which the fetching thread waited for a core."""
    fetch_read_bytes: float | None = None
    """Bytes read from files per fetch, page cache included."""
    fetch_stored_bytes: float | None = None
    """Of them, those that came from the storage itself."""
    fetch_stored_share: float | None = None
    """Part of fetch_wall_s in fetches that read from the storage: a library's page read once is no slow disk."""

    ready_batches: float | None = None
    """Batches that lay ready when the loop asked its workers for one, on average; an epoch's first ask is left out."""
    empty_share: float | None = None
    """Part of these requests that found no batch ready."""
    handover_s: float | None = None
    """Seconds that the loop waits in a step whose batches are all ready: what taking them from the workers costs."""
    worker_start_s: float | None = None
    """Mean seconds in which `iter(loader)` starts worker processes,"""
    worker_first_s: float | None = None
    """in which the loop then waits for the first batch,"""
    worker_end_s: float | None = None
    """and in which they are ended after the last one."""

    other_fetches: tuple[tuple[int, float, float], ...] = ()
    """Of other runs of the same loop: workers, wall seconds of a fetch without its queueing for a core, CPU seconds."""

    # copies, those back from the host within a step left out where it is known which they are
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

    recompiled: tuple[Recompiled, ...] | None = None
    """Functions that torch.compile compiled more than once, dearest first; None = nobody listened."""

    overhead_share: float | None = None
    """What watching cost in all over the run's wall-clock: `ours_share`, and the CPU time of gpu_doctor's threads."""
    final_loss: float | None = None
    loader: LoaderSetup | None = None
    """The training loader, None if the loop pulls from none."""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    lines: tuple[LineCost, ...] = ()
    """Line costs, dearest first."""
    looks: int | None = None
    """Stack samples that they come from; None = not counted."""
    around: tuple[LineCost, ...] = ()
    """Lines before the first step and after the last one, as shares of the run's duration."""
    before_share: float | None = None
    """Part of the run's duration before its first step,"""
    after_share: float | None = None
    """and after its last one."""
    source: str = ""
    outcome: str = "completed"
    """How the run ended, one of recording.OUTCOMES."""
    reason: str = ""
    """Why, where that is not `completed`."""
    chores: tuple[Chore, ...] | None = None
    """Costly calls besides training, dearest first; None = nobody listened."""
    traffic: Traffic | None = None
    """Copies between host and devices; None = no device, or nobody listened."""
    other_once_share: float = 0.0
    """Part of other_share: what a single step had beyond the usual one, where no other had half as much. Python's own
    garbage collection or the machine stood still for a moment: nothing that the loop does again and again."""

    @property
    def host_step_s(self) -> float | None:
        """Mean seconds of a step by the host's own clock, which the shares of the phases are of."""
        return None if self.step_wall_s is None else self.step_wall_s / self.host_ahead

    @property
    def fetches_s(self) -> float:
        """Seconds that a step's fetches take, one after the other; 0 where they were not timed."""
        return (self.fetch_wall_s or 0.0) * (self.batches_per_step or 1.0)

    @property
    def fetches_cpu_s(self) -> float:
        """CPU seconds of a step's fetches; 0 if they were not timed."""
        return (self.fetch_cpu_s or 0.0) * (self.batches_per_step or 1.0)

    @property
    def edges(self) -> int:
        """Epochs that begin in the measured steps."""
        return max((self.epochs or 1) - 1, 0)

    @property
    def edge_s(self) -> float:
        """Seconds that the loop waits when one of them begins; 0 where none does, or it was not timed."""
        measured_s = (self.host_step_s or 0.0) * self.measured_steps
        return (self.edge_share or 0.0) * measured_s / self.edges if self.edges else 0.0

    @property
    def passes(self) -> int:
        """Passes over data after warm-up that the shares are made of: steps, or of LBFGS its closure's calls."""
        return int(self.measured_steps * max(self.closures_per_step or 1.0, 1.0))

    def chores_of(self, kind: str) -> list[Chore]:
        """The costly calls of one kind, dearest first."""
        return [one for one in self.chores or () if one.kind == kind]

    def chore_share(self, kind: str) -> float | None:
        """Seconds of the chores of a kind over the wall-clock of all steps; None if nobody listened."""
        if self.chores is None or not self.run_s:
            return None
        return sum(one.wall_s for one in self.chores_of(kind)) / self.run_s

    @property
    def chores_between_share(self) -> float:
        """Seconds of all chores that lay outside of every phase, over the wall-clock of all steps; 0 if none is known.

        Where it was not noted in which phase they fell, all of their seconds may lie there.
        """
        if self.chores is None or not self.run_s:
            return 0.0
        return sum(one.other_s if one.other_s == one.other_s else one.wall_s for one in self.chores) / self.run_s

    @property
    def once_share(self) -> float:
        """`other_once_share` beyond the chores that lay outside of every phase: a single checkpoint has a rule."""
        return max(self.other_once_share - self.chores_between_share, 0.0)

    def together(self, *phases: str) -> float:
        """Share of the wall-clock in some phases, 0..1; what was not measured counts as nothing."""
        return min(float(sum(getattr(self, f"{phase}_share") or 0.0 for phase in phases)), 1.0)

    @property
    def passes_share(self) -> float:
        """Forward and backward, with the loss between them."""
        return self.together("forward", "loss", "backward")

    @property
    def computing_share(self) -> float:
        """Share of forward, loss, backward and optimizer, 0..1."""
        return self.together("forward", "loss", "backward", "optimizer")

    @property
    def outside_share(self) -> float:
        """Share of the wall-clock outside every phase and the loss."""
        return (self.other_share or 0.0) - (self.loss_share or 0.0)

    @property
    def exposed_share(self) -> float:
        """Share in which the device idles because of the loader or copies."""
        return (self.exposed_wait_share or 0.0) + (self.exposed_transfer_share or 0.0)

    @property
    def steady_wait_share(self) -> float:
        """Share of exposed waits for data, without those at epoch starts."""
        return max((self.exposed_wait_share or 0.0) - (self.edge_share or 0.0) / self.host_ahead, 0.0)

    def looked_at(self, share: float) -> bool:
        """True if a share of the wall-clock got enough stack samples to be judged."""
        return enough(share, self.looks)

    def lines_in(self, *phases: str) -> list[LineCost]:
        """Line costs of the training thread in some phases, dearest first; `other` has the loss as well."""
        return [one for one in self.lines if one.phase in phases and not one.in_worker]

    @property
    def outside_lines(self) -> list[LineCost]:
        """Line costs of the training thread outside every phase and the loss, dearest first."""
        return [one for one in self.lines_in("other") if not one.before_backward]

    @property
    def device_limits(self) -> bool:
        """True if the GPU limits the loop, so that its full queue hides the host's work. False on a CPU."""
        return self.on_gpu and not self.gpu_outruns_host

    @property
    def predicts(self) -> bool:
        """True if the loop trained nothing: no backward took time, no optimizer was found."""
        return not self.backward_share and not self.setup.optimizers

    @property
    def micro_batches(self) -> float | None:
        """Rounds of forward and backward in a step, as far as its batches say: one batch of each loader makes one."""
        return None if self.batches_per_step is None else self.batches_per_step / max(self.loaders_pulled or 1.0, 1.0)

    @property
    def rounds(self) -> float:
        """`micro_batches`, at least 1; 1 if batches were not counted."""
        return max(self.micro_batches or 1.0, 1.0)

    @property
    def operation_s(self) -> float | None:
        """Mean seconds of an operation in a CPU's backward.

        None on a GPU, where queue and clock tell; where the operations were not counted; and where a step may have more
        than the one backward whose operations were.
        """
        operations, backward, step_s = self.setup.graph_operations, self.backward_share, self.host_step_s
        if self.on_gpu or not operations or not backward or not step_s:
            return None
        if round(self.rounds, 1) > 1.0 or len(self.setup.optimizers) > 1:
            return None
        return backward * step_s / operations

    @property
    def compiled(self) -> bool:
        """Whether the model is compiled, by the user or by the knob, which leaves nothing on the model."""
        return (self.model is not None and self.model.compiled) or self.settings.get("compile") is True

    @property
    def could_compile(self) -> bool:
        """True if torch.compile is possible here and not in use: static shapes, and a card that Triton supports."""
        return self.static_shapes and not self.compiled and (self.capability is None or self.at_least(TENSOR_CORES))

    def __str__(self) -> str:
        """The numbers that were measured, one a line, by their names."""
        found = ((one.name, getattr(self, one.name)) for one in fields(self))
        numbers = {name: one for name, one in found if isinstance(one, (int, float)) and not isinstance(one, bool)}
        wide = max(map(len, numbers), default=0)
        return "\n".join(f"{name:<{wide}}  {one:.6g}" for name, one in numbers.items())

    _repr_pretty_ = formatting.pretty
