"""What starting costs: `import gpu_doctor`, and `%load_ext gpu_doctor` with torch imported already.

    .venv/bin/python -m benchmarks.imports

Every figure is the median over fresh processes; the interpreter's and IPython's own start is not in it. A first run
that is thrown away fills the file cache and writes the bytecode.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile

_TIMED = """
import sys, time
{before}
begin = time.perf_counter()
{timed}
print(time.perf_counter() - begin, *sorted({{"torch", "bokeh", "ipywidgets"}} & set(sys.modules)))
"""
_SHELL = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell()"
CASES = (
    ("import gpu_doctor", "", "import gpu_doctor", 50.0),
    (
        "%load_ext gpu_doctor, torch imported",
        f"import torch\n{_SHELL}",
        "shell.run_line_magic('load_ext', 'gpu_doctor')",
        300.0,
    ),
    (
        "%load_ext and what a first cell imports, torch imported",
        f"import torch\n{_SHELL}",
        "shell.run_line_magic('load_ext', 'gpu_doctor')\n"
        "import gpu_doctor.notebook.controller, gpu_doctor.notebook.live_view",
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


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one run each, to see that it works")
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {runs} runs each")
    print(f"{'':<58}{'median ms':>10}{'low':>8}{'high':>8}{'aim':>8}  loaded")
    for name, before, timed, aim in CASES:
        if not options.quick:
            once(before, timed)
        found = [once(before, timed) for _ in range(runs)]
        spent = [ms for ms, _ in found]
        aimed = "" if aim is None else f"< {aim:.0f}"
        figures = f"{statistics.median(spent):>10.1f}{min(spent):>8.1f}{max(spent):>8.1f}{aimed:>8}"
        print(f"{name:<58}{figures}  {' '.join(found[0][1])}")


if __name__ == "__main__":
    main()
