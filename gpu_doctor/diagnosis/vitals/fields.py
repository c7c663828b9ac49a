"""The class `Vitals`: every figure that is computed from a recording, with its meaning and its unit."""

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
"""Share of the wall-clock from which on waits for values are what empties the GPU's queue, not slow launches
(host-sync)."""


@dataclass(frozen=True)
class Vitals(MemoryVitals, HardwareVitals, WorldVitals, ArithmeticVitals, EvaluationVitals, SetupVitals, DeviceVitals):
    """Figures that `measure` computes from a recording. Every field but the counts may be None = not measured."""

    # how much was measured
    steps: int = 0
    """Steps (optimizer steps, or batches of a loop without optimizer), warm-up included."""
    measured_steps: int = 0
    """Steps after warm-up, over which the shares below are taken."""
    warmup_steps: int = 0
    warmup_s: float | None = None
    samples: float | None = None
    """Training samples in all steps."""
    samples_per_s: float | None = None
    """Training samples per second, after warm-up."""
    steps_per_s: float | None = None
    step_wall_s: float | None = None
    """Mean seconds of a step after warm-up: by the host's clock, or, if the host ran ahead of its device, by the
    device's (see `vitals.pace`)."""
    host_ahead: float = 1.0
    """step_wall_s over the host's own seconds of a step: 1 if the host's clock times the steps."""
    epochs: int | None = None
    """Training epochs that the measured steps touch; each but the first begins within them."""
    samples_per_step: float | None = None
    batches_per_step: float | None = None
    loaders_at_once: float | None = None
    """Effective number of loaders that a step pulls from in turn, whose fetches could run in parallel: the seconds of
    all their fetches over those of the costliest loader."""

    loaders_pulled: float | None = None
    """Number of loaders that a step pulls a batch from: `zip(labelled, unlabelled)` is 2."""

    run_s: float | None = None
    """Host seconds of all steps, warm-up included."""

    # phases, as shares of host_step_s by the host's clock, 0..1; with ours_share and other_share they sum to 1
    data_wait_share: float | None = None
    transfer_share: float | None = None
    forward_share: float | None = None
    backward_share: float | None = None
    optimizer_share: float | None = None
    sync_share: float | None = None
    evaluation_share: float | None = None
    ours_share: float | None = None
    """Time that gpu_doctor's own hooks took of the training thread, which is in no phase; see `Steps.ours_s`."""
    other_share: float | None = None
    loss_share: float | None = None
    """Part of other_share between forward and backward."""
    no_grad_share: float | None = None
    """Part of forward_share in forwards in training mode that recorded no gradients."""
    syncs_per_step: float | None = None
    """Recorded waits of the host for the device, per step; their time is sync_share."""
    closures_per_step: float | None = None
    """Calls of the optimizer's closure (forward and backward) per step; 0 if it has none."""
    edge_share: float | None = None
    """Part of data_wait_share at the start and end of epochs: ending and starting workers, and the first batch."""

    # means of the fetch of a batch, in the process that fetches it
    fetch_wall_s: float | None = None
    fetch_cpu_s: float | None = None
    fetch_beside_s: float | None = None
    """Part of fetch_cpu_s that other threads of the loop's process used; None if there was none worth counting."""
    collate_s: float | None = None
    collate_cpu_s: float | None = None
    """CPU seconds of the fetching thread within collate_s."""
    batch_bytes: float | None = None
    batch_tensors: float | None = None
    workers: int | None = None
    """num_workers of the training loader during this run."""
    fetch_median_s: float | None = None
    fetch_p99_s: float | None = None
    """99th percentile of single recent fetches (at most 60 per process), as fetch_median_s is their median."""
    consumer_s: float | None = None
    """Mean seconds of a step without its data wait."""
    consumer_cpu_s: float | None = None
    """CPU seconds per step of the training process without its own fetching (all threads)."""

    fetch_queued_s: float | None = None
    """Seconds of fetch_wall_s for which the fetching thread waited for a core."""
    fetch_read_bytes: float | None = None
    """Bytes read from files per fetch, page cache included."""
    fetch_stored_bytes: float | None = None
    """Bytes per fetch that came from the storage itself."""
    fetch_stored_share: float | None = None
    """Part of fetch_wall_s in fetches that read from the storage: a library's page read once is no slow disk."""

    ready_batches: float | None = None
    """Mean number of batches that lay ready when the loop requested one; an epoch's first request is left out."""
    empty_share: float | None = None
    """Part of these requests that found no batch ready."""
    handover_s: float | None = None
    """Seconds that the loop waits in a step whose batches are all ready, to take them from the workers."""
    worker_start_s: float | None = None
    """Mean seconds that `iter(loader)` takes to start worker processes."""
    worker_first_s: float | None = None
    """Mean seconds that the loop then waits for the first batch."""
    worker_end_s: float | None = None
    """Mean seconds to end the workers after the last batch."""

    other_fetches: tuple[tuple[int, float, float], ...] = ()
    """Fetches in other runs of the same loop: number of workers, wall-clock seconds of a fetch without queueing for a
    core, CPU seconds of a fetch."""

    # copies to the device, without those that bring a tensor back from the host within a step, if these are known
    transfers_per_step: float | None = None
    transfer_bytes_per_step: float | None = None
    pageable_share: float | None = None
    """Share of the inspected host-to-device copies that came from pageable memory."""

    # readings of the machine: means over the run after warm-up, unless a field states another figure
    gpu_util_pct: float | None = None
    tensor_active_pct: float | None = None
    cpu_util_pct: float | None = None
    """Per cent of all usable cores in use, machine-wide."""
    others_share: float | None = None
    """Share of the usable cores that other programs used, over all readings of the run."""
    peak_bytes: float | None = None
    memory_total_bytes: float | None = None
    peak_share: float | None = None
    """peak_bytes over the device's memory, GPU only."""
    usable_cores: float = 1.0

    recompiled: tuple[Recompiled, ...] | None = None
    """Functions that torch.compile compiled more than once, costliest first; None = not recorded."""

    overhead_share: float | None = None
    """Cost of watching over the run's wall-clock: gpu_doctor's hooks in the loop, and the CPU time of its threads."""
    final_loss: float | None = None
    loader: LoaderSetup | None = None
    """The training loader, None if the loop pulls from none."""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    lines: tuple[LineCost, ...] = ()
    """Line costs, costliest first."""
    looks: int | None = None
    """Number of stack samples behind the line costs; None = not counted."""
    around: tuple[LineCost, ...] = ()
    """Lines before the first step and after the last one, as shares of the run's duration."""
    before_share: float | None = None
    """Part of the run's duration before its first step."""
    after_share: float | None = None
    """Part of the run's duration after its last step."""
    source: str = ""
    outcome: str = "completed"
    """How the run ended, one of recording.OUTCOMES."""
    reason: str = ""
    """Why the run ended, if it did not complete."""
    chores: tuple[Chore, ...] | None = None
    """Costly calls besides training, costliest first; None = not recorded."""
    traffic: Traffic | None = None
    """Copies between host and devices; None = no device, or not recorded."""
    other_once_share: float = 0.0
    """Part of other_share that a single step took beyond the usual step, if no other step had half as much. It was a
    single event, such as a garbage collection by Python or a halt of the machine; the loop does not repeat it."""

    @property
    def host_step_s(self) -> float | None:
        """Mean seconds of a step by the host's own clock; the shares of the phases are shares of it."""
        return None if self.step_wall_s is None else self.step_wall_s / self.host_ahead

    @property
    def fetches_s(self) -> float:
        """Seconds that a step's fetches take, one after the other; 0 if they were not timed."""
        return (self.fetch_wall_s or 0.0) * (self.batches_per_step or 1.0)

    @property
    def fetches_cpu_s(self) -> float:
        """CPU seconds of a step's fetches; 0 if they were not timed."""
        return (self.fetch_cpu_s or 0.0) * (self.batches_per_step or 1.0)

    @property
    def edges(self) -> int:
        """Number of epochs that begin in the measured steps."""
        return max((self.epochs or 1) - 1, 0)

    @property
    def edge_s(self) -> float:
        """Mean seconds that the loop waits when such an epoch begins; 0 if none does, or if it was not timed."""
        measured_s = (self.host_step_s or 0.0) * self.measured_steps
        return (self.edge_share or 0.0) * measured_s / self.edges if self.edges else 0.0

    @property
    def passes(self) -> int:
        """Number of passes over data after warm-up: steps, or calls of the closure for an optimizer such as LBFGS."""
        return int(self.measured_steps * max(self.closures_per_step or 1.0, 1.0))

    def chores_of(self, kind: str) -> list[Chore]:
        """Returns the costly calls of one kind, costliest first."""
        return [chore for chore in self.chores or () if chore.kind == kind]

    def chore_share(self, kind: str) -> float | None:
        """Share of the wall-clock of all steps that chores of a kind took; None if chores were not recorded."""
        if self.chores is None or not self.run_s:
            return None
        return sum(chore.wall_s for chore in self.chores_of(kind)) / self.run_s

    @property
    def chores_between_share(self) -> float:
        """Share of the wall-clock of all steps that chores took outside every phase; 0 if none is known.

        If the phase of a chore was not recorded, all of its seconds count.
        """
        if self.chores is None or not self.run_s:
            return 0.0
        # NaN, which is unequal to itself, means not recorded
        return sum(call.other_s if call.other_s == call.other_s else call.wall_s for call in self.chores) / self.run_s

    @property
    def once_share(self) -> float:
        """`other_once_share` without the chores outside every phase: a single checkpoint has a rule of its own."""
        return max(self.other_once_share - self.chores_between_share, 0.0)

    def together(self, *phases: str) -> float:
        """Share of the wall-clock in some phases, 0..1; a phase that was not measured counts as 0."""
        return min(float(sum(getattr(self, f"{phase}_share") or 0.0 for phase in phases)), 1.0)

    @property
    def passes_share(self) -> float:
        """Share of forward, loss and backward, 0..1."""
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

    def sampled_enough(self, share: float) -> bool:
        """True if a share of the wall-clock got enough stack samples to be judged."""
        return enough(share, self.looks)

    def lines_in(self, *phases: str) -> list[LineCost]:
        """Line costs of the training thread in some phases, costliest first; `other` includes the loss."""
        return [cost for cost in self.lines if cost.phase in phases and not cost.in_worker]

    @property
    def outside_lines(self) -> list[LineCost]:
        """Line costs of the training thread outside every phase and the loss, costliest first."""
        return [cost for cost in self.lines_in("other") if not cost.before_backward]

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
        """Rounds of forward and backward in a step, counted by its batches: one batch of each loader is one round."""
        return None if self.batches_per_step is None else self.batches_per_step / max(self.loaders_pulled or 1.0, 1.0)

    @property
    def rounds(self) -> float:
        """`micro_batches`, at least 1; 1 if batches were not counted."""
        return max(self.micro_batches or 1.0, 1.0)

    @property
    def operation_s(self) -> float | None:
        """Mean seconds of an operation in a CPU's backward.

        None on a GPU, whose clock is used instead; if operations were not counted; and if a step may run more than one
        backward, as the operations of only one were counted.
        """
        operations, backward, step_s = self.setup.graph_operations, self.backward_share, self.host_step_s
        if self.on_gpu or not operations or not backward or not step_s:
            return None
        if round(self.rounds, 1) > 1.0 or len(self.setup.optimizers) > 1:
            return None
        return backward * step_s / operations

    @property
    def compiled(self) -> bool:
        """True if the model is compiled, by the user or by the knob (which leaves no mark on the model)."""
        return (self.model is not None and self.model.compiled) or self.settings.get("compile") is True

    @property
    def could_compile(self) -> bool:
        """True if torch.compile is possible here and not in use: static shapes, and a card that Triton supports."""
        return self.static_shapes and not self.compiled and (self.capability is None or self.at_least(TENSOR_CORES))

    def __str__(self) -> str:
        """Lists the numbers that were measured, one a line, with their names."""
        found = ((vital.name, getattr(self, vital.name)) for vital in fields(self))
        numbers = {name: x for name, x in found if isinstance(x, (int, float)) and not isinstance(x, bool)}
        wide = max(map(len, numbers), default=0)
        return "\n".join(f"{name:<{wide}}  {number:.6g}" for name, number in numbers.items())

    _repr_pretty_ = formatting.pretty
