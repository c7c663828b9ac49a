"""Small costs: what starting and ending take, and what keeping and restoring a large model for a trial takes.

    .venv/bin/python -m benchmarks.micro [start|closing|stop|snapshot]

`start` times `import gpu_doctor` and `%load_ext gpu_doctor` with torch imported, and the first run of a small loop
over the same loop bare, in turns; the median over fresh processes, without the interpreter's and IPython's own start.
`closing` times, for every program of the corpus, what lies between its last line and the return of `case.run()`, and
`stop` what lies between a Stop and the end of the loop. `snapshot` trains a model with 1 GiB of parameters for one
step, after which it holds 2 GiB with its gradients, keeps its state, changes it, restores it and checks the sums of all
parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 9
REPEATS = 3
WIDTH = 4096
_TIMED = """
import sys, time
{before}
begin, cpu = time.perf_counter(), time.process_time()
{timed}
wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
print(wall, cpu, *sorted({{"torch", "bokeh", "ipywidgets"}} & set(sys.modules)))
"""
_SHELL = "import torch\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell()"
_LOADED = "shell.run_line_magic('load_ext', 'gpu_doctor')"
_LOOP = """
import torch
model, rows = torch.nn.Linear(8, 8), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
names = {"model": model, "rows": rows, "optimizer": optimizer}
cell = '''
for _ in range(30):
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
'''
"""
_FIRST = "import gpu_doctor\ngpu_doctor.case(cell, names).run()"
CASES = (
    ("import gpu_doctor", "", "import gpu_doctor", 50.0),
    ("%load_ext gpu_doctor, torch imported", _SHELL, _LOADED, 300.0),
    (
        "%load_ext and what a first cell imports, torch imported",
        _SHELL,
        f"{_LOADED}\nimport gpu_doctor.notebook.controller, gpu_doctor.notebook.live_view",
        None,
    ),
    ("30 steps bare", _LOOP, "exec(compile(cell, 'cell', 'exec'), names)", None),
    ("import gpu_doctor and the same 30 steps as a first run", _LOOP, _FIRST, 350.0),
)
"""Name, what is done before, what is timed, and the aim in ms where there is one."""
CLOSING_AIM_MS = 300.0
PATIENCE_S = 120.0
STOPS = 12


def once(before: str, timed: str) -> tuple[float, float, list[str]]:
    """Milliseconds in a fresh process, those of its CPU, and which of the heavy packages are loaded afterwards.

    Raises:
        subprocess.CalledProcessError: if the process failed.
    """
    code = _TIMED.format(before=before, timed=timed)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "IPYTHONDIR": folder, "PYTHONPYCACHEPREFIX": _BYTECODE.name}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    seconds, cpu_s, *heavy = done.stdout.split()
    return float(seconds) * 1e3, float(cpu_s) * 1e3, heavy


_BYTECODE = tempfile.TemporaryDirectory()
"""Where it is kept from one process to the next, as it is on a machine that has started gpu_doctor before."""


def start() -> None:
    """Prints what starting takes; a first run that is thrown away fills the file cache and writes the bytecode."""
    print(f"{'':<58}{'median ms':>10}{'low':>8}{'high':>8}{'CPU':>8}{'aim':>8}  loaded")
    turns = [[once(before, timed) for _, before, timed, _ in CASES] for _ in range(RUNS + 1)][1:]
    for number, (name, _, _, aim) in enumerate(CASES):
        found = [turn[number] for turn in turns]
        spent = [ms for ms, _, _ in found]
        aimed = "" if aim is None else f"< {aim:.0f}"
        figures = f"{statistics.median(spent):>10.1f}{min(spent):>8.1f}{max(spent):>8.1f}"
        figures += f"{statistics.median(cpu for _, cpu, _ in found):>8.1f}{aimed:>8}"
        print(f"{name:<58}{figures}  {' '.join(found[0][2])}")


def closing(only: str) -> None:
    """Prints how long after the last line of every program of the corpus its result stands; `only`: part of a name."""
    from tools.evaluate.program import CORPUS, programs

    found: list[tuple[float, float, str]] = []
    for program in programs(CORPUS):
        if only not in program.name or program.fails:
            continue
        took = _apart(_closed, program)
        if took is None:
            print(f"{program.name} did not end", flush=True)
            continue
        found.append((*took, program.name))
    for wall_ms, cpu_ms, name in sorted(found, reverse=True)[:20]:
        print(f"{name:<40}{wall_ms:>9.1f} ms, of CPU {cpu_ms:>7.1f} ms")
    for what, ms in (("on the wall", [wall for wall, _, _ in found]), ("of CPU", [cpu for _, cpu, _ in found])):
        late = sum(one > CLOSING_AIM_MS for one in ms)
        print(
            f"{len(ms)} programs, ms {what}: median {statistics.median(ms):.1f}, worst {max(ms):.1f}, "
            f"over {CLOSING_AIM_MS:.0f}: {late}"
        )


def _apart(measure: Callable[[Any], tuple[float, float]], what: Any) -> tuple[float, float] | None:
    """What a forked process measures, None if it does not end."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def measured() -> None:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            theirs.send(measure(what))

    process = context.Process(target=measured)
    process.start()
    theirs.close()
    found: tuple[float, float] | None = None
    try:
        if ours.poll(PATIENCE_S):
            found = ours.recv()
        return found
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def _closed(program: Any) -> tuple[float, float]:
    """Milliseconds from a program's last line to the return of `case.run`: on the wall, and of the process's CPU."""
    import gpu_doctor
    from tools.evaluate.evaluator import run_above

    names: dict[str, Any] = {"__name__": "__main__"}
    above, cell = program.cells()
    run_above(above, names)
    ended: list[tuple[float, float]] = []
    names["last_line_was_run"] = lambda: ended.append((time.perf_counter(), time.process_time()))
    case = gpu_doctor.case(f"{cell}\nlast_line_was_run()\n", names)
    case.run()
    now = time.perf_counter(), time.process_time()
    (wall, cpu) = ended[-1]
    return (now[0] - wall) * 1e3, (now[1] - cpu) * 1e3


