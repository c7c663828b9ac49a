"""A simulated device that says what Kineto would have seen, and loops for it."""

from __future__ import annotations

from types import SimpleNamespace

from tests.support.simulated_device import MS, Loop, SimulatedDevice

H2D, D2H, D2D = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)"


def event(name: str, device: str, begin: float, end: float, **more: object) -> SimpleNamespace:
    """One of a profiler's."""
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=end), **more)


class Traced(SimulatedDevice):
    """Says what Kineto would have seen."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop, self.events = loop, list[SimpleNamespace]()

    def host(self, ms: float) -> None:
        """A wait for a batch is known by its length."""
        begin = self.now
        super().host(ms)
        if ms == self.loop.wait:
            self.events.append(event("wait", "cpu", begin / 1e3, self.now / 1e3))

    def launch(self, ms: float, cost_ms: float = 0.0, phase: str = "") -> None:
        """A copy is what belongs to no phase."""
        super().launch(ms, cost_ms, phase)
        if ms:
            end = self.idle_from / 1e3
            self.events.append(event("kernel" if phase else H2D, "cuda", end - ms * MS / 1e3, end))


LOOPS = {
    "starved": Loop(wait=12.0, kernel=0.2, copy=0.5),
    "launch-bound": Loop(wait=0.013, kernels=100, kernel=0.005, launch_cost=0.04),
    "sync-bound": Loop(wait=0.013, item_every=1, python=2.0, copy=0.3),
    "compute-bound": Loop(wait=0.013, kernel=2.0, copy=0.2),
    "a deep queue that hides the wait": Loop(wait=3.0, kernel=2.0),
    "a blocking copy behind a hidden wait": Loop(wait=4.0, kernel=1.0, copy=2.0),
    "a blocking copy after a wait that is seen": Loop(wait=12.0, kernel=1.0, copy=4.0),
    "a pinned copy behind a hidden wait": Loop(wait=4.0, kernel=1.0, copy=2.0, copy_blocks=False, most_queued_ms=20),
    "a pinned copy after a wait that is seen": Loop(wait=14.0, kernel=1.0, copy=2.0, copy_blocks=False),
    "pinned copies while the queue fills": Loop(wait=1.0, kernel=1.0, copy=2.0, copy_blocks=False),
}
