"""Two small costs: what starting takes, and what keeping and restoring a large model for a trial takes.

    .venv/bin/python -m benchmarks.micro [start|snapshot]

`start` times `import gpu_doctor` and `%load_ext gpu_doctor` with torch imported, the median over fresh processes; the
interpreter's and IPython's own start is not in it. `snapshot` trains a model with 1 GiB of parameters for one step,
after which it holds 2 GiB with its gradients, keeps its state, changes it, restores it and checks the sums of all
parameters.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time

RUNS = 9
REPEATS = 3
WIDTH = 4096
_TIMED = """
import sys, time
{before}
begin = time.perf_counter()
{timed}
print(time.perf_counter() - begin, *sorted({{"torch", "bokeh", "ipywidgets"}} & set(sys.modules)))
"""
_SHELL = "import torch\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell()"
_LOADED = "shell.run_line_magic('load_ext', 'gpu_doctor')"
CASES = (
    ("import gpu_doctor", "", "import gpu_doctor", 50.0),
    ("%load_ext gpu_doctor, torch imported", _SHELL, _LOADED, 300.0),
    (
        "%load_ext and what a first cell imports, torch imported",
        _SHELL,
        f"{_LOADED}\nimport gpu_doctor.notebook.controller, gpu_doctor.notebook.live_view",
        None,
    ),
)
"""Name, what is done before, what is timed, and the aim in ms where there is one."""


def once(before: str, timed: str) -> tuple[float, list[str]]:
    """Milliseconds in a fresh process, and which of the heavy packages are loaded afterwards.

    Raises:
        subprocess.CalledProcessError: if the process failed.
    """
    code = _TIMED.format(before=before, timed=timed)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "IPYTHONDIR": folder}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    seconds, *heavy = done.stdout.split()
    return float(seconds) * 1e3, heavy


def start() -> None:
    """Prints what starting takes; a first run that is thrown away fills the file cache and writes the bytecode."""
    print(f"{'':<58}{'median ms':>10}{'low':>8}{'high':>8}{'aim':>8}  loaded")
    for name, before, timed, aim in CASES:
        _, *found = (once(before, timed) for _ in range(RUNS + 1))
        spent = [ms for ms, _ in found]
        aimed = "" if aim is None else f"< {aim:.0f}"
        figures = f"{statistics.median(spent):>10.1f}{min(spent):>8.1f}{max(spent):>8.1f}{aimed:>8}"
        print(f"{name:<58}{figures}  {' '.join(found[0][1])}")


class PeakRss:
    """The largest resident memory while the context lasts, over that at its begin."""

    def __enter__(self) -> PeakRss:
        import psutil

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
    def extra_gib(self) -> float:
        """GiB over the begin."""
        return (self.peak - self.begin) / 2**30


def snapshot() -> None:
    """Prints what keeping and restoring a model takes."""
    import torch
    from torch import nn

    from gpu_doctor.trials.snapshot.snapshot import Snapshot

    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2**30 // (4 * WIDTH * WIDTH))])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model(torch.randn(2, WIDTH)).square().mean().backward()
    optimizer.step()
    space = {"model": model, "optimizer": optimizer, "losses": [0.0] * 1000}

    def sums() -> list[float]:
        return [one.detach().sum(dtype=torch.float64).item() for one in model.parameters()]

    before = sums()
    for _ in range(REPEATS):
        gc.collect()
        with PeakRss() as taking:
            begin = time.perf_counter()
            kept = Snapshot.take(space)
            taken_s = time.perf_counter() - begin
        with torch.no_grad():
            for one in model.parameters():
                one.add_(1.0)
        with PeakRss() as restoring:
            begin = time.perf_counter()
            notes = kept.restore()
            restored_s = time.perf_counter() - begin
        assert (notes, sums()) == ((), before), "not restored"
        print(
            f"kept {kept.bytes / 2**30:5.2f} GiB: take {taken_s:5.2f} s, restore {restored_s:5.2f} s; "
            f"peak memory +{taking.extra_gib:.2f} GiB taking, +{restoring.extra_gib:.2f} GiB restoring"
        )
        del kept


PARTS = {"start": start, "snapshot": snapshot}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS, help="both if none is named")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; load {load:.1f}")
    for name in [options.part] if options.part else PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
