"""Programs of people who had not read the rules, judged: `python -m tests.support.unseen DIR`.

DIR holds plain scripts, each run as one cell: a sick one, `NAME.py`, beside the change that cures it, `NAME.patch` (a
unified diff), or a healthy one without; and `truth.json`: {NAME: {"class": ..., "rules": [first rules that are right],
"why": ...}}; where two classes are as true, `input|host`. Sick and cured must train on as many samples. Each is run
bare, sick and cured by turns, which tells what the cure gives (a program whose cure gives next to nothing on this
device is not sick here, and not judged); then the sick one runs under gpu_doctor. What is named on a healthy program is
right if its cure, tried, gives as much as makes a program sick: float32 may be its author's choice, and half precision
still twice as fast. The cure is the finding's own settings, or a diff, `NAME_RULE.patch`. Every run is a process of its
own.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.repository import ROOT

HEALTHY_BAR: Final = 0.10
"""Nothing may be named on a healthy program that costs so much (the bar of the clinic)."""
SICK: Final = 1.15
"""What a cure gives at least where a program counts as sick: the bar of findings and what two runs differ by."""
ROUNDS: Final = 2
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*")


@dataclass(frozen=True)
class Judged:
    """One program: what is true, and what was told."""

    name: str
    truth: dict[str, Any]
    told: dict[str, Any]
    gain: float | None
    """Bare sick over bare cured; None where nothing is to be cured."""
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
        if self.told["class"] not in self.classes:
            return False
        return bool(dear) and dear[0] in self.truth["rules"]

    @property
    def _word(self) -> str:
        if not self.sick_here:
            return "not sick here"
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


def patched(text: str, diff: str) -> str:
    """A text with a unified diff applied.

    Raises:
        ValueError: if the diff was made of another text.
    """
    lines, made, taken = text.splitlines(keepends=True), list[str](), 0
    for line in diff.splitlines(keepends=True)[2:]:
        if hunk := _HUNK.match(line):
            begin = int(hunk[1]) - 1
            made += lines[taken:begin]
            taken = begin
        elif line[0] == "+":
            made.append(line[1:])
        else:
            if lines[taken : taken + 1] != [line[1:]]:
                raise ValueError(f"line {taken + 1} is not what the diff was made of")
            made += [line[1:]] if line[0] == " " else []
            taken += 1
    return "".join(made + lines[taken:])


def run(program: Path, how: str, timeout_s: float = 600.0) -> dict[str, Any]:
    """One run in a process of its own, `bare` or `watched`, or a try of knobs (JSON).

    Raises:
        RuntimeError: if the program failed.
    """
    command = [sys.executable, "-m", "tests.support.unseen_run", how, str(program.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def truth(program: Path, cure: Path, rounds: int = ROUNDS) -> float:
    """What the cure gives, by the clock: the median of `rounds` pairs, whose order alternates."""
    gains: list[float] = []
    with tempfile.TemporaryDirectory() as room:
        cured = Path(room) / program.name
        text = patched(program.read_text(encoding="utf-8"), cure.read_text(encoding="utf-8"))
        cured.write_text(text, encoding="utf-8")
        for turn in range(rounds):
            pair = (program, cured) if turn % 2 == 0 else (cured, program)
            found = {one: run(one, "bare")["span_s"] for one in pair}
            gains.append(found[program] / found[cured])
    return statistics.median(gains)


def tried(healthy: Path, finding: dict[str, Any], rounds: int) -> float | None:
    """What the cure of a finding on a healthy program gives; None where nobody wrote it and no settings are it."""
    written = healthy.with_name(f"{healthy.stem}_{finding['rule']}.patch")
    if written.exists():
        return truth(healthy, written, rounds)
    if not finding["settings"]:
        return None
    how = json.dumps(finding["settings"])
    return float(statistics.median(run(healthy, how)["gain"] for _ in range(rounds)))


def judged(program: Path, told_truth: dict[str, Any], rounds: int = ROUNDS) -> Judged:
    """One program: its truth measured, its diagnosis beside."""
    cure = program.with_suffix(".patch")
    if cure.exists():
        gain = truth(program, cure, rounds)
        return Judged(program.stem, told_truth, run(program, "watched"), gain)
    told = run(program, "watched")
    dear = [one for one in told["findings"] if one["price"] >= HEALTHY_BAR]
    named = tuple((one["rule"], tried(program, one, rounds)) for one in dear)
    return Judged(program.stem, told_truth, told, None, named=named)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.unseen", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", default=[])
    told = parser.parse_args()
    programs = json.loads((told.folder / "truth.json").read_text(encoding="utf-8"))
    wanted = [name for name in programs if not told.only or name in told.only]
    rows = [["program", "bare gain", "class (true)", "first rule", "price", "predicted", "judged"]]
    right = judgeable = 0
    for name in wanted:
        try:
            one = judged(told.folder / f"{name}.py", programs[name], told.rounds)
            row = one.row()
            right, judgeable = right + (one.sick_here and one.right), judgeable + one.sick_here
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            row = [name, "-", "-", "-", "-", "-", f"not run: {str(error).strip().splitlines()[-1]}"]
        rows.append(row)
        print(" | ".join(row), flush=True)
    print()
    widths = [max(len(row[at]) for row in rows) for at in range(6)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[6]]))
    print(f"{right} of {judgeable} right")


if __name__ == "__main__":
    main()
