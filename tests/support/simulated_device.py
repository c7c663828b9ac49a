"""An asynchronous device in virtual time: what is launched runs in a queue while the host's clock goes on by itself."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_doctor.capture.gpu.devicemarks import StepMarks
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.ledger import Pull
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Recording
from gpu_doctor.recording.steps import SYNC, TRANSFER

MS = 1_000_000


@dataclass
class Mark:
    """A place in the queue, passed at a known moment of the device's time."""

    passed_ns: int
    freed: bool = False


class SimulatedDevice:
    """A DeviceClock, and the host that launches: both clocks in one place, in nanoseconds."""

    def __init__(self) -> None:
        self.now = 0
        """The host's clock."""
        self.stream = 0
        """The current one."""
        self.streams = {0: 0}
        """When the queue of each will have run empty."""
        self.busy = 0
        """Nanoseconds of work that were launched in all,"""
        self.of_phase: dict[str, int] = {}
        """and of each phase that was named."""
        self.ends: list[int] = []
        """When the device had done what each step launched."""
        self.mark_cost_ms = 0.0
        """Host: to put a mark."""
        self.marks: list[Mark] = []

    @property
    def idle_from(self) -> int:
        """When the current stream's queue will have run empty."""
        return self.streams.setdefault(self.stream, 0)

    @idle_from.setter
    def idle_from(self, ns: int) -> None:
        self.streams[self.stream] = ns

    def wait_stream(self, other: int) -> None:
        """What the current stream is given from now on waits for all that `other` has; the host does not."""
        self.idle_from = max(self.idle_from, self.streams.get(other, 0))

    def host(self, ms: float) -> None:
        """The host computes or waits for something else."""
        self.now += round(ms * MS)

    def launch(self, ms: float, cost_ms: float = 0.0, phase: str = "") -> None:
        """Work of `ms` goes into the queue; launching costs the host `cost_ms`."""
        self.host(cost_ms)
        self.of_phase[phase] = self.of_phase.get(phase, 0) + round(ms * MS)
        self.idle_from = max(self.idle_from, self.now) + round(ms * MS)
        self.busy += round(ms * MS)

    def synchronize(self) -> int:
        """The host waits until the queue is empty; returns for how long."""
        waited = max(*self.streams.values(), self.now) - self.now
        self.now += waited
        return waited

    def ready(self) -> bool:
        """See DeviceClock."""
        return True

    def mark(self) -> Mark:
        """See DeviceClock."""
        self.host(self.mark_cost_ms)
        self.marks.append(Mark(max(self.idle_from, self.now)))
        return self.marks[-1]

    def done(self, mark: Mark) -> bool:
        """See DeviceClock."""
        assert not mark.freed, "a freed mark was asked"
        return self.now >= mark.passed_ns

    def seconds(self, begin: Mark, end: Mark) -> float:
        """See DeviceClock."""
        assert self.done(begin)
        assert self.done(end)
        return (end.passed_ns - begin.passed_ns) * 1e-9

    def free(self, mark: Mark) -> None:
        """See DeviceClock."""
        assert not mark.freed, "a mark was freed twice"
        mark.freed = True

    @property
    def unfreed(self) -> int:
        """Marks that are still held."""
        return sum(not mark.freed for mark in self.marks)