_STOPPED = """
import time
while True:
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
    ended.append(time.perf_counter())
"""


def stop() -> None:
    """Prints how many steps a loop of 5 ms steps goes on after a Stop, and when its result stands."""
    names: dict[str, Any] = {}
    exec(_LOOP, names)
    found = [_one_stop(names, 0.3 + 0.013 * number) for number in range(STOPS)]
    ms = [one for _, one in found]
    print(
        f"{STOPS} Stops: {max(steps for steps, _ in found)} steps ended after it at most; result after "
        f"{statistics.median(ms):.1f} ms (median), {max(ms):.1f} ms (worst)"
    )


def _one_stop(names: dict[str, Any], after_s: float) -> tuple[int, float]:
    """Steps that ended after a Stop, and milliseconds from it to the return of `case.run`."""
    import gpu_doctor

    ended, asked = list[float](), list[float]()
    case = gpu_doctor.case(_STOPPED, names | {"ended": ended})

    def ask() -> None:
        asked.append(time.perf_counter())
        case.stop()

    timer = threading.Timer(after_s, ask)
    timer.start()
    case.run()
    now = time.perf_counter()
    timer.join()
    return sum(one > asked[0] for one in ended), (now - asked[0]) * 1e3


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


PARTS: dict[str, Callable[..., None]] = {"start": start, "closing": closing, "stop": stop, "snapshot": snapshot}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS, help="all if none is named")
    parser.add_argument("--only", default="", metavar="NAME", help="of closing: programs whose name holds this")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; load {load:.1f}")
    for name in [options.part] if options.part else PARTS:
        closing(options.only) if name == "closing" else PARTS[name]()


if __name__ == "__main__":
    main()
