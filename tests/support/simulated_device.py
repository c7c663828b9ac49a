"""An asynchronous device in virtual time: what is launched runs in a queue while the host's clock goes on by itself."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_doctor.capture.events import (
    BACKED,
    BATCH,
    CALL,
    CALLED,
    COPIED,
    COPYING,
    CPU,
    CPU_EVERY_NS,
    DIFFERENTIATE,
    DONE,
    EXHAUSTED,
    GRADIENT,
    NEXT,
    NEXT_BLIND,
    STEP,
    STEPPED,
    SYNCED,
    UPDATED,
    WAITING,
    ZERO,
    call_code,
)
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Source
from gpu_doctor.recording import Recording

MS = 1_000_000
QUERY_NS = 1_000
"""To ask a stream whether it has run empty takes about a microsecond."""


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

    def idle(self) -> bool:
        """See DeviceClock; to ask takes the host its time."""
        self.now += QUERY_NS
        return self.now >= self.idle_from

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


class Noted:
    """Notes on a recorder's log what a loop does, and folds it when that is due: event for event as the taps do."""

    def __init__(self, recorder: Recorder, device: SimulatedDevice | None = None) -> None:
        """Args: recorder: whose log it is. device: steps are marked on it, as the tap `gpu_clock` would."""
        self.recorder, self.log = recorder, recorder.log
        self.source = Source()
        """Of the batches, where no other is named."""
        self._copying = False
        """A copy has begun and not ended."""
        if device is not None:
            recorder.marks = MarkReader(QuietClock(device, None, recorder.clock), recorder.table, recorder.clock)
            recorder.windows = DeviceWindows(recorder.marks, recorder.clock())
            self.log.marker, self.log.due = recorder.marks.clock, 1

    def _fold(self, now: int) -> None:
        if now >= self.log.due_ns or len(self.log.events) >= self.log.due:
            self.recorder.fold(now)

    def ask(self, source: Source | None = None, grad: bool = True) -> None:
        """The loop asks a loader for its next batch."""
        log = self.log
        if log.marker is not None:
            log.boundary()
            log.mark(NEXT)
        now = log.clock()
        if now >= log.cpu_due_ns:
            log.cpu_due_ns = now + CPU_EVERY_NS
            log.note((CPU, now, log.cpu_clock()))
        log.steps += 1
        log.note((NEXT if grad else NEXT_BLIND, now, self.source if source is None else source))
        self._fold(now)

    def batch(self, samples: float = 8.0) -> None:
        """It is there."""
        self.log.pulled = True
        self.log.note((BATCH, self.log.clock(), samples))

    def pull(self, source: Source | None = None, grad: bool = True, samples: float = 8.0) -> None:
        """It is asked for and there at once."""
        self.ask(source, grad)
        self.batch(samples)

    def exhaust(self, source: Source | None = None, grad: bool = True) -> None:
        """It is asked for, and there is none any more."""
        self.ask(source, grad)
        if self.log.marker is not None:
            self.log.mark(EXHAUSTED)
        self.log.note((EXHAUSTED, self.log.clock(), None))

    def forward(self, training: bool = True, grad: bool = True, trained: bool = True, samples: float = 8.0) -> None:
        """An outermost module's forward begins; see `events.call_code`."""
        log = self.log
        if log.marker is not None:
            log.boundary()
        now = log.clock()
        log.note((call_code(training, grad, trained), now, None if log.pulled else (samples, 1)))
        self._fold(now)
        if log.marker is not None:
            log.mark(CALL)

    def called(self) -> None:
        """It has ended."""
        log = self.log
        if log.marker is not None:
            log.mark(CALLED)
        log.note((CALLED, log.clock(), None))

    def backward(self, loss: object = None) -> None:
        """A backward begins, of a loss that is kept where it is time for one."""
        if loss is not None and self.log.steps >= self.log.loss_at:
            self.recorder.loss_kept()
        else:
            loss = None
        if not self.log.pulled:
            self.log.steps += 1
        self.gradient(GRADIENT, loss)

    def gradient(self, code: int = DIFFERENTIATE, loss: object = None) -> None:
        """Gradients are made by `torch.autograd.grad` (GRADIENT if those of a whole model are)."""
        log = self.log
        if log.marker is not None:
            log.boundary()
        now = log.clock()
        log.note((code, now, loss))
        self._fold(now)
        if log.marker is not None:
            log.mark(GRADIENT)

    def backed(self) -> None:
        """Either has ended."""
        log = self.log
        if log.marker is not None:
            log.mark(BACKED)
        log.note((BACKED, log.clock(), None))

    def step(self, key: int = 1) -> None:
        """An optimizer begins to step."""
        log = self.log
        if log.marker is not None:
            log.boundary()
        now = log.clock()
        log.note((STEP, now, key))
        log.trains = True
        self._fold(now)
        if log.marker is not None:
            log.mark(STEP)

    def stepped(self, key: int = 1) -> None:
        """It has stepped."""
        log = self.log
        if log.marker is not None:
            log.mark(STEPPED)
        log.note((STEPPED, log.clock(), key))
        log.pulled = False

    def learns(self, key: int = 1, loss: object = None) -> None:
        """A backward and an optimizer's step that take no time."""
        self.backward(loss)
        self.backed()
        self.step(key)
        self.stepped(key)

    def zero(self) -> None:
        """Gradients are set to zero."""
        log = self.log
        if log.marker is not None:
            if not log.trains:
                log.boundary()
            log.mark(ZERO)
        log.note((ZERO, log.clock(), None))
        log.note((DONE, log.clock(), None))

    def update(self) -> None:
        """A `torch.no_grad` has ended."""
        log = self.log
        if log.marker is not None and not log.trains:
            log.mark(UPDATED)
            log.note((UPDATED, log.clock(), None))

    def copying(self) -> None:
        """A copy that the host does not wait for begins."""
        log = self.log
        if self._copying:  # the copy before raised
            log.note((COPIED, log.clock(), None))
        self._copying = True
        log.note((COPYING, log.clock(), None))
        if log.marker is not None:
            log.mark(COPYING)

    def copied(self, nbytes: int, pageable: bool, ns: int, blocking: bool) -> None:
        """A tensor was copied to the device, and that took the host so long."""
        log = self.log
        if not self._copying:
            log.note((COPYING, log.clock() - ns, None))
        self._copying = False
        if log.marker is not None and not blocking:
            log.mark(COPIED)
        log.note((COPIED, log.clock(), (nbytes, pageable, None)))

    def awaits(self, device: SimulatedDevice, copy_ms: float = 0.0) -> None:
        """The host waits until the device has done all that it was given; then it copies what it has come for."""
        log = self.log
        log.note((WAITING, log.clock(), None))
        log.waits()
        device.synchronize()
        device.host(copy_ms)
        log.waited()
        log.note((SYNCED, log.clock(), None))

    def end(self) -> None:
        """The loop is over: the taps come off."""
        self.recorder.loop_over()
        self.log.marker = self.recorder.windows = None

    def close(self) -> Recording:
        """The loop is over, and so is the run."""
        self.end()
        return self.recorder.close()


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
    mark_cost: float = 0.0
    """Host: to put a mark; with a cost only some steps are marked."""

    def play(
        self, device: SimulatedDevice | None = None, recorder: Recorder | None = None
    ) -> tuple[SimulatedDevice, Recording]:
        """Runs it, on a device and into a recorder of its own unless others are given; returns both."""
        device = device or SimulatedDevice()
        recorder = recorder or Recorder(clock=lambda: device.now, sync_measured=True)
        recorder.facts["device"] = "cuda:0"
        device.mark_cost_ms = self.mark_cost
        loop, source = Noted(recorder, device), Source()
        for i in range(self.steps):
            loop.ask(source)
            device.host(self.wait)
            loop.batch()
            self._copy(device, loop)
            loop.forward()
            self._kernels(device, self.kernels // 2, "forward")
            loop.called()
            self._between(device, loop)
            device.launch(self.loss, phase="loss")
            loop.backward()
            self._kernels(device, self.kernels - self.kernels // 2, "backward")
            loop.backed()
            loop.step()
            device.launch(self.update, phase="optimizer")
            device.ends.append(device.idle_from)
            loop.stepped()
            self._after(device, loop, i)
            if self.evaluate_every and i % self.evaluate_every == self.evaluate_every - 1:
                self._evaluate(device, loop)
        loop.exhaust(source)
        device.synchronize()
        return device, loop.close()

    def _after(self, device: SimulatedDevice, loop: Noted, step: int) -> None:
        """What the loop does when its optimizer has stepped."""
        device.host(self.python)
        if self.item_every and step % self.item_every == 0:
            loop.awaits(device)

    def _evaluate(self, device: SimulatedDevice, loop: Noted) -> None:
        held_out, grad = Source(), self.evaluates.startswith("careless")
        loads = not self.evaluates.endswith("held")
        for _ in range(self.evaluation_batches):
            if loads:
                loop.ask(held_out, grad)
                device.host(self.wait)
                loop.batch()
            loop.forward(training=False, grad=grad)
            for _ in range(self.kernels):
                device.launch(self.evaluation_kernel, self.launch_cost)
            loop.called()
        device.synchronize()  # the metric is read
        if loads:
            loop.exhaust(held_out, grad)

    def _copy(self, device: SimulatedDevice, loop: Noted) -> None:
        if not self.copy:
            return
        if not self.copy_blocks:
            loop.copying()
        began = device.now
        device.launch(self.copy)
        if self.copy_blocks:
            device.synchronize()
        loop.copied(1000, self.copy_blocks, device.now - began, self.copy_blocks)

    def _between(self, device: SimulatedDevice, loop: Noted) -> None:
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
        recorder.step_clock.alone = lambda: True
        device.mark_cost_ms = self.mark_cost
        loop, source = Noted(recorder, device), Source()
        loads, learns = self.how in ("inference", "own", "functional"), self.how != "inference"
        for _ in range(self.steps):
            if loads:
                loop.ask(source, learns)
            device.host(self.wait)
            if loads:
                loop.batch()
            loop.forward(learns, learns, learns)
            self._kernels(device, self.kernels // 2)
            loop.called()
            if self.how == "functional":
                loop.gradient()
            elif learns:
                loop.backward()
            self._kernels(device, self.kernels - self.kernels // 2)
            if learns:
                loop.backed()
            device.launch(self.update if learns else 0.0)
            if self.how == "uncleared":
                loop.update()
            device.host(self.python)
            if self.reads:
                loop.awaits(device)
            if self.how == "cleared":
                loop.zero()
        if loads:
            loop.exhaust(source, learns)
        device.synchronize()
        return device, loop.close()