@dataclass
class Loop:
    """A training loop on the simulated device; milliseconds of each part of a step."""

    wait: float = 1.0
    """Host: for the batch."""
    copy: float = 0.0
    copy_blocks: bool = True
    """The host waits for the copy (pageable memory); else it runs in the queue while the host goes on."""
    kernels: int = 10
    kernel: float = 0.5
    """Device: one kernel."""
    launch_cost: float = 0.01
    """Host: to launch one kernel."""
    python: float = 0.02
    """Host: what the loop does after its optimizer step."""
    item_every: int = 0
    """`loss.item()` every so many steps, 0 = never."""
    evaluate_every: int = 0
    """An evaluation every so many steps, 0 = never: so many batches"""
    evaluation_batches: int = 5
    evaluation_kernel: float = 1.0
    """with as many kernels as a step, of so long; the metric is read at its end."""
    evaluates: str = "no_grad"
    """How: `no_grad` = around loader and model, `careless` = `eval()` alone, `held` = on a tensor at hand, no loader,
    `careless held` = both."""
    steps: int = 40
    most_queued_ms: float = 1000.0
    """The host is held back when so much is queued, as a real launch queue does."""
    loss: float = 0.0
    """Device: the loss, between forward and backward,"""
    update: float = 0.0
    """and the optimizer's step."""
    mark_cost: float | None = None
    """Host: to put a mark; given, only some steps are marked. None = all are, at no cost."""

    def play(
        self, device: SimulatedDevice | None = None, recorder: Recorder | None = None
    ) -> tuple[SimulatedDevice, Recording]:
        """Runs it, on a device and into a recorder of its own unless others are given; returns both."""
        device = device or SimulatedDevice()
        recorder = recorder or Recorder(clock=lambda: device.now, sync_measured=True)
        recorder.facts["device"] = "cuda:0"
        ledger = recorder.ledger
        ledger.marks = StepMarks(device, ledger.table, host=lambda: device.now)
        if self.mark_cost is not None:
            device.mark_cost_ms = self.mark_cost
            ledger.windows = DeviceWindows(ledger.marks, device.now)
        pull = Pull()
        for i in range(self.steps):
            before = ledger.ask(pull, True)
            device.host(self.wait)
            ledger.delivered(pull, 8.0, before)
            self._copy(device, recorder)
            before = ledger.forward(True, True, True, 8.0)
            self._kernels(device, self.kernels // 2, "forward")
            ledger.forward_done(before)
            self._between(device, recorder)
            device.launch(self.loss, phase="loss")
            before = ledger.backward()
            self._kernels(device, self.kernels - self.kernels // 2, "backward")
            ledger.switch(before)
            if ledger.marks is not None:
                ledger.launched()
            before = ledger.optimizer(1)
            device.launch(self.update, phase="optimizer")
            device.ends.append(device.idle_from)
            ledger.optimizer_done(1, before)
            device.host(self.python)
            if self.item_every and i % self.item_every == 0:
                ledger.carve(SYNC, device.synchronize())
            if self.evaluate_every and i % self.evaluate_every == self.evaluate_every - 1:
                self._evaluate(device, recorder)
        ledger.ended(ledger.ask(pull, True))
        device.synchronize()
        return device, recorder.close()

    def _evaluate(self, device: SimulatedDevice, recorder: Recorder) -> None:
        ledger, held_out, grad = recorder.ledger, Pull(), self.evaluates.startswith("careless")
        loads = not self.evaluates.endswith("held")
        for _ in range(self.evaluation_batches):
            if loads:
                before = ledger.ask(held_out, grad)
                device.host(self.wait)
                ledger.delivered(held_out, 8.0, before)
            before = ledger.forward(False, grad, True, 8.0)
            for _ in range(self.kernels):
                device.launch(self.evaluation_kernel, self.launch_cost)
            ledger.forward_done(before)
        device.synchronize()  # the metric is read
        if loads:
            ledger.ended(ledger.ask(held_out, grad))

    def _copy(self, device: SimulatedDevice, recorder: Recorder) -> None:
        if not self.copy:
            return
        if not self.copy_blocks:
            recorder.ledger.copying()
        began = device.now
        device.launch(self.copy)
        if self.copy_blocks:
            device.synchronize()
        recorder.ledger.copied(1000, self.copy_blocks, device.now - began)
        assert recorder.ledger.acc[TRANSFER] >= 0

    def _between(self, device: SimulatedDevice, recorder: Recorder) -> None:
        """What a loop does between the two halves of its kernels: nothing."""

    def _kernels(self, device: SimulatedDevice, count: int, phase: str = "") -> None:
        for _ in range(count):
            device.launch(self.kernel, self.launch_cost, phase)
            device.host(max((device.idle_from - device.now) / MS - self.most_queued_ms, 0.0))


@dataclass
class Plain(Loop):
    """A loop without an optimizer; `reads` below in place of `item_every`."""

    how: str = "inference"
    """`inference` = a loader, no gradients. `own` = a loader, backward, the parameters changed by hand. `functional` =
    the same with `torch.func.grad`. `cleared` = as `own` without a loader, `zero_grad` after the update. `uncleared` =
    as that, without `zero_grad`, the update under `torch.no_grad`. `unheard` = as that, without it."""
    reads: bool = False
    """The result is brought to the host."""

    def play(
        self, device: SimulatedDevice | None = None, recorder: Recorder | None = None
    ) -> tuple[SimulatedDevice, Recording]:
        """Runs it; `wait` is of the loader or, without one, the time in which the loop makes its batch."""
        device = device or SimulatedDevice()
        recorder = recorder or Recorder(clock=lambda: device.now, sync_measured=True)
        recorder.facts["device"] = "cuda:0"
        ledger = recorder.ledger
        ledger.marks, ledger.alone = StepMarks(device, ledger.table), lambda: True
        pull, loads, learns = Pull(), self.how in ("inference", "own", "functional"), self.how != "inference"
        for _ in range(self.steps):
            if loads:
                before = ledger.ask(pull, learns)
                device.host(self.wait)
                ledger.delivered(pull, 8.0, before)
            else:
                device.host(self.wait)
            before = ledger.forward(learns, learns, learns, 8.0)
            self._kernels(device, self.kernels // 2)
            ledger.forward_done(before)
            if learns:
                before = ledger.gradient() if self.how == "functional" else ledger.backward()
            self._kernels(device, self.kernels - self.kernels // 2)
            if learns:
                ledger.switch(before)
                ledger.launched()
            device.launch(self.update if learns else 0.0)
            if self.how == "uncleared":
                ledger.update_ended()
            device.host(self.python)
            if self.reads:
                ledger.carve(SYNC, device.synchronize())
            if self.how == "cleared":
                ledger.switch(ledger.zeroing())
        if loads:
            ledger.ended(ledger.ask(pull, learns))
        device.synchronize()
        return device, recorder.close()
