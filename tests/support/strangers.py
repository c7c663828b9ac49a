"""Programs of strangers, judged: `python -m tests.support.strangers DIR [--device cpu|gpu]`.

DIR holds plain scripts, `NAME_sick.py` beside `NAME_cured.py`, or `NAME_healthy.py`, each run as one cell, and
`truth.json`: {NAME: {"class": ..., "rules": [first rules that are right], "why": ...}}; where two classes are as true,
`input|host`. Sick and cured must train on as many samples. Each is run bare, sick and cured by turns, which tells what
the cure gives; then the sick one runs under gpu_doctor. `--device gpu` is the stand-in of `stand_in_gpu`, on whose
clocks both are measured. Every run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.repository import ROOT

HEALTHY_BAR: Final = 0.10
"""Nothing may be named on a healthy program that costs so much (the bar of the clinic)."""
ROUNDS: Final = 2


@dataclass(frozen=True)
class Judged:
    """One program: what is true, and what was told."""

    name: str
    truth: dict[str, Any]
    told: dict[str, Any]
    gain: float | None
    """Bare sick over bare cured; None where nothing is to be cured."""

    @property
    def classes(self) -> list[str]:
        """The classes that are true."""
        return str(self.truth["class"]).split("|")

    @property
    def right(self) -> bool:
        """The class is the true one, and the first rule one of those that are right: none, of a healthy program."""
        if self.told["class"] not in self.classes:
            return False
        dear = [one["rule"] for one in self.told["findings"] if self.gain is not None or one["price"] >= HEALTHY_BAR]
        return dear[:1] == [] if not self.truth["rules"] else bool(dear) and dear[0] in self.truth["rules"]

    def row(self) -> list[str]:
        """Its line of the table."""
        first = self.told["findings"][0] if self.told["findings"] else None
        gain = f"{self.gain:.2f}" if self.gain is not None else "-"
        return [
            self.name,
            gain,
            f"{self.told['class']}" + ("" if self.told["class"] in self.classes else f" ({self.truth['class']})"),
            first["rule"] if first else "-",
            f"{first['price']:.0%}" if first else "-",
            f"{first['gain']:.2f}" if first and first["gain"] is not None else "-",
            "right" if self.right else "WRONG: " + ", ".join(self.truth["rules"] or ["nothing to name"]),
        ]


def run(program: Path, device: str, how: str, timeout_s: float = 600.0) -> dict[str, Any]:
    """One run in a process of its own, `bare` or `watched`.

    Raises:
        RuntimeError: if the program failed.
    """
    command = [sys.executable, "-m", "tests.support.stranger_run", device, how, str(program.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def truth(sick: Path, cured: Path, device: str, rounds: int = ROUNDS) -> float:
    """What the cure gives, by the clock: the median of `rounds` pairs, whose order alternates."""
    gains: list[float] = []
    for turn in range(rounds):
        pair = (sick, cured) if turn % 2 == 0 else (cured, sick)
        spans = {one: run(one, device, "bare")["span_s"] for one in pair}
        gains.append(spans[sick] / spans[cured])
    return statistics.median(gains)


def judged(folder: Path, name: str, told_truth: dict[str, Any], device: str, rounds: int = ROUNDS) -> Judged:
    """One program: its truth measured, its diagnosis beside."""
    sick = folder / f"{name}_sick.py"
    if not sick.exists():
        return Judged(name, told_truth, run(folder / f"{name}_healthy.py", device, "watched"), None)
    gain = truth(sick, folder / f"{name}_cured.py", device, rounds)
    return Judged(name, told_truth, run(sick, device, "watched"), gain)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.strangers", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", default=[])
    told = parser.parse_args()
    programs = json.loads((told.folder / "truth.json").read_text(encoding="utf-8"))
    wanted = [name for name in programs if not told.only or name in told.only]
    rows = [["program", "bare gain", "class (true)", "first rule", "price", "predicted", "judged"]]
    right = 0
    for name in wanted:
        try:
            one = judged(told.folder, name, programs[name], told.device, told.rounds)
            right, row = right + one.right, one.row()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row = [name, "-", "-", "-", "-", "-", f"not run: {error}"]
        rows.append(row)
        print(" | ".join(row), flush=True)
    print()
    widths = [max(len(row[at]) for row in rows) for at in range(6)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[6]]))
    print(f"{right} of {len(wanted)} right on {told.device}")


if __name__ == "__main__":
    main()
