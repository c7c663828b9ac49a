"""What the panel costs, in a JupyterLab in headless Chromium, beside its aims.

    python -m benchmarks.panel                        # about 18 minutes
    python -m benchmarks.panel load --minutes 10      # single parts, see below
    python -m benchmarks.panel --quick                # short runs, to see that it works; no figures to keep

`first`: the first run of a fresh kernel, beside the bare cell. `kept`: memory that runs leave in a kernel.
`load`: a loop of 2 000 steps a second: the page's tasks, bytes of messages, memory. `million`: a loop of a million of
the cheapest steps. `added`: what each look of the view takes from the watched loop, beside the loop around it.
`weight`: bytes of a panel, and how soon it is seen. `again`: one cell run again and again. The page shares the machine
with the kernel: on a busy one tasks last longer, of the CPU too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from dataclasses import asdict
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.panel.parts import PARTS
from benchmarks.panel.row import Row, table
from tests.support.lab import Lab, launch_chromium, new_page


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="benchmarks.panel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none = all")
    options.add_argument("--minutes", type=float, default=2.0, help="of the loaded loop")
    options.add_argument("--rate", type=float, default=2000, help="its steps a second")
    options.add_argument("--steps", type=int, default=1_000_000, help="of the long loop")
    options.add_argument("--seconds", type=float, default=60.0, help="of a loop that the view's looks are timed in")
    options.add_argument("--times", type=int, default=4, help="that it is run")
    options.add_argument("--runs", type=int, default=120, help="of the cell that is run again")
    options.add_argument("--kernels", type=int, default=7, help="fresh ones, of each kind")
    options.add_argument("--quick", action="store_true", help="short runs of everything")
    options.add_argument("--json", type=Path, help="write the rows to this file")
    return options


def measured(options: argparse.Namespace) -> tuple[list[Row], dict[str, list[float]]]:
    """All rows, and the machine's load before and after each part."""
    rows: list[Row] = []
    loads = {}
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "home") as lab, sync_playwright() as playwright:
        for name in options.parts or PARTS:
            browser = launch_chromium(playwright)
            _, page = new_page(browser, 1280, 1400)
            before = os.getloadavg()[0]
            rows += PARTS[name](lab, page, options)
            loads[name] = [before, os.getloadavg()[0]]
            browser.close()
            lab.end_kernels()
    return rows, loads


def main() -> int:
    """Prints the table; 1 where an aim is missed."""
    options = parser().parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser().error(f"There is no part {unknown[0]!r}: take {', '.join(PARTS)}.")
    if options.quick:
        options.minutes, options.steps, options.runs, options.kernels = 0.1, 20_000, 4, 1
        options.seconds, options.times = 15.0, 1
    rows, loads = measured(options)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(
        f"\n{machine}; load before and after: "
        + "; ".join(f"{name} {a:.1f}, {b:.1f}" for name, (a, b) in loads.items())
    )
    print(table(rows))
    if options.json:
        found = {"machine": machine, "load": loads, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row.missed for row in rows) and not options.quick)


if __name__ == "__main__":
    raise SystemExit(main())
