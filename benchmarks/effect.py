"""How often a comparison is right: A/A false alarms and true speed-ups found, on simulated and on real step times.

`python -m benchmarks.effect` prints one row per kind of machine noise, from simulated trials of the default budget
(pairs of runs of 50 steps, as many as `goes_on` asks for), then a few real loops compared with themselves. `--trials N`
sets the simulated trials per row and speed-up (default 200), `--real N` the real A/A trials. `--recorded` records
training loops for some minutes instead, and replays trials and sweeps of 32 equal settings from their runs, looking
after every pair; `--live N` makes N whole trials of cells against themselves.
Aims: of equal sides at most 2.5 % are called faster or slower, the interval holds the truth at every look in at least
95 % of the trials of each loop, a true 1.15x is found in at least 95 %, and among equal settings a winner is named in
at most 5 % of sweeps.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.live import live
from benchmarks.recorded import SECONDS, Turns, recorded
from gpu_doctor.recording import Recording, Steps
from gpu_doctor.trials.compare.effect import Effect, compare, verdict_of
from gpu_doctor.trials.compare.ratio import PairLog, ratio
from gpu_doctor.trials.rounds import MOST_PAIRS, goes_on, needs_more

STEPS = 50
SWEPT = 32
ANSWERS = ("no difference", "at most", "faster", "slower", "inconclusive")
HEAD = f"{'':<44}" + "".join(f"{h:>9}" for h in ("no-diff", "at most", "faster", "slower", "unclear", "width %"))


@dataclass(frozen=True)
class Noise:
    """What disturbs the step times of one machine; all spreads are of the log of the step time."""

    step_s: float = 0.010
    jitter: float = 0.05
    """Independent from step to step (lognormal)."""
    wander: float = 0.0
    """Stationary spread of an AR(1) with correlation 0.9 from step to step: neighbours on the machine, clocks."""
    run: float = 0.005
    """Constant over a run, another one for each run: placement, caches, clock state."""
    drift: float = 0.0
    """Slope over a run, another one for each run; also moves the whole trial by so much per run."""
    stall_every: int = 0
    stall: float = 0.0
    """Every so many steps one takes this many steps longer, on both sides alike (a print, a checkpoint, a gc)."""
    hiccup_rate: float = 0.0
    hiccup: float = 0.0
    """Chance per step of a stall of exponential length (mean in steps), on either side by itself."""
    burst: int = 0
    """Batches come in bursts of so many workers: one long step, then short ones; the phase differs from run to run."""


KINDS = {
    "quiet": Noise(),
    "jittery (15 % per step)": Noise(jitter=0.15, run=0.01),
    "wandering clocks": Noise(jitter=0.05, wander=0.08, run=0.01),
    "drift 5 % a run": Noise(jitter=0.05, drift=0.05, run=0.005),
    "checkpoint every 20 steps (4 steps long)": Noise(jitter=0.05, stall_every=20, stall=4.0),
    "print every 7 steps (0.5 steps long)": Noise(jitter=0.08, stall_every=7, stall=0.5),
    "hiccups (1 % of steps, 2 steps long)": Noise(jitter=0.05, hiccup_rate=0.01, hiccup=2.0),
    "bursts of 4 workers": Noise(jitter=0.08, burst=4),
    "all of it, mildly": Noise(
        jitter=0.10, wander=0.05, run=0.01, drift=0.02, stall_every=25, stall=2.0, hiccup_rate=0.004, hiccup=2.0
    ),
    "a busy machine": Noise(jitter=0.2, wander=0.15, run=0.03, drift=0.05, hiccup_rate=0.02, hiccup=2.0),
}


def simulated(noise: Noise, rng: np.random.Generator, speedup: float = 1.0, begun: int = 0) -> Recording:
    """A run of STEPS steps, `speedup` times as fast, as run number `begun` of its trial."""
    n = STEPS
    wander = np.zeros(n)
    for step in range(n):
        shock = rng.normal(0, noise.wander * (1 - 0.9**2) ** 0.5 if step else noise.wander)
        wander[step] = (0.9 * wander[step - 1] if step else 0.0) + shock
    log = rng.normal(0, noise.jitter, n) + wander + rng.normal(0, noise.run)
    log += rng.normal(0, noise.drift) * np.linspace(-0.5, 0.5, n) + noise.drift * 0.2 * begun
    wall = noise.step_s * np.exp(log)
    if noise.burst:
        late = (np.arange(n) + rng.integers(noise.burst)) % noise.burst == 0
        wall *= np.where(late, 0.4 * noise.burst + 0.6, 0.6)
    if noise.stall_every:
        wall[noise.stall_every - 1 :: noise.stall_every] += noise.stall * noise.step_s
    wall += np.where(rng.random(n) < noise.hiccup_rate, rng.exponential(max(noise.hiccup, 1e-9), n), 0) * noise.step_s
    wall[0] *= 8.0
    wall[1] *= 2.0
    wall /= speedup
    return Recording(Steps.of(wall_s=wall, samples=np.full(n, 32.0)), outcome="budget-reached", duration_s=wall.sum())


def answer(effect: Effect) -> str:
    """What a person reads, one of ANSWERS."""
    return next((one for one in ANSWERS if effect.verdict_words.startswith(one)), "inconclusive")


def trial(once: Callable[[bool, int], Recording]) -> tuple[str, float, int]:
    """A B B A until nothing more is needed: verdict, width of the interval, pairs."""
    bases: list[Recording] = []
    candidates: list[Recording] = []
    while len(bases) < MOST_PAIRS and (not bases or needs_more(bases, candidates)):
        bases.append(once(False, 2 * len(bases)))
        candidates.append(once(True, 2 * len(candidates) + 1))
    effect = compare(bases, candidates)
    width = (effect.high or float("nan")) / (effect.low or float("nan")) - 1
    return answer(effect), width, len(bases)


def simulated_rates(noise: Noise, speedup: float, trials: int, seed: int) -> tuple[Counter[str], float, float]:
    """Verdicts of so many trials, their mean interval width and mean number of pairs."""
    rng = np.random.default_rng(seed)
    found = [trial(lambda b, k: simulated(noise, rng, speedup if b else 1.0, k)) for _ in range(trials)]
    verdicts = Counter(verdict for verdict, _, _ in found)
    return verdicts, float(np.mean([w for _, w, _ in found])), float(np.mean([p for _, _, p in found]))


def _sleeping() -> None:
    time.sleep(0.002)


def _numeric() -> None:
    a = np.ones((160, 160))
    for _ in range(6):
        a = a @ a * 1e-3


def _python() -> None:
    sum(i * i for i in range(20000))


REAL = {"sleep 2 ms": _sleeping, "matrix products": _numeric, "pure Python": _python}


def really(work: Callable[[], None], more: float = 0.0) -> Recording:
    """STEPS real steps of `work`; `more` of the steps do it twice (a candidate that is slower by that much)."""
    walls = []
    for step in range(STEPS):
        begin = time.perf_counter()
        work()
        if int((step + 1) * more) > int(step * more):
            work()
        walls.append(time.perf_counter() - begin)
    steps = Steps.of(wall_s=walls, samples=np.full(STEPS, 32.0))
    return Recording(steps, outcome="budget-reached", duration_s=sum(walls))


def _really_once(work: Callable[[], None], twice: float) -> Callable[[bool, int], Recording]:
    return lambda candidate, number: really(work, 0.0 if candidate else twice)


def judged(logs: list[PairLog]) -> Effect:
    """What so many pairs say."""
    found = ratio(logs)
    return Effect({}, {}, found.value, found.low, found.high, verdict_of(found), pairs=len(logs))


def replayed(turns: Turns, begin: int, speedup: float, most: int = MOST_PAIRS) -> tuple[Effect, bool]:
    """A trial from recorded runs, looked at after every pair, and whether its interval ever left the truth out."""
    logs: list[PairLog] = []
    missed, effect = False, Effect()
    while len(logs) < most and (not logs or goes_on(effect, len(logs))):
        logs.append(turns.pair(begin, len(logs), speedup))
        effect = judged(logs)
        missed |= not (effect.low or 0.0) <= speedup <= (effect.high or float("inf"))
    return effect, missed


def swept(turns: Turns, begin: int, settings: int) -> tuple[bool, bool]:
    """A sweep of equal settings from recorded runs: whether one came out faster, and whether its second trial did."""
    logs: list[list[PairLog]] = [[] for _ in range(settings)]
    effects: list[Effect | None] = [None] * settings
    going = set(range(settings))
    made = 0
    while going:
        for at in sorted(going):
            if at not in going:
                continue
            number = len(logs[at])  # the runs that come next, whoever has had which before
            logs[at].append(turns.pair(begin + 2 * (made - number), number))
            made += 1
            effects[at] = effect = judged(logs[at])
            if not goes_on(effect, len(logs[at])):
                going.discard(at)
    fastest = [one for one in effects if one is not None and one.verdict == "faster"]
    if not fastest:
        return False, False
    return True, replayed(turns, begin + 2 * made, 1.0)[0].verdict == "faster"


def _recorded(trials: int, sweeps: int, seconds: float) -> None:
    """Prints the tables of recorded step times."""
    loops = [(name, Turns(runs)) for name, runs in recorded(seconds)]
    rng = np.random.default_rng(20)
    each = -(-trials // len(loops))
    for speedup in (1.0, 1.05, 1.15, 1 / 1.15, 1.5, 2.0):
        label = "A/A" if speedup == 1.0 else f"true speed-up {speedup:.2f}x"
        print(f"\nrecorded training loops, {label}, % of {each} trials each\n{HEAD}   pairs  misses %  runs")
        every: list[tuple[Effect, bool]] = []
        for name, turns in loops:
            found = [replayed(turns, int(begin), speedup) for begin in rng.integers(0, len(turns.runs), each)]
            every += found
            print(_replay_row(name, found) + f"{len(turns.runs):6}")
        print(_replay_row("all", every))
    first = again = 0
    for number in range(sweeps):
        turns = loops[number % len(loops)][1]
        looked, confirmed = swept(turns, int(rng.integers(0, len(turns.runs))), SWEPT)
        first, again = first + looked, again + confirmed
    print(
        f"\n{sweeps} sweeps of {SWEPT} equal settings: one came out faster in {100 * first / sweeps:.1f} %, named the"
    )
    print(f"best after it was measured again in {100 * again / sweeps:.1f} %")


def _replay_row(name: str, found: list[tuple[Effect, bool]]) -> str:
    widths = [(one.high or float("nan")) / (one.low or float("nan")) - 1 for one, _ in found]
    pairs, misses = float(np.mean([one.pairs for one, _ in found])), 100 * float(np.mean([miss for _, miss in found]))
    return f"{_row(name, Counter(answer(one) for one, _ in found), float(np.mean(widths)), pairs)}{misses:10.1f}"


def _row(name: str, verdicts: Counter[str], width: float, pairs: float) -> str:
    total = sum(verdicts.values())
    parts = [f"{100 * verdicts[v] / total:6.1f}" for v in ANSWERS]
    return f"{name:<44}" + "".join(f"{part:>9}" for part in parts) + f"{100 * width:9.1f}{pairs:8.2f}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--speedups", type=float, nargs="*", default=(1.0, 1.15, 1 / 1.15, 1.05, 1.5))
    parser.add_argument("--real", type=int, default=10)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--replays", type=int, default=10_000, help="trials and each speed-up, with --recorded")
    parser.add_argument("--sweeps", type=int, default=500, help="with --recorded")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each loop, with --recorded")
    parser.add_argument("--live", type=int, default=0, metavar="N", help="so many whole A/A trials instead")
    options = parser.parse_args()
    if options.recorded or options.live:
        if options.recorded:
            _recorded(options.replays, options.sweeps, options.seconds)
        if options.live:
            live(options.live)
        return
    for speedup in options.speedups:
        print(f"\ntrue speed-up {speedup:.2f}x, simulated, % of {options.trials} trials\n{HEAD}   pairs")
        for seed, (name, noise) in enumerate(KINDS.items()):
            print(_row(name, *simulated_rates(noise, speedup, options.trials, seed)))
    for label, twice in (("A/A", 0.0), ("baseline does 15 % more", 0.15)) if options.real else ():
        print(f"\nreal loops, {label}, % of {options.real} trials\n{HEAD}   pairs")
        for name, work in REAL.items():
            found = [trial(_really_once(work, twice)) for _ in range(options.real)]
            widths, pairs = np.mean([w for _, w, _ in found]), np.mean([p for _, _, p in found])
            print(_row(name, Counter(v for v, _, _ in found), float(widths), float(pairs)))
    bases, candidates = ([simulated(KINDS["quiet"], np.random.default_rng(i)) for i in range(3)] for _ in "ab")
    begin = time.perf_counter()
    for _ in range(20):
        compare(bases, candidates)
    print(f"\ncompare() of three pairs: {50 * (time.perf_counter() - begin):.1f} ms")


if __name__ == "__main__":
    main()
