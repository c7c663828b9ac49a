"""How right are steps, samples and phases? Every loop of the test catalogue against its hand-placed timers.

Run: `python -m benchmarks.truth [--rounds N] [--loop NAME ...]`. Prints, per loop, whether steps and samples are equal
to the loop's own count, and per phase the worst and median error over all loops, in ms a step and in per cent.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np

from gpu_doctor.recording import PHASES, Recording
from tests.support.loop_parts import Truth, warm_up
from tests.support.timed_loops import LOOPS, played

COMPARED = (*PHASES, "other")
"""Copies to a device and waits for it are those of the loops on a GPU, which is simulated: their time is virtual."""


def errors_ms(truth: Truth, recording: Recording) -> dict[str, float]:
    """Phase -> recorded minus by hand, in ms a step."""
    steps = recording.steps
    return {
        phase: (float(np.nansum(getattr(steps, f"{phase}_s"))) - truth.seconds[phase]) * 1e3 / max(truth.steps, 1)
        for phase in COMPARED
    }


def main() -> int:
    """Prints both tables; 1 if a count is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="times that every loop is played; medians are shown")
    parser.add_argument("--loop", nargs="*", default=list(LOOPS), choices=list(LOOPS), metavar="NAME")
    asked = parser.parse_args()
    warm_up()
    errors: dict[str, list[tuple[float, float, str]]] = {phase: [] for phase in COMPARED}
    walls: list[float] = []
    wrong = 0
    print(f"{'loop':52} {'steps':>12} {'samples':>14} {'wall error':>11}  worst phase")
    for name in asked.loop:
        runs = [played(name) for _ in range(asked.rounds)]
        truth, recording = runs[-1]
        steps = recording.steps
        equal = all(r.steps.count.sum() == t.steps and r.steps.samples.sum() == t.samples for t, r in runs)
        wrong += not equal
        wall = statistics.median((float(r.steps.wall_s.sum()) / t.wall_s - 1) * 100 for t, r in runs)
        walls.append(abs(wall))
        found = {phase: statistics.median(errors_ms(t, r)[phase] for t, r in runs) for phase in COMPARED}
        for phase, error in found.items():
            by_hand = truth.seconds[phase] * 1e3 / max(truth.steps, 1)
            if by_hand or abs(error) > 1e-6:
                errors[phase].append((abs(error), 100 * abs(error) / by_hand if by_hand else float("nan"), name))
        worst = max(found, key=lambda phase: abs(found[phase]))
        print(
            f"{name:52} {int(steps.count.sum()):5} of {truth.steps:<4} {steps.samples.sum():6.0f} of {truth.samples:<5}"
            f" {wall:9.2f} %  {worst} {found[worst]:+.3f} ms a step{'' if equal else '   COUNT IS WRONG'}"
        )
    print(f"\n{'phase':12} {'loops':>5} {'median':>12} {'worst':>12} {'median':>9} {'worst':>9}  worst in")
    for phase, rows in errors.items():
        if not rows:
            continue
        worst_ms, _, where = max(rows)
        shares = [share for _, share, _ in rows if share == share]
        print(
            f"{phase:12} {len(rows):5} {statistics.median(ms for ms, _, _ in rows):9.3f} ms {worst_ms:9.3f} ms"
            f" {statistics.median(shares):7.2f} % {max(shares):7.2f} %  {where}"
        )
    print(f"{'wall':12} {len(walls):5} {'':25} {statistics.median(walls):7.2f} % {max(walls):7.2f} %")
    print(f"\n{len(asked.loop) - wrong} of {len(asked.loop)} loops have the right steps and samples in every round.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
