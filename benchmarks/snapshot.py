"""What keeping and restoring the state for a trial costs: seconds and peak memory, for a model with its optimizer.

`python -m benchmarks.snapshot` trains a model with 1 GiB of parameters for one step (with its gradients it holds 2 GiB,
with Adam's moments 4), keeps its state, changes it, restores it and checks the sums of all parameters.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import threading
import time

import psutil
import torch
from torch import nn

from gpu_doctor.trials.snapshot.snapshot import Snapshot

WIDTH = 4096


class PeakRss:
    """The largest resident memory while the context lasts, over that at its begin."""

    def __enter__(self) -> PeakRss:
        self._process, self._over = psutil.Process(), threading.Event()
        self.begin = self.peak = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.peak = max(self.peak, self._process.memory_info().rss)

    @property
    def extra(self) -> int:
        """Bytes over the begin."""
        return self.peak - self.begin


def namespace(gib: float, optimizer: str) -> dict[str, object]:
    """A stack of Linear layers of so many GiB, trained for one step."""
    layers = max(1, round(gib * 2**30 / (4 * WIDTH * WIDTH)))
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    made = kind(model.parameters(), lr=1e-3)
    model(torch.randn(2, WIDTH)).square().mean().backward()
    made.step()
    return {"model": model, "optimizer": made, "losses": [0.0] * 1000}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="of parameters")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    space = namespace(options.gib, options.optimizer)
    tensors = list(space["model"].parameters())  # type: ignore[attr-defined]
    before = [one.detach().sum(dtype=torch.float64).item() for one in tensors]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    print(f"parameters {options.gib:g} GiB, their gradients, {options.optimizer}; load {os.getloadavg()[0]:.1f}")
    for _ in range(options.repeats):
        gc.collect()
        with PeakRss() as memory:
            begin = time.perf_counter()
            snapshot = Snapshot.take(space)
            taken_s = time.perf_counter() - begin
        with torch.no_grad():
            for one in tensors:
                one.add_(1.0)
        with PeakRss() as again:
            begin = time.perf_counter()
            notes = snapshot.restore()
            restored_s = time.perf_counter() - begin
        after = [one.detach().sum(dtype=torch.float64).item() for one in tensors]
        assert (notes, after) == ((), before), "not restored"
        print(
            f"kept {snapshot.bytes / 2**30:5.2f} GiB: take {taken_s:5.2f} s, restore {restored_s:5.2f} s; "
            f"peak memory +{memory.extra / 2**30:.2f} GiB taking, +{again.extra / 2**30:.2f} GiB restoring"
        )
        del snapshot


if __name__ == "__main__":
    main()
