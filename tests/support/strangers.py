"""Programs of strangers, judged: `python -m tests.support.strangers DIR [--device cpu|gpu]`.

DIR holds plain scripts, `NAME_sick.py` beside `NAME_cured.py`, or `NAME_healthy.py`, each run as one cell, and
`truth.json`: {NAME: {"class": ..., "rules": [first rules that are right], "why": ...}}; where two classes are as true,
`input|host`. Sick and cured must train on as many samples. Each is run bare, sick and cured by turns, which tells what
the cure gives (a program whose cure gives next to nothing on this device is not sick here, and not judged); then the
sick one runs under gpu_doctor. Where a card idles longer in the cured program than the cure gives, launches are the
larger trouble of the two, whatever its author thought of. What is named on a healthy program is right if its cure,
tried, gives as much as makes a program sick: float32 on a card may be its author's choice, and half precision still
twice as fast. The cure is the finding's own settings, or a file, `NAME_RULE.py`. `--device gpu` is the stand-in
of `stand_in_gpu`, on whose clocks both are measured. Every run is a process of its own.
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
SICK: Final = 1.15
"""What a cure gives at least where a program counts as sick: the bar of findings and what two runs differ by."""
LAUNCHES: Final = ("launch-bound", "not-compiled", "small-batch")
"""Rules that name a card which outruns its host's launches."""
ROUNDS: Final = 2


@dataclass(frozen=True)
class Judged:
    """One program: what is true, and what was told."""

    name: str
    truth: dict[str, Any]
    told: dict[str, Any]
    gain: float | None
    """Bare sick over bare cured; None where nothing is to be cured."""
    idle: float = 0.0
    """Part of the cured program's time, 0..1, in which a card had nothing to do; 0 on a CPU."""
    named: tuple[tuple[str, float | None], ...] = ()
    """Of a healthy program: what was named, and what its cure gives when it is tried; None = it cannot be."""

    @property
    def classes(self) -> list[str]:
        """The classes that are true."""
        return str(self.truth["class"]).split("|")

    @property
    def sick_here(self) -> bool:
        """The cure gives something on this device, or there is nothing to be cured."""
        return self.gain is None or self.gain >= SICK

    @property
    def right(self) -> bool:
        """The class is the true one, and the first rule one of those that are right: none, of a healthy program."""
        if self.gain is None:
            cures = all(gain is not None and gain >= SICK for _, gain in self.named)
            return cures and self.told["class"] in self.classes
        dear = [one["rule"] for one in self.told["findings"]]
        if self.launches and dear[:1] and dear[0] in LAUNCHES and self.told["class"] == "host":
            return True
        if self.told["class"] not in self.classes:
            return False
        return bool(dear) and dear[0] in self.truth["rules"]

    @property
    def launches(self) -> bool:
        """A card idles longer in the cured program than the cure gives."""
        return self.gain is not None and self.idle > 1.0 - 1.0 / self.gain

    @property
    def _word(self) -> str:
        if not self.sick_here:
            return "not sick here"
        if self.right and self.told["class"] == "host" and self.launches:
            return f"right: cured, the card idles {self.idle:.0%}"
        if self.named:
            tried = (
                f"{rule} {'cannot be tried' if gain is None else f'gives {gain:.2f}'}" for rule, gain in self.named
            )
            return f"{'right' if self.right else 'WRONG'}: {', '.join(tried)}"
        return "right" if self.right else "WRONG: " + ", ".join(self.truth["rules"] or ["nothing to name"])

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
            self._word,
        ]


def run(program: Path, device: str, how: str, timeout_s: float = 600.0) -> dict[str, Any]:
    """One run in a process of its own, `bare` or `watched`, or a try of knobs (JSON).

    Raises:
        RuntimeError: if the program failed.
    """
    command = [sys.executable, "-m", "tests.support.stranger_run", device, how, str(program.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def truth(sick: Path, cured: Path, device: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """What the cure gives, by the clock: the median of `rounds` pairs, whose order alternates; and how much of the
    cured program's time a card idles."""
    gains: list[float] = []
    idle: list[float] = []
    for turn in range(rounds):
        pair = (sick, cured) if turn % 2 == 0 else (cured, sick)
        found = {one: run(one, device, "bare") for one in pair}
        gains.append(found[sick]["span_s"] / found[cured]["span_s"])
        busy = found[cured]["busy"]
        idle.append(0.0 if busy is None else 1.0 - busy)
    return statistics.median(gains), statistics.median(idle)


def tried(healthy: Path, name: str, finding: dict[str, Any], device: str, rounds: int) -> float | None:
    """What the cure of a finding on a healthy program gives; None where nobody wrote it and no settings are it."""
    written = healthy.with_name(f"{name}_{finding['rule']}.py")
    if written.exists():
        return truth(healthy, written, device, rounds)[0]
    if not finding["settings"]:
        return None
    how = json.dumps(finding["settings"])
    return float(statistics.median(run(healthy, device, how)["gain"] for _ in range(rounds)))


def judged(folder: Path, name: str, told_truth: dict[str, Any], device: str, rounds: int = ROUNDS) -> Judged:
    """One program: its truth measured, its diagnosis beside."""
    sick, healthy = folder / f"{name}_sick.py", folder / f"{name}_healthy.py"
    if not sick.exists():
        told = run(healthy, device, "watched")
        dear = [one for one in told["findings"] if one["price"] >= HEALTHY_BAR]
        named = tuple((one["rule"], tried(healthy, name, one, device, rounds)) for one in dear)
        return Judged(name, told_truth, told, None, named=named)
    gain, idle = truth(sick, folder / f"{name}_cured.py", device, rounds)
    return Judged(name, told_truth, run(sick, device, "watched"), gain, idle)


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
    right = judgeable = 0
    for name in wanted:
        try:
            one = judged(told.folder, name, programs[name], told.device, told.rounds)
            row = one.row()
            right, judgeable = right + (one.sick_here and one.right), judgeable + one.sick_here
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row = [name, "-", "-", "-", "-", "-", f"not run: {str(error).strip().splitlines()[-1]}"]
        rows.append(row)
        print(" | ".join(row), flush=True)
    print()
    widths = [max(len(row[at]) for row in rows) for at in range(6)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[6]]))
    print(f"{right} of {judgeable} right on {told.device}")


if __name__ == "__main__":
    main()
