"""Training loops on the simulated device, noted in a recorder event by event; real ones stand in `device_loops`."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_doctor.capture.events import BY_HAND
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Recording
from tests.support.iterators import iterator
from tests.support.simulated_device import MS, Noted, SimulatedDevice


@dataclass
class Loop:
    """Training loop on the simulated device, with the milliseconds of each part of a step."""

    wait: float = 1.0
    """Host time of the wait for the batch."""
    copy: float = 0.0
    copy_blocks: bool = True
    """True if the host waits for the copy (pageable memory); else the copy runs in the queue while the host goes on."""
    kernels: int = 10
    kernel: float = 0.5
    """Device time of one kernel."""
    launch_cost: float = 0.01
    """Host time of one launch."""
    python: float = 0.02
    """Host time after the optimizer step."""
    item_every: int = 0
    """Number of steps from one `loss.item()` to the next; 0 for none."""
    evaluate_every: int = 0
    """Number of steps from one evaluation to the next; 0 for none."""
    evaluation_batches: int = 5
    evaluation_kernel: float = 1.0
    """Device time of one kernel of an evaluation, which has as many a batch as a step; its end reads the metric."""
    evaluates: str = "no_grad"
    """Form of the evaluation: `no_grad` around loader and model, `careless` with `eval()` alone, `held` on one tensor
    without a loader, `careless held` for both."""
    steps: int = 40
    most_queued_ms: float = 1000.0
    """Length of the queue from which on the host waits, as with a real launch queue."""
    loss: float = 0.0
    """Device time of the loss, between forward and backward."""
    update: float = 0.0
    """Device time of the optimizer's step."""
    mark_cost: float = 0.0
    """Host time of a mark; if it is not 0, only some steps are marked."""

    def play(
        self, device: SimulatedDevice | None = None, recorder: Recorder | None = None
    ) -> tuple[SimulatedDevice, Recording]:
        """Runs the loop on a device, into a recorder; returns the device and the recording."""
        device = device or SimulatedDevice()
        recorder = recorder or device.recorder()
        device.mark_cost_ms = self.mark_cost
        loop, source = Noted(recorder, device), iterator()
        for i in range(self.steps):
            loop.ask(source)
            device.fetch(self.wait)
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
        """Runs what the loop does when its optimizer has stepped."""
        device.host(self.python)
        if self.item_every and step % self.item_every == 0:
            loop.awaits(device)

    def _evaluate(self, device: SimulatedDevice, loop: Noted) -> None:
        held_out, grad = iterator(), self.evaluates.startswith("careless")
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
        loop.copying()
        device.copy(self.copy, self.copy_blocks)
        loop.copied(1000, self.copy_blocks)

    def _between(self, device: SimulatedDevice, loop: Noted) -> None:
        """Runs what a loop does between the two halves of its kernels: nothing."""

    def _kernels(self, device: SimulatedDevice, count: int, phase: str = "") -> None:
        for _ in range(count):
            device.launch(self.kernel, self.launch_cost, phase)
            device.host(max((device.idle_from - device.now) / MS - self.most_queued_ms, 0.0))


@dataclass
class Plain(Loop):
    """Loop without an optimizer; it has `reads` in place of `item_every`."""

    how: str = "inference"
    """`inference` = a loader, no gradients. `own` = a loader, backward, the parameters changed by hand. `functional` =
    the same with `torch.func.grad`. `cleared` = as `own` without a loader, `zero_grad` after the update. `uncleared` =
    as that, without `zero_grad`."""
    reads: bool = False
    """True if the result is copied to the host."""

    def play(
        self, device: SimulatedDevice | None = None, recorder: Recorder | None = None
    ) -> tuple[SimulatedDevice, Recording]:
        """Runs the loop; without a loader, `wait` is the time in which the loop makes its batch."""
        device = device or SimulatedDevice()
        recorder = recorder or device.recorder()
        recorder.log.note((BY_HAND, recorder.clock(), True))
        device.mark_cost_ms = self.mark_cost
        loop, source = Noted(recorder, device), iterator()
        loads, learns = self.how in ("inference", "own", "functional"), self.how != "inference"
        for _ in range(self.steps):
            if loads:
                loop.ask(source, learns)
                device.fetch(self.wait)
                loop.batch()
            else:
                device.host(self.wait)
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
            device.host(self.python)
            if self.reads:
                loop.awaits(device)
            if self.how == "cleared":
                loop.zero()
        if loads:
            loop.exhaust(source, learns)
        device.synchronize()
        return device, loop.close()
